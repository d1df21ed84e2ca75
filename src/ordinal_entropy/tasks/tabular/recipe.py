"""A table: all that determines a run but method and seed.

    ordinal-entropy compare tabular --set data=houses.csv --set target=price
    ordinal-entropy train tabular --preset quick

The second makes a table of houses and trains on it, in seconds, to a third of the error of the mean price.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from ordinal_entropy import runs
from ordinal_entropy.methods import Composition, first_epochs
from ordinal_entropy.recipes import (
    defaults,
    described,
    require_at_least_1,
    require_not_negative,
    require_positive,
    restored,
)
from ordinal_entropy.tasks import Outcome, Plan, Progress, Task, failed, method_of, run_names
from ordinal_entropy.tasks.tabular import checkpoint, data, generated, inputs, train
from ordinal_entropy.tasks.tabular.data import Table
from ordinal_entropy.tasks.tabular.inputs import Preparation, Seen
from ordinal_entropy.tasks.tabular.model import Shape
from ordinal_entropy.tasks.tabular.stack import PARTS, Job, Settings, Stack, require_trainable
from ordinal_entropy.tasks.tabular.train import METRIC, Waiting, places

_GENERATED_SEED = 0
_SCORES: runs.Form = {str: runs.NUMBER}
_RESULT = {
    "history": [{part: {**_SCORES, METRIC: runs.NUMBER} for part in PARTS}],
    "features": {"last": _SCORES, "best_validation": _SCORES},
    "table": str,
}


@dataclass(frozen=True)
class Tabular:
    """A perceptron from the columns of a table to a number."""

    # Data.
    data: str = ""  # a .csv, .tsv, .parquet or .npz file, as docs/tabular.md has them
    target: str = ""  # the column to predict; an .npz file has y and needs none
    ignore: tuple[str, ...] = ()  # columns that are left out: row numbers, dates, what gives the target away
    categories: tuple[str, ...] = ()  # columns of numbers that stand for categories, like post codes
    generated: int = 0  # with no data: a table of so many houses is made; 0: none is
    skip_bad: bool = False  # True: rows without a target or with infinite numbers are left out; else they are refused
    test_share: float = 0.2  # of the rows, drawn by the seed; a file with published splits has its own
    validation_share: float = 0.2  # of the training rows, drawn by the seed
    scaling: Literal["standard", "quantile"] = "standard"  # of numbers: mean 0 and variance 1, or each to a normal one
    max_categories: int = 32  # columns that one of categories becomes, at most; the rarest share one

    # Model.
    hidden: int = 128  # width of the hidden layers; the last one's activations are the features
    layers: int = 2  # of them
    embedding: Literal["none", "periodic", "piecewise"] = "piecewise"  # of each number, before the first layer
    embedding_size: int = 16  # numbers that one becomes
    waves: int = 24  # periodic: frequencies of a number
    wave_scale: float = 0.1  # periodic: their standard deviation at first; numbers have one of 1
    pieces: int = 24  # piecewise: of the range of a number, between quantiles of the training rows

    # Training: AdamW on the mean squared error of standardized targets, no schedule.
    epochs: int = 100  # passes over the training rows; the best on validation is what is compared
    batch_size: int = 64  # rows of a step, at most: all steps of an epoch are of one size
    learning_rate: float = 2e-3  # constant
    weight_decay: float = 0.01  # PyTorch's default for AdamW
    dtype: Literal["float32", "float64"] = "float32"  # of the network; the columns that it sees are in float32

    # The method.
    strength: float = 0.1  # of what is added to the task loss
    tightness_weight: float = 1.0  # oe: of the tightness beside the diversity; the strength multiplies both
    balance: float = 0.1  # ld-balanced, oe-balanced: gradient of a term, as a fraction of the task loss's
    bin_width: float = 0.0  # rows of one bin share a center; in deviations of the target; 0: those of equal target
    rescale: Literal["max", "authors", "none"] = "max"  # weights w / max, (w - min) / max, or raw as in the paper
    bins: int = 100  # classification: uniform over the range of the training targets
    decode: Literal["center", "left"] = "center"  # classification: where in its bin a prediction lies; authors: left
    method_options: tuple[str, ...] = ()  # part.option=value, ...: of one part; --set method.part.option=value adds one

    feature_rows: int = 256  # training and test rows whose features are kept: first, best and last epoch; 0: none

    def __post_init__(self) -> None:
        """Values that no run can have are refused before anything is read."""
        require_at_least_1(self, "max_categories", "hidden", "layers", "embedding_size", "waves", "pieces", "epochs")
        require_at_least_1(self, "batch_size")
        require_not_negative(self, "generated", "weight_decay", "strength", "tightness_weight", "bin_width")
        require_not_negative(self, "wave_scale", "feature_rows")
        for name in ("test_share", "validation_share"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"expected {name} between 0 and 1, got {getattr(self, name)}")
        require_positive(self, "learning_rate", "balance")
        if self.bins < 2:
            raise ValueError(f"expected bins to be at least 2, got {self.bins}")


PRESETS = {
    "small": Tabular(),
    "quick": Tabular(generated=600, hidden=64, epochs=60, learning_rate=3e-3),
}


def table(recipe: Tabular) -> Table:
    """The table of a recipe, read or made."""
    if recipe.data:
        file = data.file_of(Path(recipe.data).expanduser())
        return _read(file, file.stat().st_mtime_ns, recipe.target, recipe.ignore, recipe.categories, recipe.skip_bad)
    if not recipe.generated:
        raise ValueError(
            f"expected --set data=FILE, a table that ends in {', '.join(data.ENDINGS)}, with --set target=COLUMN, or "
            "--preset quick, which makes its own, got neither"
        )
    rows = generated.houses(recipe.generated, _GENERATED_SEED)
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
    method = _method(plan)
    require_trainable(method)
    first_epochs(method, plan.recipe.epochs)  # too few for two stages are an error


def rows_of(found: Table, seed: int, recipe: Tabular) -> inputs.Rows:
    """The rows of a seed; a ValueError where they make no batch."""
    with data.naming(recipe.data):
        rows = inputs.rows_of(found, seed, test_share=recipe.test_share, validation_share=recipe.validation_share)
        if len(rows.train) < recipe.batch_size:
            raise ValueError(
                f"expected at least batch_size={recipe.batch_size} rows to train on, got {len(rows.train)}, the others "
                f"of {len(found.targets):,} being there to validate and test; --set batch_size={len(rows.train)} would "
                "do"
            )
    return rows


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
    """Trains runs in as few stacks as their shapes allow; each has a folder of its own inside the given one.

    A run that is finished there is not trained again, one that was stopped goes on.

    Args:
        plans: the runs; methods, seeds and all keys may differ. Those that differ in method, seed and the keys of the
            method only, train together.
        device: "cpu", "cuda", ...
        folder: of all the runs together; needed.
        progress: is told the steps done, and the steps in all stacks.
        on_metrics: is told the epochs done and the scores of the runs of a stack.
        jobs: has no part in it: a stack is one process.
        go_on: a run that raises an exception, by itself too, says so in its folder and in its outcome, and the others
            go on; not where the table cannot be read. Else the exception is raised here.

    Returns:
        Outcomes in the order of the plans; their steps are epochs.
    """
    if not plans:
        raise ValueError("expected at least one run, got none")
    if folder is None:
        raise ValueError("expected a folder for the runs, got none")
    every = [(plan, _run(plan, folder / name)) for plan, name in zip(plans, run_names(plans), strict=True)]
    results = [run.result(_RESULT) for _, run in every]
    if any(result is None for result in results):
        waiting = _waiting(every, results, go_on=go_on)
        train.train(waiting, device=device, progress=progress, on_metrics=on_metrics, go_on=go_on)
        results = [run.result(_RESULT) for _, run in every]
    failures = [run.failure() if result is None else None for (_, run), result in zip(every, results, strict=True)]
    found = []
    for (_, run), result, failure in zip(every, results, failures, strict=True):
        with runs.reading(run.path / "result.json", runs.RESULT_REMEDY):
            found.append(failed(failure) if failure else outcome(result or {}))
    return found


def _run(plan: Plan, place: Path) -> runs.Run:
    recipe = {"task": "tabular", **described(plan.recipe)}
    return runs.create(place, recipe, plan.method, plan.seed, defaults=defaults(plan.recipe))


def _waiting(
    every: Sequence[tuple[Plan, runs.Run]], results: Sequence[dict[str, Any] | None], *, go_on: bool
) -> list[Waiting]:
    """Runs that are not finished, those of a method side by side; tables and rows are prepared once."""
    tables: dict[Tabular, Table] = {}
    digests: dict[Tabular, str] = {}
    views: dict[tuple[Tabular, int], Seen] = {}
    found = []
    for (plan, run), result in zip(every, results, strict=True):
        own = _of_the_data(plan.recipe)
        if own not in tables:
            tables[own] = table(own)
            digests[own] = tables[own].digest()
        if result is not None:
            if result["table"] != digests[own]:
                raise ValueError(
                    f"expected the table that the run in {run.path} was trained on, got another; choose another folder"
                )
            continue
        try:
            if (own, plan.seed) not in views:
                views[own, plan.seed] = _seen(tables[own], plan.seed, own)
            job = _job(plan, views[own, plan.seed])
        except Exception as error:
            if not go_on or runs.concerns_all(error):
                raise
            run.fail(error)
            continue
        found.append(Waiting(job, run, _settings(plan.recipe), digests[own], tables[own].left_out))
    return sorted(found, key=lambda each: (each.job.method.name, repr(each.job.method)))


def _of_the_data(recipe: Tabular) -> Tabular:
    """The same for recipes that see the same of a table."""
    keys = "data", "target", "ignore", "categories", "generated", "skip_bad", "test_share", "validation_share"
    own = {key: getattr(recipe, key) for key in (*keys, "scaling", "max_categories", "batch_size")}
    return replace(Tabular(), **own)


def _seen(found: Table, seed: int, recipe: Tabular) -> Seen:
    rows = rows_of(found, seed, recipe)
    with data.naming(recipe.data):
        return inputs.seen(found, rows, _preparation(found, rows, recipe))


def _preparation(found: Table, rows: inputs.Rows, recipe: Tabular) -> Preparation:
    return Preparation(found, rows.train, scaling=recipe.scaling, max_categories=recipe.max_categories)


def _method(plan: Plan) -> Composition:
    return method_of(plan, grouping=plan.recipe.bin_width or "unique")


def _job(plan: Plan, seen: Seen) -> Job:
    recipe = plan.recipe
    method = _method(plan)
    shape = Shape(
        numbers=seen.numbers,
        inputs=seen.train.inputs.shape[1],
        outputs=method.outputs(1),
        hidden=recipe.hidden,
        layers=recipe.layers,
        embedding=recipe.embedding,
        embedding_size=recipe.embedding_size,
        waves=recipe.waves,
        wave_scale=recipe.wave_scale,
        pieces=recipe.pieces,
        dtype=getattr(torch, recipe.dtype),
    )
    return Job(plan.seed, seen, shape, method)


def _settings(recipe: Tabular) -> Settings:
    return Settings(recipe.epochs, recipe.batch_size, recipe.learning_rate, recipe.weight_decay, recipe.feature_rows)


def outcome(result: Mapping[str, Any]) -> Outcome:
    """Of a finished run."""
    history = result["history"]
    series = {part: [_or_nan(epoch[part][METRIC]) for epoch in history] for part in PARTS}
    at, test = places(history), series["test"]
    details = {
        point: {name: _or_nan(score) for name, score in {**history[place]["test"], **result["features"][point]}.items()}
        for point, place in at.items()
    }
    return Outcome(
        steps=list(range(1, len(test) + 1)),
        train=series["train"],
        validation=series["validation"],
        test=test,
        last=test[-1],
        best_validation=test[at["best_validation"]],
        best_test=min((score for score in test if not math.isnan(score)), default=math.nan),
        details=details,
    )


def _or_nan(score: float | None) -> float:
    return math.nan if score is None else score


def evaluate(plan: Plan, *, device: str, folder: Path) -> dict[str, float]:
    """Scores of one run, computed anew from its checkpoint; of all rows where the recipe now names another table.

    The rows of another table are filled in, scaled and encoded by what the run's own training rows said.

    Returns:
        "step" (epochs done), the error on the rows of each part, further ones of the test rows, and the error on these
        by the parameters that were best on validation.
    """
    place = folder if (folder / checkpoint.FILE).exists() else folder / run_names([plan])[0]
    there = checkpoint.load(place)
    if there is None:
        raise FileNotFoundError(f"expected a checkpoint in {place}, got none")
    content = {key: value for key, value in runs.open(place).recipe.items() if key != "task"}
    with runs.reading(place / "recipe.json", "remove the run folder and train again"):
        recipe = restored(Tabular(), content)
    own = table(recipe)
    if own.digest() != there.table:
        raise ValueError(f"expected the table that the run in {place} was trained on in {recipe.data}, got another")
    rows = rows_of(own, plan.seed, recipe)
    preparation = _preparation(own, rows, recipe)
    seen = inputs.seen(own, rows, preparation)
    parts: tuple[str, ...] = PARTS
    main = "test"
    if _of_the_data(plan.recipe) != _of_the_data(recipe):
        other = data.aligned(table(plan.recipe), own)
        seen = seen._replace(test=preparation.part(other, np.arange(len(other.targets))))
        parts, main = ("test",), f"all {len(other.targets):,}"
    job = _job(plan._replace(recipe=recipe), seen)
    checkpoint.check(place, there, job, recipe.epochs)
    stack = Stack([job], _settings(recipe), device=device, states=[there.state])
    (last,) = stack.scores(parts)
    (best,) = stack.scores(("test",), best=True)
    scores: dict[str, float] = {"step": stack.epoch}
    scores |= {main if part == "test" else part: last[part][METRIC] for part in parts}
    scores |= {f"{main}, {name.upper()}": last["test"][name] for name in ("mae", "r2")}
    return {**scores, f"{main}, best on validation": best["test"][METRIC]}


TASKS = {
    "tabular": Task(
        "a number from the other columns of a table",
        METRIC,
        True,
        PRESETS,
        (),
        train_stacked,
        evaluate,
        check,
        check_method,
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
    )
}
