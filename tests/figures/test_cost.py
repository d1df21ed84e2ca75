"""Costs over the baseline's, drawn from summaries with gaps."""

import pytest

from ordinal_entropy.figures.cost import draw, increases

SUMMARY = {
    "baseline": "baseline",
    "device": "cpu",
    "methods": {"baseline": {"mean": 10.0}, "ld samples=5": {"mean": 10.5}, "oe samples=5": {"mean": 9.0}},
    "paired": {
        "ld samples=5": {"difference": 0.5, "ci_low": 0.1, "ci_high": 0.9},
        "oe samples=5": {"difference": -1.0, "ci_low": None, "ci_high": None},
    },
    "memory_mb": {"baseline": 200.0, "ld samples=5": 210.0, "oe samples=5": None},
    "paper": {
        "baseline": {"seconds": 100, "megabytes": 50},
        "ld samples=5": {"seconds": 127, "megabytes": 51},
    },
}


def test_increases_are_percents_of_the_baseline():
    found = increases(SUMMARY)
    assert found["time"]["ld samples=5"] == pytest.approx((5.0, 27.0))
    assert found["time"]["oe samples=5"] == (pytest.approx(-10.0), None)
    assert found["memory"]["ld samples=5"] == pytest.approx((5.0, 2.0))
    assert found["memory"]["oe samples=5"] == (None, None)
    assert increases({**SUMMARY, "paper": {}})["time"]["ld samples=5"][1] is None


@pytest.mark.parametrize("paper", [SUMMARY["paper"], {}])
def test_it_is_drawn_with_gaps(tmp_path, paper):
    draw({**SUMMARY, "paper": paper}, tmp_path / "there" / "cost.png", title="Costs")
    assert (tmp_path / "there" / "cost.png").read_bytes().startswith(b"\x89PNG")
    assert ">time, % over the baseline's</text>" in (tmp_path / "there" / "cost.svg").read_text()
