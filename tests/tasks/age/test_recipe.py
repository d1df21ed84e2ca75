"""The age task as its user meets it, on drawn faces."""

import math
import os
import shutil

import pytest
import torch

from command_line import call
from ordinal_entropy import methods, runs
from ordinal_entropy.recipes import changed, full_name, leaves, override
from ordinal_entropy.tasks import method_of
from ordinal_entropy.tasks.age import data, generated
from ordinal_entropy.tasks.age.recipe import AGE, PRESETS, Age, faces, split_for
from ordinal_entropy.training.checkpoints import load_images
from ordinal_entropy.training.plans import Plan, run_names
from ordinal_entropy.training.saved_features import SCORES, saved_scores

TINY = changed(
    Age(),
    {
        "backbone": "test_resnet",
        "image_size": 32,
        "padding": 2,
        "epochs": 2,
        "batch_size": 32,
        "milestones": (1,),
        "learning_rate": 5e-3,
        "bins": 10,
        "feature_rows": 8,
    },
)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faces") / "set"
    generated.make(folder, count=120)
    return folder


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)


def tiny(root, *settings) -> Age:
    return override(TINY, [f"data={root}", *settings])


def as_settings(recipe: Age) -> list[str]:
    names = "backbone", "image_size", "padding", "epochs", "batch_size", "learning_rate", "bins", "feature_rows"
    return [
        "--device=cpu",
        "--set=milestones=1",
        *(f"--set={name}={leaves(recipe)[full_name(leaves(recipe), name)]}" for name in names),
    ]


def damaged(drawn, folder):
    """A copy of a set: one training image truncated, one missing."""
    shutil.copytree(drawn, folder)
    first, second, *_ = [record.path for record in data.records(folder)[0] if record.split == "train"]
    first.write_bytes(first.read_bytes()[:300])
    second.unlink()
    return folder


def test_train_evaluate_and_go_on(drawn, tmp_path):
    said = call("train", "age", "--method=oe", f"--set=data={drawn}", *as_settings(TINY), "--out=mine")
    assert "2 epochs on cpu" in said.stderr and "test MAE" in said.stdout
    result = runs.read_json("mine/result.json")
    assert [line["step"] for line in runs.open("mine").metrics()] == [1, 2]
    own = tmp_path / "mine" / "oe-seed0"
    assert {file.name for file in own.iterdir()} >= {"last.ckpt", "best.ckpt", "csv", "features", "metrics.jsonl"}
    assert len(list((own / "features").iterdir())) == 5  # and test.jpg
    evaluated = call("evaluate", "mine", "--device=cpu").stdout
    assert "epoch 2 of 2" in evaluated and f"{result['last']:.4g}" in evaluated
    assert f"{result['best_validation']:.4g}" in evaluated.split("best on validation")[1]

    assert call("evaluate", "mine/oe-seed0", "--device=cpu").stdout == evaluated

    generated.make(tmp_path / "other", seed=1, count=100)
    other = call("evaluate", "mine", "--device=cpu", f"--set=data={tmp_path / 'other'}").stdout
    assert "epoch 2 of 2" in other and other != evaluated


def test_double_precision_from_the_first_step_to_the_checkpoint(drawn, tmp_path):
    """The scores of training are those of the weights that were written, to the last digits of float64."""
    recipe = tiny(drawn, "precision=float64")
    plan = Plan("oe", 0, recipe)
    (outcome,) = AGE.train([plan], device="cpu", folder=tmp_path / "runs")
    (single,) = AGE.train([plan._replace(recipe=tiny(drawn))], device="cpu", folder=tmp_path / "single")
    folder = tmp_path / "runs" / run_names([plan])[0]
    weights = load_images(folder / "last.ckpt").weights
    assert {value.dtype for value in weights.values()} == {torch.float64, torch.int64}  # BatchNorm counts
    assert any(not torch.equal(value, value.float().double()) for value in weights.values())
    assert outcome.test == pytest.approx(single.test, rel=1e-2) and outcome.test != single.test
    found = AGE.evaluate(plan, device="cpu", folder=folder)
    assert [found["test"], found["validation"]] == pytest.approx([outcome.last, outcome.validation[-1]], rel=1e-13)


