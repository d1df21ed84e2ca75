"""Features laid out by t-SNE, all methods in one space: on a plane, or on the sphere."""

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ordinal_entropy.figures.saving import blank, save

MOST_ROWS = 10_000  # of all methods together: minutes; half as many in 2 dimensions take a quarter of one
_PERPLEXITY = 30.0  # about so many neighbours of a row count
_COLOURS = "viridis"  # the same order of lightness for every eye, and in grey
_FRONT = np.array([1.0, -1.0, 0.6])  # where the globe is looked at from

Key = TypeVar("Key", bound=Hashable)
Numbers = NDArray[np.floating[Any]]


def layout(features: Mapping[Key, Numbers], *, dimensions: int, seed: int = 0) -> dict[Key, Numbers]:
    """Places of all rows in one t-SNE of all methods, so that what lies together there is alike, whatever its method.

    Distances are those of L2-normalised features, where the regularizer acts. The same rows and seed have the same
    places on one machine, however many cores it has: one is used.

    Args:
        features: ``(n, d)`` by method, or by any other key, such as method and epoch; ``n`` may differ, ``d`` may not.
            Two rows in all at least and ``MOST_ROWS`` at most; :func:`drawn` chooses some.
        dimensions: 2; or 3, for rows on the unit sphere: the layout divided by its norm.
        seed: of the small differences that rows begin with beside their principal components.

    Returns:
        ``(n, dimensions)`` in float64, by the same keys in the same order.

    Example:
        >>> cloud = np.random.default_rng(0).normal(size=(40, 5))
        >>> found = layout({"baseline": cloud, "oe": cloud + 1}, dimensions=3)
        >>> found["oe"].shape, float(np.linalg.norm(found["oe"][0]).round(6))
        ((40, 3), 1.0)
    """
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # of scikit-learn itself

    if dimensions not in (2, 3):
        raise ValueError(f"expected 2 or 3 dimensions, got {dimensions}")
    rows = _unit_rows(features)
    with threadpool_limits(1):  # sums in one order; and threads that wait for each other are slower than one
        places = TSNE(
            dimensions, perplexity=min(_PERPLEXITY, max((len(rows) - 1) / 3, 1.0)), init=_first(rows, dimensions, seed)
        ).fit_transform(rows.astype(np.float32))
    places = places.astype(np.float64)
    if dimensions == 3:
        places /= np.linalg.norm(places, axis=1, keepdims=True)
    ends = np.cumsum([len(own) for own in features.values()])
    return dict(zip(features, np.split(places, ends[:-1]), strict=True))


def drawn(count: int, most: int, *, seed: int = 0) -> NDArray[np.intp]:
    """Which of so many rows are laid out: up to ``most``, in ascending order, the same for methods with as many rows.

    Example:
        >>> drawn(3, most=10), drawn(100, most=4)
        (array([0, 1, 2]), array([ 5, 20, 36, 82]))
    """
    return np.sort(np.random.default_rng(seed).permutation(count)[:most])


