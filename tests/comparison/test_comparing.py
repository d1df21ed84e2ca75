"""The function: what it trains, when it stops, what it does about runs that fail, what it prints and writes."""

import json
import math
import sys

import numpy as np
import pytest

from ordinal_entropy.comparison import Comparison, compare, verdict
from paired_scores import summed

NAN = math.nan


def test_compare_trains_each_pair_and_writes_what_it_found(tmp_path):
    calls = []

    def train(method, seed):
        calls.append((method, seed))
        return NAN if (method, seed) == ("oe", 7) else seed + (0.5 + 0.01 * seed) * (method == "oe")

    result = compare(train, seeds=[3, 7, 1, 2], metric="MAE", task="mine")
    assert calls == [(method, seed) for seed in (3, 7, 1, 2) for method in ("baseline", "oe")]
    assert result.summary["methods"]["baseline"]["values"] == [3.0, 7.0, 1.0, 2.0]
    assert result.summary["recipe"] == {"seeds": [3, 7, 1, 2]}
    assert result.summary["environment"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert "stop_early" not in result.summary and result.summary["failures"] == []
    assert result.verdict[0].startswith("oe is worse than baseline: MAE")
    path = result.write(tmp_path / "new")
    assert path == tmp_path / "new" / "summary.json"
    read = json.loads(path.read_text())
    assert read["methods"]["oe"]["values"][1] is None
    assert (read["task"], read["metric"], read["lower_is_better"]) == ("mine", "MAE", True)
    assert verdict(read).sentences == result.verdict
    assert str(Comparison(read)) == str(result)


def test_compare_takes_scores_at_three_points():
    result = compare(lambda method, seed: {"last": 1.0, "best_validation": seed, "best_test": 3}, seeds=2)
    assert result.summary["methods"]["oe"]["at"] == {
        "last": [1.0, 1.0], "best_validation": [0.0, 1.0], "best_test": [3.0, 3.0],
    }  # fmt: skip
    assert result.summary["methods"]["oe"]["values"] == [0.0, 1.0]


@pytest.mark.parametrize(
    "returned", [{"last": 1.0}, None, "0.3 or so", {"last": 1, "best_validation": [], "best_test": 1}]
)
def test_what_is_no_score_is_named(returned):
    expected = r"train to return a number, \{last, best_validation, best_test\} or \{validation, test\}, got"
    with pytest.raises(ValueError, match=expected) as error:
        compare(lambda method, seed: returned, seeds=1)
    assert ("last" if isinstance(returned, dict) else repr(returned)) in str(error.value)


def test_compare_without_a_baseline_takes_the_first():
    result = compare(lambda method, seed: seed + len(method), methods=["ld", "ld-cosine"], seeds=2)
    assert list(result.summary["paired"]) == ["ld-cosine"]
    assert "than ld:" in result.verdict[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seeds": 0}, "at least one method and one seed, got 2 and 0"),
        ({"methods": []}, "at least one method and one seed, got 0 and 10"),
        ({"methods": ["oe", "oe"]}, "methods that are all different"),
        ({"seeds": [1, 1]}, "seeds that are all different"),
        (
            {"seeds": 1, "stop_early": True},
            "at least 4 seeds where one may stop early, since fewer settle nothing, got 1",
        ),
        ({"stop_early": True, "smallest": 0.0}, "smallest difference that matters to be a positive number, got 0.0"),
        ({"stop_early": True, "smallest": -1}, "smallest difference that matters to be a positive number, got -1"),
        ({"smallest": 0.1}, "stop_early=True beside smallest, which is a reason to stop, got smallest=0.1"),
        ({"stop_early": True, "methods": "oe"}, "two or more methods where one may stop early, got oe alone"),
    ],
)
def test_compare_checks_before_it_trains(options, message):
    with pytest.raises(ValueError, match=message):
        compare(lambda method, seed: pytest.fail("trained"), **options)


def test_compare_says_what_it_takes():
    with pytest.raises(TypeError, match="expected train to be a function of a method and a seed, got float"):
        compare(0.5)
    with pytest.raises(TypeError, match=r"expected seeds to say how many or which, got 2\.5"):
        compare(lambda method, seed: pytest.fail("trained"), seeds=2.5)


def test_compare_without_scipy_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(ImportError, match=r"needs SciPy: pip install 'ordinal-entropy\[train\]'"):
        compare(lambda method, seed: pytest.fail("trained"))


def test_compare_shows_a_bar_on_a_terminal_and_nothing_elsewhere(monkeypatch, capsys):
    compare(lambda method, seed: seed, seeds=2)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    compare(lambda method, seed: seed, seeds=2)
    out, err = capsys.readouterr()
    assert out == "" and "4/4" in err and "oe, seed 1" in err


def test_the_table_has_a_column_only_for_what_there_is():
    columns = {"baseline": [3.0, 3.2, 2.9, 3.4] * 3, "oe": [2.0, 2.3, 2.0, 2.2] * 3}
    heading, _, row, *_ = str(Comparison(summed(columns))).splitlines()
    assert "sign test" not in heading and row.split()[-1] == "better"
    few = str(Comparison(summed({name: values[:4] for name, values in columns.items()})))
    assert "sign test" in few and few.splitlines()[2].split()[-2:] == ["0.12", "better"]
    unknown = str(Comparison(summed({"baseline": [2.0, 3.0], "oe": [1.0, NAN]}))).splitlines()[2]
    assert unknown.split() == ["oe", "1.00", "(1", "lost)", "1", "-1.00", "-", "-", "unknown"]
    alone = str(Comparison(summed({"baseline": [2.0, 3.0]})))
    assert alone.splitlines()[0].split() == ["method", "mean", "±", "std", "n"]


