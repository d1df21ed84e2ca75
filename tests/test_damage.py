"""Files of run folders that are damaged or of something else: a sentence that names them, never a traceback."""

import copy
import json
import os
import shutil
from pathlib import Path

import pytest

pytest.importorskip("typer", reason="the command line is typer's")
pytest.importorskip("rich", reason="the tables are rich's")
pytest.importorskip("scipy", reason="the splines and distributions are SciPy's")

import numpy as np
import torch
from typer.testing import CliRunner

from command_line import call
from ordinal_entropy import runs
from ordinal_entropy.commands.app import app
from ordinal_entropy.tasks.tabular import generated

SETTINGS = {
    "linear": "rows=30 parts=3 validation_rows=20 test_rows=40 hidden=8 steps=20 samples=5 evaluate_every=10",
    "tabular": "generated=100 epochs=2 batch_size=32 hidden=8 embedding=none feature_rows=0",
    "age": "generated=100 backbone=test_resnet image_size=32 padding=2 epochs=2 batch_size=32 feature_rows=8",
}
CHECKPOINT = {"linear": "oe-seed0/checkpoint.pt", "tabular": "oe-seed0/checkpoint.pt", "age": "oe-seed0/last.ckpt"}
ODD = (None, "x", 7, -1, [], {}, True, float("nan"))


