"""The generators against what is known of their statistics; the public files."""

import math
import os
import subprocess
import sys
import zipfile

import numpy as np
import pytest

scipy = pytest.importorskip("scipy", reason="the splines are SciPy's")

from scipy.integrate import trapezoid  # noqa: E402
from scipy.interpolate import CubicSpline  # noqa: E402

from ordinal_entropy.tasks.operators import data  # noqa: E402


@pytest.fixture(scope="module")
def rows():
    return data.linear(20_000, seed=0)


def test_the_integral_has_the_variance_of_theory(rows):
    """E s^2 over x ~ U(0, 1) is 0.18069 for l = 0.2; another l or another law of x would show."""
    squares = rows.values**2
    assert squares.mean() == pytest.approx(0.18069, abs=4 * squares.std() / math.sqrt(len(squares)))
    centered = rows.values - rows.values.mean()
    assert (centered**4).mean() / rows.values.var() ** 2 == pytest.approx(4.59, abs=0.3)
    assert rows.places.mean() == pytest.approx(0.5, abs=0.01)


def test_sensors_have_the_covariance_of_the_kernel(rows):
    found = rows.functions.T @ rows.functions / len(rows.functions)
    expected = data.covariance(np.linspace(0, 1, 100), 0.2)
    assert np.abs(found - expected).max() < 5 * math.sqrt(2 / len(rows.functions))


@pytest.mark.parametrize("length", [0.02, 0.2, 1.0])
def test_terms_of_the_field_have_its_covariance_and_their_integrals_too(length):
    """Within 1e-12; the covariance of u(x) with the integral of u from 0 to y is a difference of error functions."""
    from scipy.special import erf

    points = np.linspace(0, 1, 101)
    terms, integrals = data.expansion(points, length)
    np.testing.assert_allclose(terms @ terms.T, data.covariance(points, length), rtol=0, atol=1e-12)
    scaled = points / (math.sqrt(2) * length)
    expected = math.sqrt(math.pi / 2) * length * (erf(scaled - scaled[:, None]) + erf(scaled)[:, None])
    np.testing.assert_allclose(terms @ integrals.T, expected, rtol=0, atol=1e-12)


def test_rows_of_the_linear_operator_are_those_of_their_seed():
    """Numbers that must never change without a new version of the cached files."""
    rows = data.linear(3, seed=0)
    np.testing.assert_allclose(rows.places[:, 0], [0.6369616873, 0.2697867138, 0.0409735239], rtol=0, atol=1e-9)
    np.testing.assert_allclose(rows.values[:, 0], [0.1953514955, 0.2692487893, -0.0069552169], rtol=0, atol=1e-9)
    expected = [[0.8885351225, -1.2959422997], [0.4856011105, 2.6396726335], [0.0281025560, 0.5739383898]]
    np.testing.assert_allclose(rows.functions[:, [0, 99]], expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_rows_of_the_linear_operator_do_not_depend_on_the_number_of_threads(rows, threads):
    from threadpoolctl import threadpool_limits

    with threadpool_limits(threads):
        again = data.linear(20_000, seed=0)
    for a, b in zip(rows, again, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-9)


def test_rows_do_not_depend_on_the_processor():
    """OpenBLAS with two threads and with the code that it has for an old processor; another BLAS ignores this."""
    from threadpoolctl import threadpool_limits

    script = (
        "import sys, numpy as np\n"
        "from ordinal_entropy.tasks.operators import data\n"
        "parts = [data.linear(200, seed=0), data.nonlinear(9, seed=0, paths=50, signs='random'),\n"
        "         data.nonlinear_paths(20, seed=0)]\n"
        "sys.stdout.buffer.write(np.concatenate([array.ravel() for rows in parts for array in rows]).tobytes())"
    )
    settings = {"OPENBLAS_NUM_THREADS": "2", "OPENBLAS_CORETYPE": "Prescott"}
    ended = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | settings, stdout=subprocess.PIPE, check=True
    )
    there = np.frombuffer(ended.stdout)
    with threadpool_limits(1):
        parts = [
            data.linear(200, seed=0),
            data.nonlinear(9, seed=0, paths=50, signs="random"),
            data.nonlinear_paths(20, seed=0),
        ]
    here = np.concatenate([array.ravel() for rows in parts for array in rows])
    np.testing.assert_allclose(here, there, rtol=0, atol=1e-6)


def test_the_integral_is_that_of_the_function_at_the_sensors(rows):
    sensors = np.linspace(0, 1, 100)
    some = [row[:300] for row in rows]
    spline = [CubicSpline(sensors, u).antiderivative()(x[0]) for u, x in zip(some[0], some[1], strict=True)]
    assert np.sqrt(np.mean((np.array(spline) - some[2][:, 0]) ** 2)) < 1e-7
    assert (np.abs(rows.values) <= rows.places * np.abs(rows.functions).max(1, keepdims=True) * 1.01).all()  # s(0) = 0


