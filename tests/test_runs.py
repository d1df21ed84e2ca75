"""Run folders: written whole or not at all, read back, and gone on with."""

import json
import math
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from ordinal_entropy import runs

RECIPE = {"steps": 10, "learning_rate": 1e-3, "sizes": (1, 2), "nested": {"deep": True}}


def test_json_comes_back(tmp_path):
    content = {"a": [1, 2.5, "x", None, True], "b": {"c": {}}, "é": "ü"}
    path = tmp_path / "new" / "folder" / "file.json"
    runs.write_json(path, content)
    assert runs.read_json(path) == content
    assert os.listdir(path.parent) == ["file.json"]


def test_json_of_what_json_does_not_know(tmp_path):
    path = tmp_path / "file.json"
    content = {
        "nan": math.nan, "inf": [-math.inf], "tuple": (1, 2), "numpy": np.float32(0.5),
        "array": np.array([1.0, np.nan]), "torch": torch.tensor(2), "path": Path("a") / "b", 3: "key",
    }  # fmt: skip
    runs.write_json(path, content)
    assert runs.read_json(path) == {
        "nan": None, "inf": [None], "tuple": [1, 2], "numpy": 0.5, "array": [1.0, None], "torch": 2, "path": "a/b",
        "3": "key",
    }  # fmt: skip


def test_what_cannot_be_written_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file.json"
    runs.write_json(path, 1)
    with pytest.raises(TypeError):
        runs.write_json(path, object())

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(runs.DiskFullError, match=r"the disk is full: cannot write .*file\.json"):
        runs.write_json(path, 2)
    assert runs.read_json(path) == 1
    assert os.listdir(tmp_path) == ["file.json"]


@pytest.mark.skipif(sys.platform == "win32", reason="nothing is locked there")
def test_what_a_killed_process_left_of_a_file_goes_when_the_file_is_written_again(tmp_path, monkeypatch):
    path = tmp_path / "a[b]" / "report.html"
    left, others = path.with_name(".report.html.0123abcd.tmp"), path.with_name(".other.html.0123abcd.tmp")
    path.parent.mkdir()
    left.touch()
    others.touch()
    with runs.replacing(path) as file:
        file.write(b"whole")
        with runs.replacing(path):  # as another thread would
            pass
    assert path.read_bytes() == b"whole" and set(path.parent.iterdir()) == {path, others}

    claim, taken = runs._claim, []

    def too_late(file, *, wait):
        if not taken:  # another process removes the new file before it is claimed
            taken.append(os.unlink(file.name))
        return claim(file, wait=wait)

    monkeypatch.setattr(runs, "_claim", too_late)
    runs.write_json(path, 1)
    assert taken and runs.read_json(path) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="nothing is locked there")
@pytest.mark.parametrize("look", [1, 2])
def test_a_lock_that_goes_while_it_is_looked_at_is_taken_anew(tmp_path, monkeypatch, look):
    """Another process that is done removes the file before one of the looks at it."""
    path, stat, looks = tmp_path / "lock", Path.stat, []

    def late(self, **options):
        if self == path:
            looks.append(self)
            if len(looks) == look:
                os.unlink(self)
        return stat(self, **options)

    monkeypatch.setattr(Path, "stat", late)
    with runs.lock(path, wait=True):
        monkeypatch.undo()
        assert path.read_text().startswith(f"{os.getpid()} ")
    assert not path.exists()


def test_numbers_that_json_does_not_have_are_none(tmp_path):
    path = tmp_path / "file.json"
    path.write_text("[NaN, Infinity, -Infinity, 1e999, 1%s, 2.5]" % ("0" * 400))
    assert runs.read_json(path) == [None, None, None, None, None, 2.5]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a system without pipes in folders")
def test_what_has_no_end_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "zeros.json").symlink_to("/dev/zero")
    for name in ("pipe.json", "zeros.json"):
        with pytest.raises(runs.FolderError, match=f"{name} is damaged or foreign: expected a regular file"):
            runs.read_json(tmp_path / name)
        with pytest.raises(runs.FolderError, match="expected a regular file"):
            runs.load_tensors(tmp_path / name, dict, remedy="")


def test_a_file_that_is_too_large_or_nested_too_deeply_is_named(tmp_path):
    path = tmp_path / "file.json"
    with path.open("wb") as file:
        file.truncate(2**28 + 1)
    with pytest.raises(runs.FolderError, match="at most 268,435,456 bytes"):
        runs.read_json(path)
    path.write_text("[" * 100_000)
    with pytest.raises(runs.FolderError, match="nested too deeply"):
        runs.read_json(path)


FORM = {"steps": [int], "scores": {str: runs.NUMBER}, "weight": torch.zeros(2)}
WHOLE = {"steps": [1, 2], "scores": {"a": None, "b": 0.5}, "weight": torch.ones(2), "more": "x"}


