"""A table: all that determines a run but method and seed.

    ordinal-entropy compare houses.csv --target price
    ordinal-entropy train tabular --preset quick

The second makes a table of houses and trains on it, in seconds, to a third of the error of the mean price.
"""

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from ordinal_entropy import runs
from ordinal_entropy.methods import Composition, first_epochs
from ordinal_entropy.recipes import changed, preset, require_at_least_1, require_not_negative, restored
from ordinal_entropy.recipes.groups import Files, InEpochs, MethodOptions, Perceptron, Stacked
from ordinal_entropy.tasks import Task, method_of
from ordinal_entropy.tasks.tabular import classical, data, generated, inputs, train
from ordinal_entropy.tasks.tabular.data import Table
from ordinal_entropy.tasks.tabular.inputs import Preparation, Seen
from ordinal_entropy.tasks.tabular.train import METRIC, PARTS, Job, Scored, Settings
from ordinal_entropy.tasks.tabular.using import UsedTable
from ordinal_entropy.tasks.using import point_of
from ordinal_entropy.training.checkpoints import FILE, OfRun, load_run
from ordinal_entropy.training.plans import Plan, Progress, places, trained_in
from ordinal_entropy.training.runner import Group, OnScores, Trainable
from ordinal_entropy.training.stacked import memory
from ordinal_entropy.training.stacked.members import require_trainable, steps_and_rows
from ordinal_entropy.training.stacked.network import Shape
from ordinal_entropy.training.stacked.single import Single

_GENERATED_SEED = 0


@dataclass(frozen=True, kw_only=True)
class Columns(Files):
    """A .csv, .tsv, .parquet or .npz file, as docs/tabular.md has them, and what is made of its columns."""

    target: str = ""  # the column to predict; an .npz file has y and needs none
    ignore: tuple[str, ...] = ()  # columns that are left out: row numbers, dates, what gives the target away
    categories: tuple[str, ...] = ()  # columns of numbers that stand for categories, like post codes
    test_share: float = 0.2  # of the rows, drawn by the seed; a file with published splits has its own
    validation_share: float = 0.2  # of the training rows, drawn by the seed
    split: int | None = None  # the test rows of all runs are those of this seed; none: of each run, those of its own
    scaling: Literal["standard", "quantile"] = "standard"  # of numbers: mean 0 and variance 1, or each to a normal one
    max_categories: int = 32  # columns that one of categories becomes, at most; the rarest share one

    def __post_init__(self) -> None:
        """Values that no table can have."""
        super().__post_init__()
        require_at_least_1(self, "max_categories")
        if self.split is not None:
            require_not_negative(self, "split")
        for name in ("test_share", "validation_share"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"expected {name} between 0 and 1, got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class Embedded(Perceptron):
    """A perceptron, or an ensemble of such, behind embeddings of its inputs."""

    network: Literal["perceptron", "tabm", "tabm-mini"] = "perceptron"  # tabm: members of an ensemble, sharing weights
    members: int = 32  # tabm, tabm-mini: of the ensemble
    layers: int = 2  # hidden ones
    dropout: float = 0.0  # share of the activations of each hidden layer that a step leaves out
    embedding: Literal["none", "periodic", "piecewise"] = "piecewise"  # of each number, before the first layer
    embedding_size: int = 16  # numbers that one becomes
    waves: int = 24  # periodic: frequencies of a number
    wave_scale: float = 0.1  # periodic: their standard deviation at first; numbers have one of 1
    pieces: int = 24  # piecewise: of the range of a number, between quantiles of the training rows

    def __post_init__(self) -> None:
        """Values that no network can have."""
        super().__post_init__()
        require_at_least_1(self, "members", "layers", "embedding_size", "waves", "pieces")
        require_not_negative(self, "wave_scale")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"expected dropout from 0 to below 1, got {self.dropout}")


@dataclass(frozen=True, kw_only=True)
class TabularTraining(InEpochs, Stacked):
    """AdamW on the mean squared error of standardized targets, at a constant learning rate."""


@dataclass(frozen=True, kw_only=True)
class InBins(MethodOptions):
    """Options of methods that see a table."""

    bin_width: float = 0.0  # rows of one bin share a center; in deviations of the target; 0: those of equal target

    def __post_init__(self) -> None:
        """Values that no method can have."""
        super().__post_init__()
        require_not_negative(self, "bin_width")


@dataclass(frozen=True)
class Tabular:
    """A perceptron from the columns of a table to a number."""

    data: Columns = Columns()
    model: Embedded = Embedded(hidden=128)
    training: TabularTraining = TabularTraining(
        epochs=100, batch_size=64, learning_rate=2e-3, weight_decay=0.01, feature_rows=256
    )
    method: InBins = InBins(rescale="max")


