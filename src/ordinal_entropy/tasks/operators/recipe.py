"""Operator learning: all that determines a run but method and seed.

    ordinal-entropy compare linear --methods baseline,ld --seeds 5 --preset quick
    ordinal-entropy reproduce table1-linear

Ten runs of `linear` as published: the paper gives a test error of 3.0 +- 0.93 e-3 for the baseline and 1.6 +- 0.34 e-3
for ld, each run at the step that is best on the test rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from ordinal_entropy import runs
from ordinal_entropy.methods import first_epochs
from ordinal_entropy.recipes import (
    cache_folder,
    defaults,
    described,
    require_at_least_1,
    require_not_negative,
    require_positive,
)
from ordinal_entropy.tasks import Outcome, Plan, Progress, Task, failed, part_options, run_names
from ordinal_entropy.tasks.operators import data, train
from ordinal_entropy.tasks.operators.data import Rows
from ordinal_entropy.tasks.operators.jobs import method_of, with_options
from ordinal_entropy.tasks.operators.single import require_trainable
from ordinal_entropy.tasks.operators.train import History, Job, Settings, Split

_VALIDATION_SEED = 1_000_003  # added to the seed of the data: validation rows of a stream of their own
_VALIDATION_SHARE = 10  # with files: one in so many test rows, the last ones, validates instead
# What runs of one stack may differ in; all else is one for all.
_OF_A_RUN = ("strength", "balance", "samples", "rescale", "initial", "bins", "decode", "method_options")


@dataclass(frozen=True)
class Operators:
    """A multilayer perceptron from a function at its sensors, and a place, to the value of the operator there."""

    operator: Literal["linear", "nonlinear", "nonlinear-paths"] = "linear"  # antiderivative; stochastic equation

    # Data. Run k trains on part k of the training rows, so runs differ in rows and in first weights.
    data: str = ""  # a folder with train.npz and test.npz (or *_sde.npz) in the public layout; "": generated
    data_seed: int = 0  # of the generated rows
    rows: int = 1000  # in a part: every step takes them all
    parts: int = 10  # seed k takes part k modulo this
    validation_rows: int = 1000  # generated from a seed of their own; with files: the last tenth of the test rows
    test_rows: int = 100_000  # at most; the published nonlinear file has 10,000
    signs: Literal["eig", "random"] = "eig"  # of the modes that `nonlinear` shows: as LAPACK gives them, or drawn
    paths: int = 20_000  # solutions whose mean is one target of `nonlinear`

    # Training, as published: full batch, AdamW, mean squared error, no schedule.
    steps: int = 50_000  # nonlinear: 100,000
    hidden: int = 100  # width of both hidden layers; the second one's activations are the features
    learning_rate: float = 1e-3
    weight_decay: float = 0.01  # PyTorch's default for AdamW
    initial: Literal["authors", "default"] = "authors"  # N(0, 0.001) with zero biases, or PyTorch's own
    evaluate_every: int = 1000  # steps
    feature_rows: int = 0  # training and test rows of which features are kept at every evaluation; 0: none
    dtype: Literal["float32", "float64"] = "float32"
    tf32: bool = False  # True: products of lower precision on a GPU

    # The method.
    strength: float = 1e-3  # of what is added to the task loss
    balance: float = 0.1  # ld-balanced, oe-balanced: gradient of a term, as a fraction of the task loss's
    samples: int | None = 10  # rows drawn in each step for the regularizer (M); none: all. The authors' code has 10
    rescale: Literal["authors", "max", "none"] = "authors"  # weights (w - min) / max, w / max, or raw as in the paper
    bins: int = 100  # classification: uniform over the range of the run's training targets
    decode: Literal["center", "left"] = "center"  # classification: where in its bin a prediction lies; authors: left
    method_options: tuple[str, ...] = ()  # part.option=value, ...: of one part; --set method.part.option=value adds one

    def __post_init__(self) -> None:
        """Values that no run can have are refused before anything is generated."""
        require_at_least_1(self, "rows", "parts", "validation_rows", "test_rows", "paths", "steps", "hidden")
        require_at_least_1(self, "evaluate_every")
        require_not_negative(self, "weight_decay", "strength", "data_seed", "feature_rows")
        require_positive(self, "learning_rate", "balance")
        if self.bins < 2:
            raise ValueError(f"expected bins to be at least 2, got {self.bins}")
        if self.samples is not None and not 2 <= self.samples <= self.rows:
            raise ValueError(f"expected samples from 2 to rows={self.rows}, or none for all, got {self.samples}")


PRESETS = {
    "linear": {
        "paper": Operators(),
        "quick": Operators(steps=3000, test_rows=10_000, evaluate_every=250),
    },
    "nonlinear": {
        "paper": Operators("nonlinear", steps=100_000, test_rows=10_000),
        "quick": Operators("nonlinear", steps=6000, test_rows=2000, paths=2000, evaluate_every=500),
    },
    "nonlinear-paths": {
        "paper": Operators("nonlinear-paths", steps=100_000, test_rows=10_000),
        "quick": Operators("nonlinear-paths", steps=6000, test_rows=10_000, evaluate_every=500),
    },
}


def split(recipe: Operators) -> Split:
    """Training, validation and test rows: read from the recipe's folder, or generated and kept in the cache."""
    if recipe.data:
        rows, test = data.read(Path(recipe.data).expanduser())
        if len(rows.values) < recipe.rows:
            raise ValueError(
                f"expected at least rows={recipe.rows} training rows in {recipe.data}, got {len(rows.values)}"
            )
        kept = len(test.values) - len(test.values) // _VALIDATION_SHARE
        if kept == len(test.values):
            raise ValueError(f"expected at least {_VALIDATION_SHARE} test rows in {recipe.data}, got {kept}")
        validation = Rows(*(part[kept:] for part in test))
        return Split(rows, validation, Rows(*(part[: min(kept, recipe.test_rows)] for part in test)))
    options: dict[str, float | str] = {}
    if recipe.operator == "nonlinear":
        options = {"paths": recipe.paths, "signs": recipe.signs}
    folder, name, seed = cache_folder(), recipe.operator, recipe.data_seed
    rows, test = data.cached(
        folder, name, train=recipe.rows * recipe.parts, test=recipe.test_rows, seed=seed, **options
    )
    validation, _ = data.cached(
        folder, name, train=recipe.validation_rows, test=1, seed=seed + _VALIDATION_SEED, **options
    )
    return Split(rows, validation, test)


