"""A folder for one's own loop: what is not repeated, what is refused, what is reused; methods as objects."""

import errno
import json
import math
import subprocess
import sys

import pytest
from torch import nn

from ordinal_entropy import methods, runs
from ordinal_entropy.comparison import Comparison, compare


class Train:
    """Notes its calls; fails, diverges or is stopped where it is told to."""

    def __init__(self, stop=None, fails=(), diverges=()):
        self.calls, self.stop, self.fails, self.diverges = [], stop, set(fails), set(diverges)

    def __call__(self, method, seed, settings=None):
        if (method, seed) == self.stop or len(self.calls) == self.stop:
            raise KeyboardInterrupt
        self.calls.append((method, seed) if settings is None else (method, seed, tuple(sorted(settings.items()))))
        if (method, seed) in self.fails:
            raise RuntimeError("out of memory")
        if (method, seed) in self.diverges:
            return math.nan
        score = seed + (0.5 + 0.01 * seed) * (method == "oe")
        return score if settings is None else {"validation": score + (settings["lr"] - 0.003) ** 2, "test": score}


def as_written(found):
    """Without what a summary says of the machine."""
    return {key: own for key, own in found.summary.items() if key != "environment"}


def test_an_interrupted_comparison_resumes_with_the_same_result(tmp_path):
    first, then, never = Train(stop=("oe", 2)), Train(), Train()
    with pytest.raises(KeyboardInterrupt):
        compare(first, seeds=4, out=tmp_path / "own")
    assert not (tmp_path / "own" / "summary.json").exists() and not (tmp_path / "own" / ".lock").exists()
    found = compare(then, seeds=4, out=tmp_path / "own")
    assert first.calls + then.calls == [(method, seed) for seed in range(4) for method in ("baseline", "oe")]
    assert as_written(found) == as_written(compare(Train(), seeds=4))
    assert as_written(compare(never, seeds=4, out=tmp_path / "own")) == as_written(found) and never.calls == []
    assert str(Comparison(json.loads((tmp_path / "own" / "summary.json").read_text()))) == str(found)
    assert sorted(path.name for path in (tmp_path / "own" / "runs").iterdir())[0] == "baseline-seed0.json"


def test_methods_and_seeds_are_added_and_failures_tried_again(tmp_path):
    compare(Train(fails={("oe", 1)}, diverges={("baseline", 0)}), seeds=2, out=tmp_path)
    more = Train()
    found = compare(more, ["baseline", "oe", "ld"], 3, out=tmp_path)
    assert more.calls == [("ld", 0), ("oe", 1), ("ld", 1), ("baseline", 2), ("oe", 2), ("ld", 2)]
    assert found.summary["failures"] == [] and math.isnan(found.summary["methods"]["baseline"]["values"][0])
    fewer = Train()
    assert list(compare(fewer, ["oe"], [1], out=tmp_path).summary["methods"]) == ["oe"] and not fewer.calls


def test_a_comparison_that_stops_early_resumes_and_ends_at_the_same_seed(tmp_path):
    def train(method, seed):
        calls.append((method, seed))
        return seed % 3 - 4 * (method == "oe") * (1 + seed % 2 / 10)

    calls = []
    found = compare(train, seeds=30, stop_early=True, out=tmp_path)
    n = len(calls)
    assert 8 <= n < 60
    assert as_written(compare(train, seeds=30, stop_early=True, out=tmp_path)) == as_written(found) and len(calls) == n
    with pytest.raises(ValueError, match="holds another comparison: stop_early is True there and False here"):
        compare(train, seeds=30, out=tmp_path)


TUNE = {"lr": (1e-4, 1e-2), "oe": {"strength": (0.1, 10.0)}}


