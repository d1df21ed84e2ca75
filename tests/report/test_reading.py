"""What is found in a folder, and what is left out and why."""

import json

import pytest

from ordinal_entropy import __version__
from ordinal_entropy.report.reading import curves_of, logged_metric, read
from saved_folders import RECIPE, make_run, make_study


def reasons(found):
    return dict(found.left_out)


def test_a_study_is_read_with_its_curves_and_runs(tmp_path):
    found = read(make_study(tmp_path / "age", features=False))
    (study,) = found.studies
    assert study.name == "age" and not found.left_out
    assert [(run.method, run.seed) for run in study.runs][:2] == [("baseline", 0), ("baseline", 1)]
    assert study.curves["steps"] == [1, 2, 3, 4, 5, 6] and study.entropies is None


def test_runs_of_seeds_that_came_in_rounds_are_found_where_they_were_trained(tmp_path):
    make_study(tmp_path, features=False)
    (tmp_path / "training" / "seeds-4-4" / "training").mkdir(parents=True)
    make_run(tmp_path / "training" / "seeds-4-4" / "training" / "oe-seed4", "oe", 4)
    make_run(tmp_path / "training" / "seeds-4-4" / "training" / "oe-seed5", "oe", 5, over=False).fail(ValueError("hot"))
    found = read(tmp_path)
    names = [run.name for run in found.studies[0].runs]
    assert names[0] == "training/0-seed0" and names[-1] == "training/seeds-4-4/training/oe-seed4"
    assert reasons(found)["training/seeds-4-4/training/oe-seed5"] == "the run failed: ValueError: hot"


def test_half_written_runs_and_those_of_another_version_are_left_out_by_name(tmp_path):
    make_run(tmp_path / "whole", "oe", 0)
    make_run(tmp_path / "half", "oe", 1, over=False)
    make_run(tmp_path / "old", "oe", 2, version="0.0.1")
    found = read(tmp_path)
    assert [run.name for run in found.runs] == ["whole"]
    assert "half-written" in reasons(found)["half"] and "result.json" in reasons(found)["half"]
    assert reasons(found)["old"] == f"a run of version 0.0.1; this is {__version__}"


def test_a_run_that_failed_is_left_out_with_what_it_raised(tmp_path):
    make_run(tmp_path / "hot", "oe", 1, over=False).fail(RuntimeError("no memory\nleft"))
    assert reasons(read(tmp_path))["hot"] == "the run failed: RuntimeError: no memory left"


