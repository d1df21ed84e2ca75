"""The tabular task as its user meets it."""

import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from command_line import call
from ordinal_entropy import runs, tasks
from ordinal_entropy.recipes import changed, override
from ordinal_entropy.tasks.tabular import generated, train
from ordinal_entropy.tasks.tabular.recipe import PRESETS, TABULAR, Tabular, check, evaluate, table
from ordinal_entropy.training.checkpoints import load_run
from ordinal_entropy.training.plans import Plan
from ordinal_entropy.training.stacked import memory
from ordinal_entropy.training.stacked.stack import Stack

SMALL = ["epochs=3", "hidden=8", "pieces=4", "embedding_size=2", "batch_size=32", "bins=10", "feature_rows=60"]
SETTINGS = [f"--set={each}" for each in SMALL]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    generated.make("made", count=300)


def tiny(*settings):
    return override(changed(Tabular(), {"data": "made/houses.csv", "target": "price"}), [*SMALL, *settings])


def options(*settings):
    return ["--device=cpu", *(f"--set={each}" for each in ["data=made/houses.csv", "target=price", *SMALL, *settings])]


def plans(recipe, methods=("baseline", "oe"), seeds=(0, 1)):
    return [Plan(method, seed, recipe) for method in methods for seed in seeds]


def test_presets():
    assert tasks.recipe("tabular") == PRESETS["small"]
    with pytest.raises(ValueError, match="expected a preset of tabular like 'small'"):
        tasks.recipe("tabular", "smal")


def test_train_evaluate_and_read_back():
    said = call("train", "tabular", "--method=oe", *options(), "--out=mine")
    assert "3 epochs on cpu" in said.stderr and "test RMSE" in said.stdout
    result, own = runs.read_json("mine/result.json"), Path("mine/oe-seed0")
    assert [line["step"] for line in runs.open("mine").metrics()] == [1, 2, 3]
    lines = runs.open(own).metrics()
    assert lines[-1]["test_rmse"] == result["last"] and {"train_rmse", "validation_r2", "test_mae"} <= lines[0].keys()
    assert {file.name for file in own.iterdir()} == {
        "recipe.json",
        "metrics.jsonl",
        "result.json",
        "checkpoint.pt",
        "model.pt",
        "preparation.json",
        "features",
    }
    evaluated = call("evaluate", "mine", "--device=cpu").stdout
    assert "epoch 3 of 3" in evaluated and f"{result['last']:.4g}" in evaluated and "test, R2" in evaluated
    assert f"{result['best_validation']:.4g}" in evaluated.split("best on validation")[1]
    assert call("evaluate", "mine/oe-seed0", "--device=cpu").stdout == evaluated
    assert "holds this run already" in call("train", "tabular", "--method=oe", *options(), "--out=mine").stderr


def test_double_precision_from_the_first_step_to_the_checkpoint(tmp_path):
    """The scores of training are those of the parameters that were written, to the last digits of float64."""
    plan = Plan("oe", 0, tiny("dtype=float64"))
    (outcome,) = TABULAR.train([plan], device="cpu", folder=tmp_path / "runs")
    (single,) = TABULAR.train([plan._replace(recipe=tiny())], device="cpu", folder=tmp_path / "single")
    kept = load_run(tmp_path / "runs" / "oe-seed0", metric="rmse").state
    named = [kept[name].values() for name in ("parameters", "mean", "square", "best")]
    tensors = [kept["balance"], *(tensor for values in named for tensor in values)]
    assert {tensor.dtype for tensor in tensors} == {torch.float64}
    assert any(not torch.equal(tensor, tensor.float().double()) for tensor in kept["parameters"].values())
    assert outcome.test == pytest.approx(single.test, rel=1e-4) and outcome.test != single.test
    found = evaluate(plan, device="cpu", folder=tmp_path / "runs")
    assert [found["test"], found["validation"]] == pytest.approx([outcome.last, outcome.validation[-1]], rel=1e-13)