@pytest.mark.usefixtures("without_page")
def test_compare_two_methods_and_skip_what_is_finished(drawn, tmp_path):
    arguments = ["compare", "age", "--methods=baseline,classification", "--seeds=2", f"--set=data={drawn}"]
    arguments += [*as_settings(TINY), "--out=both"]
    call(*arguments)
    summary = runs.read_json("both/summary.json")
    assert summary["metric"] == "mae" and set(summary["methods"]) == {"baseline", "classification"}
    assert all(len(own["values"]) == 2 for own in summary["methods"].values())
    names = {"baseline-seed0", "baseline-seed1", "classification-seed0", "classification-seed1"}
    assert {folder.name for folder in (tmp_path / "both" / "training").iterdir()} == names
    (tmp_path / "both" / "summary.json").unlink()
    before = {name: os.stat(tmp_path / "both" / "training" / name / "last.ckpt").st_mtime_ns for name in names}
    call(*arguments)
    assert runs.read_json("both/summary.json")["methods"] == summary["methods"]
    after = {name: os.stat(tmp_path / "both" / "training" / name / "last.ckpt").st_mtime_ns for name in names}
    assert before == after


@pytest.fixture
def threads():
    """Sets those of torch; they are put back at the end."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_the_threads_of_a_run_are_those_of_its_recipe(drawn, tmp_path, threads):
    """However many torch has: so the numbers are the same to the last bit."""
    found = []
    for count in (2, 3):
        threads(count)
        in_training = []
        (outcome,) = AGE.train(
            [Plan("baseline", 0, tiny(drawn, "epochs=1"))],
            device="cpu",
            folder=tmp_path / str(count),
            progress=lambda done, total: in_training.append(torch.get_num_threads()),
        )
        found.append((outcome.test, outcome.details))
        assert set(in_training) == {1} and torch.get_num_threads() == count
        assert runs.open(tmp_path / str(count) / "baseline-seed0").recipe["training"]["threads"] == 1
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.usefixtures("without_page")
@pytest.mark.parametrize("count", [1, 4])
def test_runs_side_by_side_are_those_one_after_the_other(drawn, tmp_path, threads, count):
    """To the last bit, however many threads torch has; with those that a recipe has by default, and with others."""
    threads(count)
    plans = [Plan(method, count, tiny(drawn, "epochs=1")) for method in ("baseline", "oe")]
    plans += [Plan(plan.method, plan.seed, override(plan.recipe, ["threads=3"])) for plan in plans]
    told = []
    together = AGE.train(
        plans, device="cpu", folder=tmp_path / "a", jobs=2, progress=lambda done, total: told.append((done, total))
    )
    threads(2)
    alone = AGE.train(plans, device="cpu", folder=tmp_path / "b")
    assert [outcome.test for outcome in together] == [outcome.test for outcome in alone]
    assert together[0].last != together[1].last
    assert all(done <= total for done, total in told)
    with pytest.raises(ValueError, match="at least one job, got 0"):
        AGE.train(plans, device="cpu", folder=tmp_path / "a", jobs=0)


@pytest.mark.usefixtures("without_page", "quick_processes")
def test_an_error_of_a_run_side_by_side_is_the_user_s_sentence(drawn, tmp_path):
    folder = damaged(drawn, tmp_path / "damaged")
    options = "--preset=quick", "--seeds=2", "--jobs=2", f"--set=data={folder}"
    answer = call("compare", "age", *options, *as_settings(TINY), status=2)
    assert "Traceback" not in answer.stderr
    assert "1 problem in all" in answer.stderr


@pytest.mark.usefixtures("without_page")
@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_where_a_run_fails_the_others_go_on(jobs, drawn, tmp_path):
    options = ["--seeds=3", f"--jobs={jobs}", f"--set=data={drawn}", *as_settings(TINY), "--set=epochs=1", "--out=both"]
    broken = tmp_path / "both" / "training" / "oe-seed1"
    broken.mkdir(parents=True)
    (broken / "features").write_text("a file where a folder should be")
    answer = call("compare", "age", *options)
    said = " ".join(answer.stdout.split())
    assert "; n = 2; " in said and "oe, seed 1 failed: WriteError: expected to be able to write" in said
    assert "1 of 3 runs of oe did not finish with a number" in said
    assert "1 run failed; the same command tries again" in answer.stderr
    assert "Traceback" in runs.read_json(broken / "failure.json")["traceback"]
    summary = runs.read_json("both/summary.json")
    assert summary["methods"]["oe"]["n"] == summary["paired"]["oe"]["n"] == 2
    (failure,) = summary["failures"]
    assert (failure["method"], failure["seed"]) == ("oe", 1)

    (broken / "features").unlink()
    again = call("compare", "age", *options)
    assert "1 run in both failed before: once more" in again.stderr
    found = runs.read_json("both/summary.json")
    assert found["paired"]["oe"]["n"] == 3 and found["failures"] == [] and not (broken / "failure.json").exists()
    assert found["methods"]["baseline"] == summary["methods"]["baseline"]


def test_runs_of_one_seed_share_first_weights_and_rows(drawn, tmp_path):
    recipe = tiny(drawn, "epochs=1", "train_rows=40", "strength=0")
    plans = [Plan(method, seed, recipe) for method in ("baseline", "oe") for seed in (0, 1)]
    first, second, same, _ = AGE.train(plans, device="cpu", folder=tmp_path)
    assert first.test == pytest.approx(same.test) and first.test != second.test
    found = faces(recipe)
    rows = [split_for(plan, found).train.images.paths for plan in plans]
    assert len(rows[0]) == 40 and rows[0] == rows[2] and rows[0] != rows[1]


def test_sets_that_do_not_fit_are_streamed(drawn, tmp_path):
    held, streamed = tiny(drawn), tiny(drawn, "memory=0", "workers=0")
    assert faces(held).images["train"].pixels is not None and faces(streamed).images["train"].pixels is None
    outcomes = AGE.train([Plan("oe", 0, held), Plan("oe", 0, streamed)], device="cpu", folder=tmp_path)
    assert outcomes[0] == outcomes[1]


def test_the_weight_of_the_tightness_is_that_beside_the_diversity():
    features, ages = torch.randn(8, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([30.0, 60] * 4)
    recipe = changed(Age(), {"strength": 2.0, "tightness_weight": 0.1})

    def found(name, own=recipe):
        return method_of(Plan(name, 0, own), low=1.0, high=90.0)(features, ages)

    options = {"diversity_weight": 2.0, "tightness_weight": 0.2, "rescale": "authors"}
    expected = methods.create("oe", strength=1, **options)(features, ages)
    torch.testing.assert_close(found("oe"), expected)
    assert found("oe") != found("oe", changed(Age(), {"strength": 2.0}))
    for name in ("baseline", "ld"):
        assert found(name) == found(name, changed(Age(), {"strength": 2.0}))


@pytest.mark.parametrize("setting", ["loss=mse", "reweight=sqrt-inverse"])
def test_losses_and_weights_matter(drawn, tmp_path, setting):
    plans = [Plan("baseline", 0, tiny(drawn, "epochs=1", *own)) for own in ([], [setting])]
    left, right = AGE.train(plans, device="cpu", folder=tmp_path)
    assert left.test != right.test and all(score > 0 for score in right.test)


@pytest.mark.parametrize("memory", ["memory=8", "memory=0"])
def test_bad_files_are_refused_or_left_out(drawn, tmp_path, caplog, memory):
    root = damaged(drawn, tmp_path / "damaged")
    with pytest.raises(ValueError, match=r"missing .*1 problem in all"):
        faces(tiny(root, memory))
    found = faces(tiny(root, memory, "skip_bad=true"))
    assert found.left_out == 2 and "2 files" in caplog.text
    whole = faces(tiny(drawn))
    assert len(found.images["train"]) == len(whole.images["train"]) - 2 == len(found.ages["train"])
    truncated = tmp_path / "truncated"
    shutil.copytree(drawn, truncated)
    path = data.records(truncated)[0][3].path
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ValueError, match=f"{path.name}: truncated .*1 problem in all"):
        faces(tiny(truncated, memory))


def test_a_missing_dataset_is_told_in_a_sentence(tmp_path):
    assert "data=ROOT" in call("train", "age", status=2).stderr
    assert "data=ROOT" in call("compare", "age", "--out=there", status=2).stderr
    assert list(tmp_path.iterdir()) == []
    assert "agedb.csv from" in call("train", "age", "--set=data=nowhere", status=2).stderr
    assert "image_size to be at least 1" in call("train", "age", "--set=image_size=0", status=2).stderr
    said = call("train", "age", "--preset=quick", "--set=balance=0", "--method=oe", status=2).stderr
    assert "expected balance to be a positive number, got 0.0" in said
    assert list(tmp_path.iterdir()) == []


def test_folders_are_named_by_what_differs():
    plans = [
        Plan("oe", 0, changed(Age(), {"data": "a/b", "strength": 5.0})),
        Plan("oe", 0, changed(Age(), {"data": "c", "strength": 5.0})),
    ]
    assert run_names(plans) == ["oe-seed0-data=a_b", "oe-seed0-data=c"]
    with pytest.raises(ValueError, match="oe-seed0 twice"):
        run_names([plans[0], plans[0]])
    far = [Plan("oe", 0, changed(Age(), {"data": letter * 200})) for letter in "ab"]
    short = run_names(far)
    assert len(set(short)) == 2 and all(len(name) < 30 and name.startswith("oe-seed0-") for name in short)


def test_details_are_of_the_test_images_and_of_the_saved_features(drawn, tmp_path):
    plan = Plan("oe", 0, tiny(drawn, "feature_rows=60"))
    (outcome,) = AGE.train([plan], device="cpu", folder=tmp_path)
    folder = tmp_path / "oe-seed0"
    scores = runs.open(folder).metrics()[-1]
    last = outcome.details["last"]
    assert last["mae"] == outcome.last == scores["test_mae"] and last["gm_few"] == scores["test_gm_few"]
    kept = {f"train_{name}": score for name, score in saved_scores(folder, "train", 2).items()}
    assert kept and {name: last[name] for name in kept} == kept
    assert not any(name in last for name in SCORES)  # of less than 50 test images none
    best = min((1, 2), key=lambda epoch: runs.open(folder).metrics()[epoch - 1]["validation_mae"])
    found = outcome.details["best_validation"]
    assert found["mae"] == outcome.best_validation
    assert found["train_entropy"] == saved_scores(folder, "train", best)["entropy"]
    (without,) = AGE.train([Plan("oe", 0, tiny(drawn, "feature_rows=0"))], device="cpu", folder=tmp_path / "without")
    assert without.test == outcome.test and set(without.details["last"]) == set(last) - set(kept)


def test_classification_is_scored_again_from_its_checkpoint(drawn, tmp_path):
    plan = Plan("classification", 1, tiny(drawn, "epochs=1"))
    (outcome,) = AGE.train([plan], device="cpu", folder=tmp_path)
    scores = AGE.evaluate(plan, device="cpu", folder=tmp_path)
    assert scores["test"] == pytest.approx(outcome.last) and scores["step"] == 1
    assert torch.isfinite(torch.tensor(scores["train"]))


@pytest.mark.slow
def test_quick_beats_the_median(tmp_path, monkeypatch):
    monkeypatch.setenv("ORDINAL_ENTROPY_CACHE", str(tmp_path / "cache"))
    recipe = PRESETS["quick"]
    (outcome,) = AGE.train([Plan("baseline", 0, recipe)], device="cpu", folder=tmp_path / "run")
    ages = faces(recipe).ages
    median = (ages["test"] - ages["train"].median()).abs().mean().item()
    assert outcome.best_validation < 0.7 * median


@pytest.mark.gpu
@pytest.mark.parametrize("settings", [[], ["train_rows=50", "precision=bf16"], ["reweight=inverse"], ["memory=0"]])
def test_runs_on_a_gpu(drawn, tmp_path, settings):
    recipe = tiny(drawn, *settings)
    plans = [Plan(method, 3, recipe) for method in ("baseline", "oe", "classification")]
    outcomes = AGE.train(plans, device="cuda", folder=tmp_path / "runs")
    for outcome in outcomes:
        assert len(outcome.steps) == 2 and all(math.isfinite(error) for error in outcome.test)
    scores = AGE.evaluate(plans[0], device="cuda", folder=tmp_path / "runs")
    assert scores["test"] == pytest.approx(outcomes[0].test[-1], rel=1e-3)


def test_the_bins_of_a_recipe_are_of_heads_alone():
    made = method_of(Plan("or-cnn+fds+srl", 0, changed(Age(), {"bins": 30})), low=1.0, high=90.0)
    assert made.outputs(1) == 29
    assert made.parts["fds"].bins is None and made.parts["srl"].bins == 100
    own = method_of(Plan("fds", 0, changed(Age(), {"bins": 30, "options": ("fds.bins=7",)})))
    assert own.parts["fds"].bins == 7
