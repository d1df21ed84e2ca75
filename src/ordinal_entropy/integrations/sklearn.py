"""A regressor for tables that scikit-learn's tools take as one of their own.

A table is taken as what it says: distinct rows, each with a weight. Equal rows are joined and their weights added, and
the rows are sorted. So a row of weight 2 is that row twice, a row of weight 0 is none, and the order of the rows does
not matter: to the last bit, in batches and with early stopping too.
"""

import copy
import itertools
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ordinal_entropy import methods
from ordinal_entropy.balance import FRACTION
from ordinal_entropy.methods import Batch, Composition, Method
from ordinal_entropy.methods.averaging import Average
from ordinal_entropy.methods.contract import overrides
from ordinal_entropy.models.embeddings import Piecewise, pieces_of
from ordinal_entropy.models.tabm import NETWORKS, SharedLayers, first_scaling

try:
    from sklearn.base import (
        BaseEstimator,
        ClassNamePrefixFeaturesOutMixin,
        MultiOutputMixin,
        RegressorMixin,
        TransformerMixin,
    )
    from sklearn.utils import check_array, check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        "this needs scikit-learn of version 1.6 or later: pip install 'ordinal-entropy[sklearn]'"
    ) from error

Array = npt.NDArray[np.float64]

_ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU, "tanh": nn.Tanh}
_EMBEDDINGS = ("none", "piecewise")
_DTYPES = {"float64": torch.float64, "float32": torch.float32}
_WHOLE_TABLE = 256  # distinct rows up to which "auto" takes all of them in a step
_ENOUGH_TO_STOP = 100  # distinct rows from which early_stopping="auto" holds some of them back
_AMONG_ROWS = ("term", "mixing", "smoothing")  # kinds of parts that look at other rows of a batch
_ROWS_AT_ONCE = 2**16  # of a prediction
_MOST_REPEATED = 2**20  # rows that a table is written out to, for methods that take no weights


class _Table(NamedTuple):
    """Distinct rows in the order of their numbers."""

    inputs: Array  # (n, p)
    targets: Array  # (n, t)
    weight: Array  # (n,), above 0

    def rows(self, index: npt.NDArray[np.int64]) -> "_Table":
        return _Table(*(column[index] for column in self))

    @property
    def uniform(self) -> bool:
        """Whether all rows have one weight."""
        return bool((self.weight == self.weight[0]).all())

    def repeated(self) -> "_Table | None":
        """Each row as often as its weight says; None where that is no whole number, or makes too many."""
        if self.uniform:
            return self
        if not (self.weight == np.round(self.weight)).all() or self.weight.sum() > _MOST_REPEATED:
            return None
        table = self.rows(np.arange(len(self.weight)).repeat(self.weight.astype(np.int64)))
        return table._replace(weight=np.ones(len(table.weight)))


class _Rows(NamedTuple):
    """A table as the network sees it."""

    inputs: Tensor  # (n, p), standardized
    targets: Tensor  # (n, t), likewise
    weight: Tensor | None  # (n,), of mean 1; None where all rows count alike

    def batch(self, index: Tensor | None = None) -> Batch:
        inputs, targets, weight = (
            each if each is None or index is None else each[index] for each in (self.inputs, self.targets, self.weight)
        )
        assert inputs is not None and targets is not None
        by_target = None if weight is None else weight[:, None].expand_as(targets)
        return Batch(inputs, targets, None, by_target, weight)


class _Scaling(NamedTuple):
    """Mean and standard deviation of each column; those of a constant column are its value and 0, exactly."""

    center: Array  # (k,)
    scale: Array  # (k,)

    def standardized(self, columns: Array) -> Array:
        return (columns - self.center) / np.where(self.scale > 0, self.scale, 1)

    def restored(self, columns: Array) -> Array:
        return self.center + self.scale * columns


