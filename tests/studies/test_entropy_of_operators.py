"""Figure A on operators: a small study by the real trainer, from the rows to the pictures."""

import json
import math
from itertools import combinations

import pytest

pytest.importorskip("scipy", reason="the splines and distributions are SciPy's")

import numpy as np
from safetensors.numpy import load_file

from command_line import call
from ordinal_entropy import studies

TINY = ["rows=30", "parts=3", "validation_rows=20", "test_rows=40", "hidden=24", "steps=25", "evaluate_every=10"]
TINY += ["feature_rows=12", "samples=5", "initial=default"]
ROWS = ["baseline", "classification bins=10", "ld-unweighted", "ld"]
PICTURES = ["", "-tsne", "-sphere", "-ordinality"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Generated rows, which the tests share."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def shared_rows(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("ORDINAL_ENTROPY_CACHE", str(cache))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def undrawn(monkeypatch):
    monkeypatch.setattr(studies, "find_spec", lambda name: None)


def mean_log_distance(rows):
    """Half of Eq. 1, by loops."""
    pairs = [math.log(math.dist(a, b)) for a, b in combinations(rows.astype(float).tolist(), 2)]
    return rows.shape[1] * sum(pairs) / len(pairs)


def test_entropies_are_of_fixed_rows_during_training(tmp_path, undrawn):
    summary = studies.run("figA-linear", tmp_path, [*TINY, "seeds=2", "steps=40", "dtype=float64"])
    assert list(summary["methods"]) == list(summary["entropies"]) == list(summary["features"]) == ROWS
    content = json.loads((tmp_path / "entropies.json").read_text())
    assert content["epochs"] == [10, 20, 30, 40]  # steps, each of all rows; none before the first
    assert [(run["variant"], run["seed"]) for run in content["runs"]] == [(row, s) for row in ROWS for s in (0, 1)]
    for run in content["runs"]:
        kept = summary["features"][run["variant"]][run["seed"]]
        for part in ("train", "test"):
            for place, step in enumerate(content["epochs"]):
                own = load_file(tmp_path / kept["folder"] / f"{part}-{step:04d}.safetensors")
                assert own["features"].shape == (12, 24)
                z, y = own["features"].astype(float), own["targets"].astype(float)
                unit = z / np.linalg.norm(z, axis=1, keepdims=True)
                diversity = np.mean([abs(y[a, 0] - y[b, 0]) * math.dist(unit[a], unit[b])
                                     for a, b in combinations(range(12), 2)])  # fmt: skip
                expected = {"E1": mean_log_distance(z), "E2": mean_log_distance(unit), "E3": diversity}
                assert {name: run[part][name][place] for name in expected} == pytest.approx(expected, rel=1e-5)
    validation = {
        (run["variant"], run["seed"]): run["validation"][1:]
        for run in json.loads((tmp_path / "curves.json").read_text())["runs"]
    }
    for name, kept in summary["features"].items():
        for own in kept:
            best = 10 * (1 + int(np.argmin(validation[name, own["seed"]])))
            assert (own["last"], own["best_validation"]) == ("test-0040.safetensors", f"test-{best:04d}.safetensors")


def test_test_rows_are_the_same_in_all_runs_and_training_rows_in_those_of_a_seed(tmp_path, undrawn):
    summary = studies.run("figA-linear", tmp_path, [*TINY, "seeds=2"])
    targets = {
        (part, name, own["seed"]): load_file(tmp_path / own["folder"] / f"{part}-0025.safetensors")["targets"]
        for part in ("train", "test")
        for name, kept in summary["features"].items()
        for own in kept
    }
    for (part, _, seed), own in targets.items():
        assert (own == targets[part, "baseline", 0 if part == "test" else seed]).all()
    assert (targets["train", "ld", 0] != targets["train", "ld", 1]).any()


def test_claims_are_those_that_the_rows_allow_for(tmp_path, undrawn):
    summary = studies.run("figA-linear", tmp_path, [*TINY, "seeds=1", "bins=10,4"])
    said = {(claim["part"], claim["claim"]) for claim in summary["claims"]}
    above = {f"classification bins={bins} is always above baseline" for bins in (10, 4)}
    assert said == {
        *((part, claim) for part in ("train", "test") for claim in above),
        ("test", "baseline falls"),
        ("test", "ld is the highest in the end"),
    }


def test_a_stopped_study_ends_with_the_same_features(tmp_path, undrawn):
    def stop(done, total):
        if done > 15:
            raise KeyboardInterrupt

    settings = [*TINY, "seeds=1"]
    with pytest.raises(KeyboardInterrupt):
        studies.run("figA-linear", tmp_path / "stopped", settings, progress=stop)
    found = studies.run("figA-linear", tmp_path / "stopped", settings)
    straight = studies.run("figA-linear", tmp_path / "straight", settings)
    for key in ("methods", "entropies", "claims", "features"):
        assert found[key] == straight[key]
    one, other = (
        {path.relative_to(tmp_path / name): path.read_bytes() for path in (tmp_path / name).rglob("*.safetensors")}
        for name in ("stopped", "straight")
    )
    assert one == other and len(one) == 4 * 2 * 3


def test_the_nonlinear_operator_likewise(tmp_path, undrawn):
    summary = studies.run("figA-nonlinear", tmp_path, [*TINY, "seeds=1", "paths=50"])
    assert summary["task"] == "nonlinear" and list(summary["entropies"]) == ROWS
    assert len(list(tmp_path.rglob("*.safetensors"))) == 4 * 2 * 3


@pytest.mark.usefixtures("without_page")
def test_from_end_to_end_in_words_of_rows_and_steps(tmp_path):
    settings = [f"--set={each}" for each in [*TINY, "seeds=1"]]
    said = call("reproduce", "figA-linear", *settings, "--device=cpu", "--out=there")
    assert "4 runs of 25 steps on cpu, in there" in said.stderr
    lines = [" ".join(line.split()) for line in said.stdout.splitlines()]
    assert "Test MSE x 1e-3" in lines and "One run; lower is better. The constant is the training mean." in lines
    assert "E1, nats E2, nats E3" in lines and "test rows" in lines and "training rows" in lines
    assert any(line.startswith("paper: baseline falls") and line.count("held") == 3 for line in lines)
    assert "In features/test-STEP.safetensors of a run; those of seed 0." in lines
    assert any(line.startswith("ld training/ld-seed0 test-0025 test-00") for line in lines)
    assert "image" not in said.stdout and "epoch" not in said.stdout
    for picture in PICTURES:
        assert f"Drawn in there/figA-linear{picture}.png" in lines
        svg = (tmp_path / "there" / f"figA-linear{picture}.svg").read_text()
        assert "epoch" not in svg and "(m)" not in svg and "place" not in svg
    svg = (tmp_path / "there" / "figA-linear.svg").read_text()
    assert svg.count(">step</text>") == 3 and svg.count(">E3: diversity</text>") == 1
    assert svg.count(">training rows</text>") == svg.count(">test rows</text>") == 3
    assert svg.count(">test rows, regression</text>") == 3
    assert "12 test rows in one t-SNE" in (tmp_path / "there" / "figA-linear-sphere.svg").read_text()


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("seeds=0", "expected at least 1 seed, got 0"),
        ("bins=9,9", "expected one to 4 different bins, got 9, 9"),
        ("bins=1", "expected bins to be at least 2, got 1"),
        ("feature_rows=0", "expected feature_rows to be at least 1, got 0"),
        ("operator=nonlinear", "figA-linear sets operator itself"),
    ],
)
def test_a_mistake_is_found_before_anything_is_written(setting, sentence, tmp_path):
    with pytest.raises(ValueError, match=sentence):
        studies.run("figA-linear", tmp_path / "out", [setting])
    assert not (tmp_path / "out").exists()
