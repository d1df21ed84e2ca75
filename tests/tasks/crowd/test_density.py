"""Density maps: against SciPy's filter and plain loops, their sums, their edges, their cache."""

import math
import os
import threading
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("scipy", reason="the filter that maps are compared with")
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter

from ordinal_entropy.tasks.crowd import data, density
from ordinal_entropy.tasks.crowd.density import DensityOptions

FULL = DensityOptions(stride=1)


def crowd(n, height, width, seed=0):
    return np.random.default_rng(seed).random((n, 2)) * (width, height)


def loop_sigmas(points):
    """0.1 times the distances to the three nearest neighbours, of at least four points."""
    found = []
    for i, one in enumerate(points):
        distances = sorted(math.dist(one, other) for j, other in enumerate(points) if j != i)
        found.append(0.1 * sum(distances[:3]))
    return found


def by_filter(points, height, width, sigmas, border):
    """One image with one pixel set, and one filter over all of it, for each point."""
    found = np.zeros((height, width))
    for (x, y), sigma in zip(points, sigmas, strict=True):
        one = np.zeros((height, width))
        one[int(y), int(x)] = 1
        one = gaussian_filter(one, sigma, mode="constant", truncate=4)
        found += one if border == "lost" else one / one.sum()
    return found


def cell_sums(full, stride):
    height, width = full.shape
    found = np.zeros((math.ceil(height / stride), math.ceil(width / stride)))
    for y in range(height):
        for x in range(width):
            found[y // stride, x // stride] += full[y, x]
    return found


@pytest.mark.parametrize("border", ["kept", "lost"])
@pytest.mark.parametrize(("height", "width"), [(40, 56), (37, 51)])
def test_adaptive_against_the_filter(height, width, border):
    points = crowd(30, height, width)
    wanted = by_filter(points, height, width, loop_sigmas(points), border)
    found = density.density(points, height, width, DensityOptions(border=border, stride=1))
    assert found.dtype == np.float32 and found.shape == (height, width)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-8)
    cells = density.density(points, height, width, DensityOptions(border=border))
    np.testing.assert_allclose(cells, cell_sums(wanted, 8), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("border", ["kept", "lost"])
def test_fixed_against_the_filter(border):
    points = crowd(12, 60, 90)
    wanted = by_filter(points, 60, 90, [4.0] * 12, border)
    for stride in (1, 4, 7):
        found = density.density(points, 60, 90, DensityOptions(kernel="fixed", sigma=4.0, border=border, stride=stride))
        np.testing.assert_allclose(found, cell_sums(wanted, stride), rtol=1e-5, atol=1e-7)


def test_lost_is_one_filter_over_all_points_as_published():
    points = crowd(25, 48, 64)
    image = np.zeros((48, 64))
    np.add.at(image, (points[:, 1].astype(int), points[:, 0].astype(int)), 1)
    wanted = gaussian_filter(image, 5.0, mode="constant")
    found = density.density(points, 48, 64, DensityOptions(kernel="fixed", sigma=5.0, border="lost", stride=1))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-8)


def test_the_usual_sigma_is_15():
    points = crowd(5, 200, 200)
    found = density.density(points, 200, 200, DensityOptions(kernel="fixed", stride=1))
    np.testing.assert_allclose(found, by_filter(points, 200, 200, [15.0] * 5, "kept"), rtol=1e-5, atol=1e-9)


options = st.builds(
    DensityOptions,
    kernel=st.sampled_from(["adaptive", "fixed"]),
    sigma=st.floats(0.1, 40),
    border=st.just("kept"),
    stride=st.integers(1, 9),
)


