"""Models that are no networks, as rows beside the methods: a constant, ridge regression and boosted trees.

They see what the networks of a run see: the same rows, filled in, scaled and encoded alike. What has to be chosen the
validation rows choose, as they choose the epoch of a network.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any

import numpy as np

from ordinal_entropy.tasks.tabular.inputs import Array, Part, Seen, require_sklearn

ROWS = {
    "hist-gradient-boosting": "gradient-boosted trees (scikit-learn's HistGradientBoostingRegressor)",
    "ridge": "linear regression with a penalty (scikit-learn's Ridge)",
    "constant": "the mean of the training targets",
}
_TREES = 500  # at most
_MANY = 20_000  # rows, from which on trees grow on all cores
_ALPHAS = np.logspace(-3, 5, 17)

Predict = Callable[[Array], Array]  # of inputs (n, i)


def fitted(name: str, seen: Seen, seed: int) -> Predict:
    """A model of :data:`ROWS`, fitted to the training rows of a run.

    Args:
        name: of the model.
        seen: the rows.
        seed: of its draws, where it has any.

    Example:
        >>> x = np.arange(6.0)[:, None]
        >>> rows = Seen(*(Part(x, 3 * x[:, 0]) for _ in range(3)), numbers=1, center=7.5, scale=5.1)
        >>> fitted("ridge", rows, seed=0)(np.array([[10.0]])).round(2), fitted("constant", rows, seed=0)(x)
        (array([30.]), array([7.5, 7.5, 7.5, 7.5, 7.5, 7.5]))
    """
    return {"hist-gradient-boosting": _boosted, "ridge": _ridge, "constant": _constant}[name](seen, seed)


def _constant(seen: Seen, seed: int) -> Predict:
    """The mean has the least squared error of all constants."""
    return lambda inputs: np.full(len(inputs), seen.center)


def _ridge(seen: Seen, seed: int) -> Predict:
    """Columns of variance 1, with the penalty of the lowest error on the validation rows."""
    require_sklearn()
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    inputs, targets = (np.asarray(each, dtype=np.float64) for each in seen.train)
    models = [make_pipeline(StandardScaler(), Ridge(alpha)).fit(inputs, targets) for alpha in _ALPHAS]
    best = min(models, key=lambda model: _error(model.predict(seen.validation.inputs), seen.validation))
    return lambda rows: np.asarray(best.predict(rows))


def _boosted(seen: Seen, seed: int) -> Predict:
    """scikit-learn's defaults, with as many trees as have the lowest error on the validation rows."""
    require_sklearn()
    from sklearn.ensemble import HistGradientBoostingRegressor

    model: Any = HistGradientBoostingRegressor(max_iter=_TREES, early_stopping=False, random_state=seed)
    with _threads(len(seen.train.targets)):
        model.fit(*seen.train)
        found = [_error(guess, seen.validation) for guess in model.staged_predict(seen.validation.inputs)]
    last = int(np.argmin(found))

    def predict(rows: Array) -> Array:
        with _threads(len(rows)):
            return np.asarray(next(islice(model.staged_predict(rows), last, None)))

    return predict


def _threads(rows: int) -> AbstractContextManager[Any]:
    """One thread for few rows: several wait for each other at every split, and for long on a busy machine."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1, user_api="openmp") if rows < _MANY else nullcontext()


def _error(predictions: Array, part: Part) -> float:
    return float(np.mean((predictions - part.targets) ** 2))
