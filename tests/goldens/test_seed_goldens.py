"""Means over ten seeds lie inside the intervals that are recorded."""

import statistics

import pytest

from goldens import seeds, store


@pytest.mark.slow
@pytest.mark.parametrize("task", seeds.COURSES)
def test_means_are_inside_the_intervals_recorded(task, tmp_path):
    recorded = store.read(f"{seeds.NAME}/{task}")["scores"]
    found = {method: statistics.fmean(values) for method, values in seeds.computed(task, tmp_path).items()}
    assert found.keys() == recorded.keys()
    outside = {
        name: mean for name, mean in found.items() if not recorded[name]["low"] <= mean <= recorded[name]["high"]
    }
    assert outside == {}


@pytest.mark.parametrize("task", seeds.COURSES)
def test_intervals_are_those_of_ten_runs(task):
    for own in store.read(f"{seeds.NAME}/{task}")["scores"].values():
        assert len(own["values"]) == len(seeds.SEEDS)
        assert seeds.interval(own["values"]) == pytest.approx({key: own[key] for key in ("mean", "low", "high")})
