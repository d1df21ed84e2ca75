"""Studies: what they vary, what they write, that they are not run twice."""

import json
import math

import pytest

pytest.importorskip("scipy", reason="the splines and distributions are SciPy's")

from fake_trainer import Trainer, rows
from ordinal_entropy import studies, tasks
from ordinal_entropy.studies import paper
from ordinal_entropy.studies.grid import Variant, seeds_from, summary_of
from ordinal_entropy.tasks.operators import recipe as operators

SMALL = ["rows=30", "parts=3", "validation_rows=20", "test_rows=40", "hidden=8", "steps=20", "evaluate_every=10"]
TINY = [*SMALL, "seeds=3"]
NAMES = [
    "table1-linear",
    "table1-nonlinear",
    "fig4a-linear",
    "figBa-nonlinear",
    "fig4b-linear",
    "figBb-nonlinear",
    "table6",
    "table7-cost",
    "init",
    "table4-age",
    "table5-lambda-t",
    "classification-age",
    "table3-crowd",
    "table1-depth",
    "table2-depth",
    "classification-depth",
    "fig1",
    "fig3",
    "fig4c",
    "figA",
    "figA-linear",
    "figA-nonlinear",
]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Generated rows, which the tests share."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def shared_rows(cache, monkeypatch):
    monkeypatch.setenv("ORDINAL_ENTROPY_CACHE", str(cache))


@pytest.fixture
def trainer(monkeypatch):
    """In place of the real one."""
    fake = Trainer()
    monkeypatch.setattr(operators.train, "train", fake)
    monkeypatch.setattr(operators, "split", rows)
    return fake


def test_the_studies_are_those_of_the_paper():
    assert studies.names() == NAMES
    for name in NAMES:
        assert len(studies.describe(name)) < 120
    with pytest.raises(ValueError, match="expected a study like 'table1-linear'"):
        studies.describe("table1-linaer")


def test_table1_is_eighty_runs_as_published_and_sixty_beside_them(trainer, tmp_path):
    summary = studies.run("table1-linear", tmp_path)
    ((jobs, _, settings, device, _),) = trainer.calls  # one stack
    assert (settings.steps, settings.tf32, settings.dtype, device) == (50_000, False, "float32", "cpu")
    published = [job for job in jobs if job.samples == 10]
    assert len(published) == 80 and len(jobs) == 140
    assert {(job.rescale, job.initial, job.strength, job.rows) for job in jobs} == {("authors", "authors", 1e-3, 1000)}
    assert {job.method for job in jobs if job.samples == 100} == {
        "ld-unweighted", "ld", "ld-cosine", "ld-no-norm", "ld-squared", "ld-sqrt",
    }  # fmt: skip
    assert all(job.part == job.seed for job in jobs)
    assert list(summary["methods"])[:8] == [*paper.TABLE1["linear"], "classification"]
    assert "ld samples=100" in summary["methods"]
    assert summary["paper"]["ld"] == {"mean": 1.6e-3, "std": 0.34e-3}
    assert set(summary["paper"]) == set(paper.TABLE1["linear"])  # the paper's numbers are not shown beside M = 100


def test_a_preset_of_the_task_stands_in_for_the_published_recipe(trainer, tmp_path):
    studies.run("table1-linear", tmp_path, ["seeds=2"], preset="quick")
    ((jobs, _, settings, *_),) = trainer.calls
    assert settings.steps == 3000 and {job.samples for job in jobs} == {10, 100}  # what the study sets stays


def test_table1_nonlinear_takes_a_hundred_thousand_steps(trainer, tmp_path):
    studies.run("table1-nonlinear", tmp_path)
    assert trainer.calls[0][2].steps == 100_000


@pytest.mark.parametrize("name", ["fig4a-linear", pytest.param("figBa-nonlinear", marks=pytest.mark.slow)])
def test_fig4a_varies_m_with_rescaled_and_raw_weights(name, trainer, tmp_path):
    summary = studies.run(name, tmp_path)
    ((jobs, *_),) = trainer.calls
    grid = {(job.samples, job.rescale) for job in jobs if job.method == "ld"}
    assert grid == {(m, r) for m in (2, 5, 10, 20, 50, 100, 200, 500, 1000) for r in ("authors", "none")}
    assert len(jobs) == 10 * 19
    assert summary["variants"]["ld samples=2 rescale=none"] == {"method": "ld", "samples": 2, "rescale": "none"}
    assert ("ld samples=2 rescale=authors" in summary["paper"]) == (name == "fig4a-linear")


