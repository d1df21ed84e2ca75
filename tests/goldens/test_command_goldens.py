"""The command line says and writes what is recorded, and reads run folders that were written before."""

import shutil

import numpy as np
import pytest

from goldens import adapter, backbone, commands_of, store

PICTURED = ("crowd", "depth")  # the pages of these take longer
REPORTED = [pytest.param(task, marks=pytest.mark.slow if task in PICTURED else ()) for task in commands_of.TASKS]


def test_help_is_what_is_recorded():
    """Word by word where the same versions lay it out, else with the same options."""
    found, recorded = commands_of.help_files(), commands_of.recorded_help()
    assert list(found) == sorted(recorded, key=list(found).index)
    for name, text in found.items():
        if commands_of.laid_out_by() == store.read("help/drawn-by"):
            assert text == recorded[name], name
        assert commands_of.options_in(text) == commands_of.options_in(recorded[name]), name


@pytest.mark.parametrize("task", commands_of.COMPARED)
def test_a_comparison_writes_the_summary_that_is_recorded(task, tmp_path):
    found, recorded = commands_of.summary(task, tmp_path), store.read(f"summaries/{task}")
    known, before = found.pop("recipe"), recorded.pop("recipe")  # keys may be added
    assert {key: known.get(key) for key in before} == before
    if store.tolerance(task) > store.SAME_MACHINE:
        for name in commands_of.DERIVED:
            assert found.pop(name, {}).keys() == recorded.pop(name, {}).keys()
    store.require_close(found, recorded, commands_of.tolerance(task))


@pytest.fixture(params=commands_of.TASKS)
def run(request, tmp_path):
    """A run folder that was written when the goldens were recorded."""
    backbone.register()
    return request.param, shutil.copytree(store.RECORDED / "folders" / request.param, tmp_path / "run")


def test_a_run_folder_is_evaluated(run):
    task, folder = run
    recorded = store.read("folders/evaluated")[task]
    store.require_close(commands_of.evaluated(folder), recorded, 2e-3)  # of four digits, in single precision


def test_a_run_folder_of_before_predicts(run):
    """By its checkpoint; those of tables and operators by their data too, which are generated anew."""
    task, folder = run
    at, found = adapter.predicted(task, folder)
    assert at == ("last" if task == "linear" else "best_validation")
    assert len(found) == 3 and np.isfinite(found).all()


@pytest.mark.parametrize("run", REPORTED, indirect=True)
def test_a_run_folder_is_reported(run):
    task, folder = run
    said = adapter.call("report", folder).stdout
    assert said.split()[:2] == ["Drawn", "in"]  # nothing is left out
    page = (folder / "report.html").read_text()
    assert commands_of.METHOD in page and task in page


def test_a_finished_run_is_read_back(run):
    task, folder = run
    settings = [f"--set={each}" for each in commands_of.settings_of(task)]
    given = [f"--method={commands_of.METHOD}", "--device=cpu", f"--out={folder}", *settings]
    assert "holds this run already" in " ".join(adapter.call("train", task, "--preset=quick", *given).stderr.split())