def test_another_table_is_scored_by_what_training_said():
    call("train", "tabular", "--method=baseline", *options("epochs=30"), "--out=mine")
    generated.make("other", seed=7, count=80)
    other = call("evaluate", "mine", "--device=cpu", "--set=data=other").stdout
    score = float(other.split("all 80")[1].split()[0])
    prices = table(changed(Tabular(), {"data": "other", "target": "price"})).targets
    assert score < 0.8 * prices.std()
    Path("narrow.csv").write_text("area,price\n100,300\n50,200\n")
    answer = call("evaluate", "mine", "--device=cpu", "--set=data=narrow.csv", status=2)
    assert "got 'rooms'; there are area" in answer.stderr
    generated.make("elsewhere", seed=8, count=300)
    os.replace("elsewhere/houses.csv", "made/houses.csv")
    answer = call("evaluate", "mine", "--device=cpu", status=2)
    assert "expected the table that the run in mine/baseline-seed0 was trained on" in answer.stderr


def test_saved_features_are_those_of_the_network(tmp_path):
    call("train", "tabular", "--method=ld", *options(), "--out=mine")
    kept = sorted(path.name for path in Path("mine/ld-seed0/features").iterdir())
    result = runs.read_json("mine/ld-seed0/result.json")
    scores = [epoch["validation"]["rmse"] for epoch in result["history"]]
    epochs = sorted({1, scores.index(min(scores)) + 1, 3})
    assert kept == sorted(f"{part}-{epoch:04d}.safetensors" for part in ("train", "test") for epoch in epochs)
    content = load_file("mine/ld-seed0/features/test-0003.safetensors")
    assert content["features"].shape == (60, 8) and content["targets"].shape == content["predictions"].shape == (60, 1)
    error = np.sqrt(np.mean((content["targets"] - content["predictions"]) ** 2))  # all 60 test rows
    assert error == pytest.approx(result["history"][-1]["test"]["rmse"], rel=1e-4)
    assert result["features"]["last"].keys() >= {"entropy", "ordinality", "effective_rank"}


@pytest.mark.usefixtures("without_page")
def test_compare_methods_and_skip_what_is_finished():
    arguments = ["compare", "tabular", "--methods=baseline,oe,classification", "--seeds=2", *options(), "--out=both"]
    said = call(*arguments).stdout
    assert "Test RMSE" in said and "as the paper" not in said and "effective" in said
    summary = runs.read_json("both/summary.json")
    assert summary["metric"] == "rmse" and set(summary["methods"]) == {"baseline", "oe", "classification"}
    assert len(summary["details"]["oe"]["best_validation"]["r2"]) == 2
    folders = list(Path("both/training").iterdir())
    assert len(folders) == 6
    before = {folder: os.stat(folder / "checkpoint.pt").st_mtime_ns for folder in folders}
    Path("both/summary.json").unlink()
    call(*arguments)
    assert runs.read_json("both/summary.json")["methods"] == summary["methods"]
    assert before == {folder: os.stat(folder / "checkpoint.pt").st_mtime_ns for folder in folders}


def broken(method, *seeds):
    """Steps of a stack, which raise an exception where it has one of these runs."""
    real = Stack.advance

    def advance(self, steps):
        if self.epoch and any(
            (own.method.name, own.seed) in [(method, seed) for seed in seeds] for own in self.members
        ):
            raise RuntimeError(f"the device\nis too hot for {method}")
        real(self, steps)

    return advance


@pytest.mark.usefixtures("without_page")
def test_where_a_run_of_a_stack_fails_the_others_go_on(monkeypatch):
    arguments = ["compare", "tabular", "--seeds=4", *options(), "--out=both"]
    whole = call(*arguments[:-1], "--out=whole")
    with monkeypatch.context() as patch:
        patch.setattr(Stack, "advance", broken("oe", 1))
        answer = call(*arguments)
    said = " ".join(answer.stdout.split())
    assert "oe, seed 1 failed: RuntimeError: the device is too hot for oe" in said and "; n = 3; " in said
    summary, expected = (runs.read_json(f"{name}/summary.json") for name in ("both", "whole"))
    assert summary["methods"]["baseline"]["values"] == pytest.approx(expected["methods"]["baseline"]["values"])
    assert summary["methods"]["oe"]["values"][1] is None and summary["paired"]["oe"]["n"] == 3
    curves = runs.read_json("both/curves.json")
    assert len(curves["runs"]) == 7 and curves["steps"] == [1, 2, 3]
    assert summary["details"]["oe"]["last"]["mae"][1] is None
    again = call(*arguments)
    assert "1 run in both failed before: once more" in again.stderr and "failed" not in again.stdout
    found = runs.read_json("both/summary.json")
    for name, own in expected["methods"].items():
        assert found["methods"][name]["values"] == pytest.approx(own["values"])
    assert "failed" not in whole.stdout


