"""The generated set: the layout, the same for a seed, whole or not there, and something to learn from it."""

from collections import Counter

import numpy as np
import pytest

pytest.importorskip("PIL", reason="faces are drawn with Pillow")
from PIL import Image

from ordinal_entropy.tasks.age import data, generated
from ordinal_entropy.vision import images


def content(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def faces(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "faces"
    generated.make(folder, seed=1, count=300)
    return folder


def test_it_is_whole_and_in_the_layout_of_agedb(faces):
    assert data.check(faces) == []
    found, _ = data.records(faces)
    assert len(found) == 300 == len(list((faces / "AgeDB").iterdir()))
    assert sorted(path.name for path in faces.iterdir()) == ["AgeDB", "agedb.csv"]
    for record in found:
        number, name, age, gender = record.path.stem.split("_")
        assert number.isdigit() and name.isalpha() and float(age) == record.age and gender in "mf"
    assert images.read(found[0].path).shape == (112, 112, 3)
    assert (faces / "agedb.csv").read_text().splitlines()[0] == "age,path,split"


def test_validation_and_test_are_balanced(faces):
    counted = Counter((record.split, record.age) for record in data.records(faces)[0])
    assert all(count <= 2 for (split, _), count in counted.items() if split != "train")
    assert {age for split, age in counted if split == "val"} == {age for split, age in counted if split == "test"}


def test_the_same_for_a_seed_and_another_for_another(faces, tmp_path):
    generated.make(tmp_path / "again", seed=1, count=300)
    assert content(tmp_path / "again") == content(faces)
    generated.make(tmp_path / "other", seed=2, count=100)
    assert content(tmp_path / "other").keys() != content(faces).keys()


def test_ages_have_a_long_tail():
    ages = generated.long_tailed(20_000, np.random.default_rng(0))
    counts = np.bincount(ages, minlength=96)
    assert counts[0] == 0 and len(counts) == 96
    assert 27 <= counts.argmax() <= 33
    assert counts.max() > 10 * counts[75] > 0 and counts.max() > 10 * counts[3] > 0


def test_an_empty_folder_will_do_and_a_full_one_will_not(tmp_path):
    (tmp_path / "empty").mkdir()
    generated.make(tmp_path / "empty", count=100)
    before = content(tmp_path / "empty")
    with pytest.raises(ValueError, match=r"expected an empty folder, or none yet, got .*empty, which is not empty"):
        generated.make(tmp_path / "empty", count=100)
    assert content(tmp_path / "empty") == before


def test_a_stop_leaves_nothing_that_passes_as_whole(tmp_path):
    def stop(done, total):
        if done == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generated.make(tmp_path / "faces", count=100, progress=stop)
    assert content(tmp_path / "faces") == {}
    generated.make(tmp_path / "faces", count=100)
    assert data.check(tmp_path / "faces") == []
    (tmp_path / "faces" / "agedb.csv").unlink()  # as after a stop without a last word
    with pytest.raises(FileNotFoundError, match="no csv"):
        data.records(tmp_path / "faces")


def test_a_face_shows_its_age():
    """Nothing but the age differs, so that the pictures differ by it alone."""
    young, old = (np.asarray(generated.face(age, np.random.default_rng(5)), dtype=float) for age in (6, 80))
    same = np.asarray(generated.face(6, np.random.default_rng(5)), dtype=float)
    assert np.array_equal(young, same)
    assert np.abs(young - old).mean() > 5


@pytest.mark.slow
def test_pixels_alone_tell_more_than_the_median(tmp_path):
    """Ridge regression on 28 x 28 grey pixels: a test error of at least a fifth less."""
    generated.make(tmp_path / "faces", seed=0)
    found, _ = data.records(tmp_path / "faces")

    def part(split):
        chosen = [record for record in found if record.split == split]
        pixels = [Image.open(r.path).convert("L").resize((28, 28), Image.Resampling.BOX) for r in chosen]
        return np.stack([np.asarray(p).ravel() / 255 for p in pixels]), np.array([r.age for r in chosen])

    (train, ages), (test, wanted) = part("train"), part("test")
    middle = train.mean(0)
    gram = (train - middle).T @ (train - middle)
    weights = np.linalg.solve(gram + np.eye(len(gram)), (train - middle).T @ (ages - ages.mean()))
    error = np.abs((test - middle) @ weights + ages.mean() - wanted).mean()
    of_median = np.abs(np.median(ages) - wanted).mean()
    assert error < 0.8 * of_median
