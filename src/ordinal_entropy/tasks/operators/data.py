"""Rows for operator learning, made from a seed or read from the public files.

``linear``: the antiderivative of a Gaussian random field. ``nonlinear``: what the published files hold, statistics of
the solutions of a stochastic differential equation. ``nonlinear-paths``: the equation as the paper writes it.
"""

import hashlib
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ordinal_entropy import arrays, runs

Array = NDArray[Any]  # float64
Made = TypeVar("Made")

NAMES = ("linear", "nonlinear", "nonlinear-paths")
_FILES = ("train.npz", "test.npz")
_SDE_FILES = ("train_sde.npz", "test_sde.npz")
_VERSION = 2  # of the generators: part of the name of a cached file
_BATCH = 2000  # rows of a random field at a time
_GRID = 1000  # nodes of the field of ``linear``
_NODES = 100  # nodes of the equation
_JITTER = 1e-13  # on the diagonal of a covariance, so that it has a Cholesky factor


class Rows(NamedTuple):
    """Functions at their sensors ``(n, s)``, places ``(n, 1)`` and values there ``(n, 1)``."""

    functions: Array
    places: Array
    values: Array


def covariance(points: Array, length: float) -> Array:
    """``exp(-r^2 / (2 length^2))`` between all points ``(n,)``."""
    return np.exp(-((points[:, None] - points) ** 2) / (2 * length**2))


def linear(n: int, seed: int, *, sensors: int = 100, length: float = 0.2) -> Rows:
    """Rows ``u(sensors), x -> integral of u from 0 to x``, one place ``x ~ U(0, 1)`` for each function ``u``.

    ``u`` is the cubic spline through a Gaussian random field of unit variance on 1000 nodes, its integral exact: both
    are linear in the field, so the spline of each unit vector gives the weights of all rows.

    Example:
        >>> rows = linear(3, seed=0)
        >>> rows.functions.shape, rows.places.shape, rows.values.shape
        ((3, 100), (3, 1), (3, 1))
    """
    from scipy.interpolate import CubicSpline

    random = np.random.default_rng(seed)
    nodes = np.linspace(0, 1, _GRID)
    factor = np.linalg.cholesky(covariance(nodes, length) + _JITTER * np.eye(_GRID))
    spline = CubicSpline(nodes, np.eye(_GRID))
    at_sensors = spline(np.linspace(0, 1, sensors))  # (s, nodes)
    pieces = spline.antiderivative().c  # (5, nodes - 1, nodes): coefficients of each interval, highest power first
    functions, places, values = np.empty((n, sensors)), random.random((n, 1)), np.empty((n, 1))
    for start in range(0, n, _BATCH):
        some = slice(start, min(start + _BATCH, n))
        x = places[some, 0]
        field = random.standard_normal((len(x), _GRID)) @ factor.T
        functions[some] = field @ at_sensors.T
        interval = np.minimum((x * (_GRID - 1)).astype(int), _GRID - 2)
        offset = (x - nodes[interval])[:, None]
        weights = pieces[0, interval]
        for power in pieces[1:]:
            weights = weights * offset + power[interval]
        values[some, 0] = np.einsum("ij,ij->i", weights, field)
    return Rows(functions, places, values)


def modes(length: float, *, count: int = 8, sensors: int = 30) -> Array:
    """``sqrt(lambda_k) phi_k`` at the sensors, ``(count, sensors)``: the largest modes of a unit-variance field.

    By Nystroem's method on 100 nodes, with the signs that ``np.linalg.eig`` happens to give.
    """
    nodes = np.linspace(0, 1, _NODES)
    step = 1 / (_NODES - 1)
    weighted = covariance(nodes, length) * step
    weighted[:, [0, -1]] *= 0.5
    eigenvalues, eigenvectors = np.linalg.eig(weighted)
    order = np.argsort(-eigenvalues.real)[:count]
    largest, vectors = eigenvalues.real[order], eigenvectors.real[:, order]
    sizes = _integral(vectors.T**2, step)[:, -1]  # of the squares
    vectors = vectors * np.sqrt(np.maximum(largest, 0) / sizes)
    places = np.linspace(0, 1, sensors)
    return np.stack([np.interp(places, nodes, vector) for vector in vectors.T])


def solutions(paths: Array) -> Array:
    """``u`` with ``-(e^b u')' = 10`` and ``u(0) = u(1) = 0`` on the nodes, for each path ``b`` of ``(n, nodes)``."""
    nodes = np.linspace(0, 1, paths.shape[1])
    flow = np.exp(-paths)
    first, second = (_integral(integrand, nodes[1]) for integrand in (flow, 10 * nodes * flow))
    return second[:, -1:] / first[:, -1:] * first - second


