"""The training step of a whole stack, written out: products, the regularizer's gradient, AdamW, all in place.

The gradient of the perceptron is written by hand: each buffer is made once, and the regularizer is differentiated on
its own, at the few rows that were drawn. A step looks at no value on the host, so the same code runs on a CPU and
inside a CUDA graph.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from ordinal_entropy import balance
from ordinal_entropy.methods.ordinal_entropy import BALANCED
from ordinal_entropy.tasks.operators import model
from ordinal_entropy.tasks.operators.draws import drawn_rows
from ordinal_entropy.tasks.operators.jobs import Geometry, Group, Job, groups, regularizer_of
from ordinal_entropy.tasks.operators.pairs import pair_weights, weighted_distances
from ordinal_entropy.tasks.operators.single import Single

_MOST_TERMS = 2  # of a method: diversity and tightness
_PIECE = 2**14  # parameters that one processor of a GPU updates
_BLOCK = {"cpu": 2**21, "cuda": 2**25}  # numbers in one hidden layer of all runs, in an evaluation


class Bundle(NamedTuple):
    """Groups whose regularizers are one sum over pairs, or one group that calls its method."""

    groups: list[Group]
    runs: int
    samples: int
    geometry: Geometry | None


class Draws(NamedTuple):
    """Rows for the regularizers in a step, those of all bundles behind each other."""

    rows: Tensor  # (k,) into all rows of all runs
    targets: Tensor  # (k, 1)
    weights: list[Tensor | None]  # (runs, samples, samples) for each bundle with a geometry


class Stepping:
    """A stack in training: parameters, the state of AdamW, the number of steps done.

    Args:
        jobs: in stack order, all with the same number of rows.
        inputs: ``(r, n, i)`` training rows of each run, float64 on the CPU.
        targets: ``(r, n, 1)``, likewise.
        hidden: width of the hidden layers.
        learning_rate: of AdamW.
        weight_decay: of AdamW.
        dtype: that is computed in.
        device: that is computed on.
        steps: in all, which two stages share.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        inputs: Tensor,
        targets: Tensor,
        *,
        hidden: int,
        learning_rate: float,
        weight_decay: float,
        dtype: torch.dtype,
        device: torch.device,
        steps: int = 0,
    ) -> None:
        _, n, i = inputs.shape
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self.targets = targets.to(device, dtype)
        self.inputs = self._rows_with_one(i)
        self.inputs[..., :i].copy_(inputs)
        self.groups = groups(jobs, targets, like=self.targets)
        self.seeds = torch.tensor([job.seed for job in jobs], device=device)
        self.bundles = _bundles(self.groups)
        # What a mean over runs is to be multiplied by, so that each run gets its own gradient whole.
        self.sizes = {group.runs.start: self.targets.new_tensor(_count(group)) for group in self.groups}

        heads: list[tuple[int, int]] = []
        for group in self.groups:
            runs, outputs = _count(group), group.method.outputs(1)
            if heads and heads[-1][1] == outputs:
                heads[-1] = heads[-1][0] + runs, outputs
            else:
                heads.append((runs, outputs))
        self.stack = model.empty(i, hidden, heads, dtype=dtype, device=str(device))
        model.fill(self.stack, [job.seed for job in jobs], [job.initial for job in jobs])
        self.gradient = model.like(self.stack)
        self.singles = {
            run: Single(
                group.method,
                jobs[run].seed,
                model.of_run(self.stack, run),
                self.inputs[run, :, :i],
                self.targets[run],
                steps=steps,
                learning_rate=learning_rate,
                weight_decay=weight_decay,
            )
            for group in self.groups
            if group.single
            for run in (group.runs.start,)
        }
        # All that a step changes and the next one needs. These tensors stay where they are.
        self._state = {
            "parameters": self.stack.flat,
            "mean": torch.zeros_like(self.stack.flat),
            "square": torch.zeros_like(self.stack.flat),
            "adam_step": torch.zeros(len(self._pieces(self.stack.flat)), dtype=torch.float32, device=device),
            "step": torch.zeros((), dtype=torch.int64, device=device),
        }
        fractions = [job.balance if job.method in BALANCED else 0.0 for job in jobs]
        self.fractions = self.targets.new_tensor(fractions) if any(fractions) else None  # (r,)
        if self.fractions is not None:  # running sums for strengths that set themselves
            self._state["squares"] = self.targets.new_zeros(1 + _MOST_TERMS, len(jobs))
            self._state["balanced_steps"] = self.targets.new_zeros(len(jobs))
        numbers = torch.arange(len(jobs), device=device)
        self.runs = [torch.cat([numbers[group.runs] for group in bundle.groups]) for bundle in self.bundles]
        self.hidden = [self._rows_with_one(hidden) for _ in self.stack.hidden]
        self.by_hidden = [torch.zeros_like(z) for z in self.hidden]
        self.outputs = [self.targets.new_empty(runs, n, outputs) for runs, outputs in heads]
        self.by_outputs = [torch.empty_like(z) for z in self.outputs]
        drawn = sum(bundle.runs * bundle.samples for bundle in self.bundles)
        self.drawn = self.targets.new_empty(drawn, hidden)  # features of the drawn rows; read on several streams
        # On a GPU the regularizers run beside each other: they are many small kernels.
        self.streams = [torch.cuda.Stream(device) for _ in self.bundles] if device.type == "cuda" else []

    @property
    def state(self) -> dict[str, Tensor]:
        """All that a step changes and the next one needs, by name."""
        if not self.singles:
            return self._state
        own = {
            f"{run}.{name}": tensor for run, single in self.singles.items() for name, tensor in single.state().items()
        }
        return {**self._state, **own}

    def _rows_with_one(self, width: int) -> Tensor:
        """Room for rows ``(r, n, width)`` that a 1 follows, each beginning where a GPU reads fastest."""
        rows = self.targets.new_zeros(*self.targets.shape[:2], -(-(width + 1) // 8) * 8)
        rows[..., width] = 1
        return rows

    @torch.no_grad()
    def advance(self, steps: int) -> None:
        """So many steps."""
        first = int(self._state["step"]) if self.singles else 0  # a look at the device, which a graph must not take
        for number, draws in enumerate(self._draws(steps)):
            self._step(draws)
            for single in self.singles.values():
                single.step(first + number)
        self._state["step"] += steps

    @torch.no_grad()
    def restore(self, state: dict[str, Tensor]) -> None:
        """Goes back to a copy of ``state``."""
        for name, tensor in self.state.items():
            tensor.copy_(state[name])

    @torch.no_grad()
    def mean_squared_errors(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Of the decoded predictions, ``(r,)`` in float64.

        Args:
            inputs: ``(r, n, i)``, or ``(n, i)`` for all.
            targets: ``(r, n, 1)`` or ``(n, 1)``, float64.
        """
        r, _, hidden = self.hidden[0].shape
        n = inputs.shape[-2]
        block = max(1, _BLOCK[inputs.device.type] // (r * hidden))
        total = torch.zeros(r, dtype=torch.float64, device=inputs.device)
        for start in range(0, n, block):
            _, predictions = self.features_and_predictions(inputs[..., start : start + block, :])
            total += (predictions.double() - targets[..., start : start + block, :]).square().sum((1, 2))
        return total / n

    @torch.no_grad()
    def features_and_predictions(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Of each run, ``(r, n, hidden)`` and, decoded, ``(r, n, 1)``.

        Args:
            inputs: ``(r, n, i)``, or ``(n, i)`` for all.
        """
        features, outputs = model.forward(self.stack, inputs)
        found = [self._of(group, outputs) for group in self.groups]
        for place, group in enumerate(self.groups):
            if group.single and group.method.own_head:
                found[place] = self.singles[group.runs.start].head(features[group.runs])
        each = zip(self.groups, found, strict=True)
        return features, torch.cat([group.method.decode(own) for group, own in each])

    def _draws(self, steps: int) -> list[Draws]:
        """Of so many steps, found at once: few operations instead of few in each step."""
        n = self.targets.shape[1]
        numbers = self.state["step"] + torch.arange(steps, device=self.seeds.device)
        rows, targets, weights = [], [], []
        for bundle in self.bundles:
            in_bundle = []
            for group in bundle.groups:
                own = drawn_rows(self.seeds[group.runs], numbers, n, bundle.samples)  # (s, runs, samples)
                own = own + n * torch.arange(group.runs.start, group.runs.stop, device=own.device)[:, None]
                y = self.targets.view(-1, 1)[own]  # (s, runs, samples, 1)
                rows.append(own.flatten(1))
                targets.append(y.flatten(1, 2))
                if group.pairs is not None:
                    in_bundle.append(
                        -group.pairs.strength * pair_weights(y, group.pairs.weighting, group.pairs.rescale)
                    )
            weights.append(torch.cat(in_bundle, 1) if in_bundle else None)
        if not self.bundles:
            return [Draws(self.seeds[:0], self.targets[0, :0], [])] * steps
        by_step = zip(torch.cat(rows, 1), torch.cat(targets, 1), strict=True)
        return [Draws(*both, [w if w is None else w[k] for w in weights]) for k, both in enumerate(by_step)]

    def _step(self, draws: Draws) -> None:
        """Forward, the gradient at outputs and features, backward, AdamW."""
        stack, gradient = self.stack, self.gradient
        x = self.inputs
        for (_, matrix), z in zip(stack.hidden, self.hidden, strict=True):
            _, below, width = matrix.shape
            torch.bmm(x[..., :below], matrix, out=z[..., :width])
            x = z.relu_()
        width = stack.hidden[-1].matrix.shape[2]
        features, by_features = self.hidden[-1][..., : width + 1], self.by_hidden[-1][..., :width]
        by_drawn = self._regularizers(draws)  # on a GPU beside what follows
        room = self.by_hidden[-1][..., : width + 1]  # until the gradient is written there
        for (runs, matrix), out in zip(stack.heads, self.outputs, strict=True):
            _product(features[runs], matrix, out, room[runs])

        self._task_loss()
        for head, by_head, by_out in zip(stack.heads, gradient.heads, self.by_outputs, strict=True):
            _product(features[head.runs].mT, by_out, by_head.matrix, room[head.runs].mT)
            if by_out.shape[2] == 1:
                torch.mul(by_out, head.weight.mT, out=by_features[head.runs])
            else:
                torch.bmm(by_out, head.weight.mT, out=by_features[head.runs])
        for stream in self.streams:
            torch.cuda.current_stream().wait_stream(stream)
        if by_drawn:  # a row that was not drawn gets nothing
            together = torch.cat(self._strengthened(by_drawn, by_features, draws))
            self.by_hidden[-1].flatten(0, 1)[:, :width].index_add_(0, draws.rows, together)

        below_of = [self.inputs, *self.hidden[:-1]]
        for k in reversed(range(len(stack.hidden))):
            by_z, matrix = self.by_hidden[k], stack.hidden[k].matrix
            torch.ops.aten.threshold_backward.grad_input(by_z, self.hidden[k], 0, grad_input=by_z)  # of relu
            by_z = by_z[..., : matrix.shape[2]]
            torch.bmm(below_of[k][..., : matrix.shape[1]].mT, by_z, out=gradient.hidden[k].matrix)
            if k > 0:
                torch.bmm(by_z, stack.hidden[k].weight.mT, out=self.by_hidden[k - 1][..., : matrix.shape[1] - 1])
        self._adamw()

    def _task_loss(self) -> None:
        """Gradient at the outputs of each run's mean squared error, or of the loss that stands in its place."""
        n = self.targets.shape[1]
        for head, out, by_out in zip(self.stack.heads, self.outputs, self.by_outputs, strict=True):
            if by_out.shape[2] == 1:
                torch.sub(out, self.targets[head.runs], out=by_out).mul_(2 / n)
        for group in self.groups:
            if group.method.replaces_task_loss and not group.single:
                size = self.sizes[group.runs.start]
                leaf = self._of(group, self.outputs).detach().requires_grad_()
                with torch.enable_grad():
                    value = group.method(self.hidden[-1][group.runs], self.targets[group.runs], predictions=leaf)
                self._of(group, self.by_outputs).copy_(torch.autograd.grad(value, leaf, size)[0])

    def _regularizers(self, draws: Draws) -> list[list[Tensor]]:
        """Gradients of what the methods add, at the drawn rows of each bundle ``(k, hidden)``.

        Of a bundle whose strengths set themselves those of each term, of all others their sum.
        """
        width = self.stack.hidden[-1].matrix.shape[2]
        drawn = self.drawn
        torch.index_select(self.hidden[-1].flatten(0, 1)[:, :width], 0, draws.rows, out=drawn)
        found = []
        start = 0
        for k, bundle in enumerate(self.bundles):
            shape = bundle.runs, bundle.samples, -1
            some = slice(start, start + bundle.runs * bundle.samples)
            start = some.stop
            leaf = drawn[some].view(shape).detach().requires_grad_()
            with self._beside(k), torch.enable_grad():
                weights, factors = draws.weights[k], None
                if bundle.geometry is not None and weights is not None:
                    values = [weighted_distances(leaf, weights, *bundle.geometry)]
                else:
                    values, factors = self._called(bundle.groups[0], leaf, draws.targets[some].view(shape))
                if factors is not None and _is_balanced(bundle.groups[0]):
                    each = [torch.autograd.grad(value, leaf, own) for value, own in zip(values, factors, strict=True)]
                else:
                    each = [torch.autograd.grad(values, leaf, factors)]
                found.append([one[0].contiguous().flatten(0, 1) for one in each])
        return found

    def _strengthened(self, by_drawn: list[list[Tensor]], by_features: Tensor, draws: Draws) -> list[Tensor]:
        """The gradients of each bundle, ``(k, hidden)``, where strengths set themselves with these.

        Args:
            by_drawn: from :meth:`_regularizers`.
            by_features: ``(r, n, hidden)``, the gradient of the task loss.
            draws: of this step.
        """
        if self.fractions is None:
            return [each[0] for each in by_drawn]
        now = torch.zeros_like(self.state["squares"])
        now[0] = by_features.square().sum((1, 2))
        rounding = torch.zeros_like(now[1:])
        start = 0
        for bundle, runs, each in zip(self.bundles, self.runs, by_drawn, strict=True):
            for term, own in enumerate(each):
                now[1 + term, runs] = own.view(len(runs), -1).square().sum(1)
            some = slice(start, start + bundle.runs * bundle.samples)
            start = some.stop
            if _is_balanced(bundle.groups[0]):
                regularizer = regularizer_of(bundle.groups[0].method).regularizer
                shape = bundle.runs, bundle.samples, -1
                rounding[:, runs] = regularizer.rounding(self.drawn[some].view(shape), draws.targets[some].view(shape))
        squares, steps = balance.moved(
            self.state["squares"], self.state["balanced_steps"], now, balance.DECAY, rounding
        )
        self.state["squares"].copy_(squares)
        self.state["balanced_steps"].copy_(steps)
        found = balance.strengths(squares, steps, self.fractions, balance.WARM_UP)  # (terms, r)
        found = torch.where(self.fractions > 0, found, 1)  # others have theirs in the gradient already
        whole = []
        for runs, each in zip(self.runs, by_drawn, strict=True):
            terms = [own.view(len(runs), -1) * found[term, runs, None] for term, own in enumerate(each)]
            whole.append(torch.stack(terms).sum(0).view(each[0].shape))
        return whole

    def _called(self, group: Group, features: Tensor, targets: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Means over the runs of a group of what its method adds, and how many runs each is the mean of."""
        values, factors = [], []
        for term in group.terms:
            values.append(term.method(features, targets))
            if term.only_with_pairs:
                factors.append((targets.amax(1) != targets.amin(1)).sum().to(targets.dtype))
            else:
                factors.append(self.sizes[group.runs.start])
        return values, factors

    @contextmanager
    def _beside(self, number: int) -> Iterator[None]:
        """On a GPU, what is inside runs on a stream of its own, behind all that was launched so far."""
        if not self.streams:
            yield
            return
        stream = self.streams[number]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            yield

    def _of(self, group: Group, tensors: Sequence[Tensor]) -> Tensor:
        """The runs of a group, out of tensors that are one a head."""
        k, head = next((k, head) for k, head in enumerate(self.stack.heads) if group.runs.start < head.runs.stop)
        return tensors[k][group.runs.start - head.runs.start : group.runs.stop - head.runs.start]

    def _adamw(self) -> None:
        """Of all runs; those that step by themselves keep their parameters."""
        kept = [parameter.detach().clone() for single in self.singles.values() for parameter in single.parameters]
        self._adamw_of_all()
        for parameter, value in zip((p for s in self.singles.values() for p in s.parameters), kept, strict=True):
            parameter.copy_(value)

    def _adamw_of_all(self) -> None:
        adamw(
            self._pieces(self.stack.flat),
            self._pieces(self.gradient.flat),
            self._pieces(self.state["mean"]),
            self._pieces(self.state["square"]),
            [],
            list(self.state["adam_step"].unbind()),
            fused=True,
            capturable=self.stack.flat.is_cuda,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self.learning_rate,
            weight_decay=self.weight_decay,
            eps=1e-8,
            maximize=False,
        )

    def _pieces(self, flat: Tensor) -> list[Tensor]:
        """What AdamW takes as one tensor each: on a GPU parts that keep all processors busy."""
        return list(flat.split(_PIECE)) if flat.is_cuda else [flat]


def _product(a: Tensor, b: Tensor, out: Tensor, room: Tensor) -> None:
    """Products ``(r, n, k)`` with ``(r, k, o)``; on a CPU those with one column as sums, which are faster there.

    Such sums are also the same to the last bit however many runs there are. ``room`` has the shape of ``a``.
    """
    if b.shape[2] == 1 and not b.is_cuda:
        torch.sum(torch.mul(a, b.mT, out=room), 2, keepdim=True, out=out)
    else:
        torch.bmm(a, b, out=out)


def _bundles(groups: Sequence[Group]) -> list[Bundle]:
    """Groups that draw rows; those that differ in the weights of their pairs only, together."""
    alike: dict[tuple[Any, ...], list[Group]] = {}
    for k, group in enumerate(groups):
        if group.samples:
            key = (k,) if group.pairs is None else (group.samples, group.pairs.geometry)
            alike.setdefault(key, []).append(group)
    bundles = []
    for together in alike.values():
        pairs = together[0].pairs
        geometry = None if pairs is None else pairs.geometry
        bundles.append(Bundle(together, sum(map(_count, together)), together[0].samples, geometry))
    return bundles


def _is_balanced(group: Group) -> bool:
    return len(group.method.balances) > 0


def _count(group: Group) -> int:
    return len(range(group.runs.start, group.runs.stop))
