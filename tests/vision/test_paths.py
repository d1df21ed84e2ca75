"""Datasets with faults; names of files are tested with the readers of the tasks."""

from typing import NamedTuple

import pytest

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