@pytest.mark.usefixtures("without_page")
@pytest.mark.parametrize("rounds", [[], ["--stop-early"]])
def test_with_too_few_runs_left_for_a_verdict_the_status_is_1(rounds, monkeypatch):
    monkeypatch.setattr(Stack, "advance", broken("baseline", *range(4)))
    answer = call("compare", "tabular", "--seeds=4", *options(), "--out=both", *rounds, status=1)
    said = " ".join(answer.stdout.split())
    assert "oe: not compared with baseline: every run of baseline failed." in said
    assert "4 runs failed" in answer.stderr
    assert runs.read_json("both/summary.json")["methods"]["oe"]["n"] == 4


@pytest.mark.usefixtures("without_page")
def test_where_every_run_fails_that_is_the_sentence(monkeypatch):
    def advance(self, steps):
        raise RuntimeError("no memory left")

    monkeypatch.setattr(Stack, "advance", advance)
    answer = call("compare", "tabular", "--seeds=2", *options(), "--out=both", status=2)
    assert "every run failed, the first with RuntimeError: no memory left" in answer.stderr
    assert "Traceback" not in answer.stderr and not Path("both/summary.json").exists()
    with pytest.raises(RuntimeError, match="no memory left"):
        TABULAR.train(plans(tiny()), device="cpu", folder=Path("raised"))


@pytest.mark.usefixtures("without_page")
def test_a_split_that_makes_no_batch_fails_alone():
    draw = np.random.default_rng(0)
    x = draw.normal(size=(90, 3))
    splits = {f"test_{k}": np.arange(20) for k in (0, 1, 3)} | {"test_2": np.arange(70)}
    np.savez("splits.npz", X=x, y=x.sum(1), **splits)
    answer = call("compare", "tabular", "--seeds=4", *options()[:1], *SETTINGS, "--set=data=splits.npz", "--out=both")
    said = " ".join(answer.stdout.split())
    assert "baseline, seed 2 failed: ValueError: expected at least batch_size=32 rows to train on, got 16" in said
    assert "oe, seed 2 failed" in said and "; n = 3; " in said
    values = runs.read_json("both/summary.json")["reference_values"]["constant"]
    assert [value is None for value in values] == [False, False, True, False]


@pytest.mark.usefixtures("without_page")
def test_a_failure_in_one_round_is_told_beside_the_others(monkeypatch):
    monkeypatch.setattr(Stack, "advance", broken("oe", 0, 4))
    answer = call("compare", "tabular", "--seeds=6", "--stop-early", *options(), "--out=both")
    said = " ".join(answer.stdout.split())
    assert "oe, seed 0 failed" in said and "oe, seed 4 failed" in said
    assert runs.read_json("both/summary.json")["paired"]["oe"]["n"] == 4


def test_the_default_needs_a_table_and_a_target_only(monkeypatch):
    said = call("train", "tabular", "--set=data=made", "--set=target=price", "--set=epochs=1")
    assert "1 epochs on cpu" in said.stderr


def test_quick_is_far_better_than_the_mean():
    said = call("train", "tabular", "--preset=quick", "--method=baseline", "--device=cpu", "--out=quick")
    result = runs.read_json("quick/baseline-seed0/result.json")
    assert "test RMSE" in said.stdout
    assert result["history"][-1]["test"]["r2"] > 0.8


