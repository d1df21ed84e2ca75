"""A trained run on a table in use: the numbers of the stack it was trained in, without the table and scikit-learn."""

import csv
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch

import ordinal_entropy as oe
from ordinal_entropy import runs, tasks
from ordinal_entropy.recipes import changed, override
from ordinal_entropy.tasks.tabular import data, generated, train
from ordinal_entropy.tasks.tabular.inputs import Preparation
from ordinal_entropy.tasks.tabular.recipe import TABULAR, Tabular, evaluate
from ordinal_entropy.tasks.tabular.train import Scored
from ordinal_entropy.training.checkpoints import load_run
from ordinal_entropy.training.plans import Plan

SMALL = ["epochs=4", "hidden=8", "pieces=4", "embedding_size=2", "batch_size=32", "bins=20", "feature_rows=0"]
SMALL += ["data=made/houses.csv", "target=price", "learning_rate=0.02"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    generated.make("made", count=300)


def tiny(*settings):
    return override(Tabular(), [*SMALL, *settings])


def trained(method="oe", *settings, seed=0):
    plan = Plan(method, seed, tiny(*settings))
    TABULAR.train([plan], device="cpu", folder=Path("runs"))
    return plan, Path("runs") / f"{method}-seed{seed}"


def of_the_stack(plan, folder, source, *, best):
    """Predictions and features of the rows of a file, by the stack that trains."""
    from ordinal_entropy.tasks.tabular import recipe

    there = load_run(folder, metric="rmse")
    _, own, seen = recipe._as_trained(plan, folder, there)
    other = data.aligned(data.read(source, "price"), own)
    part = seen.preparation.part(other, np.arange(len(other.targets)))
    job = recipe._job(plan, seen._replace(test=part))
    scored = Scored([job], recipe._settings(plan.recipe), device="cpu", states=[(folder, there.state)])
    features, predictions = scored.predictions(torch.from_numpy(part.inputs)[None].to(job.shape.dtype), best=best)
    return predictions[0].numpy(), torch.cat(features, 1)[0].numpy()


NETWORKS = {
    "perceptron": [],
    "periodic": ["embedding=periodic", "waves=3"],
    "none": ["embedding=none", "dtype=float64"],
    "tabm": ["network=tabm", "members=3", "dropout=0.1"],
    "tabm-mini": ["network=tabm-mini", "members=2"],
    "quantile": ["scaling=quantile", "max_categories=3"],
}
KINDS = ["baseline", "oe", "classification", "hl-gauss+lds", "coral", "quantile", "ema", "swa+huber", "c-mixup+oe"]


@pytest.mark.parametrize(
    ("method", "network"),
    [*((method, "perceptron") for method in KINDS), *(("ema+hl-gauss", name) for name in NETWORKS)],
)
def test_a_run_predicts_what_its_stack_does(method, network):
    plan, folder = trained(method, *NETWORKS[network])
    generated.make("new", seed=5, count=60)
    for at, best in (("best_validation", True), ("last", False)):
        predictions, features = of_the_stack(plan, folder, "new/houses.csv", best=best)
        run = oe.load(folder, at=at)
        np.testing.assert_allclose(run.predict("new/houses.csv"), predictions, rtol=2e-6, atol=1e-4)
        np.testing.assert_allclose(run.features("new/houses.csv"), features, rtol=1e-5, atol=1e-5)
    assert (run.task, run.method, run.seed, run.recipe) == ("tabular", method, 0, plan.recipe)


def test_neither_the_table_nor_scikit_learn_is_needed_and_no_target(monkeypatch):
    plan, folder = trained()
    rows = list(csv.reader(Path("made/houses.csv").read_text().splitlines()))
    with_target = oe.load(folder).predict("made/houses.csv")
    shutil.rmtree("made")
    Path("new.csv").write_text("\n".join(",".join(["x", *reversed(row[:-1])]) for row in rows).replace("x", "id", 1))
    for name in [each for each in sys.modules if each.partition(".")[0] == "sklearn"]:
        monkeypatch.setitem(sys.modules, name, None)
    np.testing.assert_array_equal(oe.load(folder).predict("new.csv"), with_target)
    with pytest.raises((OSError, ValueError), match=r"expected a table in made/houses.csv"):
        evaluate(plan, device="cpu", folder=folder)


def test_inputs_in_memory():
    _, folder = trained()
    run = oe.load(folder)
    wanted = run.predict("made/houses.csv")
    frame = pandas.read_csv("made/houses.csv")
    np.testing.assert_array_equal(run.predict(frame), wanted)
    np.testing.assert_array_equal(run.predict(frame.to_dict("list")), wanted)
    np.testing.assert_array_equal(run.predict(frame.iloc[7:8]), pytest.approx(wanted[7:8], rel=1e-6))
    read = run.read("made/houses.csv", id_column="district")
    assert read.heading == "row" and read.names[:2] == ["1", "2"] and read.ids == frame["district"].tolist()
    with pytest.raises(ValueError, match="expected columns with as many rows each"):
        run.predict({"area": [1.0], "rooms": [1.0, 2.0]})
    with pytest.raises(ValueError, match="expected a path, a table of pandas, a mapping or an array, got a int"):
        run.predict(3)


def test_mistakes_are_named_with_what_was_expected(caplog):
    _, folder = trained("oe", "max_categories=3")
    run, frame = oe.load(folder), pandas.read_csv("made/houses.csv")
    with pytest.raises(ValueError, match=r"trained on, got no 'area', 'heating'; there are 'rooms'"):
        run.predict(frame.drop(columns=["area", "heating"]))
    frame["rooms"] = frame["rooms"].astype(object)
    frame.loc[4, "rooms"] = "many"
    with pytest.raises(
        ValueError, match=r"numbers in column 'rooms' as in training, got text in 1 of 300 .*'many'.*row 5"
    ):
        run.predict(frame)
    with pytest.raises(ValueError, match="expected finite numbers, got an infinite one in column 'area'"):
        run.predict(pandas.read_csv("made/houses.csv").assign(area=[np.inf, *[1.0] * 299]))
    assert not caplog.records
    found = run.predict(pandas.read_csv("made/houses.csv").assign(district="Mond"))
    assert np.isfinite(found).all()
    said = caplog.records[0].getMessage()
    assert "column 'district' has a category that training has not seen, in 300 of 300 rows: 'Mond'" in said
    assert "they count as rare ones; expected 'Nord'" in said


def test_categories_of_numbers_and_text_that_looks_like_numbers():
    rows = list(csv.reader(Path("made/houses.csv").read_text().splitlines()))
    for number, row in enumerate(rows[1:]):
        row[5], row[6] = ["007", "12a", "15"][number % 3], ["53111", "10115"][number % 2]
    Path("coded.csv").write_text("\n".join(map(",".join, rows)))
    _, folder = trained("baseline", "data=coded.csv", "categories=heating")
    run = oe.load(folder)
    whole = run.predict("coded.csv")
    Path("one.csv").write_text("\n".join([",".join(rows[0]), *(",".join(row) for row in rows[1::6])]))  # 007, 53111
    np.testing.assert_allclose(run.predict("one.csv"), whole[::6], rtol=1e-6)
    frame = pandas.read_csv("coded.csv", dtype={"district": str})
    np.testing.assert_array_equal(run.predict(frame), whole)


def test_a_run_that_is_not_over_or_of_before_needs_its_table():
    _, folder = trained()
    wanted = oe.load(folder).predict("made/houses.csv")
    kept = [(folder / name).read_bytes() for name in (train.MODEL, train.PREPARATION)]
    for name in (train.MODEL, train.PREPARATION):
        (folder / name).unlink()
    np.testing.assert_allclose(oe.load(folder).predict("made/houses.csv"), wanted, rtol=1e-6)
    shutil.move("made", "away")
    with pytest.raises(
        ValueError, match=r"expected model.pt in .*or else the table that it is trained on, got neither"
    ):
        oe.load(folder)
    for name, content in zip((train.MODEL, train.PREPARATION), kept, strict=True):
        (folder / name).write_bytes(content[: len(content) // 2])
        with pytest.raises((OSError, ValueError)):
            oe.load(folder)
        (folder / name).write_bytes(content)
    np.testing.assert_array_equal(oe.load(folder).predict("away/houses.csv"), wanted)


def test_a_preparation_of_another_run_is_refused():
    _, folder = trained()
    own = Preparation.restored(runs.read_json(folder / train.PREPARATION))
    fewer = replace(own, kept=(own.kept[0][1:], *own.kept[1:]))
    runs.write_json(folder / train.PREPARATION, fewer.described())
    with pytest.raises(runs.FolderError, match=r"model.pt is damaged or foreign"):
        oe.load(folder)


def test_runs_of_a_comparison_and_rows_that_are_no_networks():
    recipe = tiny()
    plans = [Plan(method, seed, recipe) for method in ("baseline", "hl-gauss") for seed in (0, 1)]
    TABULAR.train([*plans, Plan("ridge", 0, recipe)], device="cpu", folder=Path("runs"))
    found = [oe.load(f"runs/{plan.method}-seed{plan.seed}").predict("made/houses.csv") for plan in plans]
    assert len({tuple(each) for each in found}) == 4
    with pytest.raises(ValueError, match="expected a run of a network to predict with, got one of 'ridge'"):
        oe.load("runs/ridge-seed0")
    with pytest.raises(ValueError, match="expected at to be best_validation or last, got 'first'"):
        oe.load("runs/baseline-seed0", at="first")


def test_intervals_by_test_rows_and_by_other_rows():
    _, folder = trained("baseline", "epochs=20")
    run = oe.load(folder)
    generated.make("other", seed=9, count=400)
    own, other = run.intervals("other/houses.csv", 0.9), run.intervals("other/houses.csv", 0.9, "made/houses.csv")
    targets = data.read("other/houses.csv", "price").targets
    assert own.rows == "60 test rows of the run" and other.rows == "300 rows of made/houses.csv"
    np.testing.assert_allclose(own.high - own.low, 2 * own.halfwidth)
    assert np.mean((own.low <= targets) & (targets <= own.high)) == pytest.approx(0.9, abs=0.08)
    model = torch.load(folder / train.MODEL, weights_only=True)["best_validation"]["residuals"]
    assert own.halfwidth == model[54]  # the 55th of 60 is the first to cover 0.9 of 61
    with pytest.raises(
        ValueError, match=r"expected at least 99 rows to calibrate intervals of 0.99 on, got 60 test rows"
    ):
        run.intervals("other/houses.csv", 0.99)
    Path("bare.csv").write_text(Path("made/houses.csv").read_text().replace("price", "cost"))
    with pytest.raises(ValueError, match="expected the target 'price' among the columns, got none"):
        run.intervals("other/houses.csv", 0.9, "bare.csv")


@pytest.mark.slow
def test_coverage_of_a_trained_run_is_what_theory_says():
    """Over 20 draws of 100 calibration rows, of all new rows, within two standard errors."""
    _, folder = trained("hl-gauss", "epochs=10")
    run = oe.load(folder)
    generated.make("others", seed=1, count=5000)
    away = np.abs(run.predict("others/houses.csv") - data.read("others/houses.csv", "price").targets)
    covered = []
    for seed in range(2, 22):
        generated.make(f"calibration-{seed}", seed=seed, count=100)
        covered.append(np.mean(away <= run.halfwidth(0.9, f"calibration-{seed}")[0]))
    error = np.std(covered, ddof=1) / np.sqrt(len(covered))
    assert abs(np.mean(covered) - 91 / 101) <= 2 * error


def test_evaluate_says_which_column_is_missing():
    plan, folder = trained()
    Path("bare.csv").write_text(Path("made/houses.csv").read_text().replace("price", "cost"))
    other = plan._replace(recipe=changed(plan.recipe, {"data.path": "bare.csv"}))
    assert np.isfinite(oe.load(folder).predict("bare.csv")).all()
    with pytest.raises(
        ValueError, match=r"expected the target 'price' among the columns, got none of that name; .*cost"
    ):
        evaluate(other, device="cpu", folder=folder)


def test_a_generated_table():
    plan = Plan("baseline", 0, override(tasks.recipe("tabular", "quick"), [*SMALL[:-3], "generated=200"]))
    TABULAR.train([plan], device="cpu", folder=Path("runs"))
    run = oe.load("runs/baseline-seed0")
    assert np.isfinite(run.intervals("made/houses.csv", 0.8, "made/houses.csv").low).all()
    assert repr(run).startswith("TrainedRun(tabular, baseline, seed 0, best_validation at ")