PRESETS = {
    "small": Tabular(),
    "quick": preset(Tabular(), "generated=600 hidden=64 epochs=60 learning_rate=3e-3"),
    "tabm": preset(Tabular(), "network=tabm dropout=0.1 batch_size=256 weight_decay=3e-4"),
}


def table(recipe: Tabular) -> Table:
    """The table of a recipe, read or made."""
    own = recipe.data
    if own.path:
        file = data.file_of(Path(own.path).expanduser())
        return _read(file, file.stat().st_mtime_ns, own.target, own.ignore, own.categories, own.skip_bad)
    if not own.generated:
        raise ValueError(
            f"expected --set data=FILE, a table that ends in {', '.join(data.ENDINGS)}, with --set target=COLUMN, or "
            "--preset quick, which makes its own, got neither"
        )
    rows = generated.houses(own.generated, _GENERATED_SEED)
    return data.of_cells(generated.COLUMNS, rows, generated.TARGET, file="the generated table")


@lru_cache(maxsize=1)
def _read(
    file: Path, changed: int, target: str, ignore: tuple[str, ...], categories: tuple[str, ...], skip_bad: bool
) -> Table:
    """Read once for the check and the training, as long as the file does not change."""
    return data.read(file, target, ignore=ignore, categories=categories, skip_bad=skip_bad)


def check(recipe: Tabular) -> None:
    """Refuses a recipe without a table that its runs can learn from; nothing is written."""
    inputs.require_sklearn()
    rows_of(table(recipe), 0, recipe)


def check_method(plan: Plan) -> None:
    """Refuses a method that a stack cannot train; nothing is read."""
    if plan.method in classical.ROWS:
        return
    method = _method(plan)
    require_trainable(method, "tables")
    first_epochs(method, plan.recipe.training.epochs)  # too few for two stages are an error


def rows_of(found: Table, seed: int, recipe: Tabular) -> inputs.Rows:
    """The rows of a seed; a ValueError where they make no batch."""
    own, batch = recipe.data, recipe.training.batch_size
    with data.naming(own.path):
        shares = {"test_share": own.test_share, "validation_share": own.validation_share}
        rows = inputs.rows_of(found, seed, split=own.split, **shares)
        if len(rows.train) < batch:
            raise ValueError(
                f"expected at least batch_size={batch} rows to train on, got {len(rows.train)}, the others "
                f"of {len(found.targets):,} being there to validate and test; --set batch_size={len(rows.train)} would "
                "do"
            )
    return rows


@dataclass
class Read:
    """A table as read, and what the networks of each seed see of it."""

    recipe: Tabular  # with the keys of the data alone
    table: Table
    digest: str
    seen: dict[int, Seen] = field(default_factory=dict)  # by seed; runs of one share it

    def of_seed(self, seed: int) -> Seen:
        """The rows of a seed."""
        if seed not in self.seen:
            self.seen[seed] = _seen(self.table, seed, self.recipe)
        return self.seen[seed]

    def waiting(self, plan: Plan, run: runs.Run) -> train.Waiting:
        """A run to be trained, from where it was stopped."""
        job, settings = _job(plan, self.of_seed(plan.seed)), _settings(plan.recipe)
        there = train.begun(run, settings, self.digest)
        return train.Waiting(job, run, settings, self.digest, self.table.left_out, there)


def read(recipe: Tabular, device: str) -> Read:
    """The table of a recipe, for its runs."""
    own = _of_the_data(recipe)
    found = table(own)
    return Read(own, found, found.digest())


def same_table(result: Mapping[str, Any], found: Read) -> bool:
    """Whether a run with this result was trained on a table."""
    return result.get("table") == found.digest


def group_key(plan: Plan, run: runs.Run, found: Read) -> Hashable | None:
    """What runs of a stack have in common: shapes, settings, and the epoch that they go on from."""
    if plan.method in classical.ROWS:
        return None
    own = found.waiting(plan, run)
    few = own.job.shape.members > 1  # the members of one seed's runs fill a device, and its memory
    return own.job.key(own.settings), 0 if own.there is None else own.there.state["epoch"], plan.seed if few else None


def stacks(group: Group, found: Read, device: str) -> list[Group]:
    """The runs of one key, in stacks that fit into memory."""
    if group[0][0].method in classical.ROWS:
        return [group]
    jobs = [_job(plan, found.of_seed(plan.seed)) for plan, _ in group]
    rows = group[0][0].recipe.training.batch_size
    return memory.stacks(group, max(memory.bytes_of(job.shape, rows) for job in jobs), memory.limit(device))