def noisy(gain, spread=1.0, seed=0):
    """A train whose methods differ by so many standard deviations of their difference; "same" not at all."""
    noise = np.random.default_rng(seed).normal(size=(3, 1000)) * spread / math.sqrt(2)

    def train(method, seed):
        row = ["baseline", "oe", "same"].index(method)
        return 10 + noise[row, seed] - gain * spread * (method == "oe")

    return train


def test_a_clear_difference_stops_early_and_says_so():
    calls = []

    def train(method, seed):
        calls.append((method, seed))
        return noisy(3.0)(method, seed)

    found = compare(train, seeds=50, stop_early=True)
    n = found.summary["paired"]["oe"]["n"]
    assert 4 <= n <= 8 and len(calls) == 2 * n
    assert found.summary["recipe"]["seeds"] == list(range(n))
    assert found.summary["stop_early"] == {"at_most": 50, "smallest": None, "stopped": True}
    assert found.summary["paired"]["oe"]["verdict"] == "helps" and found.summary["paired"]["oe"]["p_value"] < 0.05
    assert found.verdict[0].startswith("oe is better than baseline")
    assert found.verdict[-1].startswith(f"Stopped after {n} of at most 50 seeds")
    assert "sign test" not in str(found)


def test_all_methods_must_be_settled():
    found = compare(noisy(3.0), methods=["baseline", "oe", "same"], seeds=12, stop_early=True)
    assert found.summary["paired"]["oe"]["verdict"] == "helps" and found.summary["paired"]["oe"]["n"] == 12
    assert found.summary["paired"]["same"]["verdict"] == "open"
    assert found.verdict[-1].startswith("All 12 seeds were run")
    settled = compare(noisy(3.0), methods=["baseline", "oe", "same"], seeds=50, stop_early=True, smallest=1.5)
    assert settled.summary["paired"]["same"]["verdict"] == "negligible"
    assert 6 < settled.summary["paired"]["same"]["n"] < 50
    assert "same: no difference from baseline as large as 1.50, the smallest that matters" in str(settled)


def test_without_stop_early_every_seed_is_trained():
    assert compare(noisy(3.0), seeds=20).summary["paired"]["oe"]["n"] == 20


def test_methods_that_never_differ_do_not_divide_by_zero():
    found = compare(lambda method, seed: float(seed), seeds=6, stop_early=True)
    assert found.summary["paired"]["oe"]["verdict"] == "open" and found.summary["paired"]["oe"]["n"] == 6
    assert "at every seed, as if it were not in use" in found.verdict[0]
    found = compare(lambda method, seed: float(seed), seeds=6, stop_early=True, smallest=0.1)
    assert found.summary["paired"]["oe"] | {"n": 4, "verdict": "negligible"} == found.summary["paired"]["oe"]
    found = compare(lambda method, seed: seed - (method == "oe"), seeds=6, stop_early=True)
    assert found.summary["paired"]["oe"]["verdict"] == "helps" and found.summary["paired"]["oe"]["n"] == 4


def test_a_run_that_fails_is_told_and_the_others_go_on():
    def train(method, seed):
        if (method, seed) in {("oe", 1), ("baseline", 4)}:
            raise RuntimeError("CUDA out\n of memory")
        return seed + (0.5 + 0.01 * seed) * (method == "oe")

    found = compare(train, seeds=6)
    assert found.summary["failures"] == [
        {"method": method, "seed": seed, "type": "RuntimeError", "message": "CUDA out of memory"}
        for method, seed in (("oe", 1), ("baseline", 4))
    ]
    assert found.summary["paired"]["oe"]["n"] == 4
    assert math.isnan(found.summary["methods"]["oe"]["values"][1])
    said = str(found)
    assert "1 of 6 runs of oe and 1 of 6 runs of baseline did not finish with a number; those" in said
    assert "\noe, seed 1 failed: RuntimeError: CUDA out of memory\n" in said
    json.dumps(found.summary["failures"])


def test_a_failure_counts_where_one_may_stop_early():
    def train(method, seed):
        if (method, seed) == ("oe", 0):
            raise ValueError("bad luck")
        return noisy(3.0)(method, seed)

    found = compare(train, seeds=50, stop_early=True).summary
    pair = found["paired"]["oe"]
    assert pair["verdict"] == "helps" and len(found["methods"]["oe"]["values"]) == pair["n"] + 1 < 12


def test_a_method_of_which_every_run_fails_is_told():
    def train(method, seed):
        if method == "oe":
            raise ValueError(f"expected a method like 'ld', got {method!r}")
        return float(seed)

    found = compare(train, methods=["baseline", "oe", "ld"], seeds=3)
    assert found.verdict[0] == "oe: not compared with baseline: every run of oe failed."
    assert "oe, seed 2 failed: ValueError: expected a method like 'ld', got 'oe'" in found.verdict


def test_a_train_that_fails_with_every_method_is_a_mistake():
    def train(method, seed):
        calls.append(method)
        raise KeyError(method)

    calls = []
    with pytest.raises(
        RuntimeError, match="expected train to work, got KeyError from every method at the first seed, 5"
    ):
        compare(train, seeds=[5, 6])
    assert calls == ["baseline", "oe"]
    with pytest.raises(RuntimeError) as error:
        compare(train, seeds=[5, 6])
    assert isinstance(error.value.__cause__, KeyError) and error.value.__cause__.args == ("baseline",)
    assert error.value.__cause__.__traceback__.tb_next.tb_frame.f_code.co_name == "train"  # where it came from


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_a_stop_is_a_stop(stop):
    def train(method, seed):
        if seed == 2:
            raise stop
        return float(seed)

    with pytest.raises(stop):
        compare(train, seeds=4)
