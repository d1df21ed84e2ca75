"""Test images of a trained run, predicted once more: as its scores have it; and drawn."""

import numpy as np
import pytest
import torch

pytest.importorskip("matplotlib", reason="figures are matplotlib's")

from ordinal_entropy import runs
from ordinal_entropy.recipes import changed, described
from ordinal_entropy.studies.examples import draw_predictions
from ordinal_entropy.tasks.age.recipe import Age
from ordinal_entropy.tasks.crowd import data as crowd_data
from ordinal_entropy.tasks.crowd import generated as crowds
from ordinal_entropy.tasks.crowd.recipe import CROWD, Crowd
from ordinal_entropy.tasks.depth import generated as rooms
from ordinal_entropy.tasks.depth.metrics import depth_scores
from ordinal_entropy.tasks.depth.recipe import DEPTH, Depth
from ordinal_entropy.training.plans import Plan

pytestmark = pytest.mark.usefixtures("elsewhere")
SIZE = (48, 64)
DEPTHS = changed(
    Depth(),
    {
        "height": SIZE[0],
        "width": SIZE[1],
        "backbone": "test_resnet",
        "channels": 8,
        "epochs": 2,
        "learning_rate": 5e-3,
        "bins": 10,
        "flip": True,
        "feature_rows": 0,
    },
)
CROWDS = changed(
    Crowd(),
    {
        "border": "kept",
        "reduce": "sum",
        "max_side": 96,
        "front": "test_resnet",
        "widths": (8,),
        "batch_norm": True,
        "crop": 64,
        "epochs": 1,
        "repeats": 1,
        "batch_size": 6,
        "loss": "mse",
        "optimizer": "adamw",
        "learning_rate": 5e-3,
        "stride": 2,
        "bins": 8,
        "feature_rows": 0,
    },
)


def trained(task, plan, folder):
    task.train([plan], device="cpu", folder=folder)
    return folder / f"{plan.method}-seed{plan.seed}"


@pytest.mark.parametrize(
    ("method", "memory"),
    [("baseline", 8.0), ("classification", 0.0)],  # held, and streamed: maps of another size
)
def test_depths_are_those_that_are_scored(method, memory, tmp_path):
    rooms.make(tmp_path / "rooms", count=40, size=SIZE)
    own = {"data": str(tmp_path / "rooms"), "memory": memory, "workers": 0}
    plan = Plan(method, 0, changed(DEPTHS, own))
    run = trained(DEPTH, plan, tmp_path / "runs")
    found = DEPTH.pictured(plan, 99, device="cpu", folder=run)
    assert all(each.image.shape == (*SIZE, 3) and each.truth.shape == SIZE and each.counts is None for each in found)
    predictions, truth = (
        torch.from_numpy(np.stack([getattr(each, name) for each in found])) for name in ("prediction", "truth")
    )
    score = depth_scores(predictions, truth.nan_to_num(0), align_corners=False)["rms"]
    scores = DEPTH.evaluate(plan, device="cpu", folder=run)
    assert float(score) == pytest.approx(scores["test, best on validation"], rel=1e-5)
    first = DEPTH.pictured(plan, 2, device="cpu", folder=tmp_path / "runs")  # found among all runs as well
    assert len(first) == 2 and all(any(np.array_equal(a.image, b.image) for b in found) for a in first)

    draw_predictions(run, tmp_path / "one.png", count=2)
    svg = (tmp_path / "one.svg").read_text()
    assert ">depth (m)</text>" in svg and f"Test images, depth, {method}, seed 0, best on validation" in svg
    assert svg.count(">RMS ") == 2


def test_counts_are_those_that_are_scored(tmp_path):
    crowds.make(tmp_path / "crowds", count=18)
    plan = Plan("oe", 1, changed(CROWDS, {"data": str(tmp_path / "crowds")}))
    run = trained(CROWD, plan, tmp_path / "runs")
    found = CROWD.pictured(plan, 99, device="cpu", folder=run)
    heads = [len(r.points) for r in crowd_data.records(tmp_path / "crowds", validation=0.1)[0] if r.split == "test"]
    assert sorted(each.counts[0] for each in found) == sorted(heads)
    for each in found:
        true, ours = each.counts
        assert each.image.shape[:2] == tuple(8 * side for side in each.truth.shape)
        assert np.nansum(each.truth) == pytest.approx(true, abs=1e-3)  # cells are exact sums here
        assert each.prediction[~np.isnan(each.truth)].sum() == pytest.approx(ours, rel=1e-4)
    error = np.mean([abs(ours - true) for true, ours in (each.counts for each in found)])
    scores = CROWD.evaluate(plan, device="cpu", folder=run)
    assert error == pytest.approx(scores["test, best on validation"], rel=1e-5)

    draw_predictions(run, tmp_path / "one.png", count=1)
    svg = (tmp_path / "one.svg").read_text()
    assert ">density (heads per cell)</text>" in svg and svg.count(" in all</text>") == 3


def test_what_has_no_maps_is_refused(tmp_path):
    run = runs.create(tmp_path / "run", {"task": "age", **described(Age())}, "oe", 0)
    with pytest.raises(
        ValueError, match=r"expected a run of depth or crowd, whose predictions are maps, got .* of age"
    ):
        draw_predictions(run.path, tmp_path / "x.png")
    other = runs.create(tmp_path / "other", {"mine": 1}, "oe", 0)
    with pytest.raises(ValueError, match="whose recipe names no task"):
        draw_predictions(other.path, tmp_path / "x.png")
    with pytest.raises(ValueError, match="expected at least one image, got 0"):
        DEPTH.pictured(Plan("oe", 0, DEPTHS), 0, device="cpu", folder=tmp_path)
    with pytest.raises(FileNotFoundError, match=r"expected a checkpoint in .*, got none"):
        DEPTH.pictured(Plan("oe", 0, DEPTHS), 1, device="cpu", folder=tmp_path)
