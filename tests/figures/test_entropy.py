"""Figures of entropies during training."""

import pytest

pytest.importorskip("matplotlib", reason="figures are matplotlib's")

from ordinal_entropy.figures.entropy import LOOKS, Band, Panel, band, draw


def run(variant, seed, *values):
    entropies = {name: list(values) for name in ("E1", "E2", "E3")}
    return {"variant": variant, "seed": seed, "train": entropies, "test": entropies}


CONTENT = {
    "epochs": [1, 2],
    "runs": [run("ld", 0, 3.0, 1.0), run("ld", 1, 6.0, 0.5), run("ld", 2, 4.0, None), run("lost", 0, None, None)],
}


def test_a_band_is_over_the_runs_that_have_numbers():
    assert band(CONTENT, "ld", "test", "E1") == Band(low=[3.0, 0.5], mean=[4.5, 0.75], high=[6.0, 1.0])
    assert band(CONTENT, "lost", "test", "E1") is None
    assert band(CONTENT, "unheard of", "train", "E3") is None


@pytest.mark.parametrize("across", [1, 3])
def test_a_picture_is_written(across, tmp_path):
    rows = [[Panel("a panel", "test", name, ["ld", "lost"])] * across for name in ("E1", "E2", "E3")[:across]]
    path = tmp_path / "new" / "entropy.png"
    draw(CONTENT, path, rows=rows, variants={"ld": "$L_d$", "lost": "lost"}, title="Entropy")
    assert path.read_bytes().startswith(b"\x89PNG")
    svg = path.with_suffix(".svg").read_text()
    assert ">epoch</text>" in svg and ">E1: meanNN entropy (nats)</text>" in svg and ">a panel</text>" in svg


def test_more_lines_than_can_be_told_apart_are_refused(tmp_path):
    assert len({colour for colour, *_ in LOOKS}) == len({marker for _, marker, _ in LOOKS}) == len(LOOKS) == 7
    with pytest.raises(ValueError, match="expected up to 7 variants, got 8"):
        draw(CONTENT, tmp_path / "x.png", rows=[[]], variants=dict.fromkeys("abcdefgh", ""), title="Entropy")
