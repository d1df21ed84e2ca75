"""``data make`` and ``data check``."""

from pathlib import Path

import pytest

pytest.importorskip("typer", reason="the command line is typer's")
pytest.importorskip("rich", reason="the tables are rich's")
pytest.importorskip("scipy", reason="the splines and distributions are SciPy's")

from command_line import call, words
from ordinal_entropy.commands.data import show_problems


def test_a_generated_set_is_made_and_found_to_be_whole(tmp_path):
    pytest.importorskip("PIL", reason="faces are drawn with Pillow")
    made = call("data", "make", "age", "faces", "--seed", 3, "--count", 120)
    assert made.stdout == "Written to faces\n" and "120 of 120 images" in made.stderr
    checked = call("data", "check", "age", "faces")
    assert checked.stdout == "All is well: 120 files of faces were read.\n" and "120 of 120 files" in checked.stderr


def test_data_check_names_every_bad_file_and_exits_with_1(tmp_path):
    pytest.importorskip("PIL", reason="faces are drawn with Pillow")
    call("data", "make", "age", "faces", "--count", 100)
    files = sorted((tmp_path / "faces" / "AgeDB").iterdir())
    files[0].write_bytes(files[0].read_bytes()[:500])
    for file in files[1:60]:
        file.write_bytes(b"")
    files[60].unlink()
    some = words(call("data", "check", "age", "faces", status=1).stdout)
    assert some.endswith("61 problems in faces, 11 of them not shown (--all names every one); 99 files read.")
    assert f"AgeDB/{files[60].name} missing (line " in some
    every = words(call("data", "check", "age", "faces", "--all", status=1).stdout)
    assert f"AgeDB/{files[0].name} truncated" in every
    assert all(f"AgeDB/{file.name} empty" in every for file in files[1:60])
    assert every.endswith("61 problems in faces; 99 files read.")


def test_data_check_stays_calm_in_the_face_of_odd_names(tmp_path):
    (tmp_path / "agedb.csv").write_text("age,path,split\n35,[red]\x1b[2J.jpg,train\n")
    said = call("data", "check", "age", ".", status=1).stdout
    assert "[red]\\x1b[2J.jpg" in said and "\x1b" not in said


def test_problems_of_a_dataset_are_not_cut(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    found = [(f"images/{'A' * 70}", f"expected a number, got {'B' * 90}")]
    show_problems(Path("root"), found, found, 1)
    printed = capsys.readouterr().out
    assert (printed.count("A"), printed.count("B")) == (70, 90)