def train_group(group: Group, found: Read, device: str, progress: Progress | None, on_scores: OnScores) -> None:
    """Trains a stack of runs to its end, or fits a model that is no network."""
    plan, run = group[0]
    if plan.method in classical.ROWS:
        _fit(plan, run, found, progress, on_scores)
        return
    train.train_stack([found.waiting(plan, run) for plan, run in group], device, progress, on_scores)


def _fit(plan: Plan, run: runs.Run, found: Read, progress: Progress | None, on_scores: OnScores) -> None:
    """Fits and scores a model of ``classical.ROWS``; having no epochs, it has these scores after each."""
    seen = found.of_seed(plan.seed)
    scores = _errors(plan.method, found, plan.seed)
    own = plan.recipe.training
    for epoch in range(1, own.epochs + 1):
        on_scores(epoch, [scores])
    if progress is not None:
        steps = own.epochs * steps_and_rows(len(seen.train.targets), own.batch_size)[0]
        progress(steps, steps)
    history, features = [scores] * own.epochs, {at: dict[str, float]() for at in places([scores], METRIC)}  # none
    run.finish({"history": history, "features": features, "table": found.digest, "left_out": found.table.left_out})


def references(recipe: Tabular, seeds: Sequence[int], without: Collection[str]) -> dict[str, list[float]]:
    """The error on the test rows of each seed of the models of ``classical.ROWS``, the constant first.

    NaN of a seed whose rows make no batch: its runs fail, and say so.
    """
    found = read(recipe, "cpu")

    def score(name: str, seed: int) -> float:
        try:
            found.of_seed(seed)
        except ValueError:
            return math.nan
        return _errors(name, found, seed)["test"][METRIC]

    names = sorted((name for name in classical.ROWS if name not in without), key=lambda name: name != "constant")
    return {name: [score(name, seed) for seed in seeds] for name in names}


def _errors(name: str, found: Read, seed: int) -> dict[str, dict[str, float]]:
    seen = found.of_seed(seed)
    return train.scores_of(classical.fitted(name, seen, seed), seen)


def _of_the_data(recipe: Tabular) -> Tabular:
    """The same for recipes that see the same of a table."""
    return replace(Tabular(), data=recipe.data, training=TabularTraining(batch_size=recipe.training.batch_size))


def _seen(found: Table, seed: int, recipe: Tabular) -> Seen:
    rows = rows_of(found, seed, recipe)
    with data.naming(recipe.data.path):
        return inputs.seen(found, rows, _preparation(found, rows, recipe))


def _preparation(found: Table, rows: inputs.Rows, recipe: Tabular) -> Preparation:
    return Preparation.fitted(found, rows.train, scaling=recipe.data.scaling, max_categories=recipe.data.max_categories)


def set_aside(recipe: Tabular, tuning: int) -> Tabular:
    """The same with one set of test rows for all seeds, another one for each tuning."""
    return changed(recipe, {"data.split": (recipe.data.split or 0) + tuning})


def _method(plan: Plan) -> Composition:
    return method_of(plan, grouping=plan.recipe.method.bin_width or "unique")


def _job(plan: Plan, seen: Seen) -> Job:
    own = plan.recipe.training
    shape = _shape(plan, seen.numbers, seen.train.inputs.shape[1])
    return Job(plan.seed, seen, shape, _method(plan), own.learning_rate, own.weight_decay)


def _shape(plan: Plan, numbers: int, width: int) -> Shape:
    """Of a network of so many inputs, of which the first ones are numbers."""
    recipe = plan.recipe
    model = {each.name: getattr(recipe.model, each.name) for each in fields(recipe.model)}
    if recipe.model.network == "perceptron":
        model["members"] = 1
    dtype = getattr(torch, recipe.training.dtype)
    return Shape(numbers=numbers, inputs=width, outputs=_method(plan).outputs(1), **model, dtype=dtype)


def _settings(recipe: Tabular) -> Settings:
    own = recipe.training
    return Settings(own.epochs, own.batch_size, own.feature_rows)


