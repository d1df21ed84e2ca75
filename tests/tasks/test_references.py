"""Scores without a network, against the same by plain NumPy on what the datasets hold."""

import csv

import numpy as np
import pytest

from ordinal_entropy import tasks
from ordinal_entropy.tasks.age import generated as faces
from ordinal_entropy.tasks.crowd import generated as crowds
from ordinal_entropy.tasks.depth import generated as rooms
from ordinal_entropy.tasks.depth.maps import EIGEN, scaled
from ordinal_entropy.tasks.tabular import classical
from ordinal_entropy.training.plans import Plan


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("ORDINAL_ENTROPY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(classical, "_TREES", 10)


def found(task, preset, settings, seeds, without=()):
    return tasks.load(task).references(tasks.recipe(task, preset, settings), seeds, without)


def test_operators_predict_the_mean_of_the_part_of_a_seed():
    settings = ["rows=30", "parts=2", "validation_rows=10", "test_rows=40", "samples=10"]
    rows = tasks.load("linear").training.read(tasks.recipe("linear", "quick", settings), "cpu")
    train, test = rows.train.values[:, 0], rows.test.values[:, 0]
    expected = [np.mean((test - train[start : start + 30].mean()) ** 2) for start in (0, 30, 0)]
    assert found("linear", "quick", settings, [0, 1, 2]) == {"constant": pytest.approx(expected)}
    assert expected[0] != expected[1]


def test_tables_predict_the_mean_and_by_models_without_a_network():
    settings = ["generated=150", "batch_size=32"]
    table = tasks.load("tabular").training.read(tasks.recipe("tabular", "quick", settings), "cpu")
    own = found("tabular", "quick", settings, [0, 3])
    assert list(own) == ["constant", "hist-gradient-boosting", "ridge"]
    for place, seed in enumerate((0, 3)):
        seen = table.of_seed(seed)
        targets, mean = seen.test.targets, seen.train.targets.mean()
        assert own["constant"][place] == pytest.approx(np.sqrt(np.mean((targets - mean) ** 2)))
        ridge = classical.fitted("ridge", seen, seed)(seen.test.inputs)
        assert own["ridge"][place] == pytest.approx(np.sqrt(np.mean((targets - ridge) ** 2)))
    assert max(own["ridge"]) < min(own["constant"])
    assert list(found("tabular", "quick", settings, [0], ["ridge", "constant"])) == ["hist-gradient-boosting"]


@pytest.mark.parametrize("memory", ["4", "0"])
def test_faces_predict_the_median_age(tmp_path, memory):
    faces.make(tmp_path / "faces", count=100)
    ages = {"train": [], "test": []}
    with open(tmp_path / "faces" / "agedb.csv") as file:
        for line in csv.DictReader(file):
            ages.setdefault(line["split"], []).append(float(line["age"]))
    settings = [f"data={tmp_path / 'faces'}", f"memory={memory}"]
    expected = np.mean(np.abs(np.array(ages["test"]) - np.median(ages["train"])))
    assert found("age", "quick", settings, [0, 1]) == {"constant": pytest.approx([expected] * 2)}


def test_of_drawn_faces_those_of_the_seed_say_the_median(tmp_path):
    from ordinal_entropy.tasks.age.recipe import split_for

    faces.make(tmp_path / "faces", count=100)
    settings = [f"data={tmp_path / 'faces'}", "train_rows=5"]
    recipe, task = tasks.recipe("age", "quick", settings), tasks.load("age")
    expected = []
    for seed in (0, 1, 2):
        data = split_for(Plan("oe", seed, recipe), task.training.read(recipe, "cpu"))
        median = np.median(data.train.targets.numpy())
        expected.append(np.mean(np.abs(data.test.targets.numpy() - median)))
    assert task.references(recipe, [0, 1, 2], ()) == {"constant": pytest.approx(expected)}
    assert len(set(expected)) > 1


def test_crowds_predict_the_mean_count(tmp_path):
    crowds.make(tmp_path / "crowds", count=20)
    recipe = tasks.recipe("crowd", "quick", [f"data={tmp_path / 'crowds'}"])
    splits = tasks.load("crowd").training.read(recipe, "cpu").splits
    train, test = (splits[name].people.numpy() for name in ("train", "test"))
    expected = np.mean(np.abs(test - train.mean()))
    assert tasks.load("crowd").references(recipe, [0], ()) == {"constant": [pytest.approx(expected)]}


@pytest.mark.parametrize("memory", ["4", "0"])
def test_rooms_predict_the_mean_map(tmp_path, memory):
    rooms.make(tmp_path / "rooms", count=40)
    recipe = tasks.recipe("depth", "quick", [f"data={tmp_path / 'rooms'}", f"memory={memory}"])
    views = tasks.load("depth").training.read(recipe, "cpu").views
    train, test = (depths_of(views[name]) for name in ("train", "test"))
    mean = np.nanmean(train, axis=0)
    mean = np.where(np.isnan(mean), np.nanmean(train), mean)
    top, bottom, left, right = scaled(EIGEN, *test.shape[1:])
    errors = (test - mean)[:, top:bottom, left:right]
    expected = np.mean(np.sqrt(np.nanmean(errors**2, axis=(1, 2))))
    assert tasks.load("depth").references(recipe, [0], ()) == {"constant": [pytest.approx(expected)]}
    plain = np.mean(np.sqrt(np.nanmean((test - np.nanmean(train))[:, top:bottom, left:right] ** 2, axis=(1, 2))))
    assert expected < plain  # a map says more than a number


def depths_of(views):
    """Metres ``(n, h, w)``, NaN where there is none."""
    depths = np.stack([views.read(row)[1].numpy() for row in range(len(views))]) / 1000.0
    return np.where((depths > 1e-3) & (depths < 10), depths, np.nan)
