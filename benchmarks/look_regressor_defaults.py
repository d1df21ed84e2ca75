"""Which defaults of ``OrdinalEntropyRegressor`` predict best, over several tables, beside Ridge and gradient boosting?

    python benchmarks/look_regressor_defaults.py

R2 in 3-fold cross-validation, mean over the seeds of the folds, and seconds of a fit. The tables are scikit-learn's
diabetes and Friedman's function, and where ``ORDINAL_ENTROPY_DATA`` says that they are, four of UCI.
"""

import argparse
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ordinal_entropy.integrations.sklearn import OrdinalEntropyRegressor

import record

HERE = Path(__file__).parent
UCI = ("yacht", "energy", "concrete", "wine-quality-red")


def stopped(fraction: float, patience: int, **further: Any) -> dict[str, Any]:
    """Early stopping with so many rows held back and so much patience."""
    return {"early_stopping": True, "validation_fraction": fraction, "n_iter_no_change": patience, **further}


VARIANTS: dict[str, dict[str, Any]] = {
    "no early stopping": {"early_stopping": False},
    "0.1, 40 epochs": stopped(0.1, 40),
    "0.2, 40 epochs": stopped(0.2, 40),
    "0.2, 20 epochs": stopped(0.2, 20),
    "0.1, 40 epochs, at most 1,000": stopped(0.1, 40, epochs=1000),
    "0.1, 40 epochs, baseline": stopped(0.1, 40, method="baseline"),
}


def tables() -> dict[str, tuple[Any, Any]]:
    """Inputs and targets by name."""
    found = {
        "diabetes": load_diabetes(return_X_y=True),
        "friedman": make_friedman1(400, noise=1.0, random_state=0),
    }
    root = os.environ.get("ORDINAL_ENTROPY_DATA")
    for name in UCI if root else ():
        with np.load(Path(str(root)) / "uci" / f"{name}.npz") as content:
            found[name] = content["X"], content["y"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=HERE / "look_regressor_defaults.json")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    results: dict[str, dict[str, dict[str, float]]] = {}
    for name, (X, y) in tables().items():
        models: dict[str, Any] = {
            "ridge": lambda seed: make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13))),
            "hist-gradient-boosting": lambda seed: HistGradientBoostingRegressor(random_state=seed),
        }
        for variant, given in VARIANTS.items():
            models[variant] = lambda seed, given=given: OrdinalEntropyRegressor(random_state=seed, **given)
        results[name] = {}
        for variant, make in models.items():
            start = time.perf_counter()
            scores = [
                cross_val_score(make(seed), X, y, cv=KFold(3, shuffle=True, random_state=seed)).mean()
                for seed in range(options.seeds)
            ]
            seconds = (time.perf_counter() - start) / (3 * options.seeds)
            results[name][variant] = {"r2": round(float(np.mean(scores)), 4), "seconds": round(seconds, 3)}
            print(f"{name:18s} {variant:30s} {results[name][variant]}", flush=True)
        record.write(options.out, {"seeds": options.seeds, "results": results})  # as they come


if __name__ == "__main__":
    main()
