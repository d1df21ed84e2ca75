"""Figures of scores during training."""

import pytest

pytest.importorskip("matplotlib", reason="figures are matplotlib's")

from ordinal_entropy.figures.curves import Course, course, draw

CURVES = {
    "steps": [0, 10],
    "runs": [
        {"variant": "ld", "test": [3.0, 1.0]},
        {"variant": "ld", "test": [5.0, 0.5]},
        {"variant": "ld", "test": [4.0, None]},  # diverged
        {"variant": "lost", "test": [4.0, None]},
    ],
}


def test_a_course_is_over_the_runs_that_have_numbers():
    assert course(CURVES, "ld") == Course(low=[3.0, 0.5], middle=[4.0, 0.75], high=[5.0, 1.0])
    assert course(CURVES, "lost") is None
    assert course(CURVES, "unheard of") is None


def test_a_picture_is_written(tmp_path):
    draw(CURVES, tmp_path / "new" / "curves.png", variants={"ld": "L_d", "lost": "lost"}, title="Training")
    assert (tmp_path / "new" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert ">test MSE</text>" in (tmp_path / "new" / "curves.svg").read_text()
    with pytest.raises(ValueError, match="expected up to 4 variants, got 5"):
        draw(CURVES, tmp_path / "curves.png", variants=dict.fromkeys("abcde", ""), title="Training")
