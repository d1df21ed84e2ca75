"""Age from a face: all that determines a run but method and seed.

    ordinal-entropy train age --preset quick --method baseline
    ordinal-entropy compare age --methods baseline,oe --seeds 6 --preset small --set data=datasets/UTKFace

The first draws faces and trains on them, in a minute on two CPU cores, to a test error of about 10 years; the median of
the training ages has 18.8.
"""

import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor

from ordinal_entropy import methods, runs
from ordinal_entropy.recipes import cache_folder, described
from ordinal_entropy.tasks import Outcome, Plan, Progress, Task
from ordinal_entropy.tasks.age import data, generated
from ordinal_entropy.tasks.age.counts import age_counts
from ordinal_entropy.tasks.age.losses import sample_weights, task_loss
from ordinal_entropy.vision.paths import SPLITS, refuse

if TYPE_CHECKING:  # Lightning takes seconds to import
    from ordinal_entropy.vision.sets import Images
    from ordinal_entropy.vision.training import Data, Settings

METRIC = "mae"
_GENERATED_SEED = 0  # of drawn faces
_GIGA = 1e9
_LOG = logging.getLogger(__name__)
_History = Sequence[Mapping[str, Mapping[str, float | None]]]  # scores of each epoch, by part; None as JSON has NaN


@dataclass(frozen=True)
class Age:
    """A backbone and a linear head, from an aligned face to its age in years."""

    # Data.
    data: str = ""  # a folder as `ordinal-entropy data check age` takes it: AgeDB-DIR, IMDB-WIKI-DIR, UTKFace
    generated: int = 0  # with no data: so many faces are drawn and kept in the cache; 0: none are
    train_rows: int = 0  # a part of the training images, drawn by the seed of the run; 0: all
    skip_bad: bool = False  # True: files that cannot be used are left out; else they are refused
    image_size: int = 224  # side in pixels
    padding: int = 16  # pixels that a random crop moves an image by, at most
    memory: float = 8.0  # gigabytes of images that are held on the device; larger sets are streamed
    workers: int = 4  # processes that read the images of larger sets

    # Model.
    backbone: str = "resnet50"  # a name of timm's
    pretrained: str = ""  # a file of weights, or lite0 for those of the [pretrained] extra; "": random
    zero_last_norm: bool = False  # True: residual blocks begin as the identity, as timm has it

    # Training, as the benchmark has it.
    epochs: int = 90
    batch_size: int = 256  # images of a step, of all devices and accumulated parts together
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    milestones: tuple[int, ...] = (60, 80)  # epochs after which the learning rate is a tenth
    loss: Literal["l1", "mse", "huber"] = "l1"  # huber: squared up to an error of one year
    reweight: Literal["none", "inverse", "sqrt-inverse"] = "none"  # by how rare an age is in training
    precision: Literal["float32", "bf16", "fp16"] = "float32"  # on a GPU, mixed; a CPU has float32
    channels_last: bool = True  # in memory: faster on most devices
    compile: bool = False  # by torch.compile
    accumulate: int = 1  # parts of a step, one after the other: less memory, and a method sees a part at a time
    devices: int = 1  # of each machine
    nodes: int = 1  # machines
    strategy: str = "auto"  # of Lightning, for several devices: ddp, ...

    # The method.
    strength: float = 1.0  # of what is added to the task loss
    tightness_weight: float = 1.0  # oe: of the tightness beside the diversity, lambda_t; the strength multiplies both
    rescale: Literal["authors", "max", "none"] = "authors"  # weights (w - min) / max, w / max, or raw as in the paper
    bins: int = 100  # classification: uniform over the range of the training ages
    decode: Literal["center", "left"] = "center"  # classification: where in its bin a prediction lies; authors: left

    feature_rows: int = 512  # training and test images whose features are kept after every epoch; 0: none

    def __post_init__(self) -> None:
        """Values that no run can have are refused before anything is read."""
        for name in ("image_size", "epochs", "batch_size", "accumulate", "devices", "nodes"):
            if getattr(self, name) < 1:
                raise ValueError(f"expected {name} to be at least 1, got {getattr(self, name)}")
        for name in ("weight_decay", "strength", "tightness_weight", "memory", "generated", "train_rows", "padding"):
            if getattr(self, name) < 0 or not math.isfinite(getattr(self, name)):
                raise ValueError(f"expected {name} to be a number from 0 on, got {getattr(self, name)}")
        for name in ("workers", "feature_rows"):
            if getattr(self, name) < 0:
                raise ValueError(f"expected {name} to be at least 0, got {getattr(self, name)}")
        if not (self.learning_rate > 0 and math.isfinite(self.learning_rate)):
            raise ValueError(f"expected learning_rate to be a positive number, got {self.learning_rate}")
        if self.bins < 2:
            raise ValueError(f"expected bins to be at least 2, got {self.bins}")


