"""Operator learning: all that determines a run but method and seed.

    ordinal-entropy compare linear --methods baseline,ld --seeds 5 --preset quick
    ordinal-entropy reproduce table1-linear

Ten runs of `linear` as published: the paper gives a test error of 3.0 +- 0.93 e-3 for the baseline and 1.6 +- 0.34 e-3
for ld, each run at the step that is best on the test rows.
"""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from ordinal_entropy import runs
from ordinal_entropy.methods import first_epochs
from ordinal_entropy.methods import options as method_options
from ordinal_entropy.methods import split as split_method
from ordinal_entropy.recipes import cache_folder, described, flat, preset, require_at_least_1, require_not_negative
from ordinal_entropy.recipes.groups import Dataset, MethodOptions, Perceptron, Stacked
from ordinal_entropy.tasks import Task, part_options
from ordinal_entropy.tasks.operators import data, train
from ordinal_entropy.tasks.operators.data import Triplets
from ordinal_entropy.tasks.operators.train import DTYPES, Job, Scores, Split, StackOptions, method_of, with_options
from ordinal_entropy.tasks.operators.using import UsedOperator
from ordinal_entropy.tasks.using import point_of
from ordinal_entropy.training.checkpoints import FILE
from ordinal_entropy.training.plans import PARTS, Plan, Progress, trained_in
from ordinal_entropy.training.runner import Group, OnScores, Trainable
from ordinal_entropy.training.stacked import memory
from ordinal_entropy.training.stacked.loop import held
from ordinal_entropy.training.stacked.members import require_trainable
from ordinal_entropy.training.stacked.network import Shape
from ordinal_entropy.training.stacked.single import FIRST, Single

METRIC = "mse"
_VALIDATION_SEED = 1_000_003  # added to the seed of the data: validation rows of a stream of their own
_OF_A_RUN = ("learning_rate", "weight_decay", "initial")  # keys of the training that runs of a stack may differ in
_VALIDATION_SHARE = 10  # with files: one in so many test rows, the last ones, validates instead


@dataclass(frozen=True, kw_only=True)
class Functions(Dataset):
    """Functions at sensors with values of the operator: a folder with train.npz and test.npz (or *_sde.npz).

    Run k trains on part k of the training rows, so runs differ in rows and in first weights.
    """

    operator: Literal["linear", "nonlinear", "nonlinear-paths"] = "linear"  # antiderivative; stochastic equation
    data_seed: int = 0  # of the generated rows
    rows: int = 1000  # in a part: every step takes them all
    parts: int = 10  # seed k takes part k modulo this
    validation_rows: int = 1000  # generated from a seed of their own; with files: the last tenth of the test rows
    test_rows: int = 100_000  # at most; the published nonlinear file has 10,000
    signs: Literal["eig", "random"] = "eig"  # of the modes that `nonlinear` shows: as LAPACK gives them, or drawn
    paths: int = 20_000  # solutions whose mean is one target of `nonlinear`

    def __post_init__(self) -> None:
        """Values that no dataset can have."""
        require_at_least_1(self, "rows", "parts", "validation_rows", "test_rows", "paths")
        require_not_negative(self, "data_seed")


@dataclass(frozen=True, kw_only=True)
class FullBatch(Stacked):
    """As published: full batch, AdamW, mean squared error, no schedule."""

    steps: int = 50_000  # nonlinear: 100,000
    initial: Literal["authors", "default"] = "authors"  # N(0, 0.001) with zero biases, or PyTorch's own
    evaluate_every: int = 1000  # steps
    tf32: bool = False  # True: products of lower precision on a GPU

    def __post_init__(self) -> None:
        """Values that no training can have."""
        super().__post_init__()
        require_at_least_1(self, "steps", "evaluate_every")


@dataclass(frozen=True, kw_only=True)
class _Drawn:
    samples: int | None = 10  # rows drawn in each step for the regularizer (M); none: all. The authors' code has 10


@dataclass(frozen=True, kw_only=True)
class OnDrawnRows(MethodOptions, _Drawn):
    """Options of methods that see some rows of a step; samples come first, as in names of run folders."""


@dataclass(frozen=True)
class Operators:
    """A multilayer perceptron from a function at its sensors, and a place, to the value of the operator there."""

    data: Functions = Functions()
    model: Perceptron = Perceptron()  # of two hidden layers
    training: FullBatch = FullBatch(weight_decay=0.01, feature_rows=0)
    method: OnDrawnRows = OnDrawnRows(strength=1e-3)

    def __post_init__(self) -> None:
        """More drawn rows than there are."""
        samples, rows = self.method.samples, self.data.rows
        if samples is not None and not 2 <= samples <= rows:
            raise ValueError(f"expected samples from 2 to rows={rows}, or none for all, got {samples}")