def evaluate(plan: Plan, *, device: str, folder: Path) -> dict[str, float]:
    """Scores of one run, computed anew from its checkpoint; of all rows where the recipe now names another table.

    The rows of another table are filled in, scaled and encoded by what the run's own training rows said.

    Returns:
        "step" (epochs done), the error on the rows of each part, further ones of the test rows, and the error on these
        by the parameters that were best on validation.
    """
    _require_network(plan, "evaluate")
    place = trained_in(folder, plan, FILE)
    there = load_run(place, metric=METRIC)
    assert there is not None
    recipe, own, seen = _as_trained(plan, place, there)
    parts: tuple[str, ...] = PARTS
    main = "test"
    if _of_the_data(plan.recipe) != _of_the_data(recipe):
        assert seen.preparation is not None
        other = data.aligned(table(plan.recipe), own)
        seen = seen._replace(test=seen.preparation.part(other, np.arange(len(other.targets))))
        parts, main = ("test",), f"all {len(other.targets):,}"
    job = _job(plan._replace(recipe=recipe), seen)
    scored = Scored([job], _settings(recipe), device=device, states=[(place, there.state)])
    (last,) = scored.scores(parts)
    (best,) = scored.scores(("test",), best=True)
    scores: dict[str, float] = {"step": scored.stack.epoch}
    scores |= {main if part == "test" else part: last[part][METRIC] for part in parts}
    scores |= {f"{main}, {name.upper()}": last["test"][name] for name in ("mae", "r2")}
    return {**scores, f"{main}, best on validation": best["test"][METRIC]}


def _require_network(plan: Plan, what: str) -> None:
    if plan.method in classical.ROWS:
        raise ValueError(f"expected a run of a network to {what}, got one of {plan.method!r}, of which none is kept")


def _as_trained(plan: Plan, place: Path, there: OfRun) -> tuple[Tabular, Table, Seen]:
    """The recipe that a run was trained by, its table and what it saw of it; a ValueError where that is another now."""
    content = {key: value for key, value in runs.open(place).recipe.items() if key != "task"}
    with runs.reading(place / "recipe.json", "remove the run folder and train again"):
        recipe = restored(Tabular(), content)
    own = table(recipe)
    if own.digest() != there.table:
        where = recipe.data.path
        raise ValueError(f"expected the table that the run in {place} was trained on in {where}, got another")
    rows = rows_of(own, plan.seed, recipe)
    return recipe, own, inputs.seen(own, rows, _preparation(own, rows, recipe))


def used(plan: Plan, *, at: str | None, device: str, folder: Path) -> UsedTable:
    """A run to predict with: by what it wrote at its end, else by its checkpoint and its table."""
    _require_network(plan, "predict with")
    at = point_of(at)
    try:
        place = trained_in(folder, plan, train.MODEL)
    except FileNotFoundError:
        place = trained_in(folder, plan, FILE)
        preparation, model = _rebuilt(plan, place, device)
    else:
        remedy = f"remove it, and it is made anew of {FILE} and the table"
        model = runs.load_tensors(place / train.MODEL, train.OF_MODEL, remedy=remedy)
        content = runs.read_json(place / train.PREPARATION, remedy=f"remove it and {train.MODEL} beside it")
        with runs.reading(place / train.PREPARATION, f"remove it and {train.MODEL} beside it"):
            preparation = Preparation.restored(content)
    own, recipe = model[at], plan.recipe
    with runs.reading(place / train.MODEL, "remove the run folder and train again"):
        single = Single(
            _shape(plan, preparation.numbers, preparation.width),
            _method(plan),
            own["learned"],
            center=preparation.center,
            scale=preparation.scale,
        )
    return UsedTable(
        single,
        preparation,
        own["residuals"].numpy(),
        own["epoch"],
        at,
        recipe.data.target or (generated.TARGET if recipe.data.generated else "y"),
        recipe.data.categories,
        device,
    )


def _rebuilt(plan: Plan, place: Path, device: str) -> tuple[Preparation, dict[str, Any]]:
    """What a run that is not over, or of an earlier version, would have written at its end."""
    there = load_run(place, metric=METRIC)
    assert there is not None
    try:
        recipe, _, seen = _as_trained(plan, place, there)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"expected {train.MODEL} in {place}, which a run writes at its end, or else the table that it is trained "
            f"on, got neither: {error}"
        ) from error
    scored = Scored([_job(plan, seen)], _settings(recipe), device=device, states=[(place, there.state)])
    (model,) = train.models(scored, [train.epochs_of(there.history)])
    assert seen.preparation is not None
    return seen.preparation, model


TABULAR = Task(
    Trainable("tabular", METRIC, read, _of_the_data, train_group, group_key, same_table, stacks=stacks),
    "a number from the other columns of a table",
    PRESETS,
    (),
    evaluate,
    used,
    check_method,
    check,
    details={
        "Test scores": {"RMSE": "rmse", "MAE": "mae", "R2": "r2"},
        "Features of test rows": {
            "entropy": "entropy",
            "diversity": "diversity",
            "ordinality": "ordinality",
            "effective\nrank": "effective_rank",
        },
    },
    paper_at="",  # the paper has no tables of this kind
    set_aside=set_aside,
    references=references,
    constant="the training mean",
)
TASKS = {"tabular": TABULAR}
