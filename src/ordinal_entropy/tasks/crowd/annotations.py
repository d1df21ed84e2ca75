"""Annotated heads out of a ``.mat`` file, distrusted: an array of points, or an error that says what is wrong."""

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordinal_entropy.files import FileError
from ordinal_entropy.tasks import matlab
from ordinal_entropy.tasks.matlab import MatlabError

Points = NDArray[np.float64]  # (n, 2): x to the right and y down, in pixels; pixel k reaches from k to k + 1

MAX_BYTES = 16_000_000  # of a file, packed or not: a million points
EDGE = 1.0  # pixels that a point may lie beyond the border: some count pixels from 1


class AnnotationError(FileError):
    """A file that does not say where the heads are."""

    expected = "annotated points"


def read(path: str | os.PathLike[str]) -> Points:
    """The points in a file, ``(n, 2)``: ``image_info{1,1}.location``, or ``image_info.location`` without the cell.

    Nobody in the picture is ``(0, 2)``. A ``number`` beside the points, where there is one, must be their count.

    Args:
        path: a file of MATLAB 5 to 7.2.

    Raises:
        AnnotationError: missing, damaged, too large, without points, with a count that is not theirs or with numbers
            that are not finite; its ``reason`` says which.

    Example:
        >>> read("GT_no such image.mat")
        Traceback (most recent call last):
        ordinal_entropy.tasks.crowd.annotations.AnnotationError: expected annotated points in GT_no such image.mat,
        got: missing
    """
    try:
        return _points(matlab.read(path, max_bytes=MAX_BYTES))
    except MatlabError as error:
        raise AnnotationError(path, str(error)) from error


def outside(points: Points, height: int, width: int) -> str | None:
    """How many points lie outside an image of this size, as a phrase; None where all are inside.

    Up to a pixel beyond the border is let pass: annotations that count from 1 reach there.

    Example:
        >>> outside(np.array([[3.0, 2.0], [8.5, 2.0], [70.0, 2.0]]), height=6, width=8)
        '1 of 3 points outside the image of 8 x 6, the first at x=70 y=2'
    """
    wrong = (points < -EDGE) | (points > np.array([width, height]) + EDGE)
    rows = np.flatnonzero(wrong.any(axis=1))
    if not len(rows):
        return None
    x, y = points[rows[0]]
    return (
        f"{len(rows):,} of {_count(len(points))} outside the image of {width} x {height}, the first at x={x:g} y={y:g}"
    )


def _points(variables: dict[str, Any]) -> Points:
    if "image_info" not in variables:
        raise MatlabError("no image_info in it")
    found = variables["image_info"]
    while not (isinstance(found, dict) and "location" in found):  # cells and structs of one element around it
        if not isinstance(found, list | dict) or len(found) != 1:
            raise MatlabError("no location in its image_info")
        found = next(iter(found.values() if isinstance(found, dict) else found))
    points = found["location"]
    if not isinstance(points, np.ndarray):
        raise MatlabError("location is not made of numbers")
    if not points.size:
        points = np.zeros((0, 2))
    if points.ndim != 2 or points.shape[1] != 2:
        raise MatlabError(f"location is of shape {' x '.join(map(str, points.shape))}, not n x 2")
    if "number" in found:
        _compare(found["number"], len(points))
    strange = int((~np.isfinite(points)).any(axis=1).sum())
    if strange:
        raise MatlabError(f"{strange:,} of {_count(len(points))} not finite")
    return np.ascontiguousarray(points)


def _compare(number: Any, count: int) -> None:
    if not isinstance(number, np.ndarray) or number.size != 1:
        raise MatlabError("number is not one number")
    if number.item() != count:
        raise MatlabError(f"number is {number.item():.15g}, but there {'is' if count == 1 else 'are'} {_count(count)}")


def _count(count: int) -> str:
    return f"{count:,} point{'' if count == 1 else 's'}"