class OrdinalEntropyRegressor(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]  # scikit-learn has no types
    TransformerMixin,  # type: ignore[misc]
    RegressorMixin,  # type: ignore[misc]
    MultiOutputMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """A perceptron trained by any method of ``oe.methods``: ``fit``, ``predict``, ``score``, ``transform``.

    Inputs and targets are standardized inside, with the weights of the rows; the loss is the mean squared error of the
    standardized targets, or the method's own, plus what the method adds at the last hidden features, minimized by
    AdamW. Parameters of a method are trained likewise.

    Added terms are gradient-balanced by default: no strength has to be chosen.

    Args:
        hidden_layer_sizes: widths of the hidden layers, one or more; the last one holds the features.
        activation: "relu", "gelu", "silu" or "tanh", after every hidden layer.
        network: "perceptron", or "tabm" or "tabm-mini": an ensemble whose members share weights. To the method each
            member is a network of its own; the loss is the mean of theirs, as is the prediction.
        members: of such an ensemble.
        dropout: share of the activations of each hidden layer that a step leaves out.
        embedding: of each column, before the first layer: "none", or "piecewise", how far its number has come through
            pieces of its range, in a small layer of its own.
        pieces: that quantiles cut the range of a column into, at most.
        embedding_size: numbers that one becomes.
        method: a name of ``oe.methods``, or several joined by ``+``: "oe", "classification+oe"; "baseline" is the
            squared error alone. One of two stages shares the epochs between them.
        method_options: of each part of the method, by its name; they win over the three below.
        strength: fixed factor of each added term; None: gradient-balanced.
        balance: of terms without a strength: the gradient of each at the features, as a fraction of that of the task
            loss.
        grouping: of parts that group rows: which share a center: those of equal target ("unique"), of equal bin (a
            number: the width of the bins in standard deviations of the target), or no two ("none"). Where no target
            repeats, only bins give the tightness of "oe" and "lt" something to pull.
        batch_size: distinct rows of a step; "auto": the whole table up to 256, else 256.
        learning_rate: of AdamW.
        weight_decay: of AdamW.
        epochs: passes over the table, with early stopping at most.
        early_stopping: hold back rows, stop when their error no longer falls, and return to where it was lowest;
            "auto": from 100 distinct rows on.
        validation_fraction: share of the distinct rows that is held back.
        n_iter_no_change: so many epochs without a better error end the training; in a small table an epoch is a step.
        tol: by how much an error must be lower to count as better; the held-back targets have a variance of about 1.
        random_state: of first weights, held-back rows, batches and the draws of a method: a number, a
            ``RandomState``, or None for NumPy's global one. Methods that get the same number share the first three.
        device: where to train: "cpu", "auto" (a CUDA device if there is one), or a name that torch knows. The fitted
            network lies on the CPU.
        dtype: of the network: "float64", or "float32", which a GPU computes faster.
        verbose: print the loss of every epoch.

    Attributes:
        network_: the fitted network, hidden layers and head: from standardized inputs to standardized targets, or to
            what ``method_.decode`` makes these of; of an ensemble, those of each member.
        method_: the fitted method; of an ensemble, that of its first member.
        n_features_in_: numbers of a row; ``feature_names_in_``: their names, where ``fit`` saw any.
        n_outputs_: numbers of a target.
        n_iter_: epochs trained.
        loss_curve_: loss of each epoch with the regularization: it may be negative.
        validation_curve_: mean squared error of the standardized held-back targets after each epoch; without early
            stopping, empty.

    Example:
        >>> X, y = np.linspace(0, 1, 50)[:, None], np.linspace(0, 1, 50) ** 2
        >>> model = OrdinalEntropyRegressor(random_state=0).fit(X, y)
        >>> model.predict([[0.5]]).shape, model.transform([[0.5]]).shape
        ((1,), (1, 100))
        >>> bool(model.score(X, y) > 0.99)
        True
    """

    def __init__(
        self,
        hidden_layer_sizes: tuple[int, ...] | int = (100, 100),
        activation: str = "relu",
        *,
        network: str = "perceptron",
        members: int = 32,
        dropout: float = 0.0,
        embedding: str = "none",
        pieces: int = 24,
        embedding_size: int = 16,
        method: str = "oe",
        method_options: Mapping[str, Mapping[str, Any]] | None = None,
        strength: float | None = None,
        balance: float = FRACTION,
        grouping: str | float = "unique",
        batch_size: int | str = "auto",
        learning_rate: float = 3e-3,
        weight_decay: float = 1e-2,
        epochs: int = 200,
        early_stopping: bool | str = "auto",
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 40,
        tol: float = 1e-4,
        random_state: int | np.random.RandomState | None = None,
        device: str = "cpu",
        dtype: str = "float64",
        verbose: bool = False,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.network = network
        self.members = members
        self.dropout = dropout
        self.embedding = embedding
        self.pieces = pieces
        self.embedding_size = embedding_size
        self.method = method
        self.method_options = method_options
        self.strength = strength
        self.balance = balance
        self.grouping = grouping
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.epochs = epochs
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.random_state = random_state
        self.device = device
        self.dtype = dtype
        self.verbose = verbose

    def fit(
        self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None
    ) -> "OrdinalEntropyRegressor":
        """The regressor itself, trained from new weights.

        Args:
            X: ``(n, p)``, finite.
            y: ``(n,)`` or ``(n, t)``, finite; a constant one is predicted as it is.
            sample_weight: ``(n,)``, at least 0; counts like repetition, in regularization too. A method with a term
                that takes no weights needs whole ones.
        """
        self._check_parameters()
        table = self._table(X, y, sample_weight, reset=True)
        random = check_random_state(self.random_state)
        held_back = None
        if self._stops_early(len(table.weight)):
            table, held_back = _split(table, self.validation_fraction, random)
        if self.batch_size != "auto" and int(self.batch_size) > len(table.weight):
            warnings.warn(
                f"expected a batch_size of at most the {len(table.weight)} distinct rows to train on, got "
                f"{self.batch_size}: every step takes all of them",
                stacklevel=2,
            )
        self._begin(table, random)
        self._train(table, held_back, self.epochs)
        return self

    def partial_fit(
        self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None
    ) -> "OrdinalEntropyRegressor":
        """The regressor itself, after one more pass over these rows, without early stopping.

        The first call, unless ``fit`` came before, makes the network and takes the scales of inputs and targets from
        its rows, and shows them to the method: let them be typical. Passes count towards the ``epochs``, which the
        stages of a method share; after these, all are of the last stage. Arguments as in :meth:`fit`.
        """
        self._check_parameters()
        first = not hasattr(self, "network_")
        table = self._table(X, y, sample_weight, reset=first)
        if first:
            if (table.targets == table.targets[0]).all(0).any():
                raise ValueError(
                    "expected targets that differ in the first call of partial_fit, whose rows give their scale, got "
                    f"one value in n_samples={len(table.weight)} distinct rows"
                )
            self._begin(table, check_random_state(self.random_state))
        self._train(table, None, 1)
        return self

    def predict(self, X: npt.ArrayLike) -> Array:
        """Predictions, ``(n,)`` or ``(n, t)`` like the targets that were fitted."""
        outputs = self._outputs(X, head=True)
        predictions = self._target_scaling.restored(outputs)
        return predictions[:, 0] if self._one_dimensional else predictions

    def transform(self, X: npt.ArrayLike) -> Array:
        """The features ``(n, d)``: what the last hidden layer makes of each row; those of all members side by side."""
        return self._outputs(X, head=False)

    def _check_parameters(self) -> None:
        """An error for a parameter that does not exist; methods check their own."""
        for name, choices in (
            ("activation", [*_ACTIVATIONS]),
            ("network", NETWORKS),
            ("embedding", _EMBEDDINGS),
            ("dtype", [*_DTYPES]),
        ):
            if getattr(self, name) not in choices:
                raise ValueError(f"expected {name} to be one of {', '.join(choices)}, got {getattr(self, name)!r}")
        if isinstance(self.early_stopping, str) and self.early_stopping != "auto":
            raise ValueError(f"expected early_stopping to be True, False or 'auto', got {self.early_stopping!r}")
        for width in self._widths():
            if not _whole(width):
                raise ValueError(
                    f"expected hidden_layer_sizes of whole numbers from 1, got {self.hidden_layer_sizes!r}"
                )
        if not self._widths():
            raise ValueError(
                "expected hidden_layer_sizes of one layer or more, of which the last holds the features, got none"
            )
        if self.batch_size != "auto" and not _whole(self.batch_size):
            raise ValueError(f"expected batch_size to be 'auto' or a whole number from 1, got {self.batch_size!r}")
        for name in ("epochs", "n_iter_no_change", "members", "pieces", "embedding_size"):
            if not _whole(getattr(self, name)):
                raise ValueError(f"expected {name} to be a whole number from 1, got {getattr(self, name)!r}")
        for name in ("strength", "balance", "learning_rate", "weight_decay", "tol", "validation_fraction", "dropout"):
            value = getattr(self, name)
            if name == "strength" and value is None:
                continue
            if not (isinstance(value, Real) and 0 <= float(value) < math.inf):
                raise ValueError(f"expected {name} to be a number from 0, got {value!r}")
        if not self.balance > 0:
            raise ValueError(f"expected balance to be a positive number, got {self.balance!r}")
        if not self.dropout < 1:
            raise ValueError(f"expected dropout from 0 to below 1, got {self.dropout!r}")
        if not 0 < self.validation_fraction < 1:
            raise ValueError(f"expected validation_fraction between 0 and 1, got {self.validation_fraction!r}")

    def _stops_early(self, rows: int) -> bool:
        """Whether the fit of so many distinct rows holds some of them back."""
        return rows >= _ENOUGH_TO_STOP if self.early_stopping == "auto" else bool(self.early_stopping)

    def _widths(self) -> tuple[int, ...]:
        return tuple(np.ravel(self.hidden_layer_sizes).tolist())

    def _table(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None, *, reset: bool) -> _Table:
        """The rows, checked and joined."""
        words = np.ravel(np.asarray(y)) if np.asarray(y).dtype.kind in "OSTU" else ()
        text = next((word for word in words if isinstance(word, str | bytes)), None)
        if text is not None:
            raise ValueError(f"expected a target y of numbers, got text such as {str(text)!r}")
        inputs, values = validate_data(self, X, y, reset=reset, dtype=np.float64, multi_output=True, y_numeric=True)
        values = check_array(values, dtype=np.float64, ensure_2d=False, input_name="y")
        n = len(inputs)
        targets = values.reshape(n, -1)
        if reset:
            self._one_dimensional = values.ndim == 1
            self.n_outputs_ = targets.shape[1]
        elif targets.shape[1] != self.n_outputs_:
            raise ValueError(f"expected y of {self.n_outputs_} numbers a row as before, got {targets.shape[1]}")
        weight = np.ones(n)
        if sample_weight is not None:
            weight = check_array(sample_weight, dtype=np.float64, ensure_2d=False, input_name="sample_weight")
            if weight.shape != (n,):
                raise ValueError(f"expected sample_weight with n={n} rows, got {weight.shape}")
            if weight.min() < 0:
                raise ValueError(f"expected sample_weight of at least 0, got {weight.min()} as the smallest")
            if not weight.any():
                raise ValueError(f"expected a row with sample_weight above 0, got n={n} rows of weight zero")
        return _joined(inputs, targets, weight)

    def _begin(self, table: _Table, random: np.random.RandomState) -> None:
        """Scales from the rows, first weights from the random state."""
        self._random = random
        self._seed = int(copy.deepcopy(random).randint(2**31))  # of the method's draws: nothing else depends on these
        self._input_scaling = _scaling(table.inputs, table.weight)
        self._target_scaling = _scaling(table.targets, table.weight)
        self._members = 1 if self.network == "perceptron" else int(self.members)
        width, t = self._widths()[-1], self.n_outputs_
        with _drawing(self._seed):
            self.method_ = self._method().to(_DTYPES[self.dtype])
            rows = self._standardized(table.repeated() or table, torch.device("cpu"))
            self.method_.prepare(rows.targets, rows.inputs, width)
            body = self._body(rows.inputs, random)
            # drawn in any case: batches do not depend on the method
            heads: list[nn.Module] = [_linear(width, t, random) for _ in range(self._members)]
            if self.method_.own_head:
                heads = [self.method_.head(width, t) for _ in heads]
            elif self.method_.outputs(t) != t:
                own = np.random.RandomState(self._seed)
                heads = [_linear(width, self.method_.outputs(t), own) for _ in heads]
        self._methods = [self.method_, *(copy.deepcopy(self.method_) for _ in heads[1:])]
        head = heads[0] if self.network == "perceptron" else _Heads(heads)
        self.network_ = nn.Sequential(body, head).to(_DTYPES[self.dtype])
        self._optimizer = torch.optim.AdamW(
            [*self.network_.parameters(), *(each for method in self._methods for each in method.parameters())],
            lr=float(self.learning_rate),
            weight_decay=float(self.weight_decay),
        )
        self._average = Average(self.network_) if self.method_.averages else None
        self._n_features_out = width * self._members
        self._steps = 0
        self.n_iter_ = 0
        self.loss_curve_: list[float] = []
        self.validation_curve_: list[float] = []

    def _body(self, inputs: Tensor, random: np.random.RandomState) -> nn.Module:
        """What is below the features: embeddings, where they are asked for, and hidden layers."""
        p, e = inputs.shape[1], int(self.embedding_size)
        activation = _ACTIVATIONS[self.activation]
        embedded = self.embedding != "none"
        widths = (p * e if embedded else p, *self._widths())
        layers = [_linear(fan_in, fan_out, random) for fan_in, fan_out in itertools.pairwise(widths)]
        dropout = [_Dropout(float(self.dropout))] if self.dropout else []
        body: list[nn.Module] = []
        if embedded:
            count = int(self.pieces)
            own = [_linear(count, e, random) for _ in range(p)]
            body.append(Piecewise(pieces_of(inputs.double().numpy(), count), own))
        if self.network == "perceptron":
            for layer in layers:
                body += [layer, activation(), *dropout]
        else:
            scaling = _first_scaling(self._members, p, e if embedded else 0, random)
            mini = self.network == "tabm-mini"
            body.append(SharedLayers(layers, scaling, activation(), *dropout, mini=mini))
        return nn.Sequential(*body)

    def _method(self) -> Composition:
        """Each part with the parameters of the regressor that it takes, then with options of its own."""
        own = {} if self.method_options is None else self.method_options
        if not (isinstance(own, Mapping) and all(isinstance(each, Mapping) for each in own.values())):
            raise ValueError(f"expected method_options as {{part: {{option: value}}}} or None, got {own!r}")
        found: dict[str, Mapping[str, Any]] = dict(own)
        for part in methods.split(self.method):
            grouped = {"grouping": self.grouping} if "grouping" in methods.options(part) else {}
            found[part] = {**grouped, **own.get(part, {})}
        strength = None if self.strength is None else float(self.strength)
        made = methods.with_default(self.method, found, strength=strength, balance=float(self.balance))
        can = {*methods.KINDS, "stages", "parameters", "after_step", "predictions", "progress", "tables"}
        methods.require(made, can, type(self).__name__, "rows of a table have no augmented views")
        methods.first_epochs(made, int(self.epochs))  # too few for two stages are an error
        return made

    def _train(self, table: _Table, held_back: _Table | None, epochs: int) -> None:
        """Some epochs; with rows held back, until their error no longer falls, and back to where it was lowest."""
        device = _device(self.device, _DTYPES[self.dtype])
        rows = self._standardized(self._weighable(table), device)
        check = None if held_back is None else self._standardized(held_back, device).batch()
        self._move(device)
        self._exchange()  # what is trained on, in place of its average
        best, best_state, since = math.inf, None, 0
        for _ in range(epochs):
            stage = methods.stage_of(self.method_, min(self.n_iter_, int(self.epochs) - 1), int(self.epochs))
            loss = self._epoch(rows, stage)
            self.n_iter_ += 1
            self.loss_curve_.append(loss)
            if self.verbose:
                print(f"epoch {self.n_iter_}: loss {loss:.6g}", end="\n" if check is None else ", ")
            if not math.isfinite(loss):
                raise ValueError(
                    f"expected a finite loss, got {loss} in epoch {self.n_iter_}: take a smaller learning_rate or "
                    "strength, or look for huge numbers in the table"
                )
            if check is None:
                continue
            self._exchange()
            error = self._error(check)
            state = copy.deepcopy(self._learned().state_dict()) if error < best - self.tol else None
            self._exchange()
            self.validation_curve_.append(error)
            if self.verbose:
                print(f"validation {error:.6g}")
            if stage != self.method_.stages[-1]:
                continue
            since += 1
            if state is not None:
                best, best_state, since = error, state, 0
            if since == self.n_iter_no_change:
                break
        self._exchange()
        if best_state is not None:
            self._learned().load_state_dict(best_state)
        self._move(torch.device("cpu"))

    def _epoch(self, rows: _Rows, stage: str) -> float:
        """Mean loss of the steps of one pass, each over about as many rows."""
        n = len(rows.inputs)
        size = _WHOLE_TABLE if self.batch_size == "auto" else int(self.batch_size)
        steps = math.ceil(n / size)
        body, head = self.network_.train()
        total = rows.inputs.new_zeros(())
        order = None if steps == 1 else torch.from_numpy(self._random.permutation(n)).to(total.device)
        with _drawing(self._seed, self.n_iter_) as generator:
            for number, index in enumerate([None] if order is None else order.tensor_split(steps)):
                for method in self._methods:
                    method.at(self.n_iter_ * steps + number, int(self.epochs) * steps)
                loss = self._loss(body, head, rows.batch(index), generator, stage)
                self._optimizer.zero_grad()
                loss.backward()
                self._optimizer.step()
                self.method_.after_step(self.network_)
                self._steps += 1
                if self._average is not None:
                    share = self.method_.share(torch.tensor(self._steps), int(self.epochs) * steps)
                    self._average.update(self.network_, share)
                total += loss.detach()
            for method in self._methods:
                method.end_epoch()
        return float(total) / steps

    def _loss(self, body: nn.Module, head: nn.Module, batch: Batch, generator: torch.Generator, stage: str) -> Tensor:
        """Of a step; of an ensemble the mean of its members' losses, on the batch as the first one's method has it."""
        if self.network == "perceptron":
            return methods.training_loss(self.method_, body, head, batch, _squared_error, generator, stage=stage)
        assert isinstance(head, _Heads)
        batch = self.method_.change(batch, generator)
        with torch.set_grad_enabled(stage != "head"):
            features = body(batch.inputs)
        losses = []
        for method, own, z in zip(self._methods, head.each, features, strict=True):
            step = methods.step_from(z, method, own, batch, _squared_error, stage=stage)
            losses.append(method.loss(step, stage))
        return torch.stack(losses).mean()

    def _predictions(self, outputs: Tensor) -> Tensor:
        """Of what the head gives; of an ensemble the mean of its members' predictions."""
        if self.network == "perceptron":
            return self.method_.decode(outputs)
        each = [method.decode(own) for method, own in zip(self._methods, outputs, strict=True)]
        return torch.stack(each).mean(0)

    def _error(self, batch: Batch) -> float:
        """Of the predictions of rows held back."""
        with torch.no_grad():
            predictions = self._predictions(self.network_.eval()(batch.inputs))
            return float(_squared_error(predictions, batch.targets, batch.mask, batch.weight))

    def _weighable(self, table: _Table) -> _Table:
        """The table, with repeated rows in place of weights for a method that looks at other rows and takes none."""
        blind = {
            name: part
            for name, part in self.method_.parts.items()
            if isinstance(part, Method) and part.kind in _AMONG_ROWS and not part.weighs_repeats
        }
        if not blind or table.uniform:
            return table
        repeated = table.repeated()
        terms = [name for name, part in blind.items() if overrides(part, "term")]
        if repeated is None and terms:
            raise ValueError(
                f"expected sample_weight of whole numbers, at most {_MOST_REPEATED} in all, with {terms[0]!r}, whose "
                "term takes no weights, so that rows are repeated instead, got others"
            )
        return repeated or table

    def _standardized(self, table: _Table, device: torch.device) -> _Rows:
        """The rows as tensors."""
        dtype = _DTYPES[self.dtype]
        inputs = torch.from_numpy(self._input_scaling.standardized(table.inputs)).to(device, dtype)
        targets = torch.from_numpy(self._target_scaling.standardized(table.targets)).to(device, dtype)
        if table.uniform:
            return _Rows(inputs, targets, None)
        return _Rows(inputs, targets, torch.from_numpy(table.weight / table.weight.mean()).to(device, dtype))

    def _exchange(self) -> None:
        """Puts the average of the weights in their place, or the weights back; nothing where none is kept."""
        if self._average is not None:
            self._average.exchange(self.network_)

    def _learned(self) -> nn.ModuleList:
        return nn.ModuleList([self.network_, *self._methods])

    def _move(self, device: torch.device) -> None:
        """Network, method and optimizer to the device."""
        self._learned().to(device)
        if self._average is not None:
            self._average.to(device)
        self._optimizer.load_state_dict(self._optimizer.state_dict())  # moves to where the parameters are

    def _outputs(self, X: npt.ArrayLike, *, head: bool) -> Array:
        """Predictions of new rows, or what the layers before the head make of them."""
        check_is_fitted(self, "network_")
        inputs = self._input_scaling.standardized(validate_data(self, X, reset=False, dtype=np.float64))
        body, last = self.network_.eval()
        rows = torch.from_numpy(inputs).to(_DTYPES[self.dtype])
        with torch.no_grad():
            features = (body(part) for part in rows.split(max(_ROWS_AT_ONCE // self._members, 1)))
            found = [self._predictions(last(each)) if head else _side_by_side(each) for each in features]
        return torch.cat(found).double().numpy()


class _Heads(nn.Module):
    """The heads of an ensemble: from features ``(k, n, d)`` to outputs ``(k, n, o)``."""

    def __init__(self, each: list[nn.Module]) -> None:
        super().__init__()
        self.each = nn.ModuleList(each)

    def forward(self, features: Tensor) -> Tensor:
        return torch.stack([head(z) for head, z in zip(self.each, features, strict=True)])


class _Dropout(nn.Module):
    """Leaves out a share of the activations in training, drawn on the CPU wherever they are."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, z: Tensor) -> Tensor:
        return z * (torch.rand(z.shape) >= self.share).to(z) / (1 - self.share) if self.training else z


def _side_by_side(features: Tensor) -> Tensor:
    """Features of several members ``(k, n, d)`` as ``(n, k * d)``; of one network as they are."""
    return features if features.dim() == 2 else features.transpose(0, 1).flatten(1)


def _first_scaling(members: int, p: int, width: int, random: np.random.RandomState) -> Tensor:
    """By which the members of an ensemble scale their inputs first: signs, or a normal number for each embedding."""
    generator = torch.Generator().manual_seed(int(random.randint(2**31)))
    if width:
        return first_scaling(members, 0, generator, embedded=p, width=width)
    return first_scaling(members, p, generator)


def _joined(inputs: Array, targets: Array, weight: Array) -> _Table:
    """The distinct rows with the sums of their weights, sorted; rows of weight 0 are left out."""
    kept = weight > 0
    numbers, weight = np.concatenate([inputs, targets], axis=1)[kept], weight[kept]  # (n, p + t), (n,)
    order = np.lexsort([weight, *numbers.T])  # weights last, so that they are always added in the same order
    numbers, weight = numbers[order], weight[order]
    starts = np.append(True, (numbers[1:] != numbers[:-1]).any(1))
    sums = np.bincount(np.cumsum(starts) - 1, weight).astype(np.float64)
    distinct = numbers[starts]
    return _Table(distinct[:, : inputs.shape[1]], distinct[:, inputs.shape[1] :], sums)


def _split(table: _Table, fraction: float, random: np.random.RandomState) -> tuple[_Table, _Table]:
    """Rows to train on and rows held back, at least one of each."""
    n = len(table.weight)
    if n < 2:
        raise ValueError(f"expected two or more distinct rows for early_stopping, got n_samples={n}")
    order = random.permutation(n)
    held = min(max(round(fraction * n), 1), n - 1)
    return table.rows(np.sort(order[held:])), table.rows(np.sort(order[:held]))


def _scaling(columns: Array, weight: Array) -> _Scaling:
    """Weighted mean and standard deviation of each column."""
    constant = (columns == columns[0]).all(0)
    mean = np.where(constant, columns[0], np.average(columns, axis=0, weights=weight))
    return _Scaling(mean, np.sqrt(np.average((columns - mean) ** 2, axis=0, weights=weight)))


def _linear(fan_in: int, fan_out: int, random: np.random.RandomState) -> nn.Linear:
    """A layer whose weights and biases are uniform in +-1 / sqrt(fan_in), like PyTorch's, from a generator of ours."""
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, fan_in, fan_out, dtype=torch.float64)
    numbers = torch.from_numpy(random.uniform(-1, 1, (fan_in + 1, fan_out)) / math.sqrt(fan_in))
    with torch.no_grad():
        layer.weight.copy_(numbers[:-1].T)
        layer.bias.copy_(numbers[-1])
    return layer


def _squared_error(outputs: Tensor, targets: Tensor, mask: Tensor | None, weight: Tensor | None) -> Tensor:
    """Mean over outputs and rows, times their weights, whose mean over the table is 1."""
    return methods.weighted_mean((outputs - targets).square(), mask, weight)


@contextmanager
def _drawing(*seed: int) -> Iterator[torch.Generator]:
    """A generator of these numbers; inside, PyTorch's global one draws from them too, and goes back afterwards."""
    number = int(np.random.SeedSequence(seed).generate_state(1)[0])
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(number)
        yield torch.Generator().manual_seed(number)


def _device(name: str, dtype: torch.dtype) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=name, dtype=dtype).device
    except (RuntimeError, AssertionError, TypeError) as error:
        raise ValueError(f"expected device to be 'cpu', 'auto' or one that torch finds here, got {name!r}") from error


def _whole(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= 1
