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
    with pytest.raises(OSError, match=r"able to write .*file\.json, got: No space left on device"):
        runs.write_json(path, 2)
    assert runs.read_json(path) == 1
    assert os.listdir(tmp_path) == ["file.json"]


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
    with pytest.raises(ValueError, match=r"expected JSON in .*file\.json"):
        runs.read_json(path)


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
    for content, missing in (({"recipe": {}, "method": "oe"}, "got no seed"), ([], "no recipe, no method, no seed")):
        runs.write_json(tmp_path / "recipe.json", content)
        for ask in (lambda: runs.open(tmp_path), lambda: runs.create(tmp_path, {}, "oe", 1)):
            with pytest.raises(ValueError, match=missing):
                ask()


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
    with pytest.raises(ValueError, match="JSON object in line 2 of"):
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