@pytest.mark.parametrize("name", ["fig4b-linear", pytest.param("figBb-nonlinear", marks=pytest.mark.slow)])
def test_fig4b_varies_the_strength(name, trainer, tmp_path):
    summary = studies.run(name, tmp_path)
    ((jobs, *_),) = trainer.calls
    strengths = sorted({job.strength for job in jobs if job.method == "ld"})
    assert strengths == pytest.approx([1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0])
    assert len(jobs) == 70
    assert set(summary["paper"]) == {"baseline", "ld strength=0.001"}


@pytest.mark.slow
@pytest.mark.parametrize("operator", ["linear", "nonlinear"])
def test_init_is_the_table_under_the_default_initialisation(operator, trainer, tmp_path):
    summary = studies.run("init", tmp_path, [f"operator={operator}"])
    ((jobs, _, settings, *_),) = trainer.calls
    assert settings.steps == {"linear": 50_000, "nonlinear": 100_000}[operator]
    assert [job.initial for job in jobs] == ["default"] * 80 + ["authors"] * 20
    assert set(summary["paper"]) == {"baseline initial=authors", "ld initial=authors"}
    assert summary["baseline"] == "baseline"
    assert summary["task"] == operator


def test_a_summary_has_what_every_comparison_has(trainer, tmp_path):
    studies.run("table1-linear", tmp_path, ["seeds=4"])
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert {"task", "metric", "lower_is_better", "methods", "paired", "recipe", "environment", "spread"} <= set(summary)
    assert summary["task"] == "linear" and summary["lower_is_better"] is True
    ld = summary["methods"]["ld"]
    assert ld["values"] == ld["at"]["best_validation"]
    assert set(ld["at"]) == {"last", "best_validation", "best_test"}
    assert ld["n"] == len(ld["values"]) == 4
    assert "baseline" not in summary["paired"]
    assert summary["paired"]["ld"]["difference"] == pytest.approx(ld["mean"] - summary["methods"]["baseline"]["mean"])
    assert summary["spread"]["ld"]["ratio"] == pytest.approx(0.5)
    assert summary["recipe"]["training"]["steps"] == 50_000
    curves = json.loads((tmp_path / "curves.json").read_text())
    assert len(curves["runs"]) == 4 * 14
    assert curves["runs"][0]["variant"] == "baseline" and len(curves["runs"][0]["test"]) == len(curves["steps"])


def test_a_finished_study_is_read_back(trainer, tmp_path):
    first = studies.run("fig4b-linear", tmp_path, ["seeds=3"])
    again = studies.run("fig4b-linear", tmp_path, ["seeds=3"])
    assert len(trainer.calls) == 1
    assert again == first
    with pytest.raises(ValueError, match="holds another study: seeds is 3 there and 4 here"):
        studies.run("fig4b-linear", tmp_path, ["seeds=4"])
    with pytest.raises(ValueError, match="holds another study: study is 'fig4b-linear' there and 'figBb-nonlinear'"):
        studies.run("figBb-nonlinear", tmp_path, ["seeds=3"])


def test_a_foreign_summary_is_not_overwritten(trainer, tmp_path):
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(ValueError, match=r"with a summary\.json of something else"):
        studies.run("fig4b-linear", tmp_path, ["seeds=3"])
    assert (tmp_path / "summary.json").read_text() == "{}"


def test_a_stopped_study_goes_on_from_its_checkpoint(tmp_path):
    """The real trainer: stopped in its midst, and the same numbers as in one go."""
    settings = [*TINY, "methods=baseline,ld", "samples=5"]

    def stop(done, total):
        if done >= total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        studies.run("table1-linear", tmp_path / "stopped", settings, progress=stop)
    assert not (tmp_path / "stopped" / "summary.json").exists()
    told = []
    found = studies.run("table1-linear", tmp_path / "stopped", settings, progress=lambda *x: told.append(x))
    assert told[0][0] > 10  # not from the start
    straight = studies.run("table1-linear", tmp_path / "straight", settings)
    assert found["methods"] == straight["methods"]
    assert found["seconds"]["resumed"] and not straight["seconds"]["resumed"]


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("table1-nonlinear", ["samples=5,10", "paths=50"]),
        ("fig4a-linear", ["samples=2,5,30"]),
        ("fig4b-linear", ["strengths=1e-3,1"]),
        ("init", ["operator=linear", "methods=baseline,ld,classification"]),
    ],
)
def test_studies_run_for_real(name, more, tmp_path):
    summary = studies.run(name, tmp_path, [*TINY, *more])
    for score in summary["methods"].values():
        assert all(math.isfinite(value) for values in score["at"].values() for value in values)
    assert (tmp_path / f"{name}.png").exists()


def test_two_rows_of_the_authors_dialect_are_the_baseline(tmp_path):
    """The only pair is the closest one: its weight is 0."""
    summary = studies.run("fig4a-linear", tmp_path, [*TINY, "samples=2"])
    at = {name: score["at"]["last"] for name, score in summary["methods"].items()}
    assert at["ld samples=2 rescale=authors"] == pytest.approx(at["baseline"], rel=1e-6)
    assert at["ld samples=2 rescale=none"] != pytest.approx(at["baseline"], rel=1e-6)