@given(n=st.integers(0, 60), height=st.integers(1, 70), width=st.integers(1, 70), how=options, seed=st.integers(0, 99))
def test_a_map_sums_to_its_count(n, height, width, how, seed):
    points = crowd(n, height, width, seed)
    points[: n // 4] = points[n // 2 : n // 2 + n // 4]  # some twice
    found = density.density(points, height, width, how)
    assert found.shape == (math.ceil(height / how.stride), math.ceil(width / how.stride))
    assert found.sum(dtype=np.float64) == pytest.approx(n, rel=1e-5)
    assert (found >= 0).all()
    lost = density.density(points, height, width, DensityOptions(how.kernel, how.sigma, "lost", how.stride))
    assert lost.sum(dtype=np.float64) <= n * (1 + 1e-5)


@given(n=st.integers(1, 40), seed=st.integers(0, 99), how=options)
def test_the_order_of_points_and_turning_the_image_do_not_matter(n, seed, how):
    points = np.floor(crowd(n, 40, 64, seed)) + 0.5
    found = density.density(points, 40, 64, how)
    np.testing.assert_allclose(density.density(points[::-1], 40, 64, how), found, rtol=1e-4, atol=1e-6)
    turned = density.density(points[:, ::-1], 64, 40, how)
    np.testing.assert_allclose(turned.T, found, rtol=1e-4, atol=1e-6)


def test_more_points_than_a_block(monkeypatch):
    points = crowd(50, 40, 40)
    wanted = density.density(points, 40, 40)
    monkeypatch.setattr(density, "_BLOCK", 7)
    np.testing.assert_allclose(density.density(points, 40, 40), wanted, rtol=1e-5, atol=1e-7)


def test_nobody():
    for how in (
        DensityOptions(),
        DensityOptions(kernel="fixed"),
        DensityOptions(border="lost"),
        DensityOptions(reduce="bicubic"),
    ):
        found = density.density(np.zeros((0, 2)), 33, 40, how)
        assert found.shape == ((4, 5) if how.reduce == "bicubic" else (5, 5)) and not found.any()


def test_few_points():
    assert density.sigmas(np.zeros((0, 2)), 30, 50).shape == (0,)
    assert density.sigmas(np.array([[3.0, 4.0]]), 30, 50).tolist() == [10]  # a quarter of the mean side
    assert density.sigmas(np.array([[0.0, 0.0], [3.0, 4.0]]), 30, 50) == pytest.approx([1.5, 1.5])
    three = density.sigmas(np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 10.0]]), 30, 50)
    assert three[0] == pytest.approx(0.3 * (5 + 10) / 2)
    points = crowd(20, 30, 50)
    assert density.sigmas(points, 30, 50) == pytest.approx(loop_sigmas(points))


def test_points_that_coincide_all_count():
    points = np.array([[10.2, 5.7]] * 6)
    found = density.density(points, 12, 20, FULL)
    assert found[5, 10] == 6 and found.sum() == 6
    assert not density.sigmas(points, 12, 20).any()


def test_points_beyond_the_border():
    points = np.array([[-0.5, 3.0], [20.0, 11.5], [500.0, -9.0]])
    found = density.density(points, 12, 20, DensityOptions(kernel="fixed", sigma=0.1, stride=1))
    assert found[3, 0] == found[11, 19] == found[0, 19] == 1 and found.sum() == 3
    assert not density.density(points, 12, 20, DensityOptions(kernel="fixed", sigma=0.1, stride=1, border="lost")).any()


def test_a_point_in_the_corner():
    """A quarter of it is inside, and the rows and columns through its middle."""
    corner = np.array([[0.0, 0.0]])
    lost = density.density(corner, 60, 60, DensityOptions(kernel="fixed", sigma=5.0, border="lost")).sum()
    assert lost == pytest.approx((0.5 + 0.5 / (5 * math.sqrt(2 * math.pi))) ** 2, rel=1e-3)
    assert density.density(corner, 60, 60, DensityOptions(kernel="fixed", sigma=5.0)).sum() == pytest.approx(1)


def cubic(distance):
    """The weight of a pixel at this distance, with a = -0.75."""
    t = abs(distance)
    if t < 1:
        return 1.25 * t**3 - 2.25 * t**2 + 1
    return -0.75 * (t**3 - 5 * t**2 + 8 * t - 4) if t < 2 else 0.0