PRESETS = {
    "linear": {
        "paper": Operators(),
        "quick": preset(Operators(), "steps=3000 test_rows=10_000 evaluate_every=250 strength=none"),
    },
    "nonlinear": {
        "paper": preset(Operators(), "operator=nonlinear steps=100_000 test_rows=10_000"),
        "quick": preset(
            Operators(), "operator=nonlinear steps=6000 test_rows=2000 paths=2000 evaluate_every=500 strength=none"
        ),
    },
    "nonlinear-paths": {
        "paper": preset(Operators(), "operator=nonlinear-paths steps=100_000 test_rows=10_000"),
        "quick": preset(
            Operators(), "operator=nonlinear-paths steps=6000 test_rows=10_000 evaluate_every=500 strength=none"
        ),
    },
}


def split(recipe: Operators) -> Split:
    """Training, validation and test rows: read from the recipe's folder, or generated and kept in the cache."""
    own = recipe.data
    if own.path:
        rows, test = data.read(Path(own.path).expanduser())
        if len(rows.values) < own.rows:
            raise ValueError(f"expected at least rows={own.rows} training rows in {own.path}, got {len(rows.values)}")
        kept = len(test.values) - len(test.values) // _VALIDATION_SHARE
        if kept == len(test.values):
            raise ValueError(f"expected at least {_VALIDATION_SHARE} test rows in {own.path}, got {kept}")
        validation = Triplets(*(part[kept:] for part in test))
        return Split(rows, validation, Triplets(*(part[: min(kept, own.test_rows)] for part in test)))
    options: dict[str, float | str] = {}
    if own.operator == "nonlinear":
        options = {"paths": own.paths, "signs": own.signs}
    folder, name, seed = cache_folder(), own.operator, own.data_seed
    rows, test = data.cached(folder, name, train=own.rows * own.parts, test=own.test_rows, seed=seed, **options)
    seed += _VALIDATION_SEED
    validation, _ = data.cached(folder, name, train=own.validation_rows, test=1, seed=seed, **options)
    return Split(rows, validation, test)


def jobs_of(recipe: Operators, methods: Sequence[str], seeds: Sequence[int]) -> list[Job]:
    """One job per method and seed; seed k trains on part k modulo ``parts``, whatever the method: runs are paired."""
    values = flat(described(recipe))
    keys = "rows", *_OF_A_RUN, "strength", "balance", "samples", "rescale", "bins", "decode"
    own = {key: values[key] for key in keys}
    parts = recipe.data.parts
    found = [Job(method=method, seed=seed, part=seed % parts, **own) for method in methods for seed in seeds]
    return [with_options(job, [*_tightness(job, recipe), *part_options(recipe)]) for job in found]


def _tightness(job: Job, recipe: Operators) -> list[tuple[str, str, float]]:
    """The weight of the tightness, which a job has no key for, as an option of the parts that know it."""
    weight = recipe.method.tightness_weight
    known = [part for part in split_method(job.method) if "tightness_weight" in method_options(part)]
    return [] if weight == 1.0 else [(part, "tightness_weight", weight) for part in known]


def check(recipe: Operators) -> None:
    """Refuses a folder without the files, or with too few rows; nothing is written."""
    if recipe.data.path:
        split(recipe)


def check_method(plan: Plan) -> None:
    """Refuses a method that a stack cannot train; nothing is read."""
    (job,) = jobs_of(plan.recipe, [plan.method], [plan.seed])
    method = method_of(job)
    require_trainable(method, "operators")
    first_epochs(method, plan.recipe.training.steps)  # too few for two stages are an error


def stack_options(recipe: Operators) -> StackOptions:
    """What all runs of a stack share."""
    own = {key: value for key, value in vars(recipe.training).items() if key not in _OF_A_RUN}
    return StackOptions(hidden=recipe.model.hidden, **own)


def read(recipe: Operators, device: str) -> Split:
    """The rows of a recipe, for its runs."""
    return split(recipe)


def shared(recipe: Operators) -> Operators:
    """The same for recipes whose runs can share a stack."""
    training = {name: getattr(FullBatch(), name) for name in _OF_A_RUN}
    return replace(recipe, training=replace(recipe.training, **training), method=OnDrawnRows(samples=None))


def group_key(plan: Plan, run: runs.Run, rows: Split) -> int | None:
    """None of a run that was begun alone, and goes on alone; else the steps of its first stage."""
    if (run.path / FILE).exists():
        return None
    (job,) = jobs_of(plan.recipe, [plan.method], [plan.seed])
    return first_epochs(method_of(job), plan.recipe.training.steps)