def test_a_stack_is_its_runs_one_by_one(tmp_path):
    recipe = tiny()
    together = TABULAR.train(plans(recipe), device="cpu", folder=tmp_path / "a")
    for k, plan in enumerate(plans(recipe)):
        (own,) = TABULAR.train([plan], device="cpu", folder=tmp_path / f"b{k}")
        assert own.test == pytest.approx(together[k].test, rel=1e-3)
    assert len({outcome.last for outcome in together}) == 4
    assert together[0].best_test <= together[0].best_validation


def test_each_run_of_a_stack_logs_its_own_scores(tmp_path):
    mixed = [Plan(method, seed, tiny()) for method, seed in (("oe", 0), ("baseline", 0), ("ld", 1), ("baseline", 1))]
    told = []
    outcomes = TABULAR.train(
        mixed,
        device="cpu",
        folder=tmp_path,
        on_metrics=lambda epoch, scores: told.append([each.test for each in scores]),
    )
    assert told == [list(each) for each in zip(*(outcome.test for outcome in outcomes), strict=True)]
    for plan, outcome in zip(mixed, outcomes, strict=True):
        lines = runs.open(tmp_path / f"{plan.method}-seed{plan.seed}").metrics()
        assert [line["test_rmse"] for line in lines] == outcome.test


def test_keys_of_a_method_may_differ_and_others_make_other_stacks(tmp_path):
    several = [Plan("oe", 0, tiny("strength=0.1")), Plan("oe", 0, tiny("strength=5")), Plan("oe", 0, tiny("hidden=12"))]
    told = []
    found = TABULAR.train(
        several, device="cpu", folder=tmp_path / "a", progress=lambda done, total: told.append((done, total))
    )
    assert len({outcome.last for outcome in found}) == 3
    assert told[-1] == (told[0][1],) * 2 and len(told) == told[0][1] == 2 * 3 * 6  # stacks x epochs x steps


def trials():
    """As a tuning asks for them: of several rows, at learning rates, weight decays and options of their own."""
    own = ["learning_rate=1e-3", "learning_rate=1e-2", "learning_rate=5e-3 weight_decay=0.3 method.ce.bins=9"]
    recipes = [tiny(*each.split()) for each in own]
    return [Plan(name, seed, each) for name in ("baseline", "ce") for each in recipes for seed in (0, 1)]


@pytest.mark.parametrize("fit", [None, 5])
def test_trials_of_one_stage_are_one_stack_as_far_as_they_fit_into_memory(fit, tmp_path, monkeypatch):
    made, init = [], Stack.__init__

    def noted(self, members, *rest, **further):
        made.append(len(members))
        init(self, members, *rest, **further)

    monkeypatch.setattr(Stack, "__init__", noted)
    if fit:
        monkeypatch.setattr(memory, "bytes_of", lambda shape, rows: memory.CPU_BYTES / fit)
    outcomes = TABULAR.train(trials(), device="cpu", folder=tmp_path / "all")
    assert made == ([5, 5, 2] if fit else [12])
    for number, (plan, outcome) in enumerate(zip(trials(), outcomes, strict=True)):
        (alone,) = TABULAR.train([plan], device="cpu", folder=tmp_path / str(number))
        assert outcome.test == pytest.approx(alone.test, rel=1e-3)
    assert len({outcome.last for outcome in outcomes}) == len(outcomes)


