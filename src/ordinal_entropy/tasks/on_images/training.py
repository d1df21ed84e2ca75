"""The training of one run on images, resumed from its folder."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ordinal_entropy import methods
from ordinal_entropy.models.heads import replace_head, width_of
from ordinal_entropy.recipes.groups import LargeTraining
from ordinal_entropy.tasks import method_of
from ordinal_entropy.tasks.on_images.description import Dataset, OnImages, Prepared
from ordinal_entropy.training.outcomes import places
from ordinal_entropy.training.plans import Plan, Progress
from ordinal_entropy.training.runner import Group, OnScores

_LOG = logging.getLogger(__name__)


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
    """Of the test images, and as "train_..." of the training images, whose features the run kept."""
    from ordinal_entropy.vision.features import kept_scores

    test, train = (kept_scores(folder, part, epoch, device) for part in ("test", "train"))
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
