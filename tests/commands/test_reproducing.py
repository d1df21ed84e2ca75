"""``reproduce``: studies that are listed, run, printed and drawn."""

import pytest

pytest.importorskip("typer", reason="the command line is typer's")
pytest.importorskip("rich", reason="the tables are rich's")
pytest.importorskip("scipy", reason="the splines and distributions are SciPy's")

from command_line import TINY, call, words
from ordinal_entropy import studies
from ordinal_entropy.commands.reproducing import show_study
from paired_scores import summed


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


def test_reproduce_warns_of_skewed_differences_below_its_tables(tmp_path, capsys):
    far = summed({"baseline": [3.0, 3.2, 2.9, 3.4, 3.1], "ld": [2.0, 2.3, 1.9, 2.3, 9.1]}, task="linear", metric="mse")
    far |= {"baseline": "baseline", "device": "cpu", "study": "table1-linear"}
    show_study("table1-linear", far, tmp_path, read_back=True)
    said = words(capsys.readouterr().out)
    assert "ld against baseline: not significant" in said
    assert "The differences look skewed (skewness +1.5): the 95% CI may cover less than 95%" in said