def test_a_stopped_training_goes_on_to_the_same_numbers(tmp_path, monkeypatch):
    """Killed at any moment: while the checkpoints are written, some runs may be an epoch ahead."""
    recipe = tiny("epochs=6")
    whole = TABULAR.train(plans(recipe), device="cpu", folder=tmp_path / "whole")
    monkeypatch.setattr(train, "_SECONDS", 0.0)
    save, saved = train.save_run, []

    def stop(folder, content):
        if len(saved) == 4 * 2 + 1:  # one run has three epochs, the others two
            raise KeyboardInterrupt
        saved.append(folder)
        save(folder, content)

    monkeypatch.setattr(train, "save_run", stop)
    with pytest.raises(KeyboardInterrupt):
        TABULAR.train(plans(recipe), device="cpu", folder=tmp_path / "stopped")
    monkeypatch.setattr(train, "save_run", save)
    with (tmp_path / "stopped" / "oe-seed1" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "tr')  # torn
    again = TABULAR.train(plans(recipe), device="cpu", folder=tmp_path / "stopped")
    assert [own.test for own in again] == [pytest.approx(own.test, rel=1e-4) for own in whole]
    for folder in (tmp_path / "stopped").iterdir():
        assert [line["step"] for line in runs.open(folder).metrics()] == [1, 2, 3, 4, 5, 6]
        assert (folder / "features" / "test-0001.safetensors").exists()


def test_an_ensemble_goes_on_to_the_same_numbers_and_is_evaluated(tmp_path, monkeypatch):
    recipe = tiny("network=tabm", "members=2", "dropout=0.2", "dtype=float64")
    own = plans(recipe, ("baseline", "huber+oe"), seeds=(0,))
    whole = TABULAR.train(own, device="cpu", folder=tmp_path / "whole")
    monkeypatch.setattr(train, "_SECONDS", 0.0)
    save, saved = train.save_run, []

    def stop(folder, content):
        if len(saved) == 3:  # the second of two runs has one epoch, the first has two
            raise KeyboardInterrupt
        saved.append(folder)
        save(folder, content)

    monkeypatch.setattr(train, "save_run", stop)
    with pytest.raises(KeyboardInterrupt):
        TABULAR.train(own, device="cpu", folder=tmp_path / "stopped")
    assert len(set(saved)) == 2
    monkeypatch.setattr(train, "save_run", save)
    again = TABULAR.train(own, device="cpu", folder=tmp_path / "stopped")
    assert [each.test for each in again] == [pytest.approx(each.test, rel=1e-8) for each in whole]
    content = load_file(tmp_path / "whole" / "baseline-seed0" / "features" / "test-0003.safetensors")
    assert content["features"].shape == (60, 8)
    error = np.sqrt(np.mean((content["targets"] - content["predictions"]) ** 2))
    assert error == pytest.approx(whole[0].last, rel=1e-5)
    found = evaluate(own[1], device="cpu", folder=tmp_path / "whole")
    scores = [found["test"], found["test, best on validation"]]
    assert scores == pytest.approx([whole[1].last, whole[1].best_validation], rel=1e-8)


def test_another_table_in_the_same_place_is_refused(tmp_path):
    recipe = tiny()
    TABULAR.train(plans(recipe)[:1], device="cpu", folder=tmp_path / "a")
    generated.make("elsewhere", seed=8, count=300)
    os.replace("elsewhere/houses.csv", "made/houses.csv")
    with pytest.raises(
        ValueError, match=r"expected the data that the run in .*baseline-seed0 was trained on, got other"
    ):
        TABULAR.train(plans(recipe), device="cpu", folder=tmp_path / "a")


def test_a_damaged_checkpoint_is_named(tmp_path):
    call("train", "tabular", "--method=oe", *options(), "--out=mine")
    Path("mine/oe-seed0/checkpoint.pt").write_bytes(b"nothing")
    assert "mine/oe-seed0/checkpoint.pt is damaged or foreign" in call("evaluate", "mine", status=2).stderr
    Path("mine/oe-seed0/checkpoint.pt").unlink()
    assert "expected a checkpoint in mine/oe-seed0, got none" in call("evaluate", "mine", status=2).stderr


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["target=price"], "expected --set data=FILE, a table that ends in .csv"),
        (["data=none.csv"], "expected a table in none.csv, got no such file"),
        (["data=made"], "expected --target COLUMN, or the setting target=COLUMN, one of area, rooms"),
        (["data=made", "target=prise"], "expected a column like 'price', got 'prise'"),
        (["data=made", "target=heating"], "expected numbers in the target 'heating'"),
        (["data=made", "target=garden"], "skip_bad=true leaves these rows out"),
        (["data=made", "target=price", "batch_size=200"], "expected at least batch_size=200 rows to train on, got 192"),
        (["data=made", "target=price", "test_share=1"], "expected test_share between 0 and 1, got 1.0"),
        (["data=made", "target=price", "hiden=3"], "expected a key like 'hidden', got 'hiden'"),
        (["data=made", "target=price", "network=tab"], "expected a value of network like 'tabm'"),
        (["data=made", "target=price", "members=0"], "expected members to be at least 1, got 0"),
        (["data=made", "target=price", "dropout=1"], "expected dropout from 0 to below 1, got 1.0"),
        (["data=made", "target=price", "balance=0"], "expected balance to be a positive number, got 0.0"),
        (["data=made", "target=price", "bins=1"], "expected bins to be at least 2, got 1"),
    ],
)
def test_mistakes_are_one_sentence_and_leave_nothing(settings, sentence):
    for command in (["compare", "tabular"], ["train", "tabular"]):
        answer = call(*command, *(f"--set={each}" for each in settings), status=2)
        assert sentence in answer.stderr and answer.stderr.count("\n") == 1
    assert not Path("runs").exists()