PRESETS = {
    "paper": Age(),
    "small": Age(backbone="resnet18", image_size=112, padding=8, epochs=40, milestones=(27, 36), precision="bf16"),
    "quick": Age(
        generated=4000,
        backbone="test_resnet",
        image_size=56,
        padding=4,
        epochs=8,
        batch_size=64,
        learning_rate=5e-3,
        milestones=(5, 7),
        feature_rows=256,
    ),
}


class _Faces(NamedTuple):
    """A dataset as read: images and ages ``(n, 1)`` of each split, and how many files were left out."""

    images: "dict[str, Images]"
    ages: dict[str, Tensor]
    left_out: int


class Scores(NamedTuple):
    """The error of one epoch on each split."""

    train: float
    validation: float
    test: float


def settings(recipe: Age) -> "Settings":
    """What the training on images asks for."""
    from ordinal_entropy.vision.training import Settings

    own = {field.name for field in fields(Age)}
    return Settings(**{field.name: getattr(recipe, field.name) for field in fields(Settings) if field.name in own})


def check(recipe: Age) -> None:
    """Refuses a recipe without a dataset; no image is read, no face drawn."""
    if recipe.data:
        data.require(Path(recipe.data).expanduser())
    elif not recipe.generated:
        raise ValueError(
            "expected --set data=ROOT, a dataset of faces, or --preset quick, which draws its own, got neither. "
            f"{data.WHERE_TO_GET_IT}"
        )


def root_of(recipe: Age) -> Path:
    """The folder of the dataset; drawn faces are made if they are not there yet."""
    check(recipe)
    if recipe.data:
        return Path(recipe.data).expanduser()
    folder = cache_folder() / f"faces-{recipe.generated}-seed{_GENERATED_SEED}"
    if not (folder / "agedb.csv").exists():
        beside = folder.with_name(f".{folder.name}.{os.urandom(4).hex()}.tmp")
        generated.make(beside, _GENERATED_SEED, recipe.generated)
        try:
            beside.rename(folder)
        except OSError:
            if not (folder / "agedb.csv").exists():  # another process was not first
                raise
    return folder


def faces(recipe: Age) -> _Faces:
    """Reads the dataset of a recipe; files that cannot be used are refused, or left out and counted."""
    from ordinal_entropy.vision import sets

    root = root_of(recipe)
    records, problems = data.records(root)
    refuse(records, problems, skip_bad=recipe.skip_bad)
    hold = len(records) * 3 * recipe.image_size**2 <= recipe.memory * _GIGA
    folder = root if root.is_dir() else root.parent
    everything, kept, damaged = sets.load([record.path for record in records], folder, recipe.image_size, hold=hold)
    usable = [records[place] for place in kept]
    problems = [*problems, *damaged]
    refuse(usable, problems, skip_bad=recipe.skip_bad)
    if problems:
        files = f"{len(problems):,} file{'s' if len(problems) > 1 else ''} of {root}"
        _LOG.warning("%s left out, the first %s: %s", files, *problems[0])
    images, ages = {}, {}
    for split in SPLITS:
        rows = torch.tensor([place for place, record in enumerate(usable) if record.split == split])
        images[split] = everything.take(rows)
        ages[split] = torch.tensor([record.age for record in usable if record.split == split])[:, None]
    return _Faces(images, ages, len(problems))


