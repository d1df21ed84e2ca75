"""The command line, as its user meets it: what is printed, what is written, the exit status."""

import io
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("typer", reason="the command line is typer's")
pytest.importorskip("rich", reason="the tables are rich's")
pytest.importorskip("scipy", reason="the splines and distributions are SciPy's")

import numpy as np
from rich.console import Console

import fake_trainer
import ordinal_entropy
from commands import call
from fake_trainer import Trainer
from ordinal_entropy import cli, environment, runs, studies, tasks
from ordinal_entropy.environment import PARTS
from ordinal_entropy.recipes import flat
from ordinal_entropy.results import tables, terminal
from ordinal_entropy.tasks.operators import recipe as operators
from ordinal_entropy.training.stacked.stack import Stack
from paired_scores import summed

TINY = [
    f"--set={setting}"
    for setting in ("rows=30", "parts=3", "validation_rows=20", "test_rows=40", "hidden=8", "steps=20", "samples=5")
] + ["--set=evaluate_every=10", "--device=cpu"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Generated rows, which the tests share."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, cache, monkeypatch):
    """Nothing is written to the folder that tests are started from."""
    monkeypatch.setenv("ORDINAL_ENTROPY_CACHE", str(cache))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def trainer(monkeypatch):
    """In place of the real one."""
    fake = Trainer()
    monkeypatch.setattr(operators.train, "train", fake)
    monkeypatch.setattr(operators, "split", lambda recipe: None)
    return fake


def words(text):
    return " ".join(text.split())


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
    options = ["compare", "linear", "--methods", "oe,baseline,ld-balanced", "--strengths", "0.1, 1", "--seeds", 5]
    result = call(*options, "--device", "cpu", "--out", "there")
    ((jobs, *_),) = trainer.calls
    rows = ["baseline", "oe strength=0.1", "oe strength=1", "ld-balanced"]
    assert [(job.method, job.strength) for job in jobs if job.method == "oe"] == [("oe", 0.1)] * 5 + [("oe", 1.0)] * 5
    assert "4 rows x 5 seeds = 20 runs" in words(result.stderr)
    assert "oe strength=0.1 is better than baseline" in words(result.stdout)
    summary = json.loads((tmp_path / "there" / "summary.json").read_text())
    assert list(summary["methods"]) == rows and summary["variants"][rows[1]] == {"method": "oe", "strength": 0.1}
    assert "--methods baseline,oe,ld-balanced --seeds 5 --strengths 0.1,1 --preset paper" in summary["command"]
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


def test_reproduce_lists_the_studies():
    said = call("reproduce", "--list").stdout
    assert all(name in said for name in studies.names())


def test_reproduce_prints_the_papers_numbers_beside_ours(trainer, tmp_path):
    result = call("reproduce", "table1-linear", "--set", "seeds=3", "--out", "there", "--device", "cpu")
    row = next(line for line in result.stdout.splitlines() if line.split()[:1] == ["baseline"])
    assert row.rstrip().endswith("3.0 ± 0.93")
    assert "ld samples=100" in result.stdout
    assert "42 runs of 50,000 steps on cpu" in result.stderr
    assert (tmp_path / "there" / "summary.json").exists()
    assert "Read back from" in call("reproduce", "table1-linear", "--set", "seeds=3", "--out", "there").stdout


def test_reproduce_takes_a_preset(trainer, tmp_path):
    result = call("reproduce", "fig4b-linear", "--preset", "quick", "--set", "seeds=2", "--device", "cpu")
    assert "fig4b-linear, preset quick: Figure 4b" in result.stderr and "14 runs of 3,000 steps" in result.stderr
    assert "it shows how, not how much" in words(result.stdout)
    ((_, _, settings, *_),) = trainer.calls
    assert settings.steps == 3000
    assert "steps 3000" in words(call("reproduce", "fig4b-linear", "--preset", "quick", "--keys").stdout)
    assert not (tmp_path / "runs" / "fig4b-linear").exists()  # that is the published one's


def test_reproduce_draws_figures(tmp_path):
    pytest.importorskip("matplotlib", reason="figures are matplotlib's")
    settings = [setting for setting in TINY if "samples" not in setting]
    said = call("reproduce", "fig4b-linear", *settings, "--set", "seeds=2", "--out", "there").stdout
    assert "Drawn in there/fig4b-linear.png" in said
    assert (tmp_path / "there" / "fig4b-linear.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_a_figure_is_drawn_later(trainer, tmp_path, monkeypatch):
    with monkeypatch.context() as bare:
        bare.setattr(studies, "find_spec", lambda name: None)
        said = words(call("reproduce", "fig4b-linear", "--set", "seeds=2", "--out", "there").stdout)
    assert "pip install 'ordinal-entropy[report]', then give the same command again" in said
    assert not (tmp_path / "there" / "fig4b-linear.png").exists()
    call("reproduce", "fig4b-linear", "--set", "seeds=2", "--out", "there")
    assert (tmp_path / "there" / "fig4b-linear.png").exists()
    assert len(trainer.calls) == 1


def test_table6_prints_costs():
    settings = ["rows=30", "parts=1", "test_rows=10", "hidden=8", "samples=2", "rounds=2", "timed_steps=2", "warm_up=1"]
    said = call("reproduce", "table6", *(f"--set={s}" for s in settings), "--device", "cpu", "--out", "there").stdout
    assert "2,163" in said and "Seconds for 50000 steps" in words(said)


def test_keys_are_explained():
    said = words(call("compare", "linear", "--preset", "quick", "--keys").stdout)
    assert "steps 3000" in said and "rows drawn in each step" in said and " operator " not in said
    said = words(call("reproduce", "fig4b-linear", "--keys").stdout)
    assert "strengths" in said and "method.strength" not in said


def test_train_writes_a_run_folder_that_evaluate_reads(tmp_path):
    first = call("train", "linear", "--method", "ld", "--seed", 1, "--out", "mine", *TINY)
    run = runs.open(tmp_path / "mine")
    assert (run.method, run.seed, run.recipe["task"], run.recipe["training"]["steps"]) == ("ld", 1, "linear", 20)
    assert [line["step"] for line in run.metrics()] == [0, 10, 20]
    result = run.result()
    assert result["last"] == run.metrics()[-1]["test"]
    assert f"{result['last']:.4g}" in first.stdout
    evaluated = call("evaluate", "mine", "--device", "cpu").stdout
    assert "step 20 of 20" in evaluated and f"{result['last']:.4g}" in evaluated
    again = call("train", "linear", "--method", "ld", "--seed", 1, "--out", "mine", *TINY)
    assert "holds this run already" in again.stderr
    assert again.stdout == first.stdout
    assert len(run.metrics()) == 3


def test_a_stopped_run_goes_on(tmp_path, monkeypatch):
    real = operators.train.train

    def stopping(*arguments, progress, **options):
        def stop(done, total):
            if done == 20:
                raise KeyboardInterrupt

        return real(*arguments, progress=stop, **options)

    longer = [*TINY, "--set=steps=40"]
    monkeypatch.setattr(operators.train, "train", stopping)
    stopped = call("train", "linear", "--out", "mine", *longer, status=130)
    assert words(stopped.stderr).endswith("Stopped; to go on from what mine holds, give the same command again.")
    assert runs.open(tmp_path / "mine").result() is None
    assert "step 20 of 40" in call("evaluate", "mine", "--device", "cpu").stdout
    monkeypatch.setattr(operators.train, "train", real)
    went_on = call("train", "linear", "--out", "mine", *longer)
    straight = call("train", "linear", "--out", "other", *longer)
    assert went_on.stdout.replace("mine", "other") == straight.stdout
    assert runs.open(tmp_path / "mine").metrics() == runs.open(tmp_path / "other").metrics()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["compare", "liner"], "expected a task like 'linear' or 'nonlinear', got 'liner'"),
        (["compare", "linear", "--methods", "baseline,oee"], "expected a method like 'oe', got 'oee'"),
        (["compare", "linear", "--methods", "oe"], "expected two or more --methods, got oe"),
        (["compare", "linear", "--methods", ","], "expected different methods, got none"),
        (["compare", "linear", "--preset", "small"], "a preset of linear, got 'small'; there are paper, quick"),
        (["compare", "linear", "--set", "stepz=3"], "expected a key like 'steps', got 'stepz'"),
        (["compare", "linear", "--set", "steps=soon"], "expected steps to be a whole number, got 'soon'"),
        (["compare", "linear", "--set", "operator=nonlinear"], "operator comes with the name of the task"),
        (["compare", "linear", "--seeds", "1"], "expected at least 2 seeds"),
        (["compare", "linear", "--seeds", "3", "--stop-early"], "expected at least 4 seeds where one may stop early"),
        (["compare", "linear", "--stop-early", "--smallest", "0"], "to be a positive number, got 0.0"),
        (
            ["compare", "linear", "--strengths", "1"],
            "to be two or more different numbers of at least 0, as in 0.1,1,10",
        ),
        (["compare", "linear", "--strengths", "1,x"], "as in 0.1,1,10, got '1,x'"),
        (["compare", "linear", "--strengths", "1,1.0"], "two or more different numbers"),
        (["compare", "linear", "--strengths", "1,-1"], "numbers of at least 0"),
        (
            ["compare", "linear", "--strengths", "1,2", "--set", "strength=3"],
            "--strengths or --set strength=..., got both",
        ),
        (
            ["compare", "linear", "--methods", "baseline,ld-balanced", "--strengths", "1,2"],
            "expected a method with a strength beside --strengths, got baseline, ld-balanced",
        ),
        (
            ["compare", "linear", "--strengths", "1,2", "--set", "method.oe.strength=3"],
            "--strengths or --set method.oe.strength=..., got both",
        ),
        (
            ["compare", "linear", "--set", "method.huber.delta=1"],
            "expected options of parts of baseline, oe, got method.huber.delta, which none of them has",
        ),
        (["train", "linear", "--set", "method.ld.strength=1"], "parts of oe, got method.ld.strength, which none of"),
        (["compare", "linear", "--set", "method.oe.strengt=1"], "an option of oe like 'strength'"),
        (["compare", "linear", "--set", "method.oe.strength=abc"], "a number for method.oe.strength, got 'abc'"),
        (["compare", "linear", "--set", "method.oe.strength=nan"], "a number for method.oe.strength, got 'nan'"),
        (["compare", "linear", "--set", "method.oe.strength=-1"], "strength of 'oe' to be a number from 0 on, got -1"),
        (["compare", "linear", "--set", "method.oe.balance=x"], "a number for method.oe.balance, got 'x'"),
        (["compare", "linear", "--set", "method.oe.normalize=x"], "true or false for method.oe.normalize, got 'x'"),
        (["compare", "linear", "--set", "method.oe.generator=1"], "no method.oe.generator, which is an object of Py"),
        (
            ["compare", "linear", "--set", "method.oe.strength=2", "--set", "method.oe.balance=0.1"],
            "a strength or a balance of 'oe', got both",
        ),
        (["compare", "linear", "--set", "options=oe.strength=x"], "a number for method.oe.strength, got 'x'"),
        *(
            (["compare", task, "--preset", "quick", "--methods", f"baseline,{method}", *options], sentence)
            for task, method, options, sentence in [
                ("linear", "rnc", ["--set", "method.rnc.views=2"], "a stack of operators cannot train 'rnc', which"),
                ("tabular", "rnc", ["--set", "method.rnc.views=2"], "a stack of tables cannot train 'rnc', which"),
                ("tabular", "hl-gauss", ["--set", "method.hl-gauss.bins=5"], "expected more than 12 bins"),
                ("tabular", "rnc", ["--set", "method.rnc.stages=2", "--set", "epochs=1"], "2 epochs for two stages"),
                ("age", "huber", ["--set", "method.huber.delta=-1"], "delta to be a positive number, got -1"),
                ("crowd", "fds", [], "training on images cannot train 'fds', which takes rows"),
                ("crowd", "c-mixup", ["--set", "crop=0"], "training on whole images cannot train 'c-mixup'"),
                ("depth", "rnc", [], "training on images cannot train 'rnc', which takes rows"),
            ]
        ),
        (["train", "depth", "--preset", "quick", "--method", "fds"], "cannot train 'fds', which takes rows"),
        (["compare", "linear", "--smallest", "0.1"], "expected --stop-early beside --smallest, which is a reason to"),
        (["compare", "linear", "--engine", "ray"], "expected --engine local, the only one there is so far, got 'ray'"),
        (["compare", "linear", "--device", "abacus"], "expected --device to be auto, cpu or cuda, got 'abacus'"),
        (
            ["compare", "linear", "--out", "file"],
            "expected to be able to write file, got: a file where a folder should be",
        ),
        (["compare", "linear", "--out", "file/inside"], "expected to be able to write file/inside"),
        (["compare", "linear", "--set", "data=nowhere"], "in nowhere, got no .npz file"),
        (
            ["compare", "linear", "--set", "data=damaged"],
            "whole zip archive, got damaged/train.npz, which is damaged",
        ),
        (["compare", "linear", "--set", "data=foreign"], "got no X_train0, X_train1"),
        (["reproduce"], "expected the name of a study, got none; there are table1-linear"),
        (["reproduce", "table1"], "expected a study like"),
        (["reproduce", "table6", "--set", "round=3"], "expected a key like 'rounds'"),
        (["reproduce", "table6", "--preset", "quik"], "expected a preset of linear like 'quick', got 'quik'"),
        (
            ["reproduce", "table1-linear", "--preset", "small"],
            "a preset of linear, got 'small'; there are paper, quick",
        ),
        (["reproduce", "table4-age", "--preset", "smal"], "expected a preset of age like 'small', got 'smal'"),
        (["reproduce", "table4-age"], "expected --set data=ROOT, a dataset of faces, or --preset quick"),
        (
            ["reproduce", "table1-linear", "--out", "file"],
            "expected to be able to write file, got: a file where a folder should be",
        ),
        (["train", "linear", "--method", "odd"], "a method"),
        (["train", "linear", "--seed", "-1"], "expected --seed to be at least 0, got -1"),
        (
            ["train", "linear", "--out", "file"],
            "expected to be able to write file, got: a file where a folder should be",
        ),
        (["evaluate", "nowhere"], "expected a run folder with recipe.json, got nowhere"),
        (["data", "check", "agee", "."], "expected a task with a dataset like 'age', got 'agee'; there are age"),
        (
            ["data", "check", "age", "nowhere"],
            "a dataset of faces in nowhere, got no such folder. AgeDB-DIR: agedb.csv",
        ),
        (["data", "check", "age", "foreign"], "no images that are named as in UTKFace. AgeDB-DIR: agedb.csv from"),
        (["data", "check", "age", "file"], "expected a dataset folder or its csv, got the file file"),
        (["data", "make", "linear", "there"], "the name of a task with a dataset, got 'linear'; there are age"),
        (["data", "make", "age", "foreign"], "expected an empty folder, or none yet, got foreign, which is not empty"),
        (["data", "make", "age", "file"], "expected an empty folder, or none yet, got file, which is a file"),
        (["data", "make", "age", "file/inside"], "file/inside"),
        (["data", "make", "age", "there", "--count", "3"], "expected a count of at least 100 faces, got 3"),
        (["data", "make", "age", "there", "--seed", "-1"], "expected a seed of at least 0, got -1"),
    ],
)
def test_a_mistake_is_one_sentence_and_status_2(arguments, sentence, tmp_path):
    (tmp_path / "file").write_text("")
    for name in ("damaged", "foreign"):
        (tmp_path / name).mkdir()
        for part in ("train", "test"):
            (tmp_path / name / f"{part}.npz").write_bytes(b"PK\x03\x04 torn")
            if name == "foreign":
                np.savez(tmp_path / name / f"{part}.npz", y_train=np.zeros(3), y_test=np.zeros(3))
    result = call(*arguments, status=2)
    last = result.stderr.splitlines()[-1]
    assert last.startswith("ordinal-entropy: ") and sentence in last
    assert "Traceback" not in result.output
    assert not result.stdout


