"""``compare``: rounds, strengths, failures, what is read back."""

import json
from pathlib import Path

import pytest

pytest.importorskip("typer", reason="the command line is typer's")
pytest.importorskip("rich", reason="the tables are rich's")
pytest.importorskip("scipy", reason="the splines and distributions are SciPy's")


import fake_trainer
from command_line import TINY, call, words
from ordinal_entropy import runs
from ordinal_entropy.recipes import flat
from ordinal_entropy.tasks.operators import recipe as operators
from ordinal_entropy.training.stacked.stack import Stack


def test_compare_says_what_it_found_and_writes_it(trainer, tmp_path):
    result = call("compare", "linear", "--methods", "oe, baseline", "--seeds", 4, "--device", "cpu", "--out", "there")
    said = words(result.stdout)
    assert "oe is better than baseline: MSE" in said and "(-50.0%; 95% CI" in said and "; n = 4; " in said
    assert "best on validation" in said and "best on test" in said and "lower is better" in said
    assert "Written to there/summary.json" in said
    summary = json.loads((tmp_path / "there" / "summary.json").read_text())
    assert list(summary["methods"]) == ["baseline", "oe"]
    assert summary["paired"]["oe"]["n"] == 4
    assert summary["recipe"]["training"]["steps"] == 50_000
    assert "2 methods x 4 seeds = 8 runs of 50,000 steps on cpu" in words(result.stderr)


def test_without_a_baseline_the_first_method_is_what_others_are_held_to(trainer, tmp_path):
    said = words(call("compare", "linear", "--methods", "lt,oe", "--seeds", 3, "--out", "there").stdout)
    assert "oe is better than lt" in said


def test_a_comparison_is_read_back(trainer):
    first = call("compare", "linear", "--seeds", 3, "--out", "there")
    again = call("compare", "linear", "--seeds", 3, "--out", "there")
    assert len(trainer.calls) == 1
    assert again.stdout == first.stdout.replace("Written to", "Read back from")
    other = call("compare", "linear", "--seeds", 4, "--out", "there", status=2)
    assert "there holds another study: seeds is 3 there and 4 here" in words(other.stderr)


def test_without_out_the_same_command_finds_its_folder(trainer, tmp_path):
    for seeds in (3, 3, 4):
        call("compare", "linear", "--seeds", seeds)
    assert len(trainer.calls) == 2
    assert len(list((tmp_path / "runs").glob("compare-linear-*/summary.json"))) == 2


def test_the_quick_preset_and_settings_reach_the_runs(trainer):
    call("compare", "linear", "--preset", "quick", "--seeds", 2, "--set", "strength=0.5", "--set", "samples=all")
    ((jobs, _, settings, *_),) = trainer.calls
    assert settings.steps == 3000
    assert {(job.strength, job.samples) for job in jobs} == {(0.5, None)}


def test_compare_takes_several_strengths_as_rows(trainer, tmp_path):
    options = ["compare", "linear", "--methods", "oe,baseline,huber", "--strengths", "0.1, 1", "--seeds", 5]
    result = call(*options, "--device", "cpu", "--out", "there")
    ((jobs, *_),) = trainer.calls
    rows = ["baseline", "oe strength=0.1", "oe strength=1", "huber"]
    assert [(job.method, job.strength) for job in jobs if job.method == "oe"] == [("oe", 0.1)] * 5 + [("oe", 1.0)] * 5
    assert "4 rows x 5 seeds = 20 runs" in words(result.stderr)
    assert "oe strength=0.1 is better than baseline" in words(result.stdout)
    summary = json.loads((tmp_path / "there" / "summary.json").read_text())
    assert list(summary["methods"]) == rows and summary["variants"][rows[1]] == {"method": "oe", "strength": 0.1}
    assert "--methods baseline,oe,huber --seeds 5 --strengths 0.1,1 --preset paper" in summary["command"]
    assert summary["shown"]["about"].endswith(f"{', '.join(rows)} over 5 seeds")
    other = call(*options[:4], "--seeds", 5, "--out", "there", status=2)
    assert "there holds another study: strengths is '0.1,1' there and None here" in words(other.stderr)


def test_compare_trains_for_real(tmp_path):
    call("compare", "linear", "--methods", "baseline,ld,classification", "--seeds", 2, "--out", "there", *TINY)
    summary = json.loads((tmp_path / "there" / "summary.json").read_text())
    assert all(len(score["values"]) == 2 for score in summary["methods"].values())


