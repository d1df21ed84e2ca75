"""Operator learning: all that determines a run but method and seed.

    ordinal-entropy compare linear --methods baseline,ld --seeds 5 --preset quick
    ordinal-entropy reproduce table1-linear

Ten runs of `linear` as published: the paper gives a test error of 3.0 +- 0.93 e-3 for the baseline and 1.6 +- 0.34 e-3
for ld, each run at the step that is best on the test rows.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ordinal_entropy import runs
from ordinal_entropy.methods import first_epochs
from ordinal_entropy.recipes import cache_folder, require_at_least_1, require_not_negative, require_positive
from ordinal_entropy.tasks import Task, part_options
from ordinal_entropy.tasks.operators import data, train
from ordinal_entropy.tasks.operators.data import Rows
from ordinal_entropy.tasks.operators.jobs import method_of, with_options
from ordinal_entropy.tasks.operators.train import Job, Scores, Settings, Split
from ordinal_entropy.training import interrupts
from ordinal_entropy.training.checkpoints import FILE
from ordinal_entropy.training.outcomes import PARTS
from ordinal_entropy.training.plans import Plan, Progress, trained_in
from ordinal_entropy.training.runner import Group, OnScores, Trainable
from ordinal_entropy.training.stacked.members import require_trainable

METRIC = "mse"
_VALIDATION_SEED = 1_000_003  # added to the seed of the data: validation rows of a stream of their own
_VALIDATION_SHARE = 10  # with files: one in so many test rows, the last ones, validates instead
# What runs of one stack may differ in, beside samples; all else is one for all.
_OF_A_RUN = ("strength", "balance", "rescale", "initial", "bins", "decode", "method_options")


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


def check(recipe: Operators) -> None:
    """Refuses a folder without the files, or with too few rows; nothing is written."""
    if recipe.data:
        split(recipe)


def check_method(plan: Plan) -> None:
    """Refuses a method that a stack cannot train; nothing is read."""
    (job,) = jobs_of(plan.recipe, [plan.method], [plan.seed])
    method = method_of(job)
    require_trainable(method, "operators")
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


def read(recipe: Operators, device: str) -> Split:
    """The rows of a recipe, for its runs."""
    return split(recipe)


def shared(recipe: Operators) -> Operators:
    """The same for recipes whose runs can share a stack."""
    return replace(recipe, **{key: getattr(Operators, key) for key in _OF_A_RUN}, samples=None)


def group_key(plan: Plan, run: runs.Run, rows: Split) -> int | None:
    """None of a run that was begun alone, and goes on alone; else the steps of its first stage."""
    if (run.path / FILE).exists():
        return None
    (job,) = jobs_of(plan.recipe, [plan.method], [plan.seed])
    return first_epochs(method_of(job), plan.recipe.steps)


def train_group(group: Group, rows: Split, device: str, progress: Progress | None, on_scores: OnScores) -> None:
    """Trains a stack of runs to its end; its checkpoint lies beside the folders of the runs, of a single run inside."""
    recipe, places = group[0][0].recipe, [run.path for _, run in group]
    jobs = [job for plan, _ in group for job in jobs_of(plan.recipe, [plan.method], [plan.seed])]
    folder = places[0]
    if len(group) > 1:
        of_all = hashlib.sha256(" ".join(place.name for place in places).encode()).hexdigest()[:12]
        folder = folder.with_name(f"stack-{of_all}")
        jobs = [replace(job, name=f"../{place.name}") for job, place in zip(jobs, places, strict=True)]

    def told(step: int, scores: Sequence[Scores]) -> None:
        with interrupts.held():  # all runs of the stack, or none
            on_scores(step, [_by_part(own) for own in scores])

    histories = train.train(
        jobs, split=rows, settings=settings(recipe), device=device, folder=folder, progress=progress, on_metrics=told
    )
    with interrupts.held():
        for (_, run), (steps, *scores) in zip(group, histories, strict=True):
            history = [_by_part(each) for each in zip(*scores, strict=True)]
            run.finish({"history": history, "steps": steps, "features": {}})


def _by_part(scores: Sequence[float]) -> dict[str, dict[str, float]]:
    return {part: {METRIC: score} for part, score in zip(PARTS, scores, strict=True)}


def evaluate(plan: Plan, *, device: str, folder: Path) -> dict[str, float]:
    """Errors of one run, computed anew from the checkpoint in its folder.

    Returns:
        "step", and the mean squared error on "train", "validation" and "test" rows.
    """
    (job,) = jobs_of(plan.recipe, [plan.method], [plan.seed])
    place = trained_in(folder, plan, FILE)
    step, scores = train.evaluate([job], split(plan.recipe), settings(plan.recipe), device=device, folder=place)
    return {"step": step, **scores[0]._asdict()}


def _task(about: str, name: str) -> Task:
    training = Trainable(name, METRIC, read, shared, train_group, group_key)
    return Task(training, about, PRESETS[name], ("operator",), evaluate, check_method, check)


TASKS = {
    "linear": _task("the antiderivative of a random function", "linear"),
    "nonlinear": _task(
        "a stochastic equation, statistics of its solutions: what the published files hold", "nonlinear"
    ),
    "nonlinear-paths": _task("a stochastic equation, one path: as the paper writes it", "nonlinear-paths"),
}