def test_tensors_come_back(tmp_path):
    path = tmp_path / "new" / "file.pt"
    runs.save_tensors(path, WHOLE)
    found = runs.load_tensors(path, FORM, remedy="")
    assert found["weight"].equal(WHOLE["weight"]) and found["scores"] == WHOLE["scores"]
    assert os.listdir(path.parent) == ["file.pt"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (7, "expected an object, got 7"),
        ({}, "expected steps, got none"),
        ({**WHOLE, "steps": 1}, "expected steps to be a list, got 1"),
        ({**WHOLE, "steps": [1, True]}, r"expected steps\[1\] to be a number, got True"),
        ({**WHOLE, "scores": {"a": "x"}}, "expected scores.a to be a number, got 'x'"),
        ({**WHOLE, "scores": {1: 0.5}}, "expected each key of scores to be text, got 1"),
        ({**WHOLE, "weight": 1.0}, "expected weight to be Tensor, got 1.0"),
        ({**WHOLE, "weight": torch.ones(3)}, r"expected weight of shape \(2,\) in torch.float32, got \(3,\)"),
        ({**WHOLE, "weight": torch.ones(2).double()}, "expected weight of .* got .* in torch.float64"),
        (torch.nn.Linear(2, 2), "it is no file of tensors and plain values"),
    ],
)
def test_tensors_of_another_form_are_told(tmp_path, content, said):
    torch.save(content, tmp_path / "file.pt")
    with pytest.raises(runs.FolderError, match=rf"file\.pt is damaged or foreign: {said}.*; do this"):
        runs.load_tensors(tmp_path / "file.pt", FORM, remedy="do this")


@pytest.mark.parametrize("keep", [0, 1, 100, 0.5, -1])
def test_tensors_that_are_cut_off_are_told(tmp_path, keep):
    runs.save_tensors(tmp_path / "file.pt", WHOLE)
    whole = (tmp_path / "file.pt").read_bytes()
    (tmp_path / "file.pt").write_bytes(whole[: int(len(whole) * keep) if isinstance(keep, float) else keep])
    with pytest.raises(runs.FolderError, match=r"file\.pt is damaged or foreign"):
        runs.load_tensors(tmp_path / "file.pt", FORM, remedy="")