def test_compare_stops_once_no_verdict_is_open(trainer, tmp_path):
    options = ["compare", "linear", "--seeds", 20, "--stop-early", "--device", "cpu", "--out", "there"]
    result = call(*options)
    ((jobs, *_),) = trainer.calls
    assert [(job.method, job.seed) for job in jobs] == [(m, s) for m in ("baseline", "oe") for s in range(4)]
    assert "2 methods x 20 seeds = at most 40 runs" in words(result.stderr)
    assert "After 4 of at most 20 seeds: oe helps" in result.stderr
    said = words(result.stdout)
    assert "oe is better than baseline: MSE" in said and "Stopped after 4 of at most 20 seeds" in said
    summary = json.loads((tmp_path / "there" / "summary.json").read_text())
    assert summary["stop_early"] == {"at_most": 20, "smallest": None, "stopped": True}
    assert summary["paired"]["oe"]["n"] == 4 and summary["paired"]["oe"]["verdict"] == "helps"
    assert summary["command"].endswith("--seeds 20 --preset paper --stop-early --device cpu")
    assert summary["shown"]["about"].endswith("baseline, oe over 4 seeds")
    again = call(*options)
    assert len(trainer.calls) == 1 and again.stdout == result.stdout.replace("Written to", "Read back from")
    other = call(*options[:4], "--out", "there", status=2)
    assert "there holds another study: stop_early is" in words(other.stderr)


def test_compare_trains_round_after_round_while_a_verdict_is_open(trainer, tmp_path, monkeypatch):
    monkeypatch.setitem(fake_trainer.GAINS, "oe", 1.0)  # as the baseline
    result = call("compare", "linear", "--methods", "baseline,oe,ld", "--seeds", 6, "--stop-early", "--out", "there")
    seeds = [sorted({job.seed for job in jobs}) for jobs, *_ in trainer.calls]
    assert seeds == [[0, 1, 2, 3], [4], [5]]
    assert len({folder for *_, folder in trainer.calls}) == 3  # a stack has one checkpoint
    assert "After 5 of at most 6 seeds: oe open, ld helps" in result.stderr
    said = words(result.stdout)
    assert "oe: identical to baseline at every seed" in said and "ld is better than baseline" in said
    assert "All 6 seeds were run" in said
    summary, curves = (json.loads((tmp_path / "there" / f"{name}.json").read_text()) for name in ("summary", "curves"))
    order = [(name, seed) for name in ("baseline", "oe", "ld") for seed in range(6)]
    assert [(run["variant"], run["seed"]) for run in curves["runs"]] == order
    ends = {name: [run["test"][-1] for run in curves["runs"] if run["variant"] == name] for name in summary["methods"]}
    for name, method in summary["methods"].items():
        assert method["at"]["last"] == pytest.approx(ends[name], rel=1e-4)
    small = call("compare", "linear", "--seeds", 6, "--stop-early", "--smallest", 1e-3, "--out", "small")
    assert "oe: no difference from baseline as large as 1.00 x 1e-3, the smallest that matters" in words(small.stdout)
    assert "--stop-early --smallest 0.001" in json.loads((tmp_path / "small" / "summary.json").read_text())["command"]


def test_a_comparison_in_rounds_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    options = ["compare", "linear", "--seeds", 6, "--stop-early", *TINY]
    real, rounds = operators.train.train, []

    def stopped_in_the_third(*arguments, **named):
        rounds.append(named["folder"])
        if len(rounds) == 3:
            raise KeyboardInterrupt
        return real(*arguments, **named)

    monkeypatch.setattr(operators.train, "train", stopped_in_the_third)
    assert "Stopped; to go on from what there holds" in words(call(*options, "--out", "there", status=130).stderr)
    assert not (tmp_path / "there" / "summary.json").exists()
    monkeypatch.setattr(operators.train, "train", real)
    call(*options, "--out", "there")
    call(*options, "--out", "straight")
    call("compare", "linear", "--seeds", 6, *TINY, "--out", "at once")
    there, straight, at_once = (
        json.loads((tmp_path / out / "summary.json").read_text()) for out in ("there", "straight", "at once")
    )
    assert there["methods"] == straight["methods"] and there["paired"] == straight["paired"]
    assert there["seconds"]["resumed"] and not straight["seconds"]["resumed"]
    for name, method in at_once["methods"].items():  # a run of a stack does not depend on the others
        n = len(there["methods"][name]["values"])
        assert n >= 5 and there["methods"][name]["values"] == pytest.approx(method["values"][:n], rel=1e-5)


def test_features_of_all_rounds_end_in_one_place(tmp_path):
    options = ["compare", "linear", "--seeds", 5, "--stop-early", *TINY, "--set=feature_rows=9", "--out", "there"]
    call(*options)
    seeds = range(len(json.loads((tmp_path / "there" / "summary.json").read_text())["methods"]["oe"]["values"]))
    training = tmp_path / "there" / "training"
    for name in (f"{method}-seed{seed}" for method in ("baseline", "oe") for seed in seeds):
        assert (training / name / "result.json").exists() and list((training / name / "features").iterdir()), name
    call(*options)


def broken(*runs):
    """A trainer that raises an exception where one of these runs is in the stack."""
    real = operators.train.train

    def train(jobs, **options):
        if {(job.method, job.seed) for job in jobs} & set(runs):
            raise RuntimeError("the device\nis too hot")
        return real(jobs, **options)

    return train


