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
_VERSIONS = {"linear": 3, "nonlinear": 3, "nonlinear-paths": 2}  # of the generators: part of a cached file's name
_BATCH = 2000  # rows of a random field at a time
_NODES = 100  # nodes of the equation
_LEFT_OUT = 1e-14  # at most so much of the variance of the field of ``linear``


class Triplets(NamedTuple):
    """Functions at their sensors ``(n, s)``, places ``(n, 1)`` and values there ``(n, 1)``."""

    functions: Array
    places: Array
    values: Array


def covariance(points: Array, length: float) -> Array:
    """``exp(-r^2 / (2 length^2))`` between all points ``(n,)``."""
    return np.exp(-((points[:, None] - points) ** 2) / (2 * length**2))


def expansion(points: Array, length: float) -> tuple[Array, Array]:
    """Terms of a Gaussian random field and of their integrals, both ``(n, terms)``, at points ``(n,)`` of [0, 1].

    A field with ``covariance`` is the sum of its terms, each times a standard normal number. With
    ``t = (x - 1/2) / length``, term k is ``e^(-t^2 / 2) t^k / sqrt(k!)``: the series of ``e^(ts)`` in the covariance
    ``e^(-t^2 / 2) e^(ts) e^(-s^2 / 2)``. What is left out has the variance of a Poisson tail, below 1e-14 on [0, 1].
    Nothing is factorised: rounding alone depends on the machine.

    Returns:
        The terms, and their integrals from 0 to each point, by incomplete gamma functions.

    Example:
        >>> points = np.array([0.0, 0.3, 1.0])
        >>> terms, integrals = expansion(points, 0.2)
        >>> terms.shape, bool(np.allclose(terms @ terms.T, covariance(points, 0.2), rtol=0, atol=1e-13))
        ((3, 34), True)
    """
    from scipy.special import gammainc, gammaln, pdtrc, xlogy

    end = 0.5 / length
    count = 1
    while pdtrc(count - 1, end**2) >= _LEFT_OUT:
        count += 1
    power = np.arange(count)
    t = (points[:, None] - 0.5) / length
    terms = np.sign(t) ** power * np.exp(xlogy(power, np.abs(t)) - t**2 / 2 - gammaln(power + 1) / 2)
    # The integral of e^(-t^2 / 2) t^k from 0 to t is 2^((k - 1) / 2) times Gamma((k + 1) / 2, 0 to t^2 / 2).
    half = (power + 1) / 2
    size = length * np.exp((half - 1) * np.log(2) + gammaln(half) - gammaln(power + 1) / 2)
    from_middle = size * np.sign(t) ** (power + 1) * gammainc(half, t**2 / 2)
    to_start = size * (-1.0) ** (power + 1) * gammainc(half, end**2 / 2)
    return terms, from_middle - to_start