def resized(full, height, width):
    found = np.zeros((height, width))
    for i in range(height):
        for j in range(width):
            y, x = (i + 0.5) * full.shape[0] / height - 0.5, (j + 0.5) * full.shape[1] / width - 0.5
            for p in range(math.floor(y) - 1, math.floor(y) + 3):
                for q in range(math.floor(x) - 1, math.floor(x) + 3):
                    value = full[min(max(p, 0), full.shape[0] - 1), min(max(q, 0), full.shape[1] - 1)]
                    found[i, j] += cubic(y - p) * cubic(x - q) * value
    return found


@pytest.mark.parametrize(("height", "width"), [(40, 56), (37, 51), (8, 8)])
@pytest.mark.parametrize("border", ["kept", "lost"])
def test_bicubic_against_loops(height, width, border):
    points = crowd(20, height, width)
    full = density.density(points, height, width, DensityOptions(border=border, stride=1)).astype(float)
    found = density.density(points, height, width, DensityOptions(border=border, reduce="bicubic"))
    assert found.shape == (height // 8, width // 8) and found.dtype == np.float32
    np.testing.assert_allclose(found, 64 * resized(full, height // 8, width // 8), rtol=1e-4, atol=1e-5)


def test_bicubic_at_stride_1_changes_nothing():
    points = crowd(20, 30, 40)
    how = DensityOptions(stride=1, reduce="bicubic")
    assert np.array_equal(density.density(points, 30, 40, how), density.density(points, 30, 40, FULL))


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"kernel": "adaptiv"}, "expected a kernel like 'adaptive', got 'adaptiv'"),
        ({"border": "cut"}, "the name of a border, got 'cut'; there are kept, lost"),
        ({"reduce": "mean"}, "the name of a reduce, got 'mean'; there are sum, bicubic"),
        ({"sigma": 0.0}, "expected a sigma above 0, got 0.0"),
        ({"sigma": math.nan}, "expected a sigma above 0, got nan"),
        ({"sigma": math.inf}, "expected a sigma above 0, got inf"),
        ({"stride": 0}, "expected a stride of at least 1, got 0"),
    ],
)
def test_settings_that_cannot_be(how, said):
    with pytest.raises(ValueError, match=said):
        DensityOptions(**how)


def test_points_and_images_that_cannot_be():
    for call in (density.density, density.sigmas, density.cached):
        with pytest.raises(ValueError, match=r"expected points \(n, 2\), got \(3,\)"):
            call(np.zeros(3), 8, 8)
        with pytest.raises(ValueError, match=r"expected points \(n, 2\), got \(2, 3\)"):
            call(np.zeros((2, 3)), 8, 8)
        with pytest.raises(ValueError, match="expected finite points, got 2 others"):
            call(np.array([[0, 0], [np.nan, 1], [1, np.inf]]), 8, 8)
        with pytest.raises(ValueError, match="expected an image of at least a pixel, got 0 x 8"):
            call(np.zeros((1, 2)), 8, 0)
    with pytest.raises(ValueError, match="expected an image of at least 8 x 8 to resize"):
        density.density(np.zeros((1, 2)), 7, 20, DensityOptions(reduce="bicubic"))


@pytest.fixture
def made(monkeypatch):
    """How often a map was made anew."""
    count = []
    original = density.density
    monkeypatch.setattr(density, "density", lambda *given: count.append(1) or original(*given))
    return count


def test_a_cached_map_is_made_once(tmp_path, made):
    points = crowd(9, 30, 40)
    first = density.cached(points, 30, 40, folder=tmp_path / "new")
    again = density.cached(points.copy(), 30, 40, folder=tmp_path / "new")
    assert len(made) == 1 and np.array_equal(first, again) and first.dtype == again.dtype == np.float32
    assert len(list((tmp_path / "new").iterdir())) == 1