def _integral(integrand: Array, step: float) -> Array:
    """From the first node to each, by the trapezoid rule."""
    out = np.zeros_like(integrand)
    np.cumsum((integrand[:, 1:] + integrand[:, :-1]) * (step / 2), axis=1, out=out[:, 1:])
    return out


def mean_solution(length: float, paths: int, random: np.random.Generator, *, sigma: float = 0.1) -> Array:
    """Mean ``(nodes,)`` of the solutions for so many paths of a field of this correlation length.

    The solution is ``C v - w`` with ``v`` and ``w`` linear in the flow ``e^-b``, and ``C`` a number of the path: so the
    flows are averaged, plainly and weighted by ``C``, and integrated once. The field is drawn in its principal
    components, as many as leave 1e-12 of its variance out.
    """
    nodes = np.linspace(0, 1, _NODES)
    variances, directions = np.linalg.eigh(covariance(nodes, length))
    kept = variances > 1e-12 * variances.sum()
    factor = (sigma * directions[:, kept] * np.sqrt(variances[kept])).T.astype(np.float32)  # (components, nodes)
    by_trapezoids = np.full(_NODES, nodes[1])
    by_trapezoids[[0, -1]] /= 2
    ends = np.stack([by_trapezoids, 10 * nodes * by_trapezoids], 1).astype(np.float32)  # of v and w at 1
    plain, weighted = np.zeros(_NODES), np.zeros(_NODES)
    for start in range(0, paths, _BATCH):
        some = min(_BATCH, paths - start)
        flow = np.exp(-(random.standard_normal((some, len(factor)), dtype=np.float32) @ factor))
        first, second = (flow @ ends).T
        plain += flow.sum(0, dtype=np.float64) / paths
        weighted += (second / first) @ flow / paths
    mean: Array = (_integral(weighted[None], nodes[1]) - _integral(10 * (nodes * plain)[None], nodes[1]))[0]
    return mean


def nonlinear(
    functions: int, seed: int, *, paths: int = 20_000, signs: str = "eig", sigma: float = 0.1, points: int = 10
) -> Rows:
    """Rows ``modes of a field, x -> mean of the solution at x`` over random fields of that correlation length.

    What the published files hold: each function is a correlation length ``l ~ U(0.2, 2)``, shown as its eight largest
    modes at 30 sensors; ``points`` rows in a block share it, with places among 100 nodes. The field is ``sigma`` times
    one of unit variance.

    Args:
        functions: how many; ``points`` times as many rows.
        seed: of lengths, places and paths.
        paths: solutions that a mean is taken over.
        signs: of the modes: "eig", whatever LAPACK gives, or "random".
        sigma: standard deviation of the field.
        points: rows of each function.
    """
    if signs not in ("eig", "random"):
        raise ValueError(f"expected signs to be 'eig' or 'random', got {signs!r}")
    nodes = np.linspace(0, 1, _NODES)

    def one(own: np.random.SeedSequence) -> tuple[Array, Array, Array]:
        random = np.random.default_rng(own)
        length = random.uniform(0.2, 2)
        at_sensors = modes(length)
        if signs == "random":
            at_sensors *= random.choice([-1.0, 1.0], size=(len(at_sensors), 1))
        chosen = random.choice(_NODES, size=points, replace=False)
        return at_sensors.reshape(-1), nodes[chosen], mean_solution(length, paths, random, sigma=sigma)[chosen]

    inputs, places, values = (np.stack(part) for part in zip(*_each(one, functions, seed), strict=True))
    return Rows(np.repeat(inputs, points, axis=0), places.reshape(-1, 1), values.reshape(-1, 1))


def nonlinear_paths(n: int, seed: int, *, sensors: int = 240, sigma: float = 0.1) -> Rows:
    """Rows ``b(sensors), x -> u(x)`` with ``(e^b u')' = 10``, one path ``b`` and one place each.

    The paper's own words, where its files hold something else: correlation lengths ``l ~ U(1, 2)``, the solution of the
    path itself. It does not say ``sigma``.
    """
    nodes = np.linspace(0, 1, _NODES)
    places = np.linspace(0, 1, sensors)

    def one(own: np.random.SeedSequence) -> tuple[Array, float, float]:
        random = np.random.default_rng(own)
        variances, directions = np.linalg.eigh(covariance(nodes, random.uniform(1, 2)))
        path = sigma * directions @ (np.sqrt(np.maximum(variances, 0)) * random.standard_normal(_NODES))
        chosen = random.integers(_NODES)
        return np.interp(places, nodes, path), nodes[chosen], -solutions(path[None])[0, chosen]

    functions, chosen, values = (np.array(part) for part in zip(*_each(one, n, seed), strict=True))
    return Rows(functions, chosen[:, None], values[:, None])


