"""A picture on the disk: as PNG, and as SVG beside it, for print."""

from pathlib import Path
from typing import TYPE_CHECKING

from ordinal_entropy import runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SALT = "ordinal-entropy"  # of the names inside an SVG, random without one: the same picture is the same file


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