def test_whatever_a_map_depends_on_makes_another(tmp_path, made):
    points = crowd(9, 30, 40)
    moved, fewer = points + 0.25, points[:-1]
    calls = [
        (points, 30, 40, DensityOptions()),
        (moved, 30, 40, DensityOptions()),
        (fewer, 30, 40, DensityOptions()),
        (points, 40, 30, DensityOptions()),
        (points, 30, 40, DensityOptions(kernel="fixed")),
        (points, 30, 40, DensityOptions(kernel="fixed", sigma=3.0)),
        (points, 30, 40, DensityOptions(border="lost")),
        (points, 30, 40, DensityOptions(stride=4)),
        (points, 30, 40, DensityOptions(reduce="bicubic")),
    ]
    for _ in range(2):
        for call in calls:
            found = density.cached(*call, folder=tmp_path)
            assert np.array_equal(found, density.density(*call))
    assert len(list(tmp_path.iterdir())) == len(calls)
    assert len(made) == len(calls) * 3  # twice here for the comparison, once inside


def test_a_damaged_file_is_made_anew(tmp_path, made):
    points = crowd(9, 30, 40)
    whole = density.cached(points, 30, 40, folder=tmp_path)
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    with file.open("wb") as other:
        np.save(other, np.array({"not": "numbers"}, dtype=object))
    pickled = file.read_bytes()
    with file.open("wb") as other:
        np.save(other, np.zeros((4, 5, 6)))
    for count, damaged in enumerate([b"", content[:50], content[:-9], b"x" * 400, pickled, file.read_bytes()], start=2):
        file.write_bytes(damaged)
        assert np.array_equal(density.cached(points, 30, 40, folder=tmp_path), whole)
        assert len(made) == count
        assert file.read_bytes() == content


def test_a_stop_while_writing_leaves_nothing(tmp_path, monkeypatch):
    def stop(*given, **options):
        raise KeyboardInterrupt

    points = crowd(9, 30, 40)
    with monkeypatch.context() as patched:
        patched.setattr(np, "save", stop)
        with pytest.raises(KeyboardInterrupt):
            density.cached(points, 30, 40, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_cache_of_the_package(tmp_path, monkeypatch):
    monkeypatch.setenv("ORDINAL_ENTROPY_CACHE", str(tmp_path))
    density.cached(crowd(3, 30, 40), 30, 40)
    assert len(list((tmp_path / "density").glob("*.npy"))) == 1


def test_many_at_once(tmp_path):
    points = [crowd(n, 30 + n, 40, seed=n) for n in range(20)]
    sizes = [(30 + n, 40) for n in range(20)]
    told = []
    found = density.all_cached(points, sizes, folder=tmp_path, progress=lambda *now: told.append(now))
    assert told == [(k, 20) for k in range(1, 21)]
    for n, each in enumerate(found):
        np.testing.assert_allclose(each, density.density(points[n], *sizes[n]), rtol=1e-6)
    assert density.all_cached([], []) == []
    with pytest.raises(ValueError, match="expected sizes of 20 images, got 3"):
        density.all_cached(points, sizes[:3], folder=tmp_path)


def test_two_that_write_the_same_map(tmp_path):
    points, found = crowd(200, 200, 200), []
    threads = [
        threading.Thread(target=lambda: found.append(density.cached(points, 200, 200, folder=tmp_path)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and len(list(tmp_path.iterdir())) == 1


@pytest.fixture
def part_a():
    place = os.environ.get("ORDINAL_ENTROPY_DATA")
    if not place or not (Path(place) / "ShanghaiTech" / "part_A").is_dir():
        pytest.skip("real crowds are read from $ORDINAL_ENTROPY_DATA/ShanghaiTech/part_A")
    return Path(place) / "ShanghaiTech" / "part_A"


@pytest.mark.slow
def test_real_maps_sum_to_their_counts(part_a, tmp_path):
    from PIL import Image

    found, _ = data.records(part_a)
    sizes = []
    for record in found:
        with Image.open(record.path) as image:
            sizes.append(image.size[::-1])
    for how in (DensityOptions(), DensityOptions(kernel="fixed")):
        maps = density.all_cached([record.points for record in found], sizes, how, folder=tmp_path)
        for record, each in zip(found, maps, strict=True):
            assert each.sum(dtype=np.float64) == pytest.approx(len(record.points), rel=1e-5)
