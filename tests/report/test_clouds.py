"""Which features are laid out, from where, and what the page's script gets of them."""

import base64

import numpy as np
import pytest

from ordinal_entropy.report import clouds
from ordinal_entropy.report.reading import read
from saved_folders import make_run, save_features

pytest.importorskip("safetensors", reason="saved features are safetensors")


@pytest.fixture
def kept(tmp_path):
    """Makes runs by method, with features, and reads them back."""

    def make(methods=("baseline", "oe"), **options):
        for method in methods:
            make_run(tmp_path / "runs" / method, method, 0, task=method)  # not alike, so that they stay runs
            save_features(tmp_path / "runs" / method, method, **options)
        return {run.method: run for run in read(tmp_path / "runs").runs}

    return make


def test_methods_and_epochs_are_laid_out_together(kept, tmp_path, quick_layout):
    told = []
    found = clouds.cloud(kept(epochs=(1, 2, 3, 4, 5, 6, 7)), tmp_path / "cache", lambda *done: told.append(done))
    content = found.content
    assert content["methods"] == ["baseline", "oe"] and content["epochs"] == [1, 3, 5, 7]
    assert content["rows"] == list(range(60)) and content["range"] == [1.0, 9.0]
    assert len(content["flat"][1][3]) == 2 * 60 and len(content["sphere"][1][3]) == 3 * 60
    points = np.array(content["sphere"][0][0]).reshape(-1, 3) / 1000
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1, atol=2e-3)
    assert max(abs(x) for own in content["flat"] for each in own for x in each) == 1000
    assert content["predictions"][0][0][0] == 1.5 and content["predictions"][1][3][0] == pytest.approx(1.071, abs=1e-3)
    assert told == [(1, 2), (2, 2)] and quick_layout == [2, 3]
    assert "all 60 rows, 4 of 7 epochs, 2 methods" in found.caption
    assert [row.name for row in found.table.rows][:3] == ["baseline, epoch 1", "baseline, epoch 7", "oe, epoch 1"]


def test_no_more_points_than_the_limit(kept, tmp_path, quick_layout):
    found = clouds.cloud(kept(rows=5000, epochs=(1, 2)), tmp_path / "cache")
    assert 2 * 2 * len(found.content["rows"]) <= clouds.POINTS and found.content["total"] == 5000
    assert "400 of 5,000 rows" in found.caption


def test_a_layout_is_computed_once_and_again_where_the_cache_is_broken(kept, tmp_path, quick_layout):
    runs = kept()
    first = clouds.cloud(runs, tmp_path / "cache")
    second = clouds.cloud(runs, tmp_path / "cache")
    assert quick_layout == [2, 3] and first == second
    for path in (tmp_path / "cache").iterdir():
        path.write_bytes(path.read_bytes()[:50])
    assert clouds.cloud(runs, tmp_path / "cache") == first and quick_layout == [2, 3, 2, 3]
    save_features(runs["oe"].path, "another method")
    clouds.cloud(runs, tmp_path / "cache")
    assert quick_layout == [2, 3, 2, 3, 2, 3]


def test_tsne_itself_lays_them_out(kept, tmp_path):
    pytest.importorskip("sklearn", reason="t-SNE is scikit-learn's")
    found = clouds.cloud(kept(epochs=(3,), rows=40), tmp_path / "cache")
    points = np.array(found.content["flat"][0][0]).reshape(-1, 2)
    assert points.std() > 50 and found.content["epochs"] == [3] and found.content["time"] == "step"


def test_one_image_is_a_map_of_its_places(kept, tmp_path, quick_layout):
    runs = kept(part="image", grid=(3, 5), epochs=(1,))
    (tmp_path / "runs" / "baseline" / "features" / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n...")
    content = clouds.cloud(runs, tmp_path / "cache").content
    grid = content["grid"]
    assert (grid["height"], grid["width"], grid["size"]) == (3, 5, [9, 17])
    assert grid["cells"] == list(range(15)) and grid["places"][6] == [4, 4]
    levels = list(base64.b64decode(grid["targets"]))
    assert levels[0] == 0 and levels[-1] == 254 and levels[7] == 127
    assert base64.b64decode(grid["predictions"][0][0])[0] == round(254 * 0.5 / 8)
    assert grid["thumbnail"].startswith("data:image/png;base64,")


@pytest.mark.parametrize("start, there", [(b"\xff\xd8\xff...", True), (b"<script>", False)])
def test_rows_that_are_images_come_with_a_sheet_of_them(kept, tmp_path, quick_layout, start, there):
    runs = kept()
    assert clouds.cloud(runs, tmp_path / "cache").content["sheet"] is None
    (tmp_path / "runs" / "baseline" / "features" / "test.jpg").write_bytes(start)
    sheet = clouds.cloud(runs, tmp_path / "cache").content["sheet"]
    assert (sheet is not None) is there and (not there or sheet["picture"].startswith("data:image/jpeg;base64,"))


def test_bytes_of_what_is_no_number_are_the_last():
    assert list(base64.b64decode(clouds._bytes(np.array([1.0, np.nan, 5.0, 3.0]), 1.0, 3.0))) == [0, 255, 254, 254]


def test_methods_that_do_not_fit_are_named_and_left_out(kept, tmp_path, quick_layout):
    runs = kept(("baseline", "oe", "ld"))
    save_features(runs["oe"].path, "oe", rows=50)
    found = clouds.cloud(runs, tmp_path / "cache")
    assert found.content["methods"] == ["baseline", "ld"] and "other rows: oe." in found.caption


def test_epochs_that_no_two_methods_share_and_broken_files_are_told(kept, tmp_path, quick_layout):
    runs = kept(epochs=(1,))
    (runs["oe"].path / "features" / "test-0001.safetensors").rename(
        runs["oe"].path / "features" / "test-0002.safetensors"
    )
    with pytest.raises(ValueError, match="after the same epochs of every method"):
        clouds.cloud(runs, tmp_path / "cache")
    (runs["oe"].path / "features" / "test-0001.safetensors").write_bytes(b"no")
    with pytest.raises(ValueError, match=r"expected saved features in test-0001\.safetensors"):
        clouds.cloud(runs, tmp_path / "cache")


def test_runs_without_features_have_no_cloud(tmp_path):
    make_run(tmp_path / "run", "oe", 0)
    assert clouds.cloud({run.method: run for run in read(tmp_path).runs}, tmp_path / "cache") is None


def test_distances_are_those_of_the_rows_that_are_drawn_and_have_a_target(kept, tmp_path, quick_layout):
    runs = kept(grid=(6, 8), part="image", epochs=(1, 4))
    found = clouds.cloud(runs, tmp_path / "cache").distances
    assert [series.methods[0] for series in found.panels[0].series] == ["baseline", "oe"]
    assert [row.name for row in found.table.rows] == ["baseline", "oe"]
    ranks = [float(row.cells[0]) for row in found.table.rows]
    assert all(0.5 < rank < 1 for rank in ranks)  # an arc of the targets, with noise