def test_rows_without_a_target_are_left_out_once_and_told(caplog):
    call("train", "tabular", *options("target=year", "skip_bad=true"), "--out=mine")
    assert caplog.text.count("rows of made/houses.csv left out") == 1
    left_out = runs.read_json("mine/oe-seed0/result.json")["left_out"]
    assert left_out > 0 and f"{left_out} rows" in caplog.text


def test_without_scikit_learn_a_sentence(monkeypatch):
    import builtins

    real = builtins.__import__

    def no_sklearn(name, *rest):
        if name.startswith("sklearn"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", no_sklearn)
    with pytest.raises(ImportError, match=r"tables need scikit-learn: pip install 'ordinal-entropy\[sklearn\]'"):
        check(tiny())


def test_data_commands():
    assert "Written to" in call("data", "make", "tabular", "new", "--count=60").stdout
    assert call("data", "check", "tabular", "new").stdout == "All is well: new was read.\n"
    Path("bad.csv").write_text("x,y\n1,2\n3\n")
    assert "line 3" in call("data", "check", "tabular", "bad.csv", status=1).stdout
    assert "no such file" in call("data", "check", "tabular", "nothing.csv", status=2).stderr


def test_nothing_to_train(tmp_path):
    with pytest.raises(ValueError, match="expected at least one run, got none"):
        TABULAR.train([], device="cpu", folder=tmp_path)


@pytest.mark.skipif("ORDINAL_ENTROPY_DATA" not in os.environ, reason="needs real tables")
def test_published_splits_of_a_real_table(tmp_path):
    """A few epochs on concrete are far better than the mean, on every split."""
    path = Path(os.environ["ORDINAL_ENTROPY_DATA"]) / "uci" / "concrete.npz"
    recipe = changed(Tabular(), {"data": str(path), "epochs": 5, "hidden": 32, "feature_rows": 0})
    found = TABULAR.train(plans(recipe, ("baseline",), range(20)), device="cpu", folder=tmp_path)
    assert max(outcome.last for outcome in found) < 0.75 * np.load(path)["y"].std()
    assert all(math.isfinite(outcome.best_validation) for outcome in found)


@pytest.mark.parametrize(
    "damage",
    [
        lambda state: state["own"].pop(next(iter(state["own"]))),
        lambda state: state["own_best"].update({"method.parts.hl-gauss.bins.low": torch.zeros(7, dtype=torch.float64)}),
        lambda state: state["own_mean"].update({"elsewhere": torch.zeros(1)}),
    ],
    ids=["a tensor is missing", "another shape", "a parameter that is not there"],
)
def test_a_damaged_state_of_a_method_is_told(tmp_path, damage):
    out = tmp_path / "run"
    chosen = ["--preset=quick", "--method=hl-gauss", "--set=epochs=2", "--set=generated=120", "--set=feature_rows=0"]
    call("train", "tabular", *chosen, f"--out={out}")
    (file,) = out.rglob("checkpoint.pt")
    content = torch.load(file, weights_only=True)
    damage(content["state"])
    torch.save(content, file)
    said = call("evaluate", out, status=2)
    assert "is damaged or foreign" in said.stderr and "Traceback" not in said.output