def test_a_run_without_a_version_is_left_out(tmp_path):
    make_run(tmp_path / "run", "oe", 0)
    content = json.loads((tmp_path / "run" / "recipe.json").read_text())
    del content["environment"]
    (tmp_path / "run" / "recipe.json").write_text(json.dumps(content))
    assert "version unknown" in reasons(read(tmp_path))["run"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("recipe.json", b"{", "expected JSON"),
        ("recipe.json", b"\xff\xfe\x00", "expected JSON"),
        ("recipe.json", b"[]", "expected an object, got []"),
        ("recipe.json", b'{"recipe": {}, "method": "oe"}', "expected seed, got none"),
        ("result.json", b"[1", "expected JSON"),
        ("result.json", b'"over"', "expected an object, got 'over'"),
        ("result.json", b"[" * 100_000, "nested too deeply"),
        ("metrics.jsonl", b"[]\n", "line 1"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_reason(name, content, said, tmp_path):
    make_run(tmp_path / "run", "oe", 0)
    (tmp_path / "run" / name).write_bytes(content)
    found = read(tmp_path)
    assert not found.runs and said in reasons(found)["run"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{}", "without metric, lower_is_better, methods, paired"),
        ("[1, 2]", "expected an object"),
        ("nonsense", "expected JSON"),
        ('{"metric": "mae", "lower_is_better": true, "methods": {}, "paired": {}}', "expected a summary with methods"),
        ('{"metric": "mae", "lower_is_better": true, "methods": {"a": 3}, "paired": {}}', "not of the form"),
        (
            '{"metric": "m", "lower_is_better": true, "methods": {"a": {"values": []}}, "paired": {"a": {}}}',
            "that the others are held to",
        ),
        (
            '{"metric": "m", "lower_is_better": true, "paired": {"b": {}},'
            ' "methods": {"a": {"values": [1]}, "b": {"values": []}}}',
            "as many scores of every method, got 0, 1",
        ),
    ],
)
def test_a_summary_of_another_form_is_left_out(content, said, tmp_path):
    (tmp_path / "summary.json").write_text(content)
    found = read(tmp_path)
    assert not found.studies and said in reasons(found)["summary.json"]


def test_a_summary_of_another_version_is_shown_and_told(tmp_path):
    make_study(tmp_path, features=False)
    content = json.loads((tmp_path / "summary.json").read_text())
    content["environment"]["ordinal_entropy"] = "0.0.1"
    (tmp_path / "summary.json").write_text(json.dumps(content))
    found = read(tmp_path)
    assert found.studies and "written by version 0.0.1" in reasons(found)["summary.json"]


def test_odd_curves_do_not_take_the_study_along(tmp_path):
    make_study(tmp_path, features=False)
    (tmp_path / "curves.json").write_text("no")
    found = read(tmp_path)
    assert found.studies[0].curves is None and "expected JSON" in reasons(found)["curves.json"]


def test_a_study_that_is_not_over_shows_its_finished_runs(tmp_path):
    (tmp_path / "study.json").write_text("{}")
    make_run(tmp_path / "training" / "oe-seed0", "oe", 0)
    make_run(tmp_path / "training" / "oe-seed1", "oe", 1, over=False)
    found = read(tmp_path)
    assert [run.name for run in found.runs] == ["training/oe-seed0"]
    assert "unfinished study" in reasons(found)[tmp_path.name]


def test_runs_of_one_recipe_over_the_same_seeds_are_compared(tmp_path):
    for method in ("oe", "baseline"):
        for seed in (0, 1, 2):
            make_run(tmp_path / f"{method}-{seed}", method, seed)
    found = read(tmp_path)
    assert not found.runs
    (study,) = found.studies
    assert study.summary["baseline"] == "baseline" and study.summary["recipe"] == {"task": "age", **RECIPE}
    assert study.summary["methods"]["oe"]["values"] == pytest.approx([7.0, 7.11, 7.2])
    assert study.summary["paired"]["oe"]["difference"] == pytest.approx(-1.0)
    assert study.curves["steps"] == [1, 2, 3, 4, 5, 6]
    assert [line["variant"] for line in study.curves["runs"]].count("oe") == 3


@pytest.mark.parametrize("odd", ["another recipe", "other seeds", "twice", "no score"])
def test_runs_that_do_not_pair_up_stay_runs(odd, tmp_path):
    for method in ("oe", "baseline"):
        for seed in (0, 1):
            make_run(tmp_path / f"{method}-{seed}", method, seed)
    last = tmp_path / "oe-1"
    if odd == "another recipe":
        content = json.loads((last / "recipe.json").read_text())
        content["recipe"]["strength"] = 5.0
        (last / "recipe.json").write_text(json.dumps(content))
    elif odd == "other seeds":
        make_run(tmp_path / "more", "oe", 2)
    elif odd == "twice":
        make_run(tmp_path / "more", "oe", 1)
    else:
        (last / "result.json").write_text('{"metric": "mae", "history": []}')
    assert not read(tmp_path).studies


def test_a_folder_without_runs_is_empty_and_none_or_a_file_is_a_mistake(tmp_path):
    found = read(tmp_path)
    assert not (found.studies or found.runs or found.left_out)
    with pytest.raises(ValueError, match=r"expected a folder, got .*nowhere, which is not there"):
        read(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="a file"):
        read(tmp_path / "file")


def test_folders_inside_are_looked_into_but_not_those_behind_links_or_too_deep(tmp_path):
    make_study(tmp_path / "a" / "b", features=False)
    make_run(tmp_path / "1" / "2" / "3" / "4", "oe", 0)
    (tmp_path / "loop").symlink_to(tmp_path)
    found = read(tmp_path)
    assert [study.name for study in found.studies] == ["a/b"] and not found.runs


def test_a_run_by_train_on_images_has_its_lines_and_features_one_deeper(tmp_path):
    make_run(tmp_path / "run", "oe", 0)
    (tmp_path / "run" / "metrics.jsonl").unlink()
    make_run(tmp_path / "run" / "oe-seed0", "oe", 0)
    (tmp_path / "run" / "oe-seed0" / "features").mkdir()
    (run,) = read(tmp_path).runs
    assert len(run.metrics) == 6 and run.features == tmp_path / "run" / "oe-seed0" / "features"


def test_the_score_is_the_one_that_all_three_splits_log(tmp_path):
    make_run(tmp_path, "oe", 0)
    (run,) = read(tmp_path).runs
    assert logged_metric(run)["test"] == "test_mae"  # not test_gm
    curves = curves_of([run], by_run=True)
    assert curves["runs"][0]["variant"] == tmp_path.name
    assert curves["runs"][0]["validation"][0] == 17.0 and curves["runs"][0]["train"][0] == 16.0
