"""Runs on images: trained, resumed from their folders, scored again, pictured; and the task that is made of this."""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from ordinal_entropy import methods
from ordinal_entropy.models.heads import replace_head, width_of
from ordinal_entropy.recipes.groups import LargeTraining
from ordinal_entropy.tasks import Task, method_of
from ordinal_entropy.tasks.on_images import using
from ordinal_entropy.tasks.on_images.description import Dataset, OnImages, Prepared
from ordinal_entropy.tasks.using import point_of
from ordinal_entropy.training.checkpoints import BEST, LAST, OfImages, load_images
from ordinal_entropy.training.plans import PARTS, Plan, Progress, places, trained_in
from ordinal_entropy.training.runner import Group, OnScores, Trainable

_AT_ONCE = 32  # images that are scored without a network
_LOG = logging.getLogger(__name__)
_OF_FEATURES = {
    "entropy": "entropy",
    "conditional\nentropy": "conditional_entropy",
    "diversity": "diversity",
    "ordinality": "ordinality",
    "effective\nrank": "effective_rank",
}
_FEATURE_TABLES = {
    "Features of test images": _OF_FEATURES,
    "Features of training images": {heading: f"train_{name}" for heading, name in _OF_FEATURES.items()},
}


def check_method(task: OnImages, plan: Plan) -> None:
    """Refuses a method that this training cannot honour; no image is read."""
    from ordinal_entropy.training.large.module import require_trainable

    require_trainable(method_of(plan), task.views(plan.recipe), plan.recipe.training)


def train_run(
    task: OnImages, group: Group, dataset: Dataset, device: str, progress: Progress | None, on_scores: OnScores
) -> None:
    """Trains a group of one run to its end."""
    from ordinal_entropy.training.large.fitting import fit
    from ordinal_entropy.training.large.module import Callbacks, Training

    ((plan, run),) = group
    with threads_of(plan.recipe, device):
        made = task.prepare(plan, dataset, None)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(plan.seed)  # the same first weights whatever the method
            network: Any = made.make_network()
            _prepare_method(made, network, plan.recipe.training)
        module = Training(
            network,
            made.method,
            made.loss,
            made.metric,
            made.data,
            plan.recipe.training,
            seed=plan.seed,
            train_metric=made.train_metric,
            folder=run.path,
            facts={**made.facts, "mean": network.mean, "std": network.std},
            callbacks=Callbacks(lambda epoch, scores: on_scores(epoch, [scores]), progress),
        )
        history = fit(module, device=device, folder=run.path, monitor=task.metric)
        first = methods.first_epochs(made.method, plan.recipe.training.epochs)
        at = places(history, task.metric, first)
        features = {point: _feature_scores(run.path, place + 1, device) for point, place in at.items()}
    found = {"first_stage": first, "notes": made.method.notes}
    noted = {name: value for name, value in found.items() if value}
    run.finish({"history": history, "features": features, **noted, "left_out": dataset.left_out})


def _feature_scores(folder: Path, epoch: int, device: str) -> dict[str, float]:
    """Of the test images, and as "train_..." of the training images, whose features the run saved."""
    from ordinal_entropy.training.saved_features import saved_scores

    test, train = (saved_scores(folder, part, epoch, device) for part in ("test", "train"))
    return {**test, **{f"train_{name}": score for name, score in train.items()}}


def _prepare_method(made: Prepared, network: Any, own: LargeTraining) -> None:
    """Shows a method the targets to train on, and gives the network its head; a checkpoint then has the last word."""
    from ordinal_entropy.training.large.optimization import in_precision

    in_precision(made.method, own)
    width = width_of(network.get_submodule(network.feature_layer))
    made.method.prepare(made.data.train.target_rows(), None, width)
    for note in made.method.notes:
        _LOG.warning("%s", note)
    replace_head(network, network.feature_layer, made.method)


