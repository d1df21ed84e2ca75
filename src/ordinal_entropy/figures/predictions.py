"""Maps that were predicted beside their images: input, truth, prediction and error in a row."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ordinal_entropy.figures.saving import blank, save

_COLOURS = "viridis"
_ERRORS = "RdBu_r"  # red: too much, blue: too little; both sides can be told apart by every eye
_NONE = "0.8"  # grey, where there is no truth
_HEIGHT = 1.75  # inches of a row


class Example(NamedTuple):
    """An image with two maps of one size, which may be another than the image's."""

    image: NDArray[np.uint8]  # (h, w, 3)
    truth: NDArray[np.floating[Any]]  # (h', w'); NaN where there is none
    prediction: NDArray[np.floating[Any]]  # (h', w')
    counts: tuple[float, float] | None = None  # true and predicted
    name: str = ""  # beside the row


def rms(example: Example) -> float:
    """The root of the mean squared error where there is a truth; NaN where there is none anywhere.

    Example:
        >>> image, truth = np.zeros((2, 2, 3), np.uint8), np.array([[1.0, np.nan]])
        >>> rms(Example(image, truth, np.array([[3.0, 7.0]])))
        2.0
    """
    squares = (example.prediction - example.truth)[np.isfinite(example.truth)] ** 2
    return float(np.sqrt(squares.mean())) if squares.size else float("nan")


def draw(examples: Sequence[Example], path: Path, *, label: str, unit: str, title: str) -> None:
    """Draws a row an example; truths and predictions share one scale of colours, errors have one around zero.

    Args:
        examples: one at least. The scales end at the 99th percentile of all truths and of all absolute errors.
        path: of the PNG; an SVG is written beside it.
        label: of the maps, such as "depth".
        unit: of the maps, such as "m".
        title: above.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    if not examples:
        raise ValueError("expected at least one example, got none")
    for each in examples:
        if each.image.ndim != 3 or each.image.shape[2] != 3 or each.truth.ndim != 2:
            raise ValueError(
                f"expected an image (h, w, 3) and a truth (h, w), got {each.image.shape} and {each.truth.shape}"
            )
        if each.truth.shape != each.prediction.shape:
            raise ValueError(f"expected a prediction of {each.truth.shape}, got {each.prediction.shape}")
    errors = [each.prediction - each.truth for each in examples]
    values = ScalarMappable(Normalize(*_ends([each.truth for each in examples])), _COLOURS)
    most = max(_ends([abs(error) for error in errors])[1], 1e-9)
    differences = ScalarMappable(Normalize(-most, most), _ERRORS)

    width = max(each.image.shape[1] / each.image.shape[0] for each in examples) * _HEIGHT
    size = (0.4 + 4 * width, 1.3 + (_HEIGHT + 0.25) * len(examples))
    figure = blank(size)
    cells = figure.add_gridspec(len(examples) + 1, 4, height_ratios=[1.0] * len(examples) + [0.07])  # bars come last
    grid = np.array([[figure.add_subplot(cells[row, column]) for column in range(4)] for row in range(len(examples))])
    for axes in grid.flat:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_facecolor(_NONE)
    for row, each, error in zip(grid, examples, errors, strict=True):
        height, across = each.image.shape[:2]
        over = {"extent": (0, across, height, 0)}  # maps of any size lie over the image
        row[0].imshow(each.image)
        row[1].imshow(each.truth, cmap=values.cmap, norm=values.norm, **over)
        row[2].imshow(each.prediction, cmap=values.cmap, norm=values.norm, **over)
        row[3].imshow(error, cmap=differences.cmap, norm=differences.norm, **over)
        row[0].set_ylabel(each.name)
        below = ["", "", "", f"RMS {rms(each):.3g} {unit}"]
        if each.counts is not None:
            true, ours = each.counts
            below = ["", f"{true:,.0f} in all", f"{ours:,.1f} in all", f"{ours - true:+,.1f} in all"]
        for axes, text in zip(row, below, strict=True):
            axes.set_xlabel(text, fontsize=9)
    for axes, heading in zip(grid[0], ("input", "truth", "prediction", "error: prediction - truth"), strict=True):
        axes.set_title(heading, fontsize=10)
    for shown, place, named in ((values, cells[-1, 1:3], label), (differences, cells[-1, 3], "error")):
        bar = figure.add_subplot(place)
        figure.colorbar(shown, cax=bar, orientation="horizontal", extend="both", label=f"{named} ({unit})")
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    save(figure, path)


def _ends(maps: Sequence[NDArray[np.floating[Any]]]) -> tuple[float, float]:
    """The least of all numbers, and the 99th percentile; 0 and 1 where there is none."""
    numbers = np.concatenate([each[np.isfinite(each)] for each in maps])
    return (float(numbers.min()), float(np.percentile(numbers, 99))) if numbers.size else (0.0, 1.0)