def jobs_of(recipe: Operators, methods: Sequence[str], seeds: Sequence[int]) -> list[Job]:
    """One job per method and seed; seed k trains on part k modulo ``parts``, whatever the method: runs are paired."""
    found = [
        Job(
            method=method,
            seed=seed,
            part=seed % recipe.parts,
            rows=recipe.rows,
            strength=recipe.strength,
            balance=recipe.balance,
            samples=recipe.samples,
            rescale=recipe.rescale,
            initial=recipe.initial,
            bins=recipe.bins,
            decode=recipe.decode,
        )
        for method in methods
        for seed in seeds
    ]
    return [with_options(job, part_options(recipe)) for job in found]


def check_method(plan: Plan) -> None:
    """Refuses a method that a stack cannot train; nothing is read."""
    (job,) = jobs_of(plan.recipe, [plan.method], [plan.seed])
    method = method_of(job)
    require_trainable(method)
    first_epochs(method, plan.recipe.steps)  # too few for two stages are an error


def settings(recipe: Operators) -> Settings:
    """What all runs of a stack share."""
    return Settings(
        steps=recipe.steps,
        hidden=recipe.hidden,
        learning_rate=recipe.learning_rate,
        weight_decay=recipe.weight_decay,
        evaluate_every=recipe.evaluate_every,
        feature_rows=recipe.feature_rows,
        dtype=recipe.dtype,
        tf32=recipe.tf32,
    )


