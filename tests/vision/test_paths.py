"""Datasets with faults; names of files are tested with the readers of the tasks."""

import pickle
from typing import NamedTuple

import pytest

from ordinal_entropy.vision.images import ImageError
from ordinal_entropy.vision.paths import SPLITS, Problem, refuse


class Face(NamedTuple):
    split: str


def test_refuse_tells_the_first_and_the_count():
    faces = [Face(split) for split in SPLITS]
    problems = [Problem("a.jpg", "missing"), Problem("b.jpg", "empty")]
    refuse(faces, [])
    refuse(faces, problems, skip_bad=True)
    with pytest.raises(ValueError, match=r"got a.jpg: missing \(2 problems in all"):
        refuse(faces, problems)
    with pytest.raises(ValueError, match=r"got none in val, test; the first of 2 problems: a.jpg: missing$"):
        refuse(faces[:1], problems, skip_bad=True)
    with pytest.raises(ValueError, match=r"got none in train, val, test$"):
        refuse([], [])


def test_an_error_of_a_file_reaches_another_process():
    error = pickle.loads(pickle.dumps(ImageError("a.jpg", "truncated")))
    assert isinstance(error, ImageError) and isinstance(error, ValueError)
    assert str(error) == "expected an image in a.jpg, got: truncated" and error.reason == "truncated"