def test_where_a_run_of_a_stack_fails_the_others_go_on(tmp_path, monkeypatch):
    options = ["compare", "linear", "--seeds", 4, *TINY]
    with monkeypatch.context() as patch:
        patch.setattr(operators.train, "train", broken(("oe", 1)))
        answer = call(*options, "--out", "there")
    said = words(answer.stdout)
    assert "oe, seed 1 failed: RuntimeError: the device is too hot" in said and "; n = 3; " in said
    assert "1 run failed; the same command tries again" in answer.stderr
    summary = runs.read_json("there/summary.json")
    assert summary["methods"]["oe"]["values"][1] is None and summary["paired"]["oe"]["n"] == 3
    assert len(runs.read_json("there/curves.json")["runs"]) == 7
    again = call(*options, "--out", "there")
    assert "1 run in there failed before: once more" in again.stderr and "failed" not in again.stdout
    call(*options, "--out", "whole")
    found, expected = (runs.read_json(f"{name}/summary.json")["methods"] for name in ("there", "whole"))
    for name, method in expected.items():
        assert found[name]["values"] == pytest.approx(method["values"], rel=1e-4)
    assert "step 20 of 20" in call("evaluate", "there/training/oe-seed1", "--device", "cpu").stdout


def test_a_round_with_a_failure_finds_its_runs_again(tmp_path, monkeypatch):
    options = ["compare", "linear", "--seeds", 4, "--stop-early", *TINY, "--out", "there"]
    with monkeypatch.context() as patch:
        patch.setattr(operators.train, "train", broken(("oe", 1)))
        assert "oe, seed 1 failed" in words(call(*options).stdout)
    trained, real = [], Stack.advance

    def noted(self, steps):
        trained.extend((member.method.name, member.seed) for member in self.members)
        real(self, steps)

    monkeypatch.setattr(Stack, "advance", noted)
    assert "failed" not in call(*options).stdout
    assert set(trained) == {("oe", 1)}
    names = [f"{method}-seed{seed}" for method in ("baseline", "oe") for seed in range(4)]
    assert all((tmp_path / "there" / "training" / name / "result.json").exists() for name in names)
    assert not list((tmp_path / "there").rglob("oe-*/failure.json"))


@pytest.mark.parametrize("rounds", [[], ["--stop-early"]])
def test_where_every_run_of_a_stack_fails_that_is_the_sentence(rounds, tmp_path, monkeypatch):
    every = [(method, seed) for method in ("baseline", "oe") for seed in range(4)]
    monkeypatch.setattr(operators.train, "train", broken(*every))
    answer = call("compare", "linear", "--seeds", 4, *TINY, "--out", "there", *rounds, status=2)
    last = answer.stderr.splitlines()[-1]
    assert last == "ordinal-entropy: every run failed, the first with RuntimeError: the device is too hot"
    assert "Traceback" not in answer.output and not (tmp_path / "there" / "summary.json").exists()


def test_a_folder_is_not_lost_to_a_mistyped_setting(trainer, tmp_path, monkeypatch):
    with monkeypatch.context() as mistyped:
        mistyped.setattr(operators, "split", lambda recipe: operators.data.read("nowhere"))
        call("compare", "linear", "--seeds", 2, "--out", "there", "--set", "data=nowhere", status=2)
    call("compare", "linear", "--seeds", 2, "--out", "there")


def test_a_comparison_that_was_written_before_a_key_existed_is_read_back(trainer, without_page):
    command = ["compare", "linear", *TINY, "--seeds=2", "--out", "older"]
    call(*command)
    content = runs.read_json("older/study.json")
    del content["balance"]
    runs.write_json("older/study.json", content)
    assert "Read back from older/summary.json" in call(*command).stdout
    assert "balance is 0.1 there and 0.2 here" in words(call(*command, "--set=balance=0.2", status=2).stderr)


def test_a_comparison_with_folders_of_before_resumes(tmp_path, without_page):
    """Whose recipes had no groups."""
    command = ["compare", "linear", *TINY, "--seeds=2", "--strengths=1,2", "--set=method.oe.tightness_weight=2"]
    call(*command, "--out", "older")
    summary = runs.read_json("older/summary.json")
    places = [*Path("older/training").glob("*/recipe.json")]
    assert sorted(place.parent.name for place in places)[-1] == "oe-seed1-strength=2"
    for place in places:
        content = runs.read_json(place)
        older = flat(content["recipe"])
        older["method_options"] = older.pop("options")
        del older["tightness_weight"]  # there was no such key
        runs.write_json(place, {**content, "recipe": older})
    label = runs.read_json("older/study.json")
    label["method_options"] = label.pop("options")
    runs.write_json("older/study.json", label)
    assert "Read back from" in call(*command, "--out", "older").stdout
    Path("older/summary.json").unlink()
    before = {place: place.stat().st_mtime_ns for place in Path("older/training").rglob("*")}
    call(*command, "--out", "older")
    assert {place: place.stat().st_mtime_ns for place in Path("older/training").rglob("*")} == before
    assert runs.read_json("older/summary.json")["methods"] == summary["methods"]