class Folders:
    """A finished run, one that was stopped, and a finished comparison, of one task."""

    def __init__(self, task, place):
        self.checkpoint = CHECKPOINT[task]
        given = ["--preset=quick", "--device=cpu", *(f"--set={each}" for each in SETTINGS[task].split())]
        self.train = ["train", task, "--method=oe", *given, "--out=damaged"]
        self.compare = ["compare", task, "--seeds=2", *given, "--out=damaged"]
        self.place = place

    def damage(self, which, file, content):
        """A copy in which one file has another content: bytes, or what is written as the file is."""
        shutil.rmtree("damaged", ignore_errors=True)
        shutil.copytree(self.place / which, "damaged")
        path = Path("damaged") / file
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif path.suffix == ".json":
            path.write_text(json.dumps(content))
        else:
            torch.save(content, path)

    def content(self, which, file):
        """Of a file as it is."""
        path = self.place / which / file
        return json.loads(path.read_text()) if path.suffix == ".json" else torch.load(path, weights_only=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Folders by task, each made once."""
    cache, found = tmp_path_factory.mktemp("cache"), {}

    def make(task):
        if task in found:
            return found[task]
        place = tmp_path_factory.mktemp(task)
        found[task] = Folders(task, place)
        before = os.getcwd()
        os.chdir(place)
        try:
            call(*found[task].train, "--out=run")
            shutil.copytree("run", "stopped")
            for result in Path("stopped").rglob("result.json"):
                result.unlink()
            if task != "age":
                call(*found[task].compare, "--out=both")
        finally:
            os.chdir(before)
        return found[task]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ORDINAL_ENTROPY_CACHE", str(cache))
        patch.setattr("ordinal_entropy.report.missing", lambda: "nothing, but it takes a while")
        yield make


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)


def told(command, file=""):
    """The status of a command that ends well, or with a sentence that names the file, or the folder at least."""
    result = CliRunner().invoke(app, [str(each) for each in command])
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    assert result.exit_code in (0, 2), result.output
    if result.exit_code == 2:
        said = " ".join(result.stderr.split())
        another = "checkpoint of the same training in damaged"
        assert (f"damaged/{file} is damaged or foreign: " if file else "damaged") in said or another in said, said
    return result.exit_code


def changed(content, path, value):
    """A copy with another value at a path of keys; without the last key where the value is an ellipsis."""
    found = copy.copy(content)
    found = list(found) if isinstance(found, tuple) else found
    if len(path) > 1:
        found[path[0]] = changed(found[path[0]], path[1:], value)
    elif value is ...:
        del found[path[0]]
    else:
        found[path[0]] = value
    return found


def paths(content, deepest):
    """Of the first entries of everything, so many levels deep."""
    if not deepest or not isinstance(content, (dict, list, tuple)):
        return
    for key in list(content if isinstance(content, dict) else range(len(content)))[:8]:
        yield (key,)
        for rest in list(paths(content[key], deepest - 1))[:8]:
            yield (key, *rest)


def in_turn(content, deepest):
    """Every entry without, and with one of the odd values, which take turns."""
    for number, path in enumerate(paths(content, deepest)):
        yield changed(content, path, ...)
        yield changed(content, path, ODD[number % len(ODD)])


@pytest.mark.parametrize("task", ["linear", pytest.param("tabular", marks=pytest.mark.slow)])
def test_no_checkpoint_makes_a_traceback(task, made):
    folders = made(task)
    whole = (folders.place / "run" / folders.checkpoint).read_bytes()
    content = folders.content("run", folders.checkpoint)
    damages = [b"", whole[:100], whole[: len(whole) // 2], whole[:-1], *ODD, torch.zeros(2), *in_turn(content, 3)]
    statuses = []
    for damage in damages:
        folders.damage("stopped", folders.checkpoint, damage)
        statuses.append(told(["evaluate", "damaged", "--device=cpu"], folders.checkpoint))
        if len(statuses) % 3 == 0:
            told(folders.train, folders.checkpoint)
    assert statuses.count(2) > 0.9 * len(statuses)


@pytest.mark.parametrize("task", ["linear", pytest.param("tabular", marks=pytest.mark.slow)])
def test_no_model_makes_a_traceback(task, made):
    folders = made(task)
    if task == "linear":
        np.savez("new.npz", functions=np.zeros((3, 100)), places=np.zeros((3, 1)))
    else:
        generated.make("new", count=50)
    predict = ["predict", "damaged", "new.npz" if task == "linear" else "new", "--intervals=0.5"]
    path = str(Path(folders.checkpoint).with_name("model.pt"))
    whole, content = (folders.place / "run" / path).read_bytes(), folders.content("run", path)
    statuses = []
    for damage in [b"", whole[:100], whole[: len(whole) // 2], *ODD, Runs(), *in_turn(content, 3)]:
        folders.damage("run", path, damage)
        statuses.append(told(predict))
    assert statuses.count(2) > 0.5 * len(statuses) and not Path("it ran").exists()


@pytest.mark.slow
def test_no_preparation_makes_a_traceback(made):
    folders = made("tabular")
    generated.make("new", count=50)
    path = str(Path(folders.checkpoint).with_name("preparation.json"))
    statuses = []
    for damage in [b"", b"{", *ODD, *in_turn(folders.content("run", path), 2)]:
        folders.damage("run", path, damage)
        result = CliRunner().invoke(app, ["predict", "damaged", "new"])  # other names of columns are for the table
        assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
        statuses.append(result.exit_code)
    assert statuses.count(2) > 0.5 * len(statuses)


@pytest.mark.parametrize("task", ["linear", pytest.param("tabular", marks=pytest.mark.slow)])
def test_no_json_makes_a_traceback(task, made):
    folders = made(task)
    for which, file, commands in (
        ("run", "recipe.json", [["evaluate", "damaged", "--device=cpu"], folders.train]),
        ("run", "result.json", [folders.train]),
        ("both", "summary.json", [folders.compare]),
        ("both", "study.json", [folders.compare]),
    ):
        content = folders.content(which, file)
        first = in_turn(content, 1) if file == "study.json" else in_turn(content, 3)
        statuses = []
        for number, damage in enumerate([b"", b"{", b"\xff", *ODD, *first]):
            folders.damage(which, file, damage)
            if not (file == "study.json" and number > 10):  # else a study of something else, which is another sentence
                statuses.append(told(commands[number % len(commands)]))
        assert 2 in statuses


def test_a_log_that_is_damaged_is_named(made):
    folders = made("linear")
    for line in (b"nonsense\n", b"[]\n", b'{"loss": 1}\n', b'{"step": null}\n', b'{"step": 0, "loss": "x"}\n'):
        folders.damage("stopped", "metrics.jsonl", line)
        assert told(folders.train, "metrics.jsonl") == 2


@pytest.mark.slow
def test_no_checkpoint_of_images_makes_a_traceback(made):
    folders = made("age")
    for file, commands in (
        ("oe-seed0/last.ckpt", [["evaluate", "damaged", "--device=cpu"], folders.train]),
        ("oe-seed0/best.ckpt", [["evaluate", "damaged", "--device=cpu"]]),
    ):
        whole = (folders.place / "run" / file).read_bytes()
        damages = [b"", whole[:100], whole[: len(whole) // 2], *ODD, *in_turn(folders.content("run", file), 3)]
        for number, damage in enumerate(damages):
            folders.damage("stopped", file, damage)
            told(commands[number % len(commands)], file)


class Runs:
    """Makes a file when it is unpickled."""

    def __reduce__(self):
        return Path.touch, (Path("it ran"),)


def test_a_checkpoint_of_images_is_read_as_plain_values_and_another_is_named(made, monkeypatch):
    folders = made("age")
    own = folders.content("stopped", "oe-seed0/last.ckpt")
    small = {**own, "state_dict": {key: value[:1] for key, value in own["state_dict"].items() if value.dim()}}
    wrong = {**own, "optimizer_states": [{**own["optimizer_states"][0], "state": {0: {"exp_avg": torch.ones(3)}}}]}
    ahead = {**own, "history": own["history"] * 2}
    whole, load, asked = (folders.place / "run" / "oe-seed0/last.ckpt").read_bytes(), torch.load, []

    def spied(*arguments, **options):
        asked.append(options.get("weights_only"))
        return load(*arguments, **options)

    monkeypatch.setattr(torch, "load", spied)
    for damage in (whole[: len(whole) // 2], Runs(), {**own, "history": Runs()}, {"weights": 1}, small, wrong, ahead):
        folders.damage("stopped", "oe-seed0/last.ckpt", damage)
        assert told(folders.train, "oe-seed0/last.ckpt") == 2
        if damage not in (wrong, ahead):  # of which an evaluation needs nothing
            assert told(["evaluate", "damaged", "--device=cpu"], "oe-seed0/last.ckpt") == 2
    assert set(asked) == {True} and not Path("it ran").exists()


def test_a_stopped_run_on_images_goes_on_through_the_same_reader(made, monkeypatch):
    folders, log = made("age"), runs.Run.log
    train = [*folders.train, "--set=checkpoint_seconds=0"]

    def stop(self, **numbers):
        log(self, **numbers)
        if numbers["step"] == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(runs.Run, "log", stop)
    call(*train, status=130)
    monkeypatch.setattr(runs.Run, "log", log)
    assert len(torch.load("damaged/oe-seed0/last.ckpt", weights_only=True)["history"]) == 1
    call(*train)
    assert runs.read_json("damaged/result.json") == folders.content("run", "result.json")