def test_a_file_that_may_not_grow_says_so_and_leaves_the_old_one(tmp_path):
    resource = pytest.importorskip("resource", reason="limits of a process are Unix's")
    runs.save_tensors(tmp_path / "file.pt", {"old": 1})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:  # torch.save itself speaks of an unexpected position
        with pytest.raises(runs.WriteError, match=r"able to write .*file\.pt, got: File too large"):
            runs.save_tensors(tmp_path / "file.pt", torch.zeros(100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert runs.load_tensors(tmp_path / "file.pt", dict, remedy="") == {"old": 1}
    assert os.listdir(tmp_path) == ["file.pt"]


def test_a_reader_never_sees_a_part(tmp_path):
    path = tmp_path / "file.json"
    runs.write_json(path, [0] * 1000)
    stop = threading.Event()

    def write():
        number = 0
        while not stop.is_set():
            number += 1
            runs.write_json(path, [number] * 1000)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(300):
            content = runs.read_json(path)
            assert len(content) == 1000 and len(set(content)) == 1
    finally:
        stop.set()
        writer.join()


def test_what_is_not_json_is_named(tmp_path):
    path = tmp_path / "file.json"
    path.write_bytes(b"\xff{")
    with pytest.raises(ValueError, match=r"file\.json is damaged or foreign: expected JSON, got .*; do this"):
        runs.read_json(path, remedy="do this")


def test_a_run_folder_is_made_and_opened(tmp_path):
    run = runs.create(tmp_path / "a" / "run", RECIPE, "oe", 3)
    content = json.loads((run.path / "recipe.json").read_text())
    assert set(content) == {"recipe", "method", "seed", "environment"}
    assert content["environment"]["torch"] == torch.__version__
    assert runs.open(run.path) == run == runs.create(run.path, RECIPE, "oe", 3)
    assert (run.method, run.seed, run.recipe["sizes"]) == ("oe", 3, [1, 2])
    assert run.result() is None and run.metrics() == []


@pytest.mark.parametrize(
    ("recipe", "method", "seed", "message"),
    [
        (RECIPE, "ld", 3, "method to be 'oe' .* got 'ld'"),
        (RECIPE, "oe", 4, "seed to be 3 .* got 4"),
        ({**RECIPE, "steps": 11}, "oe", 3, r"recipe\.steps to be 10 .* got 11"),
        ({**RECIPE, "nested": {"deep": False}}, "oe", 3, r"recipe\.nested\.deep to be True .* got False"),
        ({**RECIPE, "new": 1}, "oe", 3, r"recipe\.new to be None .* got 1"),
        ({k: v for k, v in RECIPE.items() if k != "steps"}, "oe", 3, r"recipe\.steps to be 10 .* got None"),
    ],
)
def test_a_folder_of_another_run_is_refused_with_the_key_that_differs(tmp_path, recipe, method, seed, message):
    runs.create(tmp_path, RECIPE, "oe", 3)
    before = (tmp_path / "recipe.json").read_bytes()
    with pytest.raises(ValueError, match=message + "; choose another folder"):
        runs.create(tmp_path, recipe, method, seed)
    assert (tmp_path / "recipe.json").read_bytes() == before


def test_a_folder_that_is_no_run_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"expected a run folder with recipe\.json"):
        runs.open(tmp_path)
    whole = {"recipe": {}, "method": "oe", "seed": 1}
    for content, missing in (
        ({"recipe": {}, "method": "oe"}, "expected seed, got none"),
        ([], r"expected an object, got \[\]"),
        ({**whole, "seed": True}, "expected seed to be a number, got True"),
        ({**whole, "seed": -1}, "a seed of at least 0, got -1"),
        ({**whole, "recipe": [1]}, r"expected recipe to be an object, got \[1\]"),
    ):
        runs.write_json(tmp_path / "recipe.json", content)
        for ask in (lambda: runs.open(tmp_path), lambda: runs.create(tmp_path, {}, "oe", 1)):
            with pytest.raises(ValueError, match=missing):
                ask()


def test_a_folder_that_was_written_before_a_key_existed_is_gone_on_with(tmp_path):
    runs.create(tmp_path, RECIPE, "oe", 3)
    runs.create(tmp_path, {**RECIPE, "new": 1}, "oe", 3, read=lambda recipe: {"new": 1, "steps": 7, **recipe})
    with pytest.raises(ValueError, match=r"recipe\.new to be 1 .* got 2"):
        runs.create(tmp_path, {**RECIPE, "new": 2}, "oe", 3, read=lambda recipe: {"new": 1, **recipe})


def test_a_folder_that_cannot_be_made_is_an_oserror_with_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(OSError, match=r"able to write .*recipe\.json, got: a file where a folder should be"):
            runs.create(path, {}, "oe", 0)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_an_oserror_with_a_sentence(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(OSError, match="Permission denied"):
        runs.create(tmp_path, {}, "oe", 0)


def test_metrics_are_appended_and_come_back(tmp_path):
    run = runs.create(tmp_path, {}, "oe", 0)
    lines = [{"step": 0, "loss": 2.0}, {"step": 1, "loss": math.nan}, {"step": 2, "loss": torch.tensor(0.25)}]
    for count, line in enumerate(lines, start=1):
        run.log(**line)
        assert len(runs.open(tmp_path).metrics()) == count  # what another process sees
    found = run.metrics()
    assert [line["step"] for line in found] == [0, 1, 2]
    assert [line["loss"] for line in found] == pytest.approx([2.0, math.nan, 0.25], nan_ok=True)
    assert json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[1])["loss"] is None


@pytest.mark.parametrize("torn", [b'{"step": 1, "lo', b"{", b'{"step": 1}'])
@pytest.mark.parametrize("before", [0, 2])
def test_a_torn_last_line_is_left_out_and_written_over(tmp_path, torn, before):
    run = runs.create(tmp_path, {}, "oe", 0)
    for step in range(before):
        run.log(step=step)
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(torn)
    assert [line["step"] for line in run.metrics()] == list(range(before))
    run.log(step=9)
    assert [line["step"] for line in run.metrics()] == [*range(before), 9]


def test_a_line_that_is_no_object_is_named(tmp_path):
    run = runs.create(tmp_path, {}, "oe", 0)
    (tmp_path / "metrics.jsonl").write_text('{"step": 0}\nhello\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl is damaged or foreign: line 2: expected JSON, got"):
        run.metrics()
    for line in ("[]", "{}", '{"step": "0"}', '{"step": 0, "loss": []}'):
        (tmp_path / "metrics.jsonl").write_text(line + "\n")
        with pytest.raises(runs.FolderError, match="line 1: expected"):
            run.metrics()


def test_result_is_there_once_the_run_is_over(tmp_path):
    run = runs.create(tmp_path, {}, "oe", 0)
    run.finish({"last": 0.5, "best_test": math.nan})
    assert runs.open(tmp_path).result() == {"last": 0.5, "best_test": None}


def test_what_a_run_raised_is_there_until_it_is_over(tmp_path):
    run = runs.create(tmp_path, RECIPE, "oe", 0)
    assert run.failure() is None
    try:
        raise ValueError("too\n  hot")
    except ValueError as error:
        run.fail(error)
    failure = runs.open(tmp_path).failure()
    assert (failure["type"], failure["message"]) == ("ValueError", "too hot") and "Traceback" in failure["traceback"]
    run.finish({"last": 1.0})
    assert run.failure() is None and run.result() == {"last": 1.0}


def test_a_run_that_is_killed_can_be_read_and_gone_on_with(tmp_path):
    script = (
        "import sys, itertools; from ordinal_entropy import runs; run = runs.create(sys.argv[1], {}, 'oe', 0)\n"
        "for step in itertools.count():\n"
        "    run.log(step=step); runs.write_json(run.path / 'state.json', [step] * 99); print(step, flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if int(line) == 20:
            break
    process.send_signal(signal.SIGKILL)
    process.communicate()
    run = runs.create(tmp_path, {}, "oe", 0)
    steps = [line["step"] for line in run.metrics()]
    assert steps == list(range(len(steps))) and len(steps) > 20
    assert 20 <= runs.read_json(tmp_path / "state.json")[-1] <= steps[-1]
    assert run.result() is None
