"""The page as a file: whole, small enough, escaped, and honest about what it lacks."""

import base64
import hashlib
import json
import os
import re
from html.parser import HTMLParser

import pytest

from ordinal_entropy import report, runs
from ordinal_entropy.report import clouds
from saved_folders import make_run, make_study

EVIL = "<script>alert('x')</script>"


class Parsed(HTMLParser):
    """Elements with their attributes, texts of scripts, and everything that can be read."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts, self.texts, self.inside = [], [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.inside = ""

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts[-1] += data
        else:
            self.texts.append(data)

    @property
    def said(self):
        return " ".join(" ".join(self.texts).split())


def page(folder):
    left_out = report.write(folder)
    return Parsed((folder / "report.html").read_text(encoding="utf-8")), left_out


def test_the_verdict_comes_first_then_tables_figures_recipe_and_environment(tmp_path, quick_layout):
    found, left_out = page(make_study(tmp_path / "age", command="ordinal-entropy reproduce table4-age --preset small"))
    assert not left_out
    said = found.said
    order = ["Of 2 methods, 2 better than baseline (MAE, n = 4).", "oe is better than baseline: MAE", "Test MAE",
             "Against baseline", "Methods in the figures", "Differences from baseline", "Scores during training",
             "Distances of features against targets", "Features", "How to run it again",
             "reproduce table4-age --preset small", "Published on AgeDB-DIR, years",
             "only where data, split and recipe are the same", "Recipe", "Environment"]  # fmt: skip
    places = [said.rindex(text) if text == "Recipe" else said.index(text) for text in order]  # others' recipes first
    assert places == sorted(places)
    assert runs.environment()["torch"] in said and "faces" in said


def test_what_the_references_say_follows_the_headline(tmp_path):
    known = {"references": {"constant": 0.5, "ridge": 0.25}, "constant": "the training median"}
    said = page(make_study(tmp_path / "age", features=False, **known))[0].said
    worse = "oe is worse than predicting the training median (MAE 0.50): it has learned nothing that helps."
    assert said.index("Of 2 methods") < said.index(worse) < said.index("Test MAE")
    assert "ridge has a lower MAE than all 3 rows: 0.25." in said and "constant, reference 0.50" in said
    older = page(make_study(tmp_path / "older", features=False))
    damaged = page(make_study(tmp_path / "damaged", features=False, references=["constant"], constant={"a": 1}))
    for found, left_out in (older, damaged):
        assert not left_out and "oe is better than baseline" in found.said and ", reference" not in found.said


def test_every_chart_has_a_table_and_every_control_is_a_real_one(tmp_path, quick_layout):
    found, _ = page(make_study(tmp_path / "age"))
    plots = [own for tag, own in found.elements if own.get("class") == "drawing"]
    data = json.loads(found.scripts[0])["sections"][0]
    assert len(plots) == len(data["charts"]) == 4 and all("aria-label" in own for own in plots)
    assert found.said.count("The numbers of this figure") == 5
    boxes = [own for tag, own in found.elements if own.get("type") == "checkbox"]
    assert len(boxes) == len(data["methods"]) == 3
    sliders = [own for tag, own in found.elements if own.get("type") == "range"]
    assert [own["name"] for own in sliders] == ["epoch", "point"]


def test_nothing_is_loaded_and_only_our_scripts_may_run(tmp_path):
    found, _ = page(make_study(tmp_path / "age", features=False))
    for tag, own in found.elements:
        assert not {"src", "srcset", "action", "data", "ping"} & own.keys(), (tag, own)
        assert own.get("href", "#").startswith("#") and tag not in ("link", "iframe", "base", "object")
    policy = next(own["content"] for tag, own in found.elements if own.get("http-equiv"))
    assert policy.startswith("default-src 'none'; ")
    allowed = re.findall(r"'sha256-([^']+)'", policy)
    ours = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in found.scripts[1:]]
    assert allowed == ours and "unsafe-inline" not in policy.split("style-src")[0]


def test_names_paths_and_labels_are_escaped(tmp_path, quick_layout):
    folder = tmp_path / "<img src=x onerror=alert(1)>"
    words = {"study": EVIL, "shown": {"about": EVIL, "notes": [EVIL]}, "command": EVIL}
    make_study(folder, methods=("baseline", EVIL, "&lt;b&gt;"), **words)
    (folder / "training" / f"{EVIL.replace('/', '_')}").mkdir()
    (folder / "training" / f"{EVIL.replace('/', '_')}" / "recipe.json").write_text(EVIL)
    found, left_out = page(folder)
    assert len(left_out) == 1
    assert len(found.scripts) == 3 and not [own for tag, own in found.elements if "onerror" in own or tag == "img"]
    assert EVIL in found.said and "&lt;b&gt;" in found.said
    assert json.loads(found.scripts[0])["sections"][0]["methods"][1] == EVIL
    assert "<" not in found.scripts[0]


def test_a_study_of_80_runs_fits_in_8_megabytes(tmp_path, quick_layout):
    methods = ["baseline", "ld", "oe", "lt", "ld-sqrt", "ld-squared", "ld-cosine", "classification"]
    folder = make_study(tmp_path / "study", methods=methods, seeds=10, epochs=90, grid=(30, 40))
    for place in range(4):  # pictures that a study draws
        (folder / f"{place}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + os.urandom(400_000))
    found, left_out = page(folder)
    assert not left_out
    size = (folder / "report.html").stat().st_size
    assert 4.9e6 < size < 8e6, size
    assert len(json.loads(found.scripts[0])["sections"][0]["cloud"]["methods"]) == 8
    assert "not on this page, for its size, or because they lie elsewhere or are damaged: 2.png, 3.png" in found.said
    text = (folder / "report.html").read_text()
    assert text.count("plotly.js v") == 1


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("methods", "oe", "mean"), "NaN"),
        (("methods", "oe", "values", 1), "Infinity"),
        (("methods", "oe", "at", "last", 0), "-Infinity"),
        (("paired", "oe", "difference"), "NaN"),
        (("paired", "oe", "ci_low"), "-Infinity"),
        (("paired", "oe", "p_value"), "1e999"),
        (("paired", "oe", "n"), "NaN"),
        (("spread", "oe", "ratio"), "NaN"),
        (("shown", "scale"), "NaN"),
    ],
)
def test_one_number_that_is_none_does_not_end_the_page(path, value, tmp_path):
    folder = make_study(tmp_path / "age", features=False)
    content = json.loads((folder / "summary.json").read_text())
    inside = content
    for key in path[:-1]:
        inside = inside.setdefault(key, {}) if isinstance(inside, dict) else inside[key]
    inside[path[-1]] = "here"
    (folder / "summary.json").write_text(json.dumps(content).replace('"here"', value))
    found, _ = page(folder)
    assert "Test MAE" in found.said and "baseline" in found.said and "NaN" not in found.scripts[0]


def test_a_number_that_no_chart_can_hold_does_not_end_the_page(tmp_path):
    folder = make_study(tmp_path / "age", features=False)
    text = (folder / "curves.json").read_text()
    (folder / "curves.json").write_text(
        text.replace('"train": [', '"train": [1e308, ', 1).replace("19.", "1e308, 19.", 1)
    )
    assert "Test MAE" in page(folder)[0].said


def test_pictures_that_a_link_brings_from_elsewhere_are_not_embedded(tmp_path):
    folder = make_study(tmp_path / "age", features=False)
    picture = b"\x89PNG\r\n\x1a\n"
    (tmp_path / "private.png").write_bytes(picture + b"private")
    (folder / "out.png").symlink_to("../private.png")
    (folder / "gone.png").symlink_to("nowhere.png")
    (folder / "own.png").write_bytes(picture + b"own")
    (folder / "again.png").symlink_to("own.png")
    (folder / "folder.png").mkdir()
    found, _ = page(folder)
    shown = [own["src"] for tag, own in found.elements if tag == "img"]
    assert [base64.b64decode(each.partition(",")[2])[8:] for each in shown] == [b"own", b"own"]
    assert "folder.png, gone.png, out.png" in found.said


def test_what_is_left_out_is_said_on_the_page(tmp_path):
    make_run(tmp_path / "whole", "oe", 0)
    for place in range(12):
        make_run(tmp_path / f"half{place}", "oe", place, over=False)
    found, left_out = page(tmp_path)
    assert len(left_out) == 12 and "12 things were left out" in found.said and "4 more" in found.said
    assert all(f"half{place}" in found.said for place in range(12)) and "half-written" in found.said


def test_an_empty_folder_says_so_on_a_small_page(tmp_path):
    found, left_out = page(tmp_path)
    assert "There is nothing to show" in found.said and not left_out
    assert (tmp_path / "report.html").stat().st_size < 60_000


def test_one_run_and_several_that_do_not_pair_up(tmp_path, quick_layout):
    run = make_run(tmp_path / "one", "oe", 0)
    found, _ = page(run.path)
    assert "age: oe, seed 0" in found.said and "Test scores" in found.said and "Scores during training" in found.said
    make_run(tmp_path / "two", "ld", 7)
    found, _ = page(tmp_path)
    assert "2 runs of age" in found.said and "not compared" in found.said


def test_several_studies_have_a_list_of_contents(tmp_path):
    for name in ("first", "second"):
        make_study(tmp_path / name, features=False)
    found, _ = page(tmp_path)
    links = [own["href"] for tag, own in found.elements if tag == "a"]
    assert links == ["#content", "#section-0", "#section-1"]
    assert found.said.count("Of 2 methods, 2 better") == 4  # in the list and above each


def test_a_summary_as_ones_own_loop_writes_it(tmp_path):
    import ordinal_entropy as oe

    scores = {"baseline": [3.1, 2.9, 4.0], "oe": [2.3, 2.2, 3.1]}
    oe.compare(lambda method, seed: scores[method][seed], list(scores), 3, metric="MSE").write(tmp_path)
    found, left_out = page(tmp_path)
    assert not left_out and "difference -0.80 (" in found.said


def test_without_scikit_learn_the_page_says_why_there_are_no_features(tmp_path, monkeypatch):
    real = clouds.find_spec
    monkeypatch.setattr(clouds, "find_spec", lambda name: None if name == "sklearn" else real(name))
    found, _ = page(make_study(tmp_path / "age"))
    assert "The features are not drawn: that needs scikit-learn: pip install" in found.said


def test_features_that_cannot_be_laid_out_do_not_take_the_page_along(tmp_path, quick_layout):
    folder = make_study(tmp_path / "age")
    for path in folder.glob("training/*/features/*"):
        path.write_bytes(b"no")
    found, left_out = page(folder)
    assert "The features are not drawn: expected saved features in" in found.said and len(left_out) == 1


def test_without_plotly_or_jinja_one_sentence_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "find_spec", lambda name: None)
    with pytest.raises(
        ImportError, match=r"plotly and jinja2: pip install 'ordinal-entropy\[report\]', then ordinal-ent"
    ):
        report.write(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_page_is_there_whole_or_not_at_all(tmp_path, monkeypatch):
    report.write(tmp_path)
    before = (tmp_path / "report.html").read_bytes()
    make_run(tmp_path / "run", "oe", 0)
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("no room")))
    with pytest.raises(OSError, match="no room"):
        report.write(tmp_path)
    assert (tmp_path / "report.html").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "run"]


def test_a_diagnosis_of_one_file_and_of_two(tmp_path):
    measure = {"name": "rank", "title": "effective rank", "unit": "directions", "value": 3.0, "low": 2.0, "high": 4.0}
    share = {"name": "dead", "title": "dead dimensions", "unit": "share", "value": 0.25, "low": None, "high": None}
    side = {
        "alarms": ["Only 3 of 8."],
        "measures": {"rank": {**measure, "meaning": "few"}, "dead": {**share, "meaning": "a quarter"}},
        "notes": ["A note."],
        "sampling": "600 rows.",
    }
    runs.write_json(tmp_path / "one" / "diagnosis.json", {"files": ["a.npz"], **side})
    found, left_out = page(tmp_path / "one")
    assert not left_out
    for text in ("Diagnosis of a.npz", "Only 3 of 8.", "3.00 (2.00 to 4.00)", "25.00%", "few", "600 rows.", "A note."):
        assert text in found.said
    circles = [float(own["cx"]) for tag, own in found.elements if tag == "circle"]
    assert circles == [4 + 92 * 3 / 4, 4 + 92 * 0.25]  # from 0 to 4, from 0 to 1
    change = {**measure, "value": -1.0, "low": -1.5, "high": -0.5, "meaning": "fewer directions are used"}
    both = {"before": side, "after": {**side, "alarms": []}, "differences": {"rank": change}, "notes": ["Paired."]}
    runs.write_json(tmp_path / "two" / "diagnosis.json", {"files": ["a.npz", "b.npz"], **both})
    found, left_out = page(tmp_path / "two")
    assert not left_out
    for text in ("a.npz: Only 3 of 8.", "-1.00 (-1.50 to -0.50)", "fewer directions are used", "Paired."):
        assert text in found.said
    runs.write_json(tmp_path / "odd" / "diagnosis.json", {"files": 3})
    assert "not of the form" in page(tmp_path / "odd")[1][0].why
