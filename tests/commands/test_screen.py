"""What is printed, by which process."""

import pytest

pytest.importorskip("typer", reason="the command line is typer's")
pytest.importorskip("rich", reason="the tables are rich's")
pytest.importorskip("scipy", reason="the splines and distributions are SciPy's")

import numpy as np

from command_line import TINY, call, words


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


@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK", "NODE_RANK"])
def test_further_processes_of_one_command_say_nothing_but_what_is_wrong(name, monkeypatch):
    monkeypatch.setenv(name, "1")
    assert call("reproduce", "--list").output == ""
    assert "expected the name of a study" in call("reproduce", status=2).stderr
    monkeypatch.setenv(name, "0")
    assert "table1-linear" in call("reproduce", "--list").output