def test_a_tuned_comparison_resumes_with_the_same_questions(tmp_path):
    pytest.importorskip("optuna", reason="the search is Optuna's")
    options = {"tune": TUNE, "trials": 8, "tuning_seeds": 2}
    straight, first, then, never = Train(), Train(stop=25), Train(), Train()
    wanted = compare(straight, seeds=3, **options)
    with pytest.raises(KeyboardInterrupt):
        compare(first, seeds=3, out=tmp_path, **options)
    found = compare(then, seeds=3, out=tmp_path, **options)
    assert first.calls + then.calls == straight.calls
    assert found.summary["methods"] == wanted.summary["methods"]
    again = compare(never, seeds=3, out=tmp_path, **options)
    assert again.summary == found.summary and never.calls == []  # the seconds of trials are those of the first time
    assert len(list((tmp_path / "runs").iterdir())) == len(set(straight.calls))
    more = Train()
    compare(more, ["baseline", "oe", "ld"], 3, out=tmp_path, **{**options, "tune": {**TUNE, "ld": {"p": (1, 2)}}})
    assert {call[0] for call in more.calls} == {"ld"}
    with pytest.raises(ValueError, match=r"holds another comparison: ranges of oe is .* there and .* here"):
        compare(Train(), seeds=3, out=tmp_path, **{**options, "tune": {**TUNE, "oe": {"strength": (0.1, 5.0)}}})
    with pytest.raises(ValueError, match="holds another comparison: axis is"):
        compare(Train(), seeds=3, out=tmp_path, **{**options, "tune": {**TUNE, "lr": (1e-4, 1e-1)}})
    with pytest.raises(ValueError, match="holds another comparison: axis is"):
        compare(Train(), seeds=3, out=tmp_path)