def test_a_generated_set_is_made_and_found_to_be_whole(tmp_path):
    pytest.importorskip("PIL", reason="faces are drawn with Pillow")
    made = call("data", "make", "age", "faces", "--seed", 3, "--count", 120)
    assert made.stdout == "Written to faces\n" and "120 of 120 images" in made.stderr
    checked = call("data", "check", "age", "faces")
    assert checked.stdout == "All is well: 120 files of faces were read.\n" and "120 of 120 files" in checked.stderr


def test_data_check_names_every_bad_file_and_exits_with_1(tmp_path):
    pytest.importorskip("PIL", reason="faces are drawn with Pillow")
    call("data", "make", "age", "faces", "--count", 100)
    files = sorted((tmp_path / "faces" / "AgeDB").iterdir())
    files[0].write_bytes(files[0].read_bytes()[:500])
    for file in files[1:60]:
        file.write_bytes(b"")
    files[60].unlink()
    some = words(call("data", "check", "age", "faces", status=1).stdout)
    assert some.endswith("61 problems in faces, 11 of them not shown (--all names every one); 99 files read.")
    assert f"AgeDB/{files[60].name} missing (line " in some
    every = words(call("data", "check", "age", "faces", "--all", status=1).stdout)
    assert f"AgeDB/{files[0].name} truncated" in every
    assert all(f"AgeDB/{file.name} empty" in every for file in files[1:60])
    assert every.endswith("61 problems in faces; 99 files read.")


