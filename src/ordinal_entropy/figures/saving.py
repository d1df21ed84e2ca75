"""What all pictures have in common: how they begin, how axes look, and the files, PNG and SVG, for print."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ordinal_entropy import runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SALT = "ordinal-entropy"  # of the names inside an SVG, random without one: the same picture is the same file


def blank(size: tuple[float, float]) -> "Figure":
    """An empty figure of so many inches, drawn without a screen.

    Example:
        >>> blank((7, 4.8)).get_size_inches().tolist()
        [7.0, 4.8]
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained", dpi=150)
    FigureCanvasAgg(figure)
    return figure


def plain(axes: "Axes", axis: Literal["both", "x", "y"] = "both") -> None:
    """Gives axes a light grid behind what is drawn, and no frame above and on the right."""
    axes.grid(True, axis=axis, color="0.9", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def save(figure: "Figure", path: Path) -> None:
    """Writes a figure to ``path``, a PNG, and beside it with the ending .svg.

    The PNG is written last: where there is one, there are both.

    Example:
        >>> from matplotlib.figure import Figure
        >>> save(Figure(), Path("here.pdf"))
        Traceback (most recent call last):
        ValueError: expected a path that ends in .png, got here.pdf
    """
    from matplotlib import rc_context

    if path.suffix != ".png":
        raise ValueError(f"expected a path that ends in .png, got {path}")
    in_svg = rc_context({"svg.fonttype": "none", "svg.hashsalt": _SALT})  # text stays text, in the fonts of the page
    with in_svg, runs.replacing(path.with_suffix(".svg")) as file:
        figure.savefig(file, format="svg", metadata={"Date": None})
    with runs.replacing(path) as file:
        figure.savefig(file, format="png")