def _each(make: Callable[[np.random.SeedSequence], Made], count: int, seed: int) -> list[Made]:
    """What is made from so many seeds, on all cores."""
    from threadpoolctl import threadpool_limits

    # numpy computes outside the interpreter's lock; threads of its own would only be in each other's way
    with threadpool_limits(1), ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(make, np.random.SeedSequence(seed).spawn(count)))


def read(folder: Path) -> tuple[Rows, Rows]:
    """Training and test rows of a folder with ``train.npz`` and ``test.npz``, or the same with ``_sde``."""
    folder = Path(folder)
    for names in (_FILES, _SDE_FILES):
        if all(os.path.lexists(folder / name) for name in names):
            train, test = (_rows(folder / name, part) for name, part in zip(names, ("train", "test"), strict=True))
            if train.functions.shape[1] != test.functions.shape[1]:
                sizes = train.functions.shape[1], test.functions.shape[1]
                raise ValueError(
                    f"expected as many sensors in {names[0]} and {names[1]}, got {sizes[0]} and {sizes[1]}"
                )
            return train, test
    raise FileNotFoundError(
        f"expected train.npz and test.npz, or train_sde.npz and test_sde.npz, in {folder}, got "
        f"{', '.join(sorted(p.name for p in folder.glob('*.npz'))) or 'no .npz file'}"
    )


def _rows(path: Path, part: str) -> Rows:
    names = f"X_{part}0", f"X_{part}1", f"y_{part}"
    there = arrays.names(path)
    missing = [name for name in names if name not in there]
    if missing:
        raise ValueError(f"expected {', '.join(names)} in {path}, got no {', '.join(missing)}")
    found = arrays.load(path, names)
    for name in names:
        if found[name].dtype.kind not in "fiub" or not found[name].ndim:
            raise ValueError(f"expected rows of real numbers in {name} of {path}, got {found[name].dtype}")
    functions, places, values = (found[name].astype(np.float64) for name in names)
    places, values = places.reshape(len(places), -1), values.reshape(len(values), -1)
    shapes = functions.shape, places.shape, values.shape
    n = len(functions)
    if functions.ndim != 2 or places.shape != (n, 1) or values.shape != (n, 1):
        raise ValueError(
            f"expected {names[0]} (n, sensors), {names[1]} (n, 1) and {names[2]} (n, 1) in {path}, got {shapes}"
        )
    for name, array in zip(names, (functions, places, values), strict=True):
        if not np.isfinite(array).all():
            raise ValueError(
                f"expected finite numbers, got {int((~np.isfinite(array)).sum())} others in {name} of {path}"
            )
    return Rows(functions, places, values)


def write(folder: Path, name: str, train: Rows, test: Rows) -> None:
    """Writes the rows in the public layout; a file is there whole or not at all."""
    folder = Path(folder)
    for file, part, rows in zip(
        _FILES if name == "linear" else _SDE_FILES, ("train", "test"), (train, test), strict=True
    ):
        arrays = {f"X_{part}0": rows.functions, f"X_{part}1": rows.places, f"y_{part}": rows.values}
        with runs.replacing(folder / file) as unfinished:
            np.savez(unfinished, **arrays)  # type: ignore[arg-type,unused-ignore]


def generate(name: str, *, train: int, test: int, seed: int = 0, **options: float | str) -> tuple[Rows, Rows]:
    """Training and test rows of a generated set; for "nonlinear" the numbers count rows, ten of a function.

    Args:
        name: "linear", "nonlinear" or "nonlinear-paths".
        train: rows to train on.
        test: rows to test on.
        seed: training rows take it, test rows the next of its stream.
        options: of the generator.
    """
    if name not in NAMES:
        raise ValueError(f"expected one of {', '.join(NAMES)}, got {name!r}")
    seeds = np.random.SeedSequence(seed).generate_state(2)
    make = {"linear": linear, "nonlinear": nonlinear, "nonlinear-paths": nonlinear_paths}[name]
    share = int(options.get("points", 10)) if name == "nonlinear" else 1
    made = [make(-(-n // share), int(s), **options) for n, s in zip((train, test), seeds, strict=True)]  # type: ignore[operator,unused-ignore]
    return Rows(*(x[:train] for x in made[0])), Rows(*(x[:test] for x in made[1]))


def cached(
    folder: Path, name: str, *, train: int, test: int, seed: int = 0, **options: float | str
) -> tuple[Rows, Rows]:
    """What ``generate`` gives, out of a folder of the cache if it is there; else made and put there."""
    what = json.dumps([_VERSION, name, train, test, seed, sorted(options.items())])
    place = Path(folder) / f"{name}-{hashlib.sha256(what.encode()).hexdigest()[:16]}"
    try:
        return read(place)
    except (FileNotFoundError, ValueError):  # not there, or damaged
        made = generate(name, train=train, test=test, seed=seed, **options)
        write(place, name, *made)
        return made