def test_data_check_stays_calm_in_the_face_of_odd_names(tmp_path):
    (tmp_path / "agedb.csv").write_text("age,path,split\n35,[red]\x1b[2J.jpg,train\n")
    said = call("data", "check", "age", ".", status=1).stdout
    assert "[red]\\x1b[2J.jpg" in said and "\x1b" not in said


def test_a_folder_is_not_lost_to_a_mistyped_setting(trainer, tmp_path, monkeypatch):
    with monkeypatch.context() as mistyped:
        mistyped.setattr(operators, "split", lambda recipe: operators.data.read("nowhere"))
        call("compare", "linear", "--seeds", 2, "--out", "there", "--set", "data=nowhere", status=2)
    call("compare", "linear", "--seeds", 2, "--out", "there")


def test_a_run_folder_of_another_program_is_refused(tmp_path):
    runs.create(tmp_path / "other", {"steps": 3}, "ld", 0)
    assert "whose recipe names no task" in words(call("evaluate", "other", status=2).stderr)
    runs.create(tmp_path / "newer", {"task": "linear", "steps": 3, "momentum": 1}, "ld", 0)
    said = words(call("evaluate", "newer", status=2).stderr)
    assert "got momentum, which this version does not have: a newer version" in said and "newer/recipe.json" in said


