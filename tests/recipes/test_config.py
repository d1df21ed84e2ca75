"""Settings out of files: YAML, and recipe.json of a run folder; every mistake has its place."""

import json
import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from command_line import call
from ordinal_entropy import runs
from ordinal_entropy.recipes import read_config


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def found(text, path="mine.yaml"):
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)
    return [each[:2] for each in read_config(path)]


def test_groups_full_and_short_names():
    text = """
# of a first look
task: age
training:
  learning_rate: 3e-3  # YAML would call this a text
  milestones: [27, 36]
  flip: yes
model.backbone: "resnet18"
strength: 5
method:
  oe: {strength: 5}
data:
channels: ~
drop_path: null
note: 'null'
several:
  - a, b
  - c
"""
    assert found(text) == [
        ("task", "age"),
        ("training.learning_rate", "3e-3"),
        ("training.milestones", ["27", "36"]),
        ("training.flip", "yes"),
        ("model.backbone", "resnet18"),
        ("strength", "5"),
        ("method.oe.strength", "5"),
        ("data", None),
        ("channels", None),
        ("drop_path", None),
        ("note", "null"),
        ("several", ["a, b", "c"]),
    ]
    assert read_config("mine.yaml")[1].where == "mine.yaml, line 5, column 3"


def test_marks_line_ends_and_json_do_not_matter():
    assert found("\ufeffepochs: 3\r\ndata: x\r\n") == [("epochs", "3"), ("data", "x")]
    assert found('{"training": {"epochs": 3, "milestones": []}}') == [
        ("training.epochs", "3"),
        ("training.milestones", []),
    ]


def test_the_recipe_of_a_run_folder_is_taken_without_the_rest(tmp_path):
    runs.create(tmp_path / "new", {"task": "age", "training": {"epochs": 3, "clip": 1e-05}}, "oe", 0)
    runs.create(tmp_path / "old", {"task": "age", "epochs": 3, "method_options": ["oe.strength=5"]}, "oe", 0)
    new, old = ([each[:2] for each in read_config(f"{name}/recipe.json")] for name in ("new", "old"))
    assert new == [("task", "age"), ("training.epochs", "3"), ("training.clip", "1e-05")]
    assert old == [("task", "age"), ("epochs", "3"), ("options", ["oe.strength=5"])]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "expected keys and values in mine.yaml, got an empty file"),
        ("# nothing\n", "expected keys and values in mine.yaml, got an empty file"),
        ("epochs", "line 1, column 1: expected keys with their values, as in epochs: 10, got 'epochs'"),
        ("- epochs", "line 1, column 1: expected keys with their values, as in epochs: 10, got a list"),
        ("epochs: 3\nepochs: 4", "line 2, column 1: epochs is given twice, before in mine.yaml, line 1, column 1"),
        ("a:\n  b: 3\n  b: 4", "line 3, column 3: a.b is given twice, before in mine.yaml, line 2, column 3"),
        ("epochs: 3\n? [a, b]\n: 4", "line 2, column 3: expected the name of a key, got a list"),
        ("epochs: [[1]]", "line 1, column 10: expected a plain value in a list, got a list"),
        ("epochs: [{a: 1}]", "line 1, column 10: expected a plain value in a list, got a group"),
        ("epochs: [1, ~]", "line 1, column 13: expected a plain value in a list, got '~'"),
        ("epochs: 3\n---\nepochs: 4", "line 2, column 1: expected one document, got another document"),
        ("epochs: !!python/object/apply:os.system [ls]", "got the tag tag:yaml.org,2002:python/object/apply:os.system"),
        ("epochs: !!int 3", "line 1, column 9: expected plain values, got the tag tag:yaml.org,2002:int"),
        ("a: &x 3\nb: *x", "line 1, column 4: expected values themselves, got an anchor or an alias"),
        ("<<: *x", "line 1, column 5: expected values themselves, got an anchor or an alias"),
        ("epochs: [1", "mine.yaml, line 1, column 11: expected YAML, got an error: while parsing a flow sequence"),
        ("a: b: c", "mine.yaml, line 1, column 5: expected YAML, got an error: mapping values are not allowed here"),
        ("a:\n\t- 3", "mine.yaml, line 2, column 1: expected YAML, got an error: "),
        ('a: "open', "expected YAML, got an error: while scanning a quoted scalar"),
        ('a: "\\ud800"', "line 1, column 4: expected whole characters, got '\\ud800'"),
        ("a: \x00", "expected a text file in YAML, got mine.yaml"),
        ("%YAML 9.0\n---\na: 3", "expected YAML, got an error: "),
        ("x: {" * 9 + "a: 1" + "}" * 9, "expected at most 8 groups inside each other, got a group"),
        ("[" * 100_000, "expected keys with their values, as in epochs: 10, got a list"),
        ("a: " + "[" * 100_000, "expected a plain value in a list, got a list"),
        ("x: {" * 100_000, "expected at most 8 groups inside each other"),
        ("a: " + "x" * 2**20, "expected settings of at most 1,048,576 bytes in mine.yaml, got 1,048,579"),
    ],
)  # fmt: skip
def test_a_file_of_another_form_is_a_sentence_with_its_place(text, sentence):
    with pytest.raises(ValueError) as error:
        found(text)
    assert sentence in " ".join(str(error.value).split())


def test_aliases_that_would_fill_the_memory_are_refused_at_once():
    levels = [f"l{k}: &l{k} [{', '.join([f'*l{k - 1}'] * 10)}]" for k in range(1, 30)]
    with pytest.raises(ValueError, match="an anchor or an alias"):
        found("\n".join(["l0: &l0 [x]", *levels]))


def test_what_is_no_text_file_is_told(tmp_path):
    (tmp_path / "binary.yaml").write_bytes(b"\x89PNG\xff\xfe\x00" * 9)
    with pytest.raises(
        ValueError, match=r"expected a text file in YAML, got .*binary\.yaml, which is not one in UTF-8"
    ):
        read_config(tmp_path / "binary.yaml")
    with pytest.raises(FileNotFoundError, match=r"expected settings in .*nowhere\.yaml, got no such file"):
        read_config(tmp_path / "nowhere.yaml")
    with pytest.raises(OSError, match="got a folder"):
        read_config(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="got a pipe"):
        read_config(tmp_path / "pipe")
    with pytest.raises(OSError, match="got a device"):
        read_config(os.devnull)


@given(st.text(max_size=60))
def test_any_text_is_read_or_is_an_error_of_one_kind(text):
    try:
        found(text.encode("utf-8", "ignore").decode())
    except ValueError as error:
        assert "mine.yaml" in str(error)


@given(st.dictionaries(st.text("abc_", min_size=1), st.one_of(st.integers(), st.text(max_size=9), st.booleans())))
def test_json_is_read_as_it_is_written(content):
    if content:
        expected = [
            (key, {True: "true", False: "false"}[v] if isinstance(v, bool) else str(v)) for key, v in content.items()
        ]
        assert found(json.dumps(content)) == expected


def test_without_yaml_the_extra_is_named(tmp_path, monkeypatch):
    (tmp_path / "mine.yaml").write_text("epochs: 3")
    monkeypatch.setitem(sys.modules, "yaml", None)  # not installed
    answer = call("train", "linear", "--preset=quick", f"--config={tmp_path / 'mine.yaml'}", status=2)
    assert answer.stderr == "ordinal-entropy: this needs yaml: pip install 'ordinal-entropy[train]'\n"