def stacks(group: Group, rows: Split, device: str) -> list[Group]:
    """The runs of one key, in stacks that fit into memory; what began as a stack before that was a rule goes on so."""
    if (_folder(group) / FILE).exists():
        return [group]
    begun: list[Group] = []
    by_settings: dict[tuple[float, float], Group] = {}  # once of each stack
    for plan, run in group:
        own = plan.recipe.training
        by_settings.setdefault((own.learning_rate, own.weight_decay), []).append((plan, run))
    if len(by_settings) > 1:
        begun = [own for own in by_settings.values() if (_folder(own) / FILE).exists()]
    there = {run.path for own in begun for _, run in own}
    left = [each for each in group if each[1].path not in there]
    recipe = group[0][0].recipe
    outputs = max(method_of(job).outputs(1) for job in _jobs(group))
    shape = Shape(
        0, rows.train.functions.shape[1] + 1, outputs, recipe.model.hidden, dtype=DTYPES[recipe.training.dtype]
    )
    return [*begun, *memory.stacks(left, memory.bytes_of(shape, recipe.data.rows), memory.limit(device))]


def _folder(group: Group) -> Path:
    """Where the checkpoint of a stack lies."""
    places = [run.path for _, run in group]
    if len(places) == 1:
        return places[0]
    of_all = hashlib.sha256(" ".join(place.name for place in places).encode()).hexdigest()[:12]
    return places[0].with_name(f"stack-{of_all}")


def _jobs(group: Group) -> list[Job]:
    return [job for plan, _ in group for job in jobs_of(plan.recipe, [plan.method], [plan.seed])]


def train_group(group: Group, rows: Split, device: str, progress: Progress | None, on_scores: OnScores) -> None:
    """Trains a stack of runs to its end; its checkpoint lies beside the folders of the runs, of a single run inside."""
    recipe, places, jobs = group[0][0].recipe, [run.path for _, run in group], _jobs(group)
    if len(group) > 1:
        jobs = [replace(job, name=f"../{place.name}") for job, place in zip(jobs, places, strict=True)]

    def told(step: int, scores: Sequence[Scores]) -> None:
        with held():  # all runs of the stack, or none
            on_scores(step, [_by_part(own) for own in scores])

    histories = train.train(
        jobs,
        split=rows,
        options=stack_options(recipe),
        device=device,
        folder=_folder(group),
        progress=progress,
        on_metrics=told,
    )
    with held():
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
    step, scores = train.evaluate([job], split(plan.recipe), stack_options(plan.recipe), device=device, folder=place)
    return {"step": step, **scores[0]._asdict()}


def used(plan: Plan, *, at: str | None, device: str, folder: Path) -> UsedOperator:
    """A run to predict with: by what it wrote at its end, else by its checkpoint and its rows."""
    point = point_of(at, ("last",))
    (job,) = jobs_of(plan.recipe, [plan.method], [plan.seed])
    options = stack_options(plan.recipe)
    try:
        place = trained_in(folder, plan, train.MODEL)
    except FileNotFoundError:
        place = trained_in(folder, plan, FILE)
        (model,) = train.models([job], split(plan.recipe), options, device=device, folder=place)
    else:
        remedy = f"remove it, and it is made anew of {FILE} and the rows"
        model = runs.load_tensors(place / train.MODEL, train.OF_MODEL, remedy=remedy)
    own, method = model[point], method_of(job)
    with runs.reading(place / train.MODEL, "remove the run folder and train again"):
        width = own["learned"][FIRST].shape[0]
        single = Single(train.shape_of(options, width, method.outputs(1)), method, own["learned"])
    return UsedOperator(single, own["residuals"].numpy(), own["epoch"], device)


def references(recipe: Operators, seeds: Sequence[int], without: Collection[str]) -> dict[str, list[float]]:
    """The error on the test rows of predicting the mean of the training rows of each seed."""
    found = split(recipe)
    values = found.train.values
    parts = [job.rows_of(len(values)) for job in jobs_of(recipe, ["baseline"], seeds)]
    return {"constant": [float(np.square(found.test.values - values[own].mean()).mean()) for own in parts]}


def _task(about: str, name: str) -> Task:
    training = Trainable(name, METRIC, read, shared, train_group, group_key, stacks=stacks)
    return Task(
        training,
        about,
        PRESETS[name],
        ("data.operator",),
        evaluate,
        used,
        check_method,
        check,
        references=references,
        constant="the training mean",
    )


TASKS = {
    "linear": _task("the antiderivative of a random function", "linear"),
    "nonlinear": _task(
        "a stochastic equation, statistics of its solutions: what the published files hold", "nonlinear"
    ),
    "nonlinear-paths": _task("a stochastic equation, one path: as the paper writes it", "nonlinear-paths"),
}
