"""A generated table of houses: numbers, categories and missing values, and a price that follows from them."""

import csv
import io
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ordinal_entropy import runs
from ordinal_entropy.files import require_empty

FILE, TARGET = "houses.csv", "price"
COLUMNS = ("area", "rooms", "year", "distance", "garden", "district", "heating", TARGET)
_LEAST = 50
_DISTRICTS = {"Altstadt": 1.35, "Hafen": 1.2, "Nord": 0.95, "Ost": 0.85, "Seeufer": 1.6, "Tal": 1.0}  # price level
_HEATINGS = {"gas": 1.0, "oil": 0.96, "heat pump": 1.06, "district": 1.03}
_MISSING = {"year": 0.08, "garden": 0.15, "heating": 0.1}  # share of the rows


def houses(count: int, seed: int) -> list[list[str]]:
    """Rows of text with the cells of ``COLUMNS``; the price is in thousands.

    Example:
        >>> dict(zip(COLUMNS, houses(3, seed=0)[0]))
        {'area': '104', 'rooms': '4', 'year': '1962', 'distance': '2.7', 'garden': '116', 'district': 'Ost', ...}
    """
    random = np.random.default_rng([seed, 0])
    area = np.clip(random.lognormal(4.6, 0.35, count), 25, 400)
    rooms = np.clip(np.rint(area / 28 + random.normal(0, 0.8, count)), 1, 12)
    year = random.integers(1900, 2024, count)
    distance = random.gamma(2.0, 3.0, count)
    garden = np.where(random.random(count) < 0.3, 0, random.gamma(2.0, 90.0, count))
    district = random.choice(list(_DISTRICTS), count, p=[0.12, 0.1, 0.28, 0.25, 0.05, 0.2])
    heating = random.choice(list(_HEATINGS), count, p=[0.5, 0.25, 0.15, 0.1])
    charm = 1 + 0.15 * np.cos((year - 1900) / 124 * 2 * np.pi)  # the oldest and the newest cost more
    level = np.array([_DISTRICTS[name] for name in district]) * np.array([_HEATINGS[name] for name in heating])
    price = area * level * charm * (1.5 + 3.5 * np.exp(-distance / 4)) + 25 * np.sqrt(garden) / (1 + distance / 5)
    price *= np.exp(random.normal(0, 0.06, count))
    cells = {
        "area": [f"{value:.0f}" for value in area],
        "rooms": [f"{value:.0f}" for value in rooms],
        "year": [f"{value}" for value in year],
        "distance": [f"{value:.1f}" for value in distance],
        "garden": [f"{value:.0f}" for value in garden],
        "district": district.tolist(),
        "heating": heating.tolist(),
        TARGET: [f"{value:.1f}" for value in price],
    }
    for name, share in _MISSING.items():
        absent = random.random(count) < share
        cells[name] = ["" if no else cell for cell, no in zip(cells[name], absent, strict=True)]
    return [list(row) for row in zip(*(cells[name] for name in COLUMNS), strict=True)]


def make(
    folder: str | os.PathLike[str],
    seed: int = 0,
    count: int = 1000,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Writes ``houses.csv``, the same for the same seed.

    Args:
        folder: where; made if it is missing, refused if anything is in it.
        seed: of the houses.
        count: of rows, at least 50.
        progress: is told when all are written.
    """
    folder = Path(folder)
    if count < _LEAST:
        raise ValueError(f"expected a count of at least {_LEAST} rows, got {count}")
    if seed < 0:
        raise ValueError(f"expected a seed of at least 0, got {seed}")
    require_empty(folder)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(houses(count, seed))
    with runs.replacing(folder / FILE) as file:
        file.write(text.getvalue().encode())
    if progress is not None:
        progress(count, count)
