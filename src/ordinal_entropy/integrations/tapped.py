"""A method beside a model that it does not know: features from a tap, targets from the batch, numbers to log."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ordinal_entropy import methods
from ordinal_entropy.capture import Tap, capture
from ordinal_entropy.estimators import mean_nn_entropy
from ordinal_entropy.losses import OrdinalEntropy
from ordinal_entropy.methods import Method
from ordinal_entropy.methods.ablations import regularizer_of, self_set_strengths

Targets = str | int | Callable[[Any], Tensor | tuple[Tensor, Tensor]]

KEYS = ("labels", "label", "targets", "target", "y")  # where a batch that is a mapping has its targets
_MOST_ROWS = 1024  # of which an entropy is logged


class _Seen(NamedTuple):
    """What is left of a step, without its graph."""

    term: Tensor
    features: Tensor
    targets: Tensor
    mask: Tensor | None


class TappedMethod:
    """A method and the layer that it takes its features from.

    In each step: :meth:`begin`, then the step itself, then :meth:`loss` of what it returned; :meth:`report` whenever
    numbers are wanted. If the layer runs several times in a step, the last time counts.

    Args:
        method: a name of ``methods.names()``, a method, or an ``OrdinalEntropy``.
        layer: as in ``capture``: a name, a module, or None for the last linear layer or 1x1 convolution that ran.
        output: take what comes out of the layer, not what goes in.
        targets: where a batch has its targets: a key or a position, a function from the batch to targets or to
            ``(targets, mask)``, or None for the second item of a sequence and the usual keys of a mapping.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
        >>> x, y = torch.eye(2), torch.tensor([0.0, 1.0])
        >>> tapped = TappedMethod("baseline")
        >>> tapped.attach(model)
        >>> tapped.begin()
        >>> tapped.loss(model(x).sum() * 0 + 2, (x, y))
        tensor(2., grad_fn=<AddBackward0>)
        >>> sorted(tapped.report())
        ['entropy', 'entropy_normalized', 'loss']
        >>> tapped.close()
    """

    def __init__(
        self,
        method: str | Method | OrdinalEntropy = "oe",
        layer: str | nn.Module | None = None,
        output: bool = False,
        targets: Targets | None = None,
    ) -> None:
        made = methods.create(method) if isinstance(method, str) else method
        if not callable(made):
            raise TypeError(f"expected method to be a name, a method or an OrdinalEntropy, got {type(made).__name__}")
        if targets is not None and not (isinstance(targets, str | int) or callable(targets)):
            raise TypeError(f"expected targets to be a key, a position or a function, got {type(targets).__name__}")
        self.method: Any = made
        self.layer = layer
        self.output = output
        self.targets = targets
        self._features: Tap | None = None
        self._outputs: Tap | None = None
        self._seen: _Seen | None = None

    def attach(self, model: nn.Module) -> None:
        """Taps the layer of a model, and lets go of any other."""
        self.close()
        self._features = capture(model, self.layer, output=self.output)
        if regularizer_of(self.method) is None:  # it may want predictions: what the layer gives
            self._outputs = capture(model, self.layer, output=True)

    def close(self) -> None:
        """Leaves the model as it was."""
        for tap in (self._features, self._outputs):
            if tap is not None:
                tap.close()
        self._features = self._outputs = self._seen = None

    def begin(self) -> None:
        """Forgets the step before, so that a layer which does not run leaves nothing old."""
        self._seen = None
        for tap in (self._features, self._outputs):
            if tap is not None:
                tap.clear()

    def loss(self, task_loss: Tensor, batch: Any, share: float = 1.0) -> Tensor:
        """The task loss with the method's term, computed in float32; the term alone, if the method replaces the loss.

        Args:
            task_loss: scalar.
            batch: of this step.
            share: factor of the term.

        Raises:
            RuntimeError: the layer did not run.
            TypeError: it has no tensor, or the batch has no targets.
            ValueError: features and targets do not fit; the message names the layer and both shapes.
        """
        if self._features is None:
            raise RuntimeError("expected a model to be attached first, got none")
        features, layer = self._features.features, self._features.layer
        targets, mask = self._targets_of(batch, features.device)
        side = "output" if self.output else "input"
        where = f"the {side} of layer {layer!r} is {tuple(features.shape)} and the targets are {tuple(targets.shape)}"
        if features.dim() == 0 or targets.dim() == 0 or len(features) != len(targets):
            raise ValueError(f"expected features and targets of one batch size, but {where}")
        try:
            term = self._term(task_loss, features, targets, mask)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{where}: {error}") from error
        self._seen = _Seen(term.detach(), features.detach(), targets.detach(), mask)
        self._features.clear()  # and with them the graph
        if self._outputs is not None:
            self._outputs.clear()
        return share * term if getattr(self.method, "replaces_task_loss", False) else task_loss + share * term

    def state(self) -> dict[str, Tensor]:
        """What the method has learned so far, for a checkpoint: strengths that set themselves, a saved memory."""
        if not isinstance(self.method, nn.Module):
            return {}
        return {name: value.detach().clone() for name, value in self.method.state_dict().items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Goes on from a :meth:`state`.

        Raises:
            ValueError: it is of another method.
        """
        try:
            self.method.load_state_dict(state)
        except (AttributeError, RuntimeError) as error:
            own = ", ".join(self.state()) or "nothing"
            raise ValueError(
                f"expected a checkpoint of a run with the same method, whose state is {own}, got one with "
                f"{', '.join(state)}"
            ) from error

    @torch.no_grad()
    def report(self, entropies: bool = True) -> dict[str, Tensor]:
        """Numbers of the last step, as scalars on its device; none if the step had no loss.

        "loss" is the term. Of ordinal entropy and its relatives also "diversity" and "tightness", without their
        strengths; if rows or pairs are drawn, from draws of its own, which the training does not notice; and strengths
        that set themselves, as "diversity_strength" and "tightness_strength". Entropies of
        at most 1024 rows: "entropy" (MeanNN, in nats, up to a constant) and "entropy_normalized", of the same rows on
        the unit sphere; not for fewer than two rows or where a feature is not finite.
        """
        if self._seen is None:
            return {}
        term, features, targets, mask = self._seen
        found = {"loss": term}
        regularizer = regularizer_of(self.method)
        if regularizer is not None:
            with _draws_undone(regularizer.generator, features.device):
                found.update(regularizer.terms(features, targets, mask)._asdict())
            found.update(self_set_strengths(self.method))
        if entropies:
            rows = _rows(features)
            if len(rows) >= 2 and bool(rows.isfinite().all()):
                found["entropy"] = mean_nn_entropy(rows, scale="entropy")
                found["entropy_normalized"] = mean_nn_entropy(rows, normalize=True, scale="entropy")
        return found

    def _term(self, task_loss: Tensor, features: Tensor, targets: Tensor, mask: Tensor | None) -> Tensor:
        with torch.autocast(features.device.type, enabled=False):
            if regularizer_of(self.method) is not None:
                term: Tensor = self.method(features, targets, mask, task_loss=task_loss)
            else:
                outputs = None if self._outputs is None else self._outputs.features
                if outputs is not None and outputs.dtype in (torch.float16, torch.bfloat16):
                    outputs = outputs.float()
                term = self.method(features, targets, mask, predictions=outputs)
        return term

    def _targets_of(self, batch: Any, device: torch.device) -> tuple[Tensor, Tensor | None]:
        """Targets and mask, on the device of the features."""
        found: Any = None
        if callable(self.targets):
            found = self.targets(batch)
        elif self.targets is not None:
            try:
                found = batch[self.targets]
            except (KeyError, IndexError, TypeError):
                raise TypeError(f"expected a batch with targets at {self.targets!r}, got {_contents(batch)}") from None
        elif isinstance(batch, Mapping):
            found = next((batch[key] for key in KEYS if key in batch), None)
        elif isinstance(batch, Sequence) and len(batch) > 1:
            found = batch[1]
        parts = found if isinstance(found, tuple) and len(found) == 2 and callable(self.targets) else (found, None)
        if not isinstance(parts[0], Tensor):
            raise TypeError(
                "expected the targets as a tensor, the second item of the batch or under one of "
                f"{', '.join(map(repr, KEYS))}, got {_contents(batch)}; say where they are with targets=, a key or a "
                "function of the batch"
                if self.targets is None
                else f"expected the targets as a tensor, got {type(parts[0]).__name__}"
            )
        targets, mask = parts
        return targets.to(device), None if mask is None else mask.to(device)


def _contents(batch: Any) -> str:
    """A batch in words."""
    kind = type(batch).__name__
    if isinstance(batch, Mapping):
        return f"{kind} with the keys {', '.join(map(repr, batch))}"
    if isinstance(batch, tuple | list):
        return f"{kind} of ({', '.join(type(each).__name__ for each in batch)})"
    return kind


def _rows(features: Tensor) -> Tensor:
    """Some rows ``(n, d)`` of any layout, evenly spread."""
    if features.dim() == 4:  # (b, c, h, w)
        features = features.permute(0, 2, 3, 1)
    rows = features.flatten(0, -2)
    return rows[:: -(-len(rows) // _MOST_ROWS) or 1]


@contextmanager
def _draws_undone(generator: torch.Generator | None, device: torch.device) -> Iterator[None]:
    """Inside, numbers are drawn that will be drawn again after it."""
    state = None if generator is None else generator.get_state()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        yield
    if generator is not None and state is not None:
        generator.set_state(state)
