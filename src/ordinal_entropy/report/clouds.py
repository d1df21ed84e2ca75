"""Saved features as clouds of points: several methods and epochs laid out together, on the plane and on the sphere.

The layout takes a while, so it is saved in a folder beside the page, by a hash of what it was made of.
"""

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import torch
from numpy.typing import NDArray

from ordinal_entropy import arrays, estimators, files, runs
from ordinal_entropy.comparison.text import count, number
from ordinal_entropy.figures import embedding
from ordinal_entropy.report.reading import FinishedRun, picture
from ordinal_entropy.results.distances import ordinality
from ordinal_entropy.results.figures import Figure
from ordinal_entropy.results.tables import Row, Table
from ordinal_entropy.vision import portraits

POINTS = 1600  # that are laid out together: methods x epochs x rows
_LEAST = 50  # rows of a method after an epoch, if there are as many: fewer methods and epochs are drawn instead
_MOST_ROWS = 600
_MOST_EPOCHS = 4
_LARGEST_PICTURE = 700_000  # bytes
_PARTS = ("image", "test", "train")  # the first that every run has
_TITLES = {"image": "one test image", "test": "test rows", "train": "training rows"}

Array = NDArray[Any]
_Key = tuple[str, int]  # method and epoch
Progress = Callable[[int, int], None]


class Cloud(NamedTuple):
    """What the page's script draws, and the same in numbers."""

    content: dict[str, Any]
    table: Table
    caption: str
    distances: Figure | None  # of the features against those of the targets, after the last epoch


class _Saved(NamedTuple):
    """Of one method after one epoch."""

    features: Array  # (n, d)
    targets: Array  # (n,)
    predictions: Array | None  # (n,)
    places: Array | None  # (n, 2)


def missing() -> str | None:
    """Which package the drawing lacks, in a sentence; None if it is all there."""
    lacking = [
        name for name, module in (("scikit-learn", "sklearn"), ("safetensors", "safetensors")) if not find_spec(module)
    ]
    if not lacking:
        return None
    return f"that needs {' and '.join(lacking)}: pip install 'ordinal-entropy[train,report]', then make the page again"


