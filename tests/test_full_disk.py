"""A disk that becomes full while a command saves: it says so, keeps the last checkpoint, and resumes from it."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("typer", reason="the command line is typer's")
pytest.importorskip("rich", reason="the tables are rich's")
pytest.importorskip("scipy", reason="the splines and distributions are SciPy's")

import torch

from command_line import call
from ordinal_entropy import runs
from ordinal_entropy.tasks.operators import recipe as operators

SETTINGS = {
    "linear": "rows=30 parts=3 validation_rows=20 test_rows=40 hidden=8 steps=40 samples=5 evaluate_every=10",
    "tabular": "generated=100 epochs=3 batch_size=32 hidden=8 embedding=none feature_rows=0",
    "age": "generated=100 backbone=test_resnet image_size=32 padding=2 epochs=4 batch_size=32 feature_rows=8 "
    "checkpoint_seconds=0",
}
SAVED = {"linear": 3, "tabular": 6, "age": 6}  # calls of torch.save before the disk is full


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 32 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, check=False, capture_output=True, text=True)
    except OSError:
        pytest.skip("no command mount")
    if done.returncode:
        pytest.skip(f"a file system of its own takes rights that are not given here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def fill(folder: Path) -> None:
    """Leaves not a byte."""
    with (folder / "filler").open("wb", buffering=0) as file:
        size = 2**20
        while size:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2


@pytest.mark.parametrize("task", ["linear", "tabular", pytest.param("age", marks=pytest.mark.slow)])
def test_a_full_disk_is_told_and_resumed_from(task, small_disk, cache, tmp_path, monkeypatch, without_page):
    if task == "tabular":
        pytest.importorskip("sklearn", reason="tables are scaled by scikit-learn")
        monkeypatch.setattr("ordinal_entropy.tasks.tabular.train._SECONDS", -1.0)
    elif task == "linear":
        settings_of_stack = operators.stack_options
        monkeypatch.setattr(
            operators, "stack_options", lambda recipe: replace(settings_of_stack(recipe), checkpoint_every=10)
        )
    monkeypatch.setenv("ORDINAL_ENTROPY_CACHE", str(cache))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)
    command = ["compare", task, "--methods=baseline,oe", "--seeds=2", "--preset=quick", "--device=cpu"]
    command += [f"--set={each}" for each in SETTINGS[task].split()]
    call(*command, "--out=whole")

    save, saved = torch.save, []

    def save_until_full(*arguments, **options):
        saved.append(1)
        if len(saved) == SAVED[task]:
            fill(small_disk)
        return save(*arguments, **options)

    monkeypatch.setattr(torch, "save", save_until_full)
    said = call(*command, "--out=disk/both", status=2).stderr
    assert "ordinal-entropy: the disk is full: cannot write disk/both/" in said
    assert said.endswith("; free some space and run the same command again to resume\n")
    left = [path for path in small_disk.rglob("*") if path.name == "failure.json" or path.suffix == ".tmp"]
    assert not left  # no run is taken for one that failed, and none begins again alone
    assert [path for path in small_disk.rglob("*") if path.suffix in (".pt", ".ckpt")]
    if task == "linear":
        (checkpoint,) = (small_disk / "both" / "training").rglob("checkpoint.pt")  # of the stack
        assert torch.load(checkpoint, weights_only=True)["content"]["step"] == 20

    monkeypatch.setattr(torch, "save", save)
    (small_disk / "filler").unlink()
    call(*command, "--out=disk/both")
    found, expected = (runs.read_json(tmp_path / name / "summary.json") for name in ("disk/both", "whole"))
    for name, own in expected["methods"].items():  # tables: but for rounding, beside other runs than before
        assert found["methods"][name]["values"] == (
            pytest.approx(own["values"]) if task == "tabular" else own["values"]
        )


def test_a_line_that_does_not_fit_is_written_over(small_disk):
    run = runs.create(small_disk / "run", {}, "oe", 0)
    run.log(step=1, loss=0.5)
    fill(small_disk)
    with pytest.raises(runs.DiskFullError, match=r"the disk is full: cannot write .*metrics\.jsonl"):
        for step in range(2, 10_000):  # the rest of its last block
            run.log(step=step, loss=0.5)
    (small_disk / "filler").unlink()
    logged = len(run.metrics())
    run.log(step=0, loss=0.25)
    assert len(run.metrics()) == logged + 1 and run.metrics()[-1] == {"step": 0, "loss": 0.25}
