"""The generated set: the layout, the same for a seed, whole or not there, and something to learn from it."""

from collections import Counter

import numpy as np
import pytest

pytest.importorskip("PIL", reason="crowds are drawn with Pillow")
pytest.importorskip("scipy", reason="MATLAB files are written with SciPy")
from PIL import Image
from scipy.io import loadmat

from ordinal_entropy.tasks.crowd import data, generated
from ordinal_entropy.vision import images


def content(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def crowds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "crowds"
    generated.make(folder, seed=1, count=30)
    return folder


def test_it_is_whole_and_in_the_layout_of_shanghaitech(crowds):
    assert data.check(crowds) == []
    found, _ = data.records(crowds)
    assert Counter(record.split for record in found) == {"train": 18, "val": 2, "test": 10}
    assert sorted(path.name for path in crowds.iterdir()) == ["test_data", "train_data"]
    assert all(images.read(record.path).shape == (192, 256, 3) for record in found)
    assert len(content(crowds)) == 60


def test_scipy_reads_the_points_as_those_of_the_real_set(crowds):
    for record in data.records(crowds)[0]:
        path = record.path.parents[1] / "ground-truth" / f"GT_{record.path.stem}.mat"
        location, number = loadmat(path)["image_info"][0, 0][0, 0]
        assert number.item() == len(record.points)
        assert np.array_equal(location, record.points) or not location.size + record.points.size


def test_the_same_for_a_seed_and_another_for_another(crowds, tmp_path):
    generated.make(tmp_path / "again", seed=1, count=30)
    assert content(tmp_path / "again") == content(crowds)
    generated.make(tmp_path / "other", seed=2, count=10)
    other = content(tmp_path / "other")
    assert other.keys() < content(crowds).keys()
    assert all(content(crowds)[name] != whole for name, whole in other.items())


def test_counts_vary():
    people = generated.long_tailed(20_000, np.random.default_rng(0))
    assert people.min() == 0 and people.max() == generated.MOST
    assert (people == 0).sum() > 200 and (people > 200).sum() > 2_000
    assert np.median(people) < people.mean()


@pytest.mark.parametrize("people", [0, 1, 7, 150])
def test_as_many_points_as_people_inside_the_image_and_apart(people):
    for seed in range(3):
        image, points = generated.crowd(people, np.random.default_rng(seed))
        assert image.size == (256, 192) and points.shape == (people, 2)
        assert ((points >= 0) & (points < (256, 192))).all()
        apart = np.hypot(*(points[:, None] - points).transpose(2, 0, 1)) + 99 * np.eye(people)
        assert not people or apart.min() > 1.7  # heads of a radius of one pixel or more


def test_where_there_is_no_room_there_are_fewer():
    _, points = generated.crowd(1_000, np.random.default_rng(0))
    assert 200 < len(points) < 1_000


def test_heads_are_larger_near_the_bottom():
    camera = generated.Camera(far=2.0, near=8.0, top=50.0)
    assert camera.radius(50.0) == 2 and camera.radius(generated.HEIGHT) == 8
    assert camera.radius(100.0) < camera.radius(150.0)


def test_a_point_lies_on_a_head():
    """Nothing but the people differs, so that the pictures differ where they are."""
    image, points = generated.crowd(40, np.random.default_rng(3))
    pixels = np.asarray(image, dtype=float)
    ground = np.median(pixels[120:], axis=(0, 1))
    rows, columns = points.astype(int).T[::-1]
    at_heads = np.abs(pixels[rows, columns] - ground).mean()
    assert at_heads > 2 * np.abs(pixels[100:] - ground).mean()


def test_an_empty_folder_will_do_and_a_full_one_will_not(tmp_path):
    (tmp_path / "empty").mkdir()
    generated.make(tmp_path / "empty", count=10)
    before = content(tmp_path / "empty")
    with pytest.raises(ValueError, match=r"expected an empty folder, or none yet, got .*empty, which is not empty"):
        generated.make(tmp_path / "empty", count=10)
    assert content(tmp_path / "empty") == before
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="which is a file"):
        generated.make(tmp_path / "file")


def test_what_cannot_be_made(tmp_path):
    with pytest.raises(ValueError, match="expected a count of at least 10 images, got 9"):
        generated.make(tmp_path / "crowds", count=9)
    with pytest.raises(ValueError, match="expected a seed of at least 0, got -1"):
        generated.make(tmp_path / "crowds", seed=-1)
    assert list(tmp_path.iterdir()) == []


def test_a_stop_leaves_nothing_that_passes_as_whole(tmp_path):
    def stop(done, total):
        assert total == 12
        if done == 9:
            with pytest.raises(FileNotFoundError):  # as after a stop without a last word
                data.records(tmp_path / "crowds")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generated.make(tmp_path / "crowds", count=12, progress=stop)
    assert list((tmp_path / "crowds").iterdir()) == []
    generated.make(tmp_path / "crowds", count=12)
    assert data.check(tmp_path / "crowds") == []


@pytest.mark.slow
def test_edges_alone_tell_more_than_the_mean(tmp_path):
    """Ridge regression on how many edges there are in each of 16 strips: at least 30% less error."""
    generated.make(tmp_path / "crowds")
    found, _ = data.records(tmp_path / "crowds")

    def part(chosen):
        pixels = [np.asarray(Image.open(r.path).convert("L"), dtype=float) / 255 for r in chosen]
        edges = [np.abs(np.diff(each, axis=1)).reshape(16, -1).mean(1) for each in pixels]
        return np.stack([np.append(each, 1) for each in edges]), np.array([len(r.points) for r in chosen])

    train, counts = part([r for r in found if r.split != "test"])
    test, wanted = part([r for r in found if r.split == "test"])
    weights = np.linalg.solve(train.T @ train + 1e-3 * np.eye(17), train.T @ counts)
    assert np.abs(test @ weights - wanted).mean() < 0.7 * np.abs(counts.mean() - wanted).mean()