def cloud(chosen: Mapping[str, FinishedRun], cache: Path, progress: Progress | None = None) -> Cloud | None:
    """The features that runs saved, laid out together.

    Args:
        chosen: a run for each method, all of one seed.
        cache: folder of layouts.
        progress: told how many layouts are done, and how many there are.

    Returns:
        None where the runs saved no features.

    Raises:
        ValueError: what they saved does not go together, or cannot be laid out.
    """
    places = {name: run.features for name, run in chosen.items()}
    found = {name: place for name, place in places.items() if place is not None}
    part = next((part for part in _PARTS if found and all(_epochs(place, part) for place in found.values())), None)
    if part is None:
        return None
    names = list(found)[: max(1, POINTS // (2 * _LEAST))]
    shared = sorted(set.intersection(*(set(_epochs(found[name], part)) for name in names)))
    if not shared:
        raise ValueError("expected features after the same epochs of every method, got none that all have")
    epochs = _spread_out(shared, max(2, min(_MOST_EPOCHS, POINTS // (_LEAST * len(names)))))
    saved = {(name, epoch): _read(found[name], part, epoch) for name in names for epoch in epochs}
    first = saved[names[0], epochs[0]]
    lost = [name for name in names if not all(_fits(saved[name, epoch], first) for epoch in epochs)]
    names = [name for name in names if name not in lost]
    if not names:
        raise ValueError("expected finite features, got some that are not, of every method")
    total = len(first.features)
    rows = embedding.drawn(total, min(_MOST_ROWS, POINTS // (len(names) * len(epochs))))
    drawn = {(name, epoch): saved[name, epoch].features[rows] for name in names for epoch in epochs}
    flat = _laid_out(drawn, 2, cache)
    _tell(progress, 1)
    sphere = _laid_out(drawn, 3, cache)
    _tell(progress, 2)
    return Cloud(
        _content(names, epochs, rows, saved, flat, sphere, part, found[names[0]]),
        _table(names, epochs, rows, saved),
        _caption(part, rows, total, names, list(found), epochs, shared, lost, next(iter(chosen.values())).seed),
        _distances({name: saved[name, epochs[-1]] for name in names}, rows),
    )


def _content(
    names: Sequence[str],
    epochs: Sequence[int],
    rows: Array,
    saved: Mapping[_Key, _Saved],
    flat: Mapping[_Key, Array],
    sphere: Mapping[_Key, Array],
    part: str,
    folder: Path,
) -> dict[str, Any]:
    """For the page's script: coordinates of a method after an epoch as one flat list of whole thousandths."""
    first = saved[names[0], epochs[0]]
    low, high = float(first.targets.min()), float(first.targets.max())
    everywhere = numpy.concatenate(list(flat.values()))
    middle = (everywhere.max(axis=0) + everywhere.min(axis=0)) / 2
    reach = float(numpy.abs(everywhere - middle).max()) or 1.0
    predicted = first.predictions is not None
    content: dict[str, Any] = {
        "methods": list(names),
        "epochs": list(epochs),
        "time": _time(epochs),
        "rows": rows.tolist(),
        "total": len(first.features),
        "what": _TITLES[part],
        "range": [low, high],
        "targets": _short(first.targets[rows]),
        "flat": [[_thousandths((flat[name, epoch] - middle) / reach) for epoch in epochs] for name in names],
        "sphere": [[_thousandths(sphere[name, epoch]) for epoch in epochs] for name in names],
        "predictions": [[_short(_predictions(saved[name, epoch])[rows]) for epoch in epochs] for name in names]
        if predicted
        else None,
    }
    if first.places is not None:
        down, across = (numpy.unique(first.places[:, k], return_inverse=True) for k in (0, 1))
        content["grid"] = {
            "height": len(down[0]),
            "width": len(across[0]),
            "cells": (down[1] * len(across[0]) + across[1]).tolist(),  # of every saved row
            "places": first.places[rows].tolist(),
            "size": [int(side.max()) + 1 for side in first.places.T],
            "targets": _bytes(first.targets, low, high),
            "predictions": [[_bytes(_predictions(saved[name, epoch]), low, high) for epoch in epochs] for name in names]
            if predicted
            else None,
            "thumbnail": picture(folder / "image.png", folder, "png", _LARGEST_PICTURE),
        }
    elif part == "test":
        sheet = picture(folder / "test.jpg", folder, "jpeg", _LARGEST_PICTURE)
        content["sheet"] = sheet and {"picture": sheet, "columns": portraits.COLUMNS}  # a square for each saved row
    return content


def _table(names: Sequence[str], epochs: Sequence[int], rows: Array, saved: Mapping[_Key, _Saved]) -> Table:
    """What the clouds show, as numbers: how much the features keep the order of the targets, how far they spread."""
    found = []
    for name in names:
        for epoch in dict.fromkeys((epochs[0], epochs[-1])):
            own = saved[name, epoch]
            z, y = torch.tensor(own.features[rows], dtype=torch.float64), torch.tensor(own.targets[rows])[:, None]
            cells = [
                number(float(estimators.ordinality(z, y))),
                number(float(estimators.mean_nn_entropy(z, normalize=True))),
                number(float(estimators.effective_rank(z))),
            ]
            found.append(Row(f"{name}, {_time(epochs)} {epoch}", cells))
    headings = ["ordinality", "meanNN entropy on the sphere", "effective rank"]
    return Table("The features that are drawn", headings, found)


def _distances(last: Mapping[str, _Saved], rows: Array) -> Figure | None:
    """Of the rows that are drawn and have a target; None where there are no two."""
    targets = next(iter(last.values())).targets[rows]
    known = numpy.isfinite(targets)
    if known.sum() < 2:
        return None
    features = {name: own.features[rows][known] for name, own in last.items()}
    return ordinality(features, dict.fromkeys(features, targets[known]), names={name: name for name in features})


def _caption(
    part: str,
    rows: Array,
    total: int,
    names: Sequence[str],
    of_names: Sequence[str],
    epochs: Sequence[int],
    of_epochs: Sequence[int],
    lost: Sequence[str],
    seed: int,
) -> str:
    drawn = f"{len(rows):,} of {total:,} rows" if len(rows) < total else f"all {count(total, 'row')}"
    after = (
        f"{len(epochs)} of {count(len(of_epochs), _time(epochs))}"
        if len(epochs) > 1
        else f"{_time(epochs)} {epochs[0]}"
    )
    whose = f"{len(names)} of {len(of_names)} methods" if len(names) < len(of_names) else count(len(names), "method")
    ends = " The colours of maps end with the range of the targets." if part == "image" else ""
    without = f" Left out, not finite or of other rows: {', '.join(lost)}." if lost else ""
    return (
        f"Features of {_TITLES[part]}, seed {seed}: {drawn}, {after}, {whose}, laid out together by t-SNE, so that "
        f"places can be compared; distances far apart mean little. The colour is the target.{ends}{without}"
    )


def _laid_out(features: Mapping[_Key, Array], dimensions: int, cache: Path) -> dict[_Key, Array]:
    """From the cache, or computed and put there."""
    digest = hashlib.sha256(f"{dimensions}".encode())
    for name, own in features.items():
        digest.update(repr((name, own.shape)).encode() + numpy.ascontiguousarray(own, "float32").tobytes())
    path, ends = cache / f"{digest.hexdigest()[:24]}.npy", numpy.cumsum([len(own) for own in features.values()])
    places = _cached(path)
    if places is None or places.shape != (ends[-1], dimensions):
        laid = embedding.layout(features, dimensions=dimensions)
        places = numpy.concatenate([laid[name] for name in features]).astype("float32")
        with suppress(OSError), runs.replacing(path) as file:  # where it cannot be saved, it is computed again
            numpy.save(file, places)
    return dict(zip(features, numpy.split(places, ends[:-1]), strict=True))


def _cached(path: Path) -> Array | None:
    """None where there is no such file, or a broken one."""
    try:
        return arrays.npy(path).read()
    except (OSError, ValueError):
        return None


def _time(epochs: Sequence[int]) -> str:
    """Runs on images keep features from the first epoch on, stacks after many steps each."""
    return "epoch" if epochs[0] == 1 else "step"


def _epochs(folder: Path, part: str) -> list[int]:
    """After which features were saved."""
    numbers = [path.stem.removeprefix(f"{part}-") for path in folder.glob(f"{part}-*.safetensors")]
    return sorted(int(text) for text in numbers if text.isdigit())


def _read(folder: Path, part: str, epoch: int) -> _Saved:
    from safetensors.numpy import load_file

    path = folder / f"{part}-{epoch:04d}.safetensors"
    try:
        files.size(path)  # a pipe would be waited for
        content = load_file(path)
    except Exception as error:  # safetensors has errors of its own
        raise ValueError(f"expected saved features in {path.name}, got something else: {error}") from error
    n = len(content["features"])
    return _Saved(
        content["features"].reshape(n, -1).astype("float32"),
        content["targets"].reshape(n, -1)[:, 0].astype("float64"),
        content["predictions"].reshape(n, -1)[:, 0].astype("float64") if "predictions" in content else None,
        content.get("places"),
    )


def _fits(own: _Saved, first: _Saved) -> bool:
    """Whether they are features of the same rows."""
    same = own.targets.shape == first.targets.shape and bool(numpy.allclose(own.targets, first.targets, equal_nan=True))
    return (
        same and bool(numpy.isfinite(own.features).all()) and (own.predictions is None) == (first.predictions is None)
    )


def _predictions(own: _Saved) -> Array:
    if own.predictions is None:
        raise ValueError("expected predictions of every method, got none of some")
    return own.predictions


def _thousandths(points: Array) -> list[int]:
    whole: list[int] = numpy.rint(1000 * points).astype(int).ravel().tolist()
    return whole


def _short(values: Array) -> list[float | None]:
    return [float(f"{value:.4g}") if numpy.isfinite(value) else None for value in values]


def _bytes(values: Array, low: float, high: float) -> str:
    """0 to 254 over the range of the targets, cut off at its ends; 255 for what is no number."""
    span = (high - low) or 1.0
    finite = numpy.isfinite(values)
    levels = numpy.rint(254 * numpy.clip((numpy.where(finite, values, low) - low) / span, 0, 1))
    return base64.b64encode(numpy.where(finite, levels, 255).astype("uint8").tobytes()).decode()


def _spread_out(values: Sequence[int], most: int) -> list[int]:
    """At most ``most`` of the values, evenly spaced, the first and the last among them.

    Example:
        >>> _spread_out([1, 2, 3, 4, 5, 6, 7], 3), _spread_out([4, 9], 3)
        ([1, 4, 7], [4, 9])
    """
    if len(values) <= most:
        return list(values)
    return [values[round(k * (len(values) - 1) / (most - 1))] for k in range(most)]


def _tell(progress: Progress | None, done: int) -> None:
    if progress is not None:
        progress(done, 2)
