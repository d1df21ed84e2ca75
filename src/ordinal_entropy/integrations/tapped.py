"""A method beside a model that it does not know: features from a tap, targets from the batch, numbers to log."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ordinal_entropy import layouts, methods
from ordinal_entropy.capture import Tap, capture
from ordinal_entropy.estimators import mean_nn_entropy
from ordinal_entropy.losses import OrdinalEntropy
from ordinal_entropy.methods import Batch, Method, Step
from ordinal_entropy.methods.contract import overrides
from ordinal_entropy.options import Options

Targets = str | int | Callable[[Any], Tensor | tuple[Tensor, Tensor]]
AnyMethod = str | Method | OrdinalEntropy | Iterable[Method]

KEYS = ("labels", "label", "targets", "target", "y")  # where a batch that is a mapping has its targets
_MOST_ROWS = 1024  # of which an entropy is logged


class _Seen(NamedTuple):
    """What is left of a step, without its graph."""

    term: Tensor
    step: Step


class TappedMethod:
    """Added terms and the layer that they take their features from.

    In each step: ``method.at`` of it, :meth:`begin`, then the step itself, then :meth:`loss` of what it returned;
    :meth:`report` whenever numbers are wanted. If the layer runs several times in a step, the last time counts. Parts
    that do more than add to the loss are refused.

    Args:
        method: a name of ``methods.names()``, several joined by ``+``, a method or several, or an ``OrdinalEntropy``.
        layer: as in ``capture``: a name, a module, or None for the last linear layer or 1x1 convolution that ran.
        output: take what comes out of the layer, not what goes in.
        targets: where a batch has its targets: a key or a position, a function from the batch to targets or to
            ``(targets, mask)``, or None for the second item of a sequence and the usual keys of a mapping.
        training_targets: of all training rows, for methods that look at them once; else they see the first batch's.
        who: uses it, in words, for a method that is refused.

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
        >>> TappedMethod("classification")
        Traceback (most recent call last):
        ValueError: this loop cannot train 'classification', which has to replace the head and the task loss: it
        computes the task loss by itself, so that methods can only add to it
    """

    def __init__(
        self,
        method: AnyMethod = "oe",
        layer: str | nn.Module | None = None,
        output: bool = False,
        targets: Targets | None = None,
        training_targets: Tensor | None = None,
        who: str = "this loop",
    ) -> None:
        if targets is not None and not (isinstance(targets, str | int) or callable(targets)):
            raise TypeError(f"expected targets to be a key, a position or a function, got {type(targets).__name__}")
        if training_targets is not None and not isinstance(training_targets, Tensor):
            raise TypeError(f"expected training_targets to be a tensor, got {type(training_targets).__name__}")
        self.method = methods.compose(method)
        because = "it computes the task loss by itself, so that methods can only add to it"
        methods.require(self.method, {"term", "parameters", "after_step", "progress"}, who, because)
        self.layer = layer
        self.output = output
        self.targets = targets
        self.training_targets = training_targets
        self._prepared = False
        self._features: Tap | None = None
        self._outputs: Tap | None = None
        self._seen: _Seen | None = None

    def attach(self, model: nn.Module) -> None:
        """Taps the layer of a model, lets go of any other, and moves the method to where the model is."""
        self.close()
        self._features = capture(model, self.layer, output=self.output)
        self._outputs = capture(model, self.layer, output=True)
        self._follow(next(model.parameters(), None))

    def close(self) -> None:
        """Leaves the model as it was."""
        for tap in (self._features, self._outputs):
            if tap is not None:
                tap.close()
        self._features = self._outputs = self._seen = None

    def join(self, optimizer: Any) -> None:
        """Has an optimizer train the method's parameters, in its first group: at its rate, decay and schedule.

        To be called before a checkpoint of the optimizer is loaded. A second call does nothing.

        Raises:
            ValueError: there are parameters to train, and an optimizer without any.
        """
        named = [(name, each) for name, each in self.method.named_parameters() if each.requires_grad]
        if not named:
            return
        groups = [] if optimizer is None else optimizer.param_groups
        if not groups:
            raise ValueError(
                f"expected an optimizer that trains the parameters of {self.method.name!r} with the model's, got none"
            )
        self._follow(next(iter(groups[0]["params"]), None))
        known = {id(each) for group in groups for each in group["params"]}
        for name, parameter in named:
            parameter.grad = None
            if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
                dist.broadcast(parameter.data, 0)
            if id(parameter) in known:
                continue
            groups[0]["params"].append(parameter)  # not a group of its own, which schedulers would not know
            if "param_names" in groups[0]:
                groups[0]["param_names"].append(f"ordinal_entropy.{name}")

    def before_step(self) -> None:
        """Averages the gradients of the method's parameters over the ranks, before the optimizer steps."""
        if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
            return
        for parameter in self.method.parameters():
            if parameter.requires_grad:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()

    def begin(self) -> None:
        """Forgets the step before, so that a layer which does not run leaves nothing old."""
        self._seen = None
        for tap in (self._features, self._outputs):
            if tap is not None:
                tap.clear()

    def loss(self, task_loss: Tensor, batch: Any, share: float = 1.0) -> Tensor:
        """The task loss with what the method adds, computed in float32.

        Args:
            task_loss: scalar.
            batch: of this step.
            share: factor of the regularization, which the task loss has already.

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
        outputs = self._predictions()
        try:
            with torch.autocast(features.device.type, enabled=False):
                self._prepare(features.detach(), targets, mask)
                self.method.observe(features.detach(), targets)
                whole = task_loss if share == 1 else task_loss / share  # that a balance is measured against
                term: Tensor = self.method(features, targets, mask, outputs, whole)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{where}: {error}") from error
        seen = Batch(None, targets.detach(), mask)
        outputs = None if outputs is None else outputs.detach()
        self._seen = _Seen(term.detach(), Step(seen, features.detach(), outputs, _unknown))
        for tap in (self._features, self._outputs):
            if tap is not None:
                tap.clear()  # and with it the graph
        return task_loss + share * term

    def state(self) -> dict[str, Tensor]:
        """What the method has learned, for a checkpoint: parameters, gradient-balanced strengths, a saved memory."""
        return {name: value.detach().clone() for name, value in self.method.state_dict().items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Goes on from a :meth:`state`.

        Raises:
            ValueError: it is of another method.
        """
        try:
            self.method.load_state_dict(state)
        except RuntimeError as error:
            own = ", ".join(self.state()) or "nothing"
            raise ValueError(
                f"expected a checkpoint of a run with the same method, whose state is {own}, got one with "
                f"{', '.join(state)}"
            ) from error
        self._prepared = True

    @torch.no_grad()
    def report(self, entropies: bool = True) -> dict[str, Tensor]:
        """Numbers of the last step, as scalars on its device; none if the step had no loss.

        "loss" is the regularization. Then what the parts measure in a step and what they log in an epoch, with the name
        of the part in front where there are several: of ordinal entropy and its relatives "diversity" and "tightness",
        without their strengths, and gradient-balanced strengths as "diversity_strength" and "tightness_strength". Draws
        are of its own, which the training does not notice. Entropies of at most 1024 rows: "entropy" (MeanNN, in nats,
        up to a constant) and "entropy_normalized", of the same rows on the unit sphere; not for fewer than two rows or
        where a feature is not finite.
        """
        if self._seen is None:
            return {}
        term, step = self._seen
        with _draws_undone(self.method, step.features.device):
            found = {"loss": term, **self.method.measures(step), **self.method.scalars()}
        if entropies:
            rows = _rows(step.features)
            if len(rows) >= 2 and bool(rows.isfinite().all()):
                found["entropy"] = mean_nn_entropy(rows, scale="entropy")
                found["entropy_normalized"] = mean_nn_entropy(rows, normalize=True, scale="entropy")
        return found

    def _follow(self, parameter: Tensor | None) -> None:
        """Moves the method to where the model is; parts with parameters are as exact as it is, from float32."""
        if parameter is None:
            return
        self.method.to(parameter.device)
        if parameter.dtype == torch.float64:
            for part in self.method.parts.values():
                if next(part.parameters(), None) is not None:
                    part.double()

    def _prepare(self, features: Tensor, targets: Tensor, mask: Tensor | None) -> None:
        """Shows the method the training targets, once, before its first step; not after a checkpoint was read."""
        if self._prepared:
            return
        self._prepared = True
        if not any(overrides(part, "prepare") for part in self.method.parts.values() if isinstance(part, Method)):
            return
        if self.training_targets is not None:
            given = self.training_targets.to(targets.device)
            found = given.reshape(len(given), -1)
        else:
            rows = layouts.rows(features, targets, mask)
            found = rows.targets[0] if rows.amount is None else rows.targets[0][rows.amount[0] > 0]
            found = _of_all_ranks(found)
            if not len(found):  # all masked: the next batch has some
                self._prepared = False
                return
        self.method.prepare(found, None, features.shape[1 if features.dim() == 4 else -1])

    def _predictions(self) -> Tensor | None:
        """What the layer gives, where that is a tensor; float32 for half precision."""
        assert self._outputs is not None
        try:
            outputs = self._outputs.features
        except TypeError:
            return None
        return outputs.float() if outputs.dtype in (torch.float16, torch.bfloat16) else outputs

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


def _of_all_ranks(targets: Tensor) -> Tensor:
    """The rows of each rank, which may be differently many, one after the other."""
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return targets
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, targets.cpu())
    return torch.cat(found).to(targets.device)


def _unknown(outputs: Tensor, targets: Tensor, mask: Tensor | None, weight: Tensor | None) -> Tensor:
    raise RuntimeError("expected a method that leaves the task loss to the loop, which computes it by itself")


@contextmanager
def _draws_undone(method: nn.Module, device: torch.device) -> Iterator[None]:
    """Inside, numbers are drawn that will be drawn again after it."""
    owned = [value for module in method.modules() for value in vars(module).values()]
    owned += [option for value in owned if isinstance(value, Options) for option in value]
    states = [(each, each.get_state()) for each in owned if isinstance(each, torch.Generator)]
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        yield
    for generator, state in states:
        generator.set_state(state)