def test_trapezoids_over_the_sensors_nearly_give_the_integral(rows):
    """Rms 6e-5 and at most 2.5e-4 in an independent generator: a wrong place, length or integral would show."""
    sensors = np.linspace(0, 1, 100)
    errors = []
    for u, x, s in zip(*(part[:2000] for part in rows), strict=True):
        fine = np.append(sensors[sensors < x[0]], x[0])
        errors.append(trapezoid(np.interp(fine, sensors, u), fine) - s[0])
    assert 4e-5 < np.sqrt(np.mean(np.square(errors))) < 9e-5
    assert np.abs(errors).max() < 5e-4


@pytest.mark.slow
def test_targets_of_the_nonlinear_operator_are_spread_as_in_the_published_files():
    """Variance 0.147 and 0.150 in the two files, 3.8e-3 (rms) from a parabola, which no input but x is needed for."""
    rows = data.nonlinear(150, seed=3)
    assert rows.values.var() == pytest.approx(0.1485, abs=0.012)
    parabola = 5 * rows.places * (1 - rows.places)
    assert np.sqrt(np.mean((rows.values - parabola) ** 2)) == pytest.approx(3.8e-3, rel=0.15)


@pytest.mark.slow
def test_lengths_of_the_nonlinear_operator_are_uniform():
    """The first mode of a longer field is larger: its size tells the length, uniform from 0.2 to 2."""
    from scipy.stats import kstest

    lengths = np.linspace(0.2, 2, 181)
    sizes = [np.linalg.norm(data.modes(length)[0]) for length in lengths]
    assert (np.diff(sizes) > 0).all()
    first = data.nonlinear(300, seed=5, paths=1, points=1).functions[:, :30]
    found = np.interp(np.linalg.norm(first, axis=1), sizes, lengths)
    assert kstest(found, "uniform", args=(0.2, 1.8)).pvalue > 0.01
    assert kstest(found, "uniform", args=(1.0, 1.0)).pvalue < 1e-6


def test_without_a_field_the_solution_is_a_parabola():
    nodes = np.linspace(0, 1, 100)
    np.testing.assert_allclose(data.solutions(np.zeros((1, 100)))[0], 5 * nodes * (1 - nodes), atol=1e-12)


@pytest.mark.parametrize(
    "length, x, expected", [(0.8154, 0.9091, 0.414891), (0.5207, 0.5657, 1.232203), (1.6799, 0.4646, 1.249630)]
)
def test_mean_solutions_are_those_of_the_published_files(length, x, expected):
    mean = data.mean_solution(length, 20_000, np.random.default_rng(0))
    assert mean[round(99 * x)] == pytest.approx(expected, abs=4 * 6e-4)  # the noise of 20,000 paths


def test_modes_are_those_of_the_field():
    """All modes together give the covariance back: eight nearly do for a long correlation."""
    found = data.modes(0.8)
    expected = data.covariance(np.linspace(0, 1, 30), 0.8)
    np.testing.assert_allclose(found.T @ found, expected, atol=2e-3)


def test_rows_of_the_nonlinear_operator():
    rows = data.nonlinear(12, seed=1, paths=500)
    assert rows.functions.shape == (120, 240)
    blocks = rows.functions.reshape(12, 10, 240)
    assert (blocks == blocks[:, :1]).all()
    steps = 99 * rows.places.reshape(12, 10)
    np.testing.assert_allclose(steps, steps.round(), atol=1e-12)
    assert all(len(set(block.round())) == 10 for block in steps)
    parabola = 5 * rows.places * (1 - rows.places)
    assert np.sqrt(np.mean((rows.values - parabola) ** 2)) < 0.02
    turned = data.nonlinear(12, seed=1, paths=2, signs="random")
    assert (np.sign(turned.functions) < 0).any()
    with pytest.raises(ValueError, match="expected signs to be 'eig' or 'random', got 'plus'"):
        data.nonlinear(1, seed=0, signs="plus")


def test_rows_of_paths_solve_the_equation_of_the_paper():
    rows = data.nonlinear_paths(400, seed=0)
    parabola = -5 * rows.places * (1 - rows.places)  # the solution without a field; the paper's sign
    assert np.corrcoef(rows.values[:, 0], parabola[:, 0])[0, 1] > 0.9
    assert np.std(rows.values - parabola) > 0.01  # but each path has its own
    assert rows.functions.std() == pytest.approx(0.1, rel=0.2)