def draw(
    places: Mapping[str, Numbers],
    values: Mapping[str, Numbers],
    path: Path,
    *,
    names: Mapping[str, str],
    label: str,
    title: str,
) -> None:
    """Draws one panel a method; on the sphere two, its near side and its far side. The others' rows are grey in it.

    Args:
        places: ``(n, 2)`` or ``(n, 3)`` by method, as :func:`layout` gives them.
        values: ``(n,)`` or ``(n, 1)`` by method, which the rows are coloured by: predictions or targets. The colours
            end at the 2nd and 98th percentile of all.
        path: of the PNG; an SVG is written beside it, with the rows as pixels.
        names: of the methods, each with what its panel is called; those without places have an empty one.
        label: of the colours, with the unit.
        title: above.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    if set(places) != set(values) or not set(places) <= set(names):
        raise ValueError(
            f"expected places and values of the same methods among {', '.join(names)}, got places of "
            f"{', '.join(places) or 'none'} and values of {', '.join(values) or 'none'}"
        )
    for name, own in places.items():
        if own.ndim != 2 or own.shape[1] not in (2, 3) or np.size(values[name]) != len(own):
            raise ValueError(
                f"expected places (n, 2) or (n, 3) and n values of {name}, got {own.shape} and {np.shape(values[name])}"
            )
    sphere = any(own.shape[1] == 3 for own in places.values())
    sides = [(1, "near side"), (-1, "far side")] if sphere else [(0, "t-SNE 2")]
    together = np.concatenate([np.ravel(own) for own in values.values()]) if values else np.zeros(1)
    colours = ScalarMappable(Normalize(*np.percentile(together, (2, 98))), _COLOURS)
    figure = blank((0.9 + 2.6 * len(names), 0.9 + 2.45 * len(sides)))
    grid = figure.subplots(len(sides), len(names), squeeze=False, sharex=True, sharey=True)
    for row, (side, what) in enumerate(sides):
        near = {name: _near(own, side) if side else np.full(len(own), True) for name, own in places.items()}
        seen = {name: (_across_and_up(own, side) if side else own)[near[name]] for name, own in places.items()}
        for column, (name, called) in enumerate(names.items()):
            axes = grid[row, column]
            if row == 0:
                axes.set_title(called, fontsize=10)
            if column == 0:
                axes.set_ylabel(what)
            if side:
                _draw_globe(axes, side)
            else:
                axes.set_xlabel("t-SNE 1")
            axes.set_xticks([])  # a layout has no unit
            axes.set_yticks([])
            axes.set_box_aspect(1)
            for other, own in seen.items():
                if other != name:
                    axes.scatter(own[:, 0], own[:, 1], s=2, color="0.88", linewidths=0, rasterized=True)
            if name in seen:
                axes.scatter(
                    seen[name][:, 0],
                    seen[name][:, 1],
                    s=7,
                    c=np.ravel(values[name])[near[name]],
                    cmap=colours.cmap,
                    norm=colours.norm,
                    linewidths=0,
                    zorder=3,
                    rasterized=True,
                )
            else:
                axes.text(0.5, 0.5, "no number", ha="center", va="center", transform=axes.transAxes, color="0.4")
    figure.colorbar(colours, ax=grid, label=label, extend="both", aspect=30, pad=0.02)
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    save(figure, path)


def _unit_rows(features: Mapping[Key, Numbers]) -> Numbers:
    """All rows in float64, each divided by its norm; one of zeros stays."""
    widths = []
    for name, own in features.items():
        if own.ndim != 2:
            raise ValueError(f"expected features (n, d) of {name}, got {own.shape}")
        if not np.isfinite(own).all():
            count = int((~np.isfinite(own)).any(axis=1).sum())
            raise ValueError(f"expected finite features of {name}, got {count:,} of {len(own):,} rows with others")
        widths.append(own.shape[1])
    if len(set(widths)) > 1:
        each = ", ".join(f"{name}: {width}" for name, width in zip(features, widths, strict=True))
        raise ValueError(f"expected features of as many dimensions for all methods, got {each}")
    count = sum(map(len, features.values()))
    if not 2 <= count <= MOST_ROWS:
        raise ValueError(f"expected 2 to {MOST_ROWS:,} rows of all methods together, got {count:,}")
    rows = np.concatenate([own.astype(np.float64) for own in features.values()])
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Numbers = rows / np.where(norms > 0, norms, 1)
    return unit


def _first(rows: Numbers, dimensions: int, seed: int) -> Numbers:
    """Where rows begin: at their principal components, made small, and a little beside, so that equal ones part."""
    centred = rows - rows.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T @ centred)  # their variances ascend
    places = np.zeros((len(rows), dimensions))
    components = centred @ directions[:, ::-1][:, :dimensions]
    places[:, : components.shape[1]] = components
    spread = places[:, 0].std()
    places *= 1e-4 / spread if spread > 1e-9 else 0.0
    places += 1e-6 * np.random.default_rng(seed).normal(size=places.shape)
    return places.astype(np.float32)


def _frame() -> Numbers:
    """Rows: to the right, up, and towards the one who looks at the near side."""
    towards = _FRONT / np.linalg.norm(_FRONT)
    right = np.cross([0.0, 0.0, 1.0], towards)
    right /= np.linalg.norm(right)
    return np.stack([right, np.cross(towards, right), towards])


def _near(places: Numbers, side: int) -> NDArray[np.bool_]:
    """Which rows of the sphere are on the near side (1) or on the far side (-1)."""
    near: NDArray[np.bool_] = side * (places @ _frame()[2]) >= 0
    return near


def _across_and_up(places: Numbers, side: int) -> Numbers:
    """As one sees them from that side, far away: ``(n, 2)``."""
    right, up, _ = _frame()
    return np.stack([side * (places @ right), places @ up], axis=1)


def _draw_globe(axes: Any, side: int) -> None:
    """Its outline, and circles of latitude and longitude."""
    turn = np.linspace(0, 2 * np.pi, 181)
    axes.plot(np.cos(turn), np.sin(turn), color="0.7", linewidth=0.8)
    circles = [
        np.stack([np.cos(a) * np.cos(turn), np.cos(a) * np.sin(turn), np.full_like(turn, np.sin(a))], axis=1)
        for a in np.radians([-60, -30, 0, 30, 60])
    ]
    circles += [
        np.stack([np.cos(turn) * np.cos(a), np.cos(turn) * np.sin(a), np.sin(turn)], axis=1)
        for a in np.radians([0, 30, 60, 90, 120, 150])
    ]
    for circle in circles:
        seen = np.where(_near(circle, side)[:, None], _across_and_up(circle, side), np.nan)
        axes.plot(seen[:, 0], seen[:, 1], color="0.85", linewidth=0.5)
    for edge in axes.spines.values():
        edge.set_visible(False)
    axes.set_xlim(-1.05, 1.05)
    axes.set_ylim(-1.05, 1.05)