def test_a_run_that_was_written_before_a_key_existed_is_scored_and_gone_on_with(tmp_path):
    command = ["train", "linear", *TINY, "--out", "older"]
    call(*command)
    scores = call("evaluate", "older", "--device=cpu").stdout
    content = runs.read_json("older/recipe.json")
    del content["recipe"]["method"]["balance"], content["recipe"]["training"]["feature_rows"]
    runs.write_json("older/recipe.json", content)
    assert call("evaluate", "older", "--device=cpu").stdout == scores
    (tmp_path / "older" / "result.json").unlink()
    call(*command)
    assert "recipe.method.balance to be 0.1" in words(call(*command, "--set=balance=0.2", status=2).stderr)


def test_a_comparison_that_was_written_before_a_key_existed_is_read_back(trainer, without_page):
    command = ["compare", "linear", *TINY, "--seeds=2", "--out", "older"]
    call(*command)
    content = runs.read_json("older/study.json")
    del content["balance"]
    runs.write_json("older/study.json", content)
    assert "Read back from older/summary.json" in call(*command).stdout
    assert "balance is 0.1 there and 0.2 here" in words(call(*command, "--set=balance=0.2", status=2).stderr)


AT_WORK = """
import sys, time
from pathlib import Path
from ordinal_entropy import runs
out = Path(sys.argv[1])
with runs.lock(out / ".lock"), runs.replacing(out / "deep" / "checkpoint.pt") as file:
    file.write(b"half")
    print("ready", flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="nothing is locked there")
def test_a_folder_has_one_command_at_a_time_and_what_a_killed_one_left_is_removed(trainer, without_page, tmp_path):
    out = tmp_path / "there"
    process = subprocess.Popen([sys.executable, "-c", AT_WORK, str(out)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        for command in (["compare", "linear", *TINY, "--seeds=2"], ["train", "linear", *TINY]):
            said = words(call(*command, "--out", out, status=2).stderr)
            assert f"process {process.pid} is at work in {out}; wait until it has ended, or choose another" in said
        runs.remove_leftovers(out)  # which are none while it lives
        (left,) = out.rglob("*.tmp")
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    mine = out / ".notes.tmp"
    mine.write_text("not ours to remove")
    assert left.exists()
    call("compare", "linear", *TINY, "--seeds=2", "--out", out)
    assert list(out.rglob("*.tmp")) == [mine] and not (out / ".lock").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="nothing is locked there")
def test_further_processes_of_a_run_on_several_devices_are_let_in(tmp_path, monkeypatch):
    from ordinal_entropy import cli

    several = tasks.recipe("age", "quick", ["devices=2", "batch_size=64"])
    for name, recipe, locked in (("RANK", several, False), ("SLURM_PROCID", several, False), ("RANK", None, True)):
        monkeypatch.setenv(name, "1")
        with cli._Out() as out:
            out.take(tmp_path / "out", recipe)
            assert (tmp_path / "out" / ".lock").exists() == locked
        monkeypatch.delenv(name)


def test_brackets_in_paths_are_no_markup(tmp_path, monkeypatch, without_page):
    monkeypatch.setenv("COLUMNS", "400")
    odd = "a[b]c[/d]:smile:"
    call("train", "linear", *TINY, "--out", f"{odd}/train")
    assert f"{odd}/train" in call("train", "linear", *TINY, "--out", f"{odd}/train").stdout
    call("evaluate", f"{odd}/train", "--device=cpu")
    options = ["compare", "linear", *TINY, "--seeds=2", "--out", f"{odd}/compare"]
    assert f"Written to {odd}/compare/summary.json" in call(*options).stdout
    assert f"Read back from {odd}/compare/summary.json" in call(*options).stdout
    studied = ["reproduce", "table1-linear", *TINY, "--set=seeds=2", "--set=methods=baseline,ld", f"--out={odd}/study"]
    assert f"Written to {odd}/study/summary.json" in call(*studied).stdout
    draw = np.random.default_rng(0)
    np.savez(tmp_path / f"{odd}.npz".replace("/", "-"), features=draw.normal(size=(40, 4)), targets=np.arange(40.0))
    said = call("diagnose", f"{odd}.npz".replace("/", "-"), "--out", f"{odd}/diagnosis").stdout
    assert f"{odd}.npz".replace("/", "-") in said and f"Written to {odd}/diagnosis/diagnosis.json" in said
    assert f"Written to {odd}/houses" in call("data", "make", "tabular", f"{odd}/houses").stdout
    assert f"{odd}/nowhere" in words(call("data", "check", "age", f"{odd}/nowhere", status=2).stderr)
    (tmp_path / odd / "faces").mkdir()
    (tmp_path / odd / "faces" / "1_0_0_[bold]x.jpg").write_bytes(b"no")
    assert "1_0_0_[bold]x.jpg" in call("data", "check", "age", f"{odd}/faces", status=1).stdout


def test_version_is_printed():
    assert call("--version").stdout.strip() == ordinal_entropy.__version__


@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK", "NODE_RANK"])
def test_further_processes_of_one_command_say_nothing_but_what_is_wrong(name, monkeypatch):
    monkeypatch.setenv(name, "1")
    assert call("reproduce", "--list").output == ""
    assert "expected the name of a study" in call("reproduce", status=2).stderr
    monkeypatch.setenv(name, "0")
    assert "table1-linear" in call("reproduce", "--list").output


def test_doctor_tells_versions_kernels_and_parts(monkeypatch):
    monkeypatch.setattr(cli, "torchvision_problem", lambda: None)  # which takes seconds
    said = call("doctor").stdout
    assert all(word in said for word in ("torch", "processor", "fused", "Optional parts", "matplotlib"))


def test_doctor_advises_only_what_is_missing_and_says_what_cannot_be_imported(monkeypatch):
    for extra in list(PARTS):
        monkeypatch.setitem(PARTS, extra, ("numpy", "torchvision"))
    monkeypatch.setattr(environment, "_version", lambda name: "1.0")
    monkeypatch.setattr(cli, "torchvision_problem", lambda: None)
    said = call("doctor").stdout
    assert "pip install" not in said and "cannot be imported" not in said
    monkeypatch.setitem(PARTS, "sweep", ("numpy", "ray"))
    monkeypatch.setattr(environment, "_version", lambda name: None if name == "ray" else "1.0")
    monkeypatch.setattr(cli, "torchvision_problem", lambda: "operator torchvision::nms does not exist")
    said = words(call("doctor").stdout)
    assert "pip install 'ordinal-entropy[sweep]'" in said
    assert "1.0 installed, cannot be imported: operator torchvision::nms does not exist" in said


def test_the_package_can_be_run_as_the_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["ordinal_entropy", "compare", "liner"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("ordinal_entropy", run_name="__main__")
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("ordinal-entropy: expected a task like 'linear'")


def test_reproduce_warns_of_skewed_differences_below_its_tables(tmp_path, capsys):
    far = summed({"baseline": [3.0, 3.2, 2.9, 3.4, 3.1], "ld": [2.0, 2.3, 1.9, 2.3, 9.1]}, task="linear", metric="mse")
    far |= {"baseline": "baseline", "device": "cpu", "study": "table1-linear"}
    cli._print_study("table1-linear", far, tmp_path, read_back=True)
    said = words(capsys.readouterr().out)
    assert "ld against baseline: not significant" in said
    assert "The differences look skewed (skewness +1.5): the 95% CI may cover less than 95%" in said


@pytest.mark.parametrize("command", ["compare", "train"])
def test_help_names_the_default_preset_of_every_task(command):
    said = words(call(command, "--help").stdout.replace("│", " "))
    assert "[default: paper; tabular: small]" in said
    for task in tasks.names():
        assert tasks.preset_of(task) == ("small" if task == "tabular" else "paper")


def test_tables_are_not_cut_in_a_narrow_window_or_a_file():
    summary = summed({"baseline": [3.0, 3.2, 2.9], **{f"method-{k} a=1 b=2": [2000.0, 1.3, 2.0 + k] for k in range(3)}})
    console = Console(file=io.StringIO(), width=40)
    table = tables.differences(summary, 1.0)
    terminal.show(console, table)
    printed = console.file.getvalue().split()
    cells = [cell for row in table.rows for cell in (row.name, *row.cells)]
    assert all(word in printed for cell in cells for word in cell.split())
    assert console.width == 40


def test_problems_of_a_dataset_are_not_cut(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    found = [(f"images/{'A' * 70}", f"expected a number, got {'B' * 90}")]
    cli._print_problems(Path("root"), found, found, 1)
    printed = capsys.readouterr().out
    assert (printed.count("A"), printed.count("B")) == (70, 90)


@pytest.mark.parametrize("command", ["reproduce", "compare", "train", "evaluate", "doctor", "data"])
def test_every_command_has_help(command):
    assert len(call(command, "--help").stdout) > 200
    assert command in call("--help").stdout


@pytest.mark.parametrize("command", ["check", "make"])
def test_every_command_for_data_has_help(command):
    assert len(call("data", command, "--help").stdout) > 200


def test_a_bare_install_says_which_extra_it_needs(tmp_path):
    program = (
        "import sys; sys.modules['typer'] = None; from ordinal_entropy.cli_entry import main; main()"  # not installed
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.strip() == "the command ordinal-entropy needs typer: pip install 'ordinal-entropy[train]'"


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals as POSIX has them")
def test_ctrl_c_ends_with_a_sentence_and_status_130(tmp_path):
    program = "from ordinal_entropy.cli_entry import main; main()"
    arguments = ["compare", "linear", "--seeds", "2", "--out", "there", *TINY, "--set=steps=1000000"]
    process = subprocess.Popen([sys.executable, "-c", program, *arguments], stderr=subprocess.PIPE, text=True)
    for _ in range(600):
        time.sleep(0.1)
        if (tmp_path / "there" / "study.json").exists():
            break
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=600)
    assert process.returncode == 130
    assert said.splitlines()[-1] == "Stopped; to go on from what there holds, give the same command again."
    assert list((tmp_path / "there" / "training").rglob("checkpoint.pt"))


def test_summarize_gives_an_older_summary_todays_form_and_leaves_its_scores(tmp_path):
    scores = {"baseline": [3.0, 3.2, 2.9, None], "oe": [2.0, 2.3, 2.0, 2.2]}
    old = {
        "task": "linear",
        "metric": "mse",
        "lower_is_better": True,
        "methods": {name: {"values": own, "mean": 0.0, "std": 0.0, "n": 4} for name, own in scores.items()},
        "paired": {"oe": {"difference": 0.0, "ci_low": 0.0, "ci_high": 0.0, "p_value": 1.0, "n": 4}},
        "recipe": {"steps": 5},
        "command": "as it was",
    }
    path = tmp_path / "runs" / "old" / "summary.json"
    runs.write_json(path, old)
    assert f"{path}: rewritten" in words(call("summarize", tmp_path / "runs").stdout)
    new = runs.read_json(path)
    assert {name: own["values"] for name, own in new["methods"].items()} == scores
    assert new["paired"]["oe"]["verdict"] == "helps" and new["paired"]["oe"]["n"] == 3
    assert new["spread"].keys() == {"oe"} and new["recipe"] == {"steps": 5} and new["command"] == "as it was"
    assert f"{path}: up to date" in words(call("summarize", path).stdout)


def test_summarize_refuses_what_is_no_summary(tmp_path):
    assert "expected a folder with a summary.json, got" in call("summarize", tmp_path, status=2).stderr
    runs.write_json(tmp_path / "curves.json", {"steps": []})
    said = call("summarize", tmp_path / "curves.json", status=2).stderr
    assert "curves.json: expected a summary of a comparison, got one without task, metric" in words(said)


def test_a_command_that_runs_out_of_memory_says_so(tmp_path, monkeypatch):
    (tmp_path / "houses.csv").write_text("area,price\n50,200\n60,300\n")
    for raised, said in ((MemoryError("7 TiB"), "7 TiB"), (MemoryError(), "nothing is left")):
        monkeypatch.setattr("ordinal_entropy.files.content", lambda path, raised=raised: (_ for _ in ()).throw(raised))
        answer = call("data", "check", "tabular", tmp_path / "houses.csv", status=2)
        assert answer.stderr == f"ordinal-entropy: the memory is not enough: {said}\n"


def test_settings_come_out_of_a_file_and_set_wins(trainer, tmp_path, without_page):
    (tmp_path / "mine.yaml").write_text("task: linear\ntraining: {steps: 40, learning_rate: 3e-3}\nhidden: 9\n")
    call("compare", "linear", "--preset=quick", "--seeds=2", "--config=mine.yaml", "--set=hidden=8", "--out=there")
    summary = runs.read_json("there/summary.json")
    assert summary["recipe"]["training"]["steps"] == 40 and summary["recipe"]["training"]["learning_rate"] == 3e-3
    assert summary["recipe"]["model"]["hidden"] == 8
    options = "--set=training.steps=40 --set=training.learning_rate=3e-3 --set=hidden=9 --set=hidden=8"
    assert f"--preset quick {options} --device" in summary["command"]  # as if they had been given there
    shown = words(call("train", "linear", "--config=mine.yaml", "--keys").stdout)
    assert "training.steps 40 " in shown and "model.hidden 9 " in shown
    shown = words(call("reproduce", "table1-linear", "--config=mine.yaml", "--keys").stdout)
    assert "training.steps 40 " in shown


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("training:\n  epochs: 3\n", "line 2, column 3: expected a key like 'training.steps' or "),
        ("training:\n  step: 3\n", "line 2, column 3: expected a key like 'training.steps'"),
        ("steps: 3\ntraining: {steps: 3}\n", "line 2, column 12: training.steps is given twice, before in mine.yaml"),
        ("steps: many\n", "line 1, column 1: expected steps to be a whole number, got 'many'"),
        ("steps: [1, 2]\n", "line 1, column 1: expected one value of steps, got 1, 2"),
        ("method: {oe: {strenght: 3}}\n", "line 1, column 15: expected an option of oe like 'strength', got "),
        ("method: {oe: {strength: x}}\n", "line 1, column 15: expected a number for method.oe.strength, got 'x'"),
        ("task: age\n", "line 1, column 1: expected settings of the task linear, got those of age"),
        ("- steps\n", "line 1, column 1: expected keys with their values, as in epochs: 10, got a list"),
        ("steps: 3: 4\n", "line 1, column 9: expected YAML, got an error: mapping values are not allowed here"),
        ("", "expected keys and values in mine.yaml, got an empty file"),
        ("data: {rows: 5}\nmodel: {hidden: 9}\n", "line 1, column 8: expected samples from 2 to rows=5, or none"),
        ("learning_rate: 0\n", "line 1, column 1: expected learning_rate to be a positive number, got 0.0"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", [["train", "linear"], ["compare", "linear"], ["reproduce", "fig4b-linear"]])
def test_a_mistake_in_a_file_is_a_sentence_with_its_place(command, text, sentence, tmp_path):
    (tmp_path / "mine.yaml").write_text(text)
    result = call(*command, "--config=mine.yaml", status=2)
    assert sentence in words(result.stderr) and result.stderr.startswith("ordinal-entropy: ")
    assert len(result.stderr.splitlines()) == 1 and not result.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


def test_a_run_is_repeated_from_its_folder_and_from_one_of_before(tmp_path):
    call("train", "linear", *TINY, "--method=ld", "--set=method.ld.strength=2", "--out=first")
    again = ["train", "linear", "--preset=quick", "--method=ld", "--device=cpu"]
    call(*again, "--config=first/recipe.json", "--out=second")
    assert runs.open("second").recipe == runs.open("first").recipe
    assert runs.read_json("second/result.json") == runs.read_json("first/result.json")

    content = runs.read_json("first/recipe.json")
    older = flat(content["recipe"])
    older["method_options"] = older.pop("options")
    runs.write_json("older/recipe.json", {**content, "recipe": older})
    call(*again, "--config=older/recipe.json", "--out=third")
    assert runs.open("third").recipe == runs.open("first").recipe
    said = words(call("train", "nonlinear", "--config=first/recipe.json", status=2).stderr)
    assert "first/recipe.json, line 3, column 5: expected settings of the task nonlinear, got those of linear" in said


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