def test_table6_measures_time_and_memory(tmp_path):
    told = []
    settings = ["rows=30", "parts=1", "test_rows=10", "validation_rows=10", "hidden=8", "steps=20"]
    own = ["samples=2,10", "rounds=2", "timed_steps=3", "warm_up=1"]
    summary = studies.run("table6", tmp_path, settings + own, progress=lambda *x: told.append(x))
    assert list(summary["methods"]) == ["baseline", "ld samples=2", "ld samples=10"]
    assert all(value > 0 for score in summary["methods"].values() for value in score["values"])
    assert summary["paper"]["baseline"] == {"seconds": 155, "megabytes": 2163}
    assert summary["metric"] == "seconds for 20 steps"
    assert told[-1] == (6, 6)
    assert set(summary["memory_mb"]) == set(summary["methods"])


@pytest.mark.parametrize(
    ("name", "setting", "sentence"),
    [
        ("table1-linear", "step=3", "expected a key like 'steps', got 'step'"),
        (
            "table1-linear",
            "operator=nonlinear",
            "table1-linear sets operator itself; the keys it takes: seeds, methods",
        ),
        ("fig4b-linear", "strength=1", "fig4b-linear sets strength itself"),
        ("fig4a-linear", "rescale=max", "fig4a-linear sets rescale itself"),
        ("init", "initial=authors", "init sets initial itself"),
        ("table1-linear", "seeds=1", "expected at least 2 seeds"),
        ("table1-linear", "methods=baseline,ldd", "expected a method like 'ld'"),
        ("table1-linear", "methods=ld,oe", "expected methods to begin with baseline, got ld, oe"),
        ("table1-linear", "methods=baseline,ld,ld", "expected different methods, got baseline, ld, ld"),
        ("fig4a-linear", "samples=2,2000", "expected samples from 2 to rows=1000, or none for all, got 2000"),
        ("fig4a-linear", "rescales=author", "expected a value of rescales like 'authors'"),
        ("table6", "rounds=1", "expected rounds to be at least 2, got 1"),
    ],
)
def test_a_mistake_is_found_before_anything_is_written(name, setting, sentence, trainer, tmp_path):
    with pytest.raises(ValueError) as error:
        studies.run(name, tmp_path / "out", [setting])
    assert sentence in str(error.value)
    assert not (tmp_path / "out").exists()
    assert not trainer.calls


def test_a_variant_is_named_by_what_it_changes():
    assert Variant("ld", (("samples", None), ("strength", 1e-5), ("rescale", "none"))).name == (
        "ld samples=all strength=1e-05 rescale=none"
    )


def test_variants_of_one_name_are_refused(tmp_path):
    with pytest.raises(ValueError, match="expected different methods, got ld"):
        summary_of(
            "linear", [Variant("ld"), Variant("ld")], {"": operators.Operators()}, [0, 1], out=tmp_path, device="cpu"
        )


def test_seeds_count_from_zero():
    assert seeds_from(3) == [0, 1, 2]


def test_options_of_one_part_of_a_method():
    recipe = studies.resolve("table1-linear", ["method.ld.strength=5"]).recipe
    assert recipe.method.options == ("ld.strength=5",)
    with pytest.raises(ValueError, match="expected an option of ld like 'strength', got 'strenght'"):
        studies.resolve("table1-linear", ["method.ld.strenght=5"])
    with pytest.raises(ValueError, match=r"parts of baseline, .*, got method\.hl-gauss\.sigma"):
        studies.resolve("table1-linear", ["method.hl-gauss.sigma=1"])


@pytest.mark.parametrize("name", [name for name in NAMES if name != "table7-cost"])
def test_strengths_are_fixed_in_every_preset(name):
    """The presets small and quick are gradient-balanced elsewhere."""
    study = studies.get(name)
    task = tasks.load(study.task(study.keys))
    for preset in ("paper", "small", "quick"):
        if preset not in task.presets:
            continue
        published = {"age": 1.0, "depth": 1.0, "crowd": 10.0 if preset == "paper" else 1.0}.get(
            task.training.name, 1e-3
        )
        if name.startswith(("fig4b", "figBb")):
            published = study.keys.strengths[0]
        for recipe in studies.resolve(name, [], preset).recipes.values():
            assert recipe.method.strength == published
    if name in ("table1-linear", "table3-crowd", "figA"):  # which do not set it
        for given, own in (("strength=0.5", 0.5), ("strength=none", None)):
            assert studies.resolve(name, [given], "quick").recipe.method.strength == own