def linear(n: int, seed: int, *, sensors: int = 100, length: float = 0.2) -> Triplets:
    """Rows ``u(sensors), x -> integral of u from 0 to x``, one place ``x ~ U(0, 1)`` for each function ``u``.

    ``u`` is a Gaussian random field of unit variance, drawn in the terms of its ``expansion``; its integral is exact.
    The rows are a function of the arguments alone: those of other machines, BLAS libraries and numbers of threads
    differ by rounding.

    Example:
        >>> rows = linear(3, seed=0)
        >>> rows.functions.shape, rows.places.shape, rows.values.shape
        ((3, 100), (3, 1), (3, 1))
    """
    random = np.random.default_rng(seed)
    places = random.random((n, 1))
    at_sensors, _ = expansion(np.linspace(0, 1, sensors), length)  # (s, terms)
    _, integrals = expansion(places[:, 0], length)  # (n, terms)
    field = random.standard_normal(integrals.shape)
    return Triplets(field @ at_sensors.T, places, np.einsum("ij,ij->i", field, integrals)[:, None])


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
    components, as many as leave 1e-12 of its variance out, with the signs that ``np.linalg.eigh`` gives them: a LAPACK
    that gives others makes other draws.
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
) -> Triplets:
    """Rows ``modes of a field, x -> mean of the solution at x`` over random fields of that correlation length.

    What the published files hold: each function is a correlation length ``l ~ U(0.2, 2)``, shown as its eight largest
    modes at 30 sensors; ``points`` rows in a block share it, with places among 100 nodes. The field is ``sigma`` times
    one of unit variance.

    Args:
        functions: how many; ``points`` times as many rows.
        seed: of lengths, places and paths.
        paths: solutions that a mean is taken over.
        signs: of the modes: "eig", whatever LAPACK gives, or "random", drawn from the seed.
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
        if signs == "random":  # of modes that are positive at 0, whatever LAPACK gives
            at_sensors *= np.sign(at_sensors[:, :1]) * random.choice([-1.0, 1.0], size=(len(at_sensors), 1))
        chosen = random.choice(_NODES, size=points, replace=False)
        return at_sensors.reshape(-1), nodes[chosen], mean_solution(length, paths, random, sigma=sigma)[chosen]

    inputs, places, values = (np.stack(part) for part in zip(*_each(one, functions, seed), strict=True))
    return Triplets(np.repeat(inputs, points, axis=0), places.reshape(-1, 1), values.reshape(-1, 1))


def nonlinear_paths(n: int, seed: int, *, sensors: int = 240, sigma: float = 0.1) -> Triplets:
    """Rows ``b(sensors), x -> u(x)`` with ``(e^b u')' = 10``, one path ``b`` and one place each.

    The paper's own words, where its files hold something else: correlation lengths ``l ~ U(1, 2)``, the solution of the
    path itself. It does not say ``sigma``. Signs of principal components are LAPACK's, as in ``mean_solution``.
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
    return Triplets(functions, chosen[:, None], values[:, None])


def _each(make: Callable[[np.random.SeedSequence], Made], count: int, seed: int) -> list[Made]:
    """What is made from so many seeds, on all cores."""
    from threadpoolctl import threadpool_limits

    # numpy computes outside the interpreter's lock; threads of its own would only be in each other's way
    with threadpool_limits(1), ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(make, np.random.SeedSequence(seed).spawn(count)))


def read(folder: Path) -> tuple[Triplets, Triplets]:
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


def _rows(path: Path, part: str) -> Triplets:
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
    return Triplets(functions, places, values)


def write(folder: Path, name: str, train: Triplets, test: Triplets) -> None:
    """Writes the rows in the public layout; a file is there whole or not at all."""
    folder = Path(folder)
    runs.remove_leftovers(folder)
    for file, part, rows in zip(
        _FILES if name == "linear" else _SDE_FILES, ("train", "test"), (train, test), strict=True
    ):
        arrays = {f"X_{part}0": rows.functions, f"X_{part}1": rows.places, f"y_{part}": rows.values}
        with runs.replacing(folder / file) as unfinished:
            np.savez(unfinished, **arrays)  # type: ignore[arg-type,unused-ignore]


def generate(name: str, *, train: int, test: int, seed: int = 0, **options: float | str) -> tuple[Triplets, Triplets]:
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
    return Triplets(*(x[:train] for x in made[0])), Triplets(*(x[:test] for x in made[1]))


def cached(
    folder: Path, name: str, *, train: int, test: int, seed: int = 0, **options: float | str
) -> tuple[Triplets, Triplets]:
    """What ``generate`` gives, out of a folder of the cache if it is there; else made and put there."""
    what = json.dumps([_VERSIONS.get(name), name, train, test, seed, sorted(options.items())])
    place = Path(folder) / f"{name}-{hashlib.sha256(what.encode()).hexdigest()[:16]}"
    try:
        return read(place)
    except (FileNotFoundError, ValueError):  # not there, or damaged
        made = generate(name, train=train, test=test, seed=seed, **options)
        write(place, name, *made)
        return made