def split_for(plan: Plan, found: _Faces) -> "Data":
    """What one run trains on and is scored on: with ``train_rows``, of the training images those of its seed."""
    from ordinal_entropy.vision.training import Data, Split

    recipe, images, ages = plan.recipe, found.images["train"], found.ages["train"]
    if recipe.train_rows:
        if recipe.train_rows > len(images):
            raise ValueError(f"expected train_rows of at most {len(images):,}, got {recipe.train_rows:,}")
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(plan.seed))
        rows = order[: recipe.train_rows].sort().values
        images, ages = images.take(rows), ages[rows]
    weights = None if recipe.reweight == "none" else sample_weights(ages, recipe.reweight)
    return Data(
        Split(images, ages, weights),
        Split(found.images["val"], found.ages["val"]),
        Split(found.images["test"], found.ages["test"]),
    )


def method_of(plan: Plan, low: float, high: float) -> methods.Method:
    """The method of a run, whose training ages lie between two numbers."""
    recipe = plan.recipe
    options = {
        "strength": recipe.strength,
        "tightness_weight": recipe.tightness_weight,
        "rescale": recipe.rescale,
        "gather": recipe.devices * recipe.nodes > 1,
        "bins": recipe.bins,
        "low": low,
        "high": high,
        "decode": recipe.decode,
    }
    known = methods.options(plan.method)
    return methods.create(plan.method, **{key: value for key, value in options.items() if key in known})


def train(
    plans: Sequence[Plan],
    *,
    device: str,
    folder: Path | None = None,
    progress: Progress | None = None,
    on_metrics: Callable[..., None] | None = None,
    jobs: int = 1,
) -> list[Outcome]:
    """Trains runs one after the other or side by side, each in a folder of its own inside the given one.

    A run that is finished there is not trained again, one that was stopped goes on.

    Args:
        plans: the runs; methods, seeds and all keys may differ.
        device: "cpu", "cuda", ...
        folder: of all the runs together; needed.
        progress: is told how many batches are done, and how many there are in all runs that were not finished.
        on_metrics: is told the epochs done and the scores of one run, as a list of one; with one job only.
        jobs: so many processes train side by side on the device.

    Returns:
        Outcomes in the order of the plans; their steps are epochs.
    """
    if not plans:
        raise ValueError("expected at least one run, got none")
    if folder is None:
        raise ValueError("expected a folder for the checkpoints of the runs, got none")
    if jobs < 1:
        raise ValueError(f"expected at least one job, got {jobs}")
    all_runs = [(plan, folder / name) for plan, name in zip(plans, run_names(plans), strict=True)]
    to_train = [(plan, place) for plan, place in all_runs if _run(plan, place).result() is None]
    if jobs > 1 and len(to_train) > 1:
        from ordinal_entropy.vision.side_by_side import side_by_side

        side_by_side(partial(_train_share, device=device), to_train, jobs, progress)
    else:
        _train_share(to_train, progress, device=device, on_metrics=on_metrics)
    results = [_run(plan, place).result() or {} for plan, place in all_runs]
    return [_outcome(result["history"], result["features"]) for result in results]


def _run(plan: Plan, place: Path) -> runs.Run:
    return runs.create(place, {"task": "age", **described(plan.recipe)}, plan.method, plan.seed)


def _train_share(
    share: Sequence[tuple[Plan, Path]],
    progress: Progress | None,
    *,
    device: str,
    on_metrics: Callable[..., None] | None = None,
) -> None:
    """Trains runs one after the other, each in its folder."""
    found: dict[tuple[Any, ...], _Faces] = {}
    for number, (plan, place) in enumerate(share):
        run, key = _run(plan, place), _data_key(plan.recipe)
        if key not in found:
            found.clear()  # one at a time in memory
            found[key] = _on_device(faces(plan.recipe), device)

        def in_all(done: int, total: int, number: int = number) -> None:
            if progress is not None:  # runs of equal length, the usual case
                progress(number * total + done, len(share) * total)

        history = _trained(plan, found[key], run, device, in_all if progress is not None else None, on_metrics)
        features = _feature_scores(run.path, history)
        run.finish({"history": history, "left_out": found[key].left_out, "features": features})