def test_settings_are_chosen_by_the_best_validation_score_of_a_training(tmp_path):
    pytest.importorskip("optuna", reason="the search is Optuna's")

    def train(method, seed, settings):
        bowl = (math.log10(settings["lr"]) + 3) ** 2
        return {"validation": [bowl + 1, bowl, bowl + 2], "test": [seed + 3, seed + 2, seed + 1]}

    found = compare(train, seeds=3, tune={"lr": (1e-4, 1e-2)}, trials=6, tuning_seeds=1, out=tmp_path).summary
    assert found["tuning"]["oe"]["validation"] == pytest.approx(0, abs=1e-3)
    assert found["methods"]["oe"]["at"] == {
        "last": [1.0, 2.0, 3.0], "best_validation": [2.0, 3.0, 4.0], "best_test": [1.0, 2.0, 3.0],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"task": "ours"}, "task is 'custom' there and 'ours' here"),
        ({"metric": "MAE"}, "metric is 'score' there and 'MAE' here"),
        ({"lower_is_better": False}, "lower_is_better is True there and False here"),
    ],
)
def test_a_folder_of_another_comparison_is_refused(options, what, tmp_path):
    compare(Train(), seeds=2, out=tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json")}
    with pytest.raises(ValueError, match=f"{what}; choose another out, or remove the folder"):
        compare(Train(), seeds=2, out=tmp_path, **options)
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*.json")}


def test_a_folder_in_which_nothing_was_trained_may_become_another(tmp_path):
    for task in ("mine", "ours"):
        with pytest.raises(KeyboardInterrupt):
            compare(Train(stop=0), task=task, out=tmp_path)
    assert compare(Train(), seeds=2, task="ours", out=tmp_path).summary["task"] == "ours"


@pytest.mark.parametrize("content", [{"summary.json": {}}, {"summary.json": {}, "study.json": {"study": "table1"}}])
def test_a_folder_of_something_else_is_refused(content, tmp_path):
    for name, own in content.items():
        runs.write_json(tmp_path / name, own)
    with pytest.raises(ValueError, match=r"of something else|holds another comparison: study is 'table1' there"):
        compare(Train(), out=tmp_path)


@pytest.mark.parametrize("text", ["", "{", '{"method": "oe"}', '{"method": "ld", "seed": 0, "settings": null}'])
def test_a_damaged_result_is_named(text, tmp_path):
    compare(Train(), seeds=2, out=tmp_path)
    (tmp_path / "runs" / "oe-seed0.json").write_text(text)
    with pytest.raises(runs.FolderError, match=r"oe-seed0.json is damaged or foreign: .*; remove it, and the"):
        compare(Train(), seeds=2, out=tmp_path)


def test_a_result_under_the_name_of_another_is_not_taken(tmp_path):
    compare(Train(), seeds=2, out=tmp_path)
    (tmp_path / "runs" / "oe-seed0.json").replace(tmp_path / "runs" / "oe-seed1.json")
    with pytest.raises(runs.FolderError, match="expected seed to be 1, got 0"):
        compare(Train(), seeds=2, out=tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="nothing is locked there")
def test_one_comparison_at_a_time(tmp_path):
    held = "with runs.lock(Path(sys.argv[1])): print('held', flush=True); input()"
    lines = ["import sys", "from pathlib import Path", "from ordinal_entropy import runs", held]
    command = [sys.executable, "-c", "\n".join(lines), tmp_path / ".lock"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(runs.LockedError, match=f"process {other.pid} is at work in"):
            compare(Train(), seeds=2, out=tmp_path)
        other.communicate("\n")
    assert compare(Train(), seeds=2, out=tmp_path).summary["paired"]["oe"]["n"] == 2


def test_a_full_disk_is_no_failure_of_a_run(tmp_path, monkeypatch):
    def full(path, content, **options):
        if "runs" in path.parts:
            raise runs.DiskFullError(errno.ENOSPC, f"the disk is full: cannot write {path}")
        return write(path, content, **options)

    write = runs.write_json
    monkeypatch.setattr(runs, "write_json", full)
    with pytest.raises(runs.DiskFullError):
        compare(Train(), seeds=2, out=tmp_path)


def test_methods_are_objects_and_each_run_begins_with_a_fresh_copy():
    seen = []

    def train(method, seed):
        seen.append((method.name, method.strengths.get("oe"), hasattr(method, "touched")))
        method.touched = True
        return float(seed)

    given = [methods.create("baseline"), methods.create("hl-gauss+oe", {"oe": {"strength": 0.5}})]
    found = compare(train, given, 2)
    assert list(found.summary["methods"]) == ["baseline", "hl-gauss+oe"] and list(found.summary["paired"]) == [
        "hl-gauss+oe"
    ]
    assert seen == [("baseline", None, False), ("hl-gauss+oe", 0.5, False)] * 2


def test_a_mapping_gives_anything_its_label():
    marker, seen = object(), []

    def train(method, seed):
        seen.append(method)
        return float(seed)

    found = compare(train, {"none": None, "some": marker, "much": {"strength": 10}}, 1)
    assert list(found.summary["methods"]) == ["none", "some", "much"] and list(found.summary["paired"]) == [
        "some", "much",
    ]  # fmt: skip
    assert seen[0] is None and seen[1] is marker and seen[2] == {"strength": 10}


def test_labels_differ():
    weak, strong = (methods.create("oe", strength=strength) for strength in (0.1, 10.0))
    with pytest.raises(ValueError, match=r"all different, got \['oe', 'oe'\]; a mapping \{label: method\} names them"):
        compare(Train(), [weak, strong])
    found = compare(lambda method, seed: method.strengths["oe"] + seed, {"weak": weak, "strong": strong}, 2)
    assert found.summary["paired"]["strong"]["difference"] == pytest.approx(9.9)


@pytest.mark.parametrize(
    ("given", "got"), [([1], "int"), (3, "int"), ([nn.Linear(1, 1)], "Linear"), ({1: "oe"}, "text, got 1")]
)
def test_what_is_no_method_is_named(given, got):
    with pytest.raises(TypeError, match=f"expected .* got {got}|expected methods by labels that are {got}"):
        compare(Train(), given)


def test_another_method_of_the_same_label_is_not_taken_for_it(tmp_path):
    def train(method, seed):
        return float(seed)

    def oe(**options):
        return {"baseline": "baseline", "oe": methods.create("oe", **options)}

    compare(train, oe(strength=0.1), 2, out=tmp_path)
    compare(train, oe(strength=0.1), 2, out=tmp_path)
    for other in (oe(strength=0.2), oe(strength=0.1, grouping=0.5), {"baseline": "baseline", "oe": "oe"}):
        with pytest.raises(ValueError, match="is a run of another method with the label 'oe'; choose another label"):
            compare(train, other, 2, out=tmp_path)


def test_labels_that_are_no_names_of_files(tmp_path):
    labels = ["a/b", "a_b", "../a", ".hidden", "x" * 300, "ä", "a b"]
    found = compare(lambda method, seed: float(labels.index(method)), labels, 2, out=tmp_path)
    assert len(list((tmp_path / "runs").iterdir())) == 2 * len(labels)
    assert {path.parent for path in tmp_path.rglob("*.json")} == {tmp_path, tmp_path / "runs"}
    again = compare(lambda method, seed: pytest.fail("trained"), labels, 2, out=tmp_path)
    assert again.summary["methods"] == found.summary["methods"]


def test_the_bar_counts_what_is_left(tmp_path, monkeypatch, capsys):
    compare(Train(), seeds=2, out=tmp_path)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    compare(Train(), seeds=5, out=tmp_path)
    assert "6/6" in capsys.readouterr().err