def train_stacked(
    plans: Sequence[Plan],
    *,
    device: str,
    folder: Path | None = None,
    progress: Progress | None = None,
    on_metrics: Callable[..., None] | None = None,
    jobs: int = 1,
    go_on: bool = False,
) -> list[Outcome]:
    """Trains all runs as one stack, which goes on from its checkpoint.

    Runs that keep features have a folder each inside the given one, with their recipe and scores beside the features.

    Args:
        plans: the runs; they may differ in method, seed and the recipe's keys of the method.
        device: "cpu", "cuda", ...
        folder: for the checkpoint, and the folders of runs.
        progress: is told the steps done and the steps in all; of all runs, where they train one by one.
        on_metrics: is told the step and the scores of all runs; where they train one by one, of one, as a list of one.
        jobs: has no part in it: a stack is one process.
        go_on: a stack that raises an exception says so in ``failure.json`` of the folder, and from then on its runs
            train one by one, from the beginning, each with a checkpoint in a folder of its own inside. A run that
            raises one by itself too says so there and in its outcome, and the others go on. Not where the rows cannot
            be read, a checkpoint is damaged or of something else, or the disk is full; then, and without a folder, the
            exception is raised here.

    Returns:
        Outcomes in the order of the plans.
    """
    if not plans:
        raise ValueError("expected at least one run, got none")
    shared = plans[0].recipe
    for plan in plans:
        own = {name: getattr(plan.recipe, name) for name in _OF_A_RUN}
        if replace(shared, **own) != plan.recipe:
            raise ValueError(f"expected runs of a stack to differ in {', '.join(_OF_A_RUN)} only, got {plan.recipe}")
    trained = partial(train.train, split=split(shared), settings=settings(shared), device=device, on_metrics=on_metrics)
    stack = [job for plan in plans for job in jobs_of(plan.recipe, [plan.method], [plan.seed])]
    kept: list[runs.Run] = []
    if shared.feature_rows and folder is not None:
        stack = [replace(job, name=name) for job, name in zip(stack, run_names(plans), strict=True)]
        kept = [_run(plan, folder / job.name) for plan, job in zip(plans, stack, strict=True)]

    def together() -> list[Outcome]:
        histories = trained(stack, folder=folder, progress=progress)
        for run, history in zip(kept, histories, strict=False):  # all of them, or none
            run.finish({"history": _scores(history)})
        return [_outcome(history) for history in histories]

    if folder is None or not go_on:
        return together()
    whole = runs.Run(folder, {}, "", 0)  # the folder of all runs, which has no recipe.json, but may have failed
    if whole.failure() is None:
        try:
            return together()
        except Exception as error:
            if isinstance(error, runs.FolderError) or runs.concerns_all(error):
                raise
            whole.fail(error)
    return _one_by_one(plans, folder, trained, progress)


def _one_by_one(
    plans: Sequence[Plan], folder: Path, trained: Callable[..., list[History]], progress: Progress | None
) -> list[Outcome]:
    """Trains each run as a stack of its own, from the checkpoint in its folder; a finished one is read back."""
    outcomes = []
    for number, (plan, name) in enumerate(zip(plans, run_names(plans), strict=True)):
        run = _run(plan, folder / name)
        alone = jobs_of(plan.recipe, [plan.method], [plan.seed])  # without a name: features lie in the same folder

        def in_all(done: int, total: int, number: int = number) -> None:
            if progress is not None:
                progress(number * total + done, len(plans) * total)

        try:
            (history,) = trained(alone, folder=run.path, progress=in_all)
        except Exception as error:
            if isinstance(error, runs.FolderError) or runs.concerns_all(error):
                raise
            run.fail(error)
            outcomes.append(failed(run.failure() or {}))
        else:
            run.finish({"history": _scores(history)})
            outcomes.append(_outcome(history))
    return outcomes


def _run(plan: Plan, place: Path) -> runs.Run:
    recipe = {"task": plan.recipe.operator, **described(plan.recipe)}
    return runs.create(place, recipe, plan.method, plan.seed, defaults=defaults(plan.recipe))


def _outcome(history: History) -> Outcome:
    return Outcome(*history, history.last, history.best_validation, history.best_test)


def _scores(history: History) -> list[dict[str, dict[str, float]]]:
    """Of each evaluation at which features are kept, by part, as a run on images has them."""
    return [
        {"train": {"mse": train}, "validation": {"mse": validation}, "test": {"mse": test}}
        for step, train, validation, test in zip(*history, strict=True)
        if step > 0
    ]


def evaluate(plan: Plan, *, device: str, folder: Path) -> dict[str, float]:
    """Errors of one run, computed anew from the checkpoint in its folder.

    Returns:
        "step", and the mean squared error on "train", "validation" and "test" rows.
    """
    (job,) = jobs_of(plan.recipe, [plan.method], [plan.seed])
    step, scores = train.evaluate([job], split(plan.recipe), settings(plan.recipe), device=device, folder=folder)
    return {"step": step, **scores[0]._asdict()}


def _task(about: str, name: str) -> Task:
    return Task(about, "mse", True, PRESETS[name], ("operator",), train_stacked, evaluate, check_method=check_method)


TASKS = {
    "linear": _task("the antiderivative of a random function", "linear"),
    "nonlinear": _task(
        "a stochastic equation, statistics of its solutions: what the published files hold", "nonlinear"
    ),
    "nonlinear-paths": _task("a stochastic equation, one path: as the paper writes it", "nonlinear-paths"),
}