def run_names(plans: Sequence[Plan]) -> list[str]:
    """A folder's name for each run: method, seed, and the keys in which the recipes differ.

    Example:
        >>> run_names([Plan("baseline", 0, Age()), Plan("oe", 0, Age(strength=5.0))])
        ['baseline-seed0-strength=1', 'oe-seed0-strength=5']
    """
    keys = [field.name for field in fields(Age)]
    differing = [key for key in keys if len({repr(getattr(plan.recipe, key)) for plan in plans}) > 1]
    names = []
    for plan in plans:
        own = [f"{key}={_text(getattr(plan.recipe, key))}" for key in differing]
        names.append("-".join([plan.method, f"seed{plan.seed}", *own]))
    if len(set(names)) < len(names):
        raise ValueError(
            f"expected runs that differ, got {next(name for name in names if names.count(name) > 1)} twice"
        )
    return names


def evaluate(plan: Plan, *, device: str, folder: Path) -> dict[str, float]:
    """Errors of one run, computed anew from its last checkpoint, on the dataset that the recipe names now.

    Returns:
        "step" (epochs done) and the mean absolute error on the images of each split, on the test images of each shot,
        and on the test images by the checkpoint that is best on validation.
    """
    from ordinal_entropy.tasks.age.metrics import SHOTS, ShotErrors
    from ordinal_entropy.vision import backbones, training

    place = folder if (folder / training.LAST).exists() else folder / run_names([plan])[0]
    last, best = (training.read_checkpoint(place / name) for name in (training.LAST, training.BEST))
    method = method_of(plan, last.facts["low"], last.facts["high"])
    metric = ShotErrors(torch.tensor(last.facts["counts"]))
    network = backbones.create(plan.recipe.backbone, method.outputs(1), image_size=plan.recipe.image_size)
    network.mean, network.std = last.facts["mean"], last.facts["std"]
    dataset = faces(plan.recipe)
    rows = min(plan.recipe.train_rows, len(dataset.images["train"]))  # another dataset may have fewer
    parts = split_for(plan._replace(recipe=replace(plan.recipe, train_rows=rows)), dataset)
    scores: dict[str, float] = {"step": last.epoch}

    def scored(part: str) -> dict[str, float]:
        split = getattr(parts, part)
        return training.scored(network, method, metric, split, settings(plan.recipe), device=device)

    network.load_state_dict(last.weights)
    for part in training.PARTS:
        found = scored(part)
        scores[part] = found[METRIC]
    for shot in SHOTS:
        scores[f"test, {shot} shots"] = found[f"{METRIC}_{shot}"]
    network.load_state_dict(best.weights)
    scores["test, best on validation"] = scored("test")[METRIC]
    return scores


def _trained(
    plan: Plan,
    found: _Faces,
    run: runs.Run,
    device: str,
    progress: Progress | None,
    on_metrics: Callable[..., None] | None,
) -> list[dict[str, dict[str, float]]]:
    """The scores of every epoch of one run."""
    from ordinal_entropy.tasks.age.metrics import ShotErrors
    from ordinal_entropy.vision import backbones, training

    recipe, parts = plan.recipe, split_for(plan, found)
    ages = parts.train.targets.cpu()
    low, high, counts = float(ages.min()), float(ages.max()), age_counts(ages)
    method = method_of(plan, low, high)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(plan.seed)  # the same first weights whatever the method
        network = backbones.create(
            recipe.backbone,
            method.outputs(1),
            recipe.pretrained or None,
            image_size=recipe.image_size,
            zero_last_norm=recipe.zero_last_norm or bool(recipe.pretrained),
        )
    logged = {line["step"] for line in run.metrics()}

    def on_epoch(epoch: int, scores: Any) -> None:
        if epoch not in logged:
            run.log(step=epoch, **{f"{part}_{name}": scores[part][name] for part in scores for name in scores[part]})
        if on_metrics is not None:
            on_metrics(epoch, [Scores(*(scores[part][METRIC] for part in training.PARTS))])

    module = training.Training(
        network,
        method,
        lambda predictions, targets, weights: task_loss(predictions, targets, weights, loss=recipe.loss),
        ShotErrors(counts),
        parts,
        settings(recipe),
        seed=plan.seed,
        folder=run.path,
        facts={"low": low, "high": high, "counts": counts.tolist(), "mean": network.mean, "std": network.std},
        callbacks=training.Callbacks(on_epoch, progress),
    )
    return training.fit(module, device=device, folder=run.path, monitor=METRIC)


