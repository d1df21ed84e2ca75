"""Some test images of a trained run, drawn with what it predicts for them.

Pictures know nothing of tasks, so that this is where a run folder becomes arrays.
"""

from collections.abc import Sequence
from pathlib import Path

from ordinal_entropy import tasks
from ordinal_entropy.recipes import Setting

_MAPS = {"depth": ("depth", "m"), "crowd": ("density", "heads per cell")}  # what is predicted, and its unit


def draw_predictions(
    run: Path, path: Path, *, settings: Sequence[str | Setting] = (), count: int = 4, device: str = "cpu"
) -> None:
    """Draws input, truth, prediction and error of test images, by the checkpoint that is best on validation.

    Args:
        run: a run folder of a task on maps, ``depth`` or ``crowd``; its dataset is read once more.
        path: of the PNG; an SVG is written beside it.
        settings: keys of its recipe with other values, as ``--set`` takes them: ``data=OTHER``.
        count: of images, at most; the same ones in all runs on a dataset.
        device: to predict on.
    """
    from ordinal_entropy.figures.predictions import Example, draw

    name, plan = tasks.planned(run, settings)
    task = tasks.load(name)
    if task.pictured is None:
        raise ValueError(f"expected a run of {' or '.join(_MAPS)}, whose predictions are maps, got {run} of {name}")
    examples = [Example(*each) for each in task.pictured(plan, count, device=device, folder=run)]
    label, unit = _MAPS[name]
    title = f"Test images, {name}, {plan.method}, seed {plan.seed}, best on validation"
    draw(examples, path, label=label, unit=unit, title=title)