@pytest.mark.parametrize("name", data.NAMES)
def test_a_seed_gives_the_same_rows_again(name):
    options = {"paths": 20} if name == "nonlinear" else {}
    first, second = (data.generate(name, train=30, test=21, seed=3, **options) for _ in range(2))
    other = data.generate(name, train=30, test=21, seed=4, **options)
    for a, b, c in zip(first, second, other, strict=True):
        assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
        assert not np.array_equal(a.values, c.values)
    assert [len(rows.values) for rows in first] == [30, 21]
    assert not np.isin(first[1].values, first[0].values).any()


@pytest.mark.parametrize("name", data.NAMES)
def test_written_files_have_the_public_layout_and_come_back(name, tmp_path):
    options = {"paths": 20} if name == "nonlinear" else {}
    made = data.generate(name, train=20, test=10, **options)
    data.write(tmp_path, name, *made)
    ending = "" if name == "linear" else "_sde"
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"test{ending}.npz", f"train{ending}.npz"]
    with np.load(tmp_path / f"train{ending}.npz") as file:
        assert set(file) == {"X_train0", "X_train1", "y_train"}
    for a, b in zip(made, data.read(tmp_path), strict=True):
        assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def test_the_cache_makes_once_and_again_what_is_damaged(tmp_path, monkeypatch):
    first = data.cached(tmp_path, "linear", train=8, test=4)
    monkeypatch.setattr(data, "generate", None)
    again = data.cached(tmp_path, "linear", train=8, test=4)
    assert np.array_equal(first[0].functions, again[0].functions)
    monkeypatch.undo()
    next(tmp_path.glob("*/train.npz")).write_bytes(b"PK damaged")
    again = data.cached(tmp_path, "linear", train=8, test=4)
    assert np.array_equal(first[0].functions, again[0].functions)


def test_foreign_files_are_refused_with_a_reason(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"expected train\.npz and test\.npz, .* got no \.npz file"):
        data.read(tmp_path)
    data.write(tmp_path, "linear", *data.generate("linear", train=4, test=3))
    with np.load(tmp_path / "train.npz") as file:
        arrays = dict(file)
    np.savez(tmp_path / "train.npz", **{k: v for k, v in arrays.items() if k != "y_train"})
    with pytest.raises(ValueError, match="got no y_train"):
        data.read(tmp_path)
    np.savez(tmp_path / "train.npz", **(arrays | {"y_train": arrays["y_train"][:-1]}))
    with pytest.raises(ValueError, match=r"y_train \(n, 1\)"):
        data.read(tmp_path)
    np.savez(tmp_path / "train.npz", **(arrays | {"y_train": arrays["y_train"] * np.nan}))
    with pytest.raises(ValueError, match="got 4 others in y_train"):
        data.read(tmp_path)
    np.savez(tmp_path / "train.npz", **(arrays | {"X_train0": arrays["X_train0"][:, :50]}))
    with pytest.raises(ValueError, match="expected as many sensors"):
        data.read(tmp_path)
    (tmp_path / "train.npz").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="damaged"):
        data.read(tmp_path)
    with pytest.raises(ValueError, match="expected one of linear, nonlinear, nonlinear-paths, got 'cubic'"):
        data.generate("cubic", train=1, test=1)


def claiming(folder, shape):
    """A train.npz whose first array says it is larger than it is, in its own header only."""
    data.write(folder, "linear", *data.generate("linear", train=5, test=5))
    with zipfile.ZipFile(folder / "train.npz") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["X_train0.npy"] = members["X_train0.npy"].replace(
        b"(5, 100), }" + b" " * 20, repr(shape).encode().ljust(28) + b", }"
    )
    with zipfile.ZipFile(folder / "train.npz", "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def test_a_shape_that_is_not_there_is_not_allocated(tmp_path):
    claiming(tmp_path, (1000000, 1000000))
    with pytest.raises(ValueError, match=r"expected 8,000,000,000,128 bytes in X_train0 of .*train.npz"):
        data.read(tmp_path)


def test_objects_pipes_and_folders_in_place_of_rows_are_named(tmp_path):
    data.write(tmp_path, "linear", *data.generate("linear", train=5, test=5))
    objects = np.array([{}] * 5, object)
    np.savez(tmp_path / "train.npz", X_train0=objects, X_train1=objects, y_train=objects)
    with pytest.raises(ValueError, match=r"expected numbers in X_train0 of .*train.npz, got Python objects"):
        data.read(tmp_path)
    np.savez(tmp_path / "train.npz", X_train0=np.array(["a"]), X_train1=np.ones(1), y_train=np.ones(1))
    with pytest.raises(ValueError, match=r"expected rows of real numbers in X_train0 of .*train.npz, got <U1"):
        data.read(tmp_path)
    for make, kind in ((os.mkfifo, "a pipe"), (os.mkdir, "a folder")):
        (tmp_path / "train.npz").unlink()
        make(tmp_path / "train.npz")
        with pytest.raises(OSError, match=rf"expected a file in .*train.npz, got {kind}"):
            data.read(tmp_path)
