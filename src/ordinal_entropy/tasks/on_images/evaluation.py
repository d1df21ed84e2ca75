"""Scores of a run on images, computed anew from its checkpoints."""

from pathlib import Path
from typing import Any

import torch

from ordinal_entropy import runs
from ordinal_entropy.models.heads import replace_head
from ordinal_entropy.tasks.on_images.description import OnImages, Prepared
from ordinal_entropy.tasks.on_images.training import threads_of
from ordinal_entropy.training.checkpoints import BEST, LAST, OfImages, load_images
from ordinal_entropy.training.outcomes import PARTS
from ordinal_entropy.training.plans import Plan, trained_in


def evaluate(task: OnImages, plan: Plan, *, device: str, folder: Path) -> dict[str, float]:
    """Scores of one run by its last checkpoint, on the dataset that the recipe names now.

    Returns:
        "step" (epochs done), the score on the images of each split, the further ones of the task, and the score on the
        test images by the checkpoint that is best on validation.
    """
    from ordinal_entropy.training.large import predicting

    place = trained_in(folder, plan, LAST)
    last, best = (load_images(place / name) for name in (LAST, BEST))
    made, network = restored(task, plan, last)
    scores: dict[str, float] = {"step": last.epoch}

    def scored(part: str) -> dict[str, float]:
        split = getattr(made.data, part)
        with threads_of(plan.recipe, device):
            return predicting.scored(network, made.method, made.metric, split, plan.recipe.training, device=device)

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
    from ordinal_entropy.training.large.optimization import in_precision, lay_out

    with checkpoint.reading():
        runs.require_form(checkpoint.facts, {"mean": [float], "std": [float], **task.facts}, "facts")
        if not len(checkpoint.facts["mean"]) == len(checkpoint.facts["std"]) == 3:
            raise ValueError("expected a mean and a standard deviation of three channels")
    made = task.prepare(plan, task.read(plan.recipe), checkpoint.facts)
    in_precision(made.method, plan.recipe.training)
    checkpoint.restore_method(made.method)
    with torch.random.fork_rng(devices=[]):
        network: Any = made.make_network()
        replace_head(network, network.feature_layer, made.method)
    network.mean, network.std = checkpoint.facts["mean"], checkpoint.facts["std"]
    lay_out(network, plan.recipe.training)
    with checkpoint.reading():
        network.load_state_dict(checkpoint.weights)
    return made, network
