"""``diagnose``: one file, two files, and what is wrong with them."""

import json
import math

import pytest

pytest.importorskip("typer", reason="the command line is typer's")
pytest.importorskip("rich", reason="the tables are rich's")
pytest.importorskip("scipy", reason="the splines and distributions are SciPy's")

import numpy as np

import ordinal_entropy as oe
from command_line import call, words
from healthy_features import curve


@pytest.fixture(autouse=True)
def wide(elsewhere, monkeypatch, without_page):
    """Lines that are not wrapped."""
    monkeypatch.setenv("COLUMNS", "200")


def test_command(tmp_path):
    z, y = curve(100)
    z[7] = math.nan
    np.savez(tmp_path / "run.npz", features=z.numpy(), targets=y.numpy())
    result = call("diagnose", "run.npz", "--out", "there")
    assert "run.npz: no sign of collapse." in result.stdout
    assert "100 rows of 16 features; 1 left out, with NaN or infinite numbers (1 in the features)" in result.stdout
    assert "feature distances follow target distances" in result.stdout
    assert "of 530 steps" in result.stderr or "of 529 steps" in result.stderr
    content = json.loads((tmp_path / "there" / "diagnosis.json").read_text())
    assert content["files"] == ["run.npz"]
    assert content["measures"]["ordinality"]["value"] == pytest.approx(oe.diagnose(z, y)["ordinality"].value)
    assert content["environment"]["torch"]
    call("diagnose", "run.npz", "--rows", 50)
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("diagnose-run-")


def test_command_compares_two_files(tmp_path):
    z, y = curve(100)
    np.save(tmp_path / "before.npy", z.numpy())
    np.save(tmp_path / "after.npy", np.outer(y, np.ones(16)))
    np.save(tmp_path / "targets.npy", y.numpy())
    result = call("diagnose", "before.npy", "after.npy", "--targets", "targets.npy", "--out", "there")
    lines = result.stdout.splitlines()
    assert lines[0] == "before.npy: no sign of collapse."
    assert lines[1].startswith("Alarm, after.npy: Only 1.0 of 16 possible directions are used")
    assert "fewer directions are used" in result.stdout
    assert "Both have the same targets" in result.stdout
    content = json.loads((tmp_path / "there" / "diagnosis.json").read_text())
    assert content["files"] == ["before.npy", "after.npy"] and content["differences"]["effective_rank"]["high"] < 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["one.npz"], "expected at least 8 rows of features, got 1"),
        (["missing.npz"], "got no targets: only 'features'"),
        (["lengths.npz"], "expected targets for each of the 20 rows"),
        (["objects.npz"], "got Python objects, which are never unpickled"),
        (["nowhere.npz"], "expected a file in nowhere.npz, got no such file"),
        (["good.npz", "one.npz"], "expected at least 8 rows of features, got 1"),
        (["good.npz", "--seed", -1], "expected --seed to be at least 0"),
        (["good.npz", "--targets", "a.npy", "--targets", "b.npy"], "expected --targets once"),
        (["features.npy"], "in a second .npy file (--targets), got none"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path, arguments, sentence):
    ones = np.ones((20, 2))
    np.savez(tmp_path / "good.npz", features=ones, targets=ones[:, 0])
    np.savez(tmp_path / "one.npz", features=ones[:1], targets=ones[:1, 0])
    np.savez(tmp_path / "missing.npz", features=ones)
    np.savez(tmp_path / "lengths.npz", features=ones, targets=ones[:9, 0])
    np.savez(tmp_path / "objects.npz", features=np.array([[None]] * 20), targets=ones[:, 0])
    np.save(tmp_path / "features.npy", ones)
    result = call("diagnose", *arguments, status=2)
    assert sentence in words(result.stderr)
    assert result.stderr.count("\n") == 1 and not (tmp_path / "runs").exists()
