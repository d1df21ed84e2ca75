"""Several parts as one method, and the loss of a training step.

The task loss is computed once, by the head or the prediction loss if there is one among the parts. Strengths of added
terms are held here alone: fixed, or gradient-balanced against that task loss at the features before they are
calibrated; constant, or annealed to 0.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from ordinal_entropy.balance import Balance
from ordinal_entropy.methods.annealing import annealed
from ordinal_entropy.methods.contract import KINDS, Batch, Method, Step, TaskLoss, overrides, zero

_STAGES = (("joint",), ("encoder", "head"))
_ONE_OF = ("weights", "mixing", "smoothing", "averaging")  # parts of these kinds do not join
_NEEDS = {
    **KINDS,
    "views": "see several augmented views of each row",
    "stages": "train the encoder first and the head after it",
    "tables": "see inputs as rows of numbers",
    "parameters": "have parameters of its own trained",
    "after_step": "see the model after each step",
    "predictions": "see the predictions of each step",
    "progress": "know in each step how far the training has come",
}


class Composition(Method):
    """Parts joined into one method: any terms, and at most one part of every other kind, of heads and losses one.

    :func:`ordinal_entropy.methods.create` makes it of names.

    Args:
        parts: by name, in the order they were given.
        strengths: of terms, by name; 1 where none is given.
        balances: of terms whose strength is gradient-balanced, by name, in place of a strength.
        anneals: of terms whose strength, fixed or gradient-balanced, falls to 0 over that share of the training, at its
            end; by name. A loop then tells the method of each step, with :meth:`at`.
        notes: what a log is to say, before what the parts have to say.

    Example:
        >>> from ordinal_entropy.methods import create
        >>> method = create("huber+ld", {"ld": {"strength": 0.5}})
        >>> method.name, method.replaces_task_loss
        ('huber+ld', True)
    """

    progress: Tensor  # of the training, from 0 in its first step to 1 in its last, as it was told last

    def __init__(
        self,
        parts: Mapping[str, Method],
        strengths: Mapping[str, float] | None = None,
        balances: Mapping[str, Balance] | None = None,
        anneals: Mapping[str, float] | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        super().__init__()
        if not parts:
            raise ValueError("expected at least one part, got none; methods.Method() is the baseline")
        for name, part in parts.items():
            if part.stages not in _STAGES:
                raise ValueError(f"expected stages of {name!r} to be one of {_STAGES}, got {part.stages}")
            if type(part) is not Method and part.kind not in KINDS:
                raise ValueError(f"expected kind of {name!r} to be one of {', '.join(KINDS)}, got {part.kind!r}")
        terms = [name for name, part in parts.items() if overrides(part, "term")]
        for name in (*(strengths or {}), *(balances or {}), *(anneals or {})):
            if name not in terms:
                raise ValueError(f"expected strengths of terms ({', '.join(terms) or 'there are none'}), got {name!r}")
        for name, balance in (balances or {}).items():
            own, came = len(parts[name].term_weights()), len(balance.squares) - 1
            if own != came:
                raise ValueError(f"expected a Balance(..., terms={own}) for {name!r}, got one of terms={came}")
        self.parts = nn.ModuleDict(parts)
        self.balances = nn.ModuleDict(balances or {})
        self.strengths = {name: 1.0 for name in terms if name not in self.balances}  # of those that are fixed
        self.strengths |= {name: _strength(name, given) for name, given in (strengths or {}).items()}
        shares = {name: _anneal(name, given) for name, given in (anneals or {}).items()}
        self.anneals = {name: share for name, share in shares.items() if share > 0}
        # on the device, so that a CUDA graph sees what it is told; it follows from the step, so no checkpoint has it
        self.register_buffer("progress", torch.zeros(()), persistent=False)
        self._told = False  # of a step
        self._notes = self.notes = tuple(notes)
        self.steps = 0  # of this process, for messages
        self._t: int | None = None  # numbers of a target, after `prepare`
        self._predicting = self._only("head", "loss")
        self._weighting, self._mixing, self._smoothing, self._averaging = (self._only(kind) for kind in _ONE_OF)
        self._terms = terms
        self._set_stages()

    @property
    def name(self) -> str:
        """The names of the parts, joined by ``+``."""
        return "+".join(self.parts)

    @property
    def replaces_task_loss(self) -> bool:
        """Whether a part computes the task loss itself."""
        return self._predicting is not None

    @property
    def has_terms(self) -> bool:
        """Whether anything is added to the task loss."""
        return bool(self._terms)

    @property
    def mixes(self) -> bool:
        """Whether batches are mixed."""
        return self._mixing is not None

    @property
    def smooths(self) -> bool:
        """Whether features change on their way to the head."""
        return self._smoothing is not None

    @property
    def averages(self) -> bool:
        """Whether predictions are made by an average of the weights."""
        return self._averaging is not None

    @property
    def own_head(self) -> bool:
        """Whether the head is another than a linear layer of :meth:`outputs` numbers."""
        return self._predicting is not None and overrides(self._part(self._predicting), "head")

    @property
    def decoding(self) -> Method | None:
        """The part that turns outputs into predictions; None: outputs are predictions."""
        return None if self._predicting is None else self._part(self._predicting)

    def kind_of(self, name: str) -> str:
        """The kind of a part."""
        return self._part(name).kind

    def takes_maps(self, name: str) -> bool:
        """Whether a part takes maps and honours masks; the baseline does."""
        part = self._part(name)
        return part.maps or part.kind not in KINDS

    def requirements(self) -> dict[str, str]:
        """What a loop must be able to do, each with the first part that asks for it."""
        found: dict[str, str] = {}
        for name, part in self._each():
            further = {
                "views": part.views > 1,
                "stages": len(part.stages) > 1,
                "parameters": next(part.parameters(), None) is not None,
                "after_step": overrides(part, "after_step"),
            }
            asked = [part.kind] if part.kind in KINDS else []
            asked += [*part.needs, *(need for need, there in further.items() if there)]
            asked += ["progress"] if name in self.anneals else []
            for need in asked:
                found.setdefault(need, name)
        return found

    def at(self, step: int, steps: int) -> None:
        """Told before each step of a training where the strength of a term is annealed; else there is no need.

        Args:
            step: counted from 0.
            steps: of the whole training, both stages of two.

        Example:
            >>> from ordinal_entropy.methods import create
            >>> method = create("oe", strength=1.0, anneal=0.5)
            >>> method.at(3, steps=5)
            >>> method.progress
            tensor(0.7500)
        """
        if not self.anneals:
            return
        if not 0 <= step < math.inf or not 0 < steps < math.inf:
            raise ValueError(f"expected a step from 0 of a number of steps, got {step} of {steps}")
        self._told = True
        self.progress.fill_(min(step / max(steps - 1, 1), 1.0))

    def prepare(self, targets: Tensor, inputs: Any = None, width: int = 0) -> None:
        """All parts look at the training rows; those that group by target are told before if batches are mixed."""
        self._t = targets.shape[1] if targets.dim() > 1 else 1
        notes = list(self._notes)
        for name, part in self._each():
            note = part.targets_are_mixed(targets) if self.mixes else None
            part.prepare(targets, inputs, width)
            notes += [f"{name}: {each}" for each in ([note] if note else []) + list(part.notes)]
        self.notes = tuple(notes)

    def outputs(self, t: int) -> int:
        """Of the part that has a head."""
        return t if self._predicting is None else self._part(self._predicting).outputs(t)

    def head(self, width: int, t: int) -> nn.Module:
        """Of the part that has one."""
        return super().head(width, t) if self._predicting is None else self._part(self._predicting).head(width, t)

    def decode(self, outputs: Tensor) -> Tensor:
        """By the part that has a head."""
        if self._predicting is None:
            return outputs
        found = self._part(self._predicting).decode(outputs)
        if self._t is not None:
            expected = list(outputs.shape)
            expected[1 if outputs.dim() == 4 else -1] = self._t
            if not isinstance(found, Tensor) or list(found.shape) != expected:
                where = self._where(self._predicting, self.steps)
                raise ValueError(f"expected predictions {tuple(expected)} {where}, got {_in_words(found)}")
        return found

    def change(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """Mixed, then weighted at the mixed targets."""
        for name in (self._mixing, self._weighting):
            if name is not None:
                batch = self._checked_batch(name, self._part(name).change(batch, generator), batch)
        return batch

    def calibrate(self, features: Tensor, batch: Batch) -> Tensor:
        """By the part that smooths features."""
        if self._smoothing is None:
            return features
        found = self._part(self._smoothing).calibrate(features, batch)
        where = self._where(self._smoothing, self.steps + 1)
        if not isinstance(found, Tensor) or found.shape != features.shape:
            raise ValueError(f"expected features {tuple(features.shape)} {where}, got {_in_words(found)}")
        if _on_host(found) and features.isfinite().all() and not found.isfinite().all():
            raise ValueError(f"expected finite features {where}, got NaN or infinite ones")
        return found

    def task_loss(self, step: Step) -> Tensor:
        """By the part that has a loss of its own; else that of the task."""
        if self._predicting is None:
            return super().task_loss(step)
        return self._checked(self._predicting, self._part(self._predicting).task_loss(step), step)

    def term(self, step: Step) -> Tensor:
        """What is added, strengths included; gradient-balanced ones as they were last."""
        return self.added(step)

    def added(self, step: Step, task_loss: Tensor | None = None) -> Tensor:
        """What is added to the task loss, strengths included.

        Args:
            step: after the network ran.
            task_loss: that gradient-balanced strengths are measured against; part of the graph of the features.
        """
        found = [self._strengthened(name, step, task_loss) for name in self._terms]
        if not found:
            return zero(step.features)
        total = found[0]
        for one in found[1:]:
            total = total + one
        return total

    def loss(self, step: Step, stage: str = "joint") -> Tensor:
        """The loss of a step: that of the task with what is added; in two stages what is added, then that of the task.

        Raises:
            ValueError: a part gave no scalar, no gradient, or on a CPU NaN of finite features; it is named.
        """
        self.steps += 1
        if stage == "encoder":
            return self.added(step)
        task_loss = self.task_loss(step)
        return task_loss if stage == "head" or not self._terms else task_loss + self.added(step, task_loss)

    def forward(
        self,
        features: Tensor,
        targets: Tensor,
        mask: Tensor | None = None,
        predictions: Tensor | None = None,
        task_loss: Tensor | None = None,
    ) -> Tensor:
        """What to add to a task loss that a loop has computed by itself; the whole loss where a part replaces it.

        Args:
            features: ``(n, d)``, ``(b, n, d)`` or ``(b, c, h, w)``.
            targets: of the same rows.
            mask: boolean, in the shape of the targets.
            predictions: what the head gives, for parts that look at it.
            task_loss: of the same forward pass, for gradient-balanced strengths.
        """
        self.steps += 1
        step = Step(Batch(None, targets, mask), features, predictions, _no_task_loss)
        if not self.replaces_task_loss:
            return self.added(step, task_loss)
        own = self.task_loss(step)
        return own + self.added(step, own) if self._terms else own

    def observe(self, features: Tensor, targets: Tensor) -> None:
        """Every part is told."""
        for _, part in self._each():
            part.observe(features, targets)

    def end_epoch(self) -> None:
        """Every part is told."""
        for _, part in self._each():
            part.end_epoch()

    def share(self, step: Tensor, steps: int) -> Tensor:
        """Of the part that averages."""
        return super().share(step, steps) if self._averaging is None else self._part(self._averaging).share(step, steps)

    def after_step(self, model: nn.Module) -> None:
        """Every part is told."""
        for _, part in self._each():
            part.after_step(model)

    def scalars(self) -> dict[str, Tensor]:
        """Of all parts, and gradient-balanced strengths; with the part's name in front if there are several."""
        found = {}
        for name, part in self._each():
            own = dict(part.scalars())
            if name in self.balances:
                values = zip(part.term_weights().items(), self._balance(name).strengths, strict=True)
                for (term, weight), value in values:
                    own[f"{term}_strength" if term else "strength"] = self._annealed(name, weight * value)
            found.update(self._named(name, own))
        return found

    def measures(self, step: Step) -> dict[str, Tensor]:
        """Of all parts, named likewise."""
        found = {}
        for name, part in self._each():
            found.update(self._named(name, part.measures(step)))
        return found

    def _strengthened(self, name: str, step: Step, task_loss: Tensor | None) -> Tensor:
        """A term times its strength."""
        part = self._part(name)
        if "predictions" in part.needs:
            if step.outputs is None:
                raise ValueError(f"expected predictions beside the features for {name!r}, got none")
            step = step._replace(outputs=self.decode(step.outputs))
        if name in self.anneals and not self._told:
            raise ValueError(
                f"expected to be told of each step, as the strength of {name!r} is annealed, with "
                "method.at(step, steps) before its loss, got no such call"
            )
        if name not in self.balances:
            return self._annealed(name, self.strengths[name] * self._checked(name, part.term(step), step))
        found = self._balance(name).weighted(
            step.features,
            task_loss,
            lambda: [self._checked(name, term, step) for term in part.terms(step)],
            list(part.term_weights().values()),
            lambda: part.rounding(step.features, step.batch.targets),
        )
        return self._annealed(name, found)

    def _annealed(self, name: str, value: Tensor) -> Tensor:
        """What is proportional to the strength of a term, at the present progress."""
        if name not in self.anneals:
            return value
        if self.progress.device != value.device:  # once, if at all
            self.progress = self.progress.to(value.device)
        return annealed(self.progress, self.anneals[name]).to(value.dtype) * value

    def _checked(self, name: str, value: Tensor, step: Step) -> Tensor:
        """The loss or term of a part, or a ValueError that names it."""
        where = self._where(name, self.steps)
        if not isinstance(value, Tensor) or value.dim() != 0:
            raise ValueError(f"expected a scalar {where}, got {_in_words(value)}")
        if _traced():
            return value
        features, outputs = step.features, step.outputs
        learns = features.requires_grad
        if name == self._predicting and isinstance(outputs, Tensor):  # of a head on fixed features too
            learns = learns or outputs.requires_grad
        if torch.is_grad_enabled() and learns and not value.requires_grad:
            raise ValueError(f"expected a value with a gradient {where}, got one without")
        if value.device.type == "cpu" and not math.isfinite(value.item()):
            own = [features] if outputs is None else [features, outputs]
            if all(bool(each.isfinite().all()) for each in own if isinstance(each, Tensor)):
                raise ValueError(f"expected a finite number {where}, got {value.item()} of finite features")
        return value

    def _checked_batch(self, name: str, batch: Batch, before: Batch) -> Batch:
        """The batch as a part has changed it, or a ValueError that names the part."""
        where = self._where(name, self.steps + 1)
        if not isinstance(batch, Batch):
            raise ValueError(f"expected a Batch {where}, got {_in_words(batch)}")
        shape = before.targets.shape
        if not isinstance(batch.targets, Tensor) or batch.targets.shape != shape:
            raise ValueError(f"expected targets {tuple(shape)} {where}, got {_in_words(batch.targets)}")
        if isinstance(batch.inputs, Tensor) and len(batch.inputs) != len(batch.targets):
            raise ValueError(f"expected inputs of n={len(batch.targets)} rows {where}, got {_in_words(batch.inputs)}")
        weight = batch.weight
        if weight is None:
            return batch
        if not isinstance(weight, Tensor) or not _fits(weight, shape):
            raise ValueError(f"expected weights that fit targets {tuple(shape)} {where}, got {_in_words(weight)}")
        if _on_host(weight):
            wrong = ~(weight.isfinite() & (weight >= 0))
            wrong = wrong if batch.mask is None else wrong & batch.mask
            if wrong.any():
                raise ValueError(f"expected finite weights of at least 0 {where}, got {int(wrong.sum())} others")
        return batch

    def _where(self, name: str, step: int) -> str:
        return f"from the method {name!r} in step {step}"

    def _named(self, name: str, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
        front = "" if len(self.parts) == 1 else f"{name}/"
        return {f"{front}{key}": torch.as_tensor(value) for key, value in own.items()}

    def _each(self) -> list[tuple[str, Method]]:
        return [(name, self._part(name)) for name in self.parts]

    def _part(self, name: str) -> Method:
        part = self.parts[name]
        assert isinstance(part, Method)
        return part

    def _balance(self, name: str) -> Balance:
        balance = self.balances[name]
        assert isinstance(balance, Balance)
        return balance

    def _only(self, *kinds: str) -> str | None:
        """The one part of some kinds; two are a ValueError."""
        found = [name for name, part in self._each() if part.kind in kinds]
        if len(found) > 1:
            what = {"head": "head or prediction loss", "weights": "weighting"}.get(kinds[0], kinds[0])
            raise ValueError(
                f"expected at most one {what}, got {' and '.join(map(repr, found))}: each would {KINDS[kinds[-1]]}"
            )
        return found[0] if found else None

    def _set_stages(self) -> None:
        """The stages are those of the one part that has any."""
        staged = [name for name, part in self._each() if len(part.stages) > 1]
        if len(staged) > 1:
            raise ValueError(f"expected at most one method of two stages, got {' and '.join(map(repr, staged))}")
        if staged and self.balances:
            raise ValueError(
                f"expected fixed strengths beside {staged[0]!r}, whose first stage has no task loss that a strength "
                f"could be balanced against, got a balance for {', '.join(map(repr, self.balances))}"
            )
        blind = [name for name, part in self._each() if staged and "predictions" in part.needs]
        if blind:
            raise ValueError(
                f"expected no method of two stages beside {blind[0]!r}, which has to {_NEEDS['predictions']}, got "
                f"{staged[0]!r}, whose first stage has none"
            )
        if staged:
            self.stages, self.first_stage = self._part(staged[0]).stages, self._part(staged[0]).first_stage
        self.views = max(part.views for _, part in self._each())


def _strength(name: str, given: Any) -> float:
    """Of a term, checked."""
    if isinstance(given, bool) or not isinstance(given, Real):
        raise TypeError(f"expected the strength of {name!r} to be a number, got {_in_words(given)}")
    if not 0 <= float(given) < math.inf:
        raise ValueError(f"expected the strength of {name!r} to be a number from 0 on, got {given}")
    return float(given)


def _anneal(name: str, given: Any) -> float:
    """Of a term, checked."""
    if isinstance(given, bool) or not isinstance(given, Real):
        raise TypeError(f"expected anneal of {name!r} to be a number, got {_in_words(given)}")
    if not 0 <= float(given) <= 1:
        raise ValueError(f"expected anneal of {name!r} to be a share of the training from 0 to 1, got {given}")
    return float(given)


def _in_words(value: object) -> str:
    return f"the shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"


def _fits(part: Tensor, shape: torch.Size) -> bool:
    """Whether a tensor can be expanded to a shape."""
    sizes = zip(reversed(part.shape), reversed(shape), strict=False)
    return part.dim() <= len(shape) and all(own in (1, size) for own, size in sizes)


def _traced() -> bool:
    return torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None


def _on_host(value: Tensor) -> bool:
    """Whether values may be looked at without waiting for a device."""
    return value.device.type == "cpu" and not _traced()


def forward_step(
    method: Composition,
    encoder: Callable[[Any], Tensor],
    head: Callable[[Tensor], Any],
    batch: Batch,
    task: TaskLoss,
    generator: torch.Generator | None = None,
    *,
    stage: str = "joint",
) -> Step:
    """What :func:`training_loss` takes the loss of, for a loop that wants the outputs too. Arguments as there."""
    batch = method.change(batch, generator)
    with torch.set_grad_enabled(torch.is_grad_enabled() and stage != "head"):
        features = encoder(batch.inputs)
    return step_from(features, method, head, batch, task, stage=stage)


def step_from(
    features: Tensor,
    method: Composition,
    head: Callable[[Tensor], Any],
    batch: Batch,
    task: TaskLoss,
    *,
    stage: str = "joint",
) -> Step:
    """What :func:`forward_step` does behind the encoder, for a loop whose encoder is that of many runs.

    Args:
        features: of the inputs of the batch.
        method: that has changed the batch.
        head: as in :func:`training_loss`.
        batch: as the method has changed it.
        task: as in :func:`training_loss`.
        stage: likewise.
    """
    outputs = None if stage == "encoder" else head(method.calibrate(features, batch))
    method.observe(features.detach(), batch.targets)
    return Step(batch, features, outputs, task)


def training_loss(
    method: Composition,
    encoder: Callable[[Any], Tensor],
    head: Callable[[Tensor], Any],
    batch: Batch,
    task: TaskLoss,
    generator: torch.Generator | None = None,
    *,
    stage: str = "joint",
) -> Tensor:
    """The loss of one training step: the one place where a network and a method are put together.

    Args:
        method: of :func:`ordinal_entropy.methods.create`, prepared.
        encoder: from ``batch.inputs`` to features.
        head: from features to outputs; ``method.head(width, t)`` or a layer of ``method.outputs(t)`` numbers.
        batch: rows of this step.
        task: the loss of predictions, where no part has its own.
        generator: of everything that the method draws.
        stage: one of ``method.stages``, which a loop goes through in order.

    Returns:
        Scalar. In the stage "encoder" the head does not run; in the stage "head" the encoder has no gradient.

    Example:
        >>> from ordinal_entropy.methods import create
        >>> method, head = create("oe", strength=0.1), nn.Linear(2, 1)
        >>> batch = Batch(torch.eye(2), torch.tensor([[0.0], [1.0]]))
        >>> task = lambda outputs, targets, mask, weight: (outputs - targets).square().mean()
        >>> training_loss(method, nn.Identity(), head, batch, task).shape
        torch.Size([])
    """
    return method.loss(forward_step(method, encoder, head, batch, task, generator, stage=stage), stage)


def require(method: Composition, can: Collection[str], who: str, because: str, *, maps: bool = False) -> None:
    """A ValueError, in one sentence, where a loop cannot honour what a method needs.

    Args:
        method: that is asked for.
        can: kinds of parts that the loop honours, and "views", "stages", "parameters", "after_step", "predictions" and
            "progress" where it does.
        who: the loop, in words.
        because: why it cannot do the rest.
        maps: features are maps, with masks.
    """
    for name in method.parts:
        if maps and not method.takes_maps(name):
            raise ValueError(f"{who} cannot train {name!r}, which takes rows of features and targets, not maps")
    for need, name in method.requirements().items():
        if need not in can:
            raise ValueError(f"{who} cannot train {name!r}, which {what_is_needed(need)}: {because}")


def what_is_needed(need: str) -> str:
    """A requirement in words.

    Example:
        >>> what_is_needed("weights")
        'has to weight the task loss row by row'
    """
    return f"has to {_NEEDS.get(need, need)}"


def stage_of(method: Method, epoch: int, epochs: int) -> str:
    """The stage of an epoch, counted from 0: two stages share the epochs, and each has one at least.

    Example:
        >>> stage_of(Method(), 3, 10)
        'joint'
    """
    if len(method.stages) == 1:
        return method.stages[0]
    return method.stages[int(epoch >= first_epochs(method, epochs))]


def first_epochs(method: Method, epochs: int) -> int:
    """How many of the epochs are of the first of two stages; 0 where there is one."""
    if len(method.stages) == 1:
        return 0
    if epochs < len(method.stages):
        raise ValueError(f"expected at least {len(method.stages)} epochs for two stages, got {epochs}")
    return min(max(round(method.first_stage * epochs), 1), epochs - 1)


def _no_task_loss(outputs: Tensor, targets: Tensor, mask: Tensor | None, weight: Tensor | None) -> Tensor:
    raise RuntimeError("expected a loop that computes the task loss itself")