def _feature_scores(folder: Path, history: _History) -> dict[str, dict[str, float]]:
    """Of the test images, and as "train_..." of the training images, whose features the run kept."""
    from ordinal_entropy.vision.features import kept_scores

    places, found = _places(history), {}
    for place in set(places.values()):
        test, train = (kept_scores(folder, part, place + 1) for part in ("test", "train"))
        found[place] = {**test, **{f"train_{name}": score for name, score in train.items()}}
    return {at: found[place] for at, place in places.items()}


def _outcome(history: _History, features: Mapping[str, Mapping[str, float | None]]) -> Outcome:
    train, validation, test = (
        [_or_nan(epoch[part][METRIC]) for epoch in history] for part in ("train", "validation", "test")
    )
    places = _places(history)
    details = {
        at: {name: _or_nan(score) for name, score in [*history[place]["test"].items(), *features[at].items()]}
        for at, place in places.items()
    }
    return Outcome(
        steps=list(range(1, len(test) + 1)),
        train=train,
        validation=validation,
        test=test,
        last=test[-1],
        best_validation=test[places["best_validation"]],
        best_test=min(test, key=_or_infinite),
        details=details,
    )


def _places(history: _History) -> dict[str, int]:
    """The last epoch and the one that is best on validation, counted from 0."""
    scores = [_or_infinite(_or_nan(epoch["validation"][METRIC])) for epoch in history]
    return {"last": len(scores) - 1, "best_validation": scores.index(min(scores))}


def _or_nan(score: float | None) -> float:
    return math.nan if score is None else score


def _or_infinite(score: float) -> float:
    return math.inf if math.isnan(score) else score


def _data_key(recipe: Age) -> tuple[Any, ...]:
    return recipe.data, recipe.generated, recipe.skip_bad, recipe.image_size, recipe.memory


def _on_device(found: _Faces, device: str) -> _Faces:
    images = {split: own.to(device) for split, own in found.images.items()}
    return found._replace(images=images)


def _text(value: Any) -> str:
    """Of a value, for the name of a folder."""
    text = (
        ",".join(map(str, value)) if isinstance(value, tuple) else f"{value:g}" if isinstance(value, float) else value
    )
    return "".join(sign if sign.isalnum() or sign in ".,_-+" else "_" for sign in str(text))


_BY_SHOT = {"all": "", "many": "_many", "median": "_median", "few": "_few"}
_OF_FEATURES = {
    "entropy": "entropy",
    "conditional\nentropy": "conditional_entropy",
    "diversity": "diversity",
    "ordinality": "ordinality",
    "effective\nrank": "effective_rank",
}

TASKS = {
    "age": Task(
        "the age of a face",
        METRIC,
        True,
        PRESETS,
        (),
        train,
        evaluate,
        check,
        details={
            "Test MAE by shot": {heading: f"mae{end}" for heading, end in _BY_SHOT.items()},
            "Test GM by shot": {heading: f"gm{end}" for heading, end in _BY_SHOT.items()},
            "Features of test images": _OF_FEATURES,
            "Features of training images": {heading: f"train_{name}" for heading, name in _OF_FEATURES.items()},
        },
        paper_at="best_validation",  # as the benchmark has it
    )
}
