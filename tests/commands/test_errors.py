"""How commands end: mistakes, stops, and folders that are taken."""

import os
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("typer", reason="the command line is typer's")
pytest.importorskip("rich", reason="the tables are rich's")
pytest.importorskip("scipy", reason="the splines and distributions are SciPy's")

import numpy as np

from command_line import TINY, call, words
from ordinal_entropy import runs, tasks
from ordinal_entropy.commands.errors import OwnFolder


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
            ["compare", "linear", "--methods", "baseline,huber", "--strengths", "1,2"],
            "expected a method with a strength beside --strengths, got baseline, huber",
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
        (["data", "check", "age", "file"], "expected a dataset folder or its .csv, got the file file"),
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


def test_a_command_that_runs_out_of_memory_says_so(tmp_path, monkeypatch):
    (tmp_path / "houses.csv").write_text("area,price\n50,200\n60,300\n")
    for raised, said in ((MemoryError("7 TiB"), "7 TiB"), (MemoryError(), "nothing is left")):
        monkeypatch.setattr("ordinal_entropy.files.content", lambda path, raised=raised: (_ for _ in ()).throw(raised))
        answer = call("data", "check", "tabular", tmp_path / "houses.csv", status=2)
        assert answer.stderr == f"ordinal-entropy: the memory is not enough: {said}\n"


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
    several = tasks.recipe("age", "quick", ["devices=2", "batch_size=64"])
    for name, recipe, locked in (("RANK", several, False), ("SLURM_PROCID", several, False), ("RANK", None, True)):
        monkeypatch.setenv(name, "1")
        with OwnFolder() as out:
            out.take(tmp_path / "out", recipe)
            assert (tmp_path / "out" / ".lock").exists() == locked
        monkeypatch.delenv(name)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals as POSIX has them")
def test_ctrl_c_ends_with_a_sentence_and_status_130(tmp_path):
    program = "from ordinal_entropy.commands import main; main()"
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