@contextmanager
def threads_of(recipe: Any, device: str) -> Iterator[None]:
    """The threads of a run, where a CPU computes it: the order of its sums, and so its rounding, follows from them."""
    before = torch.get_num_threads()
    if torch.device(device).type == "cpu":
        torch.set_num_threads(recipe.training.threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def evaluate(task: OnImages, plan: Plan, *, device: str, folder: Path) -> dict[str, float]:
    """Scores of one run by its last checkpoint, on the dataset that the recipe names now.

    Returns:
        "step" (epochs done), the score on the images of each split, the further ones of the task, and the score on the
        test images by the checkpoint that is best on validation.
    """
    from ordinal_entropy.training.large import batches

    place = trained_in(folder, plan, LAST)
    last, best = (load_images(place / name) for name in (LAST, BEST))
    made, network = restored(task, plan, last)
    scores: dict[str, float] = {"step": last.epoch}

    def scored(part: str) -> dict[str, float]:
        split = getattr(made.data, part)
        with threads_of(plan.recipe, device):
            return batches.scored(network, made.method, made.metric, split, plan.recipe.training, device=device)

    for part in PARTS:
        found = scored(part)
        scores[part] = found[task.metric]
    scores |= {f"test, {what}": found[name] for what, name in task.shown.items()}
    best.restore_method(made.method)
    with best.reading():
        network.load_state_dict(best.weights)
    scores["test, best on validation"] = scored("test")[task.metric]
    return scores


def restored(task: OnImages, plan: Plan, checkpoint: OfImages) -> tuple[Prepared, Any]:
    """A run that is trained, on the dataset that the recipe names now, and its network as in the checkpoint."""
    method, network = using.restored(task, plan, checkpoint)
    return task.prepare(plan, task.read(plan.recipe), checkpoint.facts)._replace(method=method), network


def used(task: OnImages, plan: Plan, *, at: str | None, device: str, folder: Path) -> using.UsedImages:
    """A run to predict with, by one of its checkpoints."""
    point = point_of(at)
    place = trained_in(folder, plan, LAST)
    there = load_images(place / {"best_validation": BEST, "last": LAST}[point])
    method, network = using.restored(task, plan, there)
    return using.UsedImages(task, plan, network, method, there.facts, place, there.epoch, point, device)


def references(task: OnImages, recipe: Any, seeds: Sequence[int], without: Collection[str]) -> dict[str, list[float]]:
    """The score on the test images of the constant of the training images of each seed."""
    dataset = task.read(recipe)
    if not recipe.data.train_rows:  # every seed trains on all of them
        return {"constant": [_of_constant(task, Plan("baseline", 0, recipe), dataset)] * len(seeds)}
    return {"constant": [_of_constant(task, Plan("baseline", seed, recipe), dataset) for seed in seeds]}


def _of_constant(task: OnImages, plan: Plan, dataset: Dataset) -> float:
    from ordinal_entropy.training.large.batches import numbers_of
    from ordinal_entropy.vision.split import Picked

    made = task.prepare(plan, dataset, None)
    predicted, metric = task.constant(made.data.train), made.metric.clone()
    for rows in made.data.test.batches(_AT_ONCE):
        split = made.data.test.take(rows)
        own = torch.arange(len(split))
        seen = split.seen(Picked(own, own.tolist()), None)
        metric.update(*split.scored(predicted(seen), seen))
    return numbers_of(metric.compute())[task.metric]


class Pictured(NamedTuple):
    """A test image as a picture of it needs it."""

    image: NDArray[np.uint8]  # (h, w, 3)
    truth: NDArray[np.float32]  # (h', w'); NaN where there is none
    prediction: NDArray[np.float32]  # (h', w')
    counts: tuple[float, float] | None = None  # true and predicted, where that is what is scored


def pictured(task: OnImages, plan: Plan, count: int, *, device: str, folder: Path) -> list[Pictured]:
    """Some test images with their maps, predicted by the checkpoint of a run that is best on validation.

    Args:
        task: of maps.
        plan: of the run.
        count: of images, at most; the same in every run on a dataset, and the same first ones whatever the count.
        device: "cpu", "cuda", ...
        folder: of the run, or of all runs.

    Returns:
        Maps in the unit of the targets; smaller predictions are enlarged bilinearly to the size of the truth.
    """
    from ordinal_entropy.training.large.batches import predicted
    from ordinal_entropy.training.large.files import fixed_rows

    assert task.truth is not None
    if count < 1:
        raise ValueError(f"expected at least one image, got {count}")
    best = load_images(trained_in(folder, plan, LAST) / BEST)
    made, network = restored(task, plan, best)
    found = []
    for row in fixed_rows(len(made.data.test), count).split(1):  # one by one: sizes may differ
        split = made.data.test.take(row)
        (pair,) = predicted(network, made.method, split, plan.recipe.training, device=device)
        predictions, seen = pair
        truth = task.truth(seen)
        maps = F.interpolate(predictions, size=truth.shape[2:], mode="bilinear", align_corners=False)
        ours, theirs = split.scored(predictions, seen)
        frame = seen.images.shape[2:]
        own = split.extent(0) or frame  # what lies beyond is not of the image
        image, theirs_map, our_map = (
            each[0, ..., : own[0] * each.shape[2] // frame[0], : own[1] * each.shape[3] // frame[1]]
            for each in (seen.images, truth, maps)
        )
        found.append(
            Pictured(
                image.permute(1, 2, 0).to("cpu", torch.uint8).numpy(),
                theirs_map[0].float().cpu().numpy(),
                our_map[0].float().cpu().numpy(),
                (float(theirs), float(ours)) if ours.dim() == 1 else None,
            )
        )
    return found


def task(
    own: OnImages,
    *,
    about: str,
    presets: Mapping[str, Any],
    check: Callable[[Any], None],
    details: Mapping[str, Mapping[str, str]],
    paper_at: str = "best_test",
) -> Task:
    """The task that the command line and the studies know; arguments as of :class:`ordinal_entropy.tasks.Task`."""
    return Task(
        Trainable(
            own.name,
            own.metric,
            read=partial(_read, own),
            data_key=partial(_data_key, own),
            train_group=partial(train_run, own),
            processes=_processes,
        ),
        about,
        presets,
        fixed=(),
        evaluate=partial(evaluate, own),
        used=partial(used, own),
        check_method=partial(check_method, own),
        check=check,
        details={**details, **_FEATURE_TABLES},
        paper_at=paper_at,
        references=partial(references, own),
        constant=own.constant_is,
        pictured=None if own.truth is None else partial(pictured, own),
    )


def _read(own: OnImages, recipe: Any, device: str) -> Any:
    return own.read(recipe).to(device)


def _data_key(own: OnImages, recipe: Any) -> tuple[Any, ...]:
    return tuple(getattr(recipe.data, name) for name in own.read_keys)


def _processes(recipe: Any) -> int:
    count: int = recipe.training.processes
    return count
