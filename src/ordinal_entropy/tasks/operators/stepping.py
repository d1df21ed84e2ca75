"""The training step of a whole stack, written out: products, the regularizer's gradient, AdamW, all in place.

The gradient of the perceptron is written by hand: each buffer is made once, and the regularizer is differentiated on
its own, at the few rows that were drawn. A step looks at no value on the host, so the same code runs on a CPU and
inside a CUDA graph.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from ordinal_entropy import kernels
from ordinal_entropy.tasks.operators import model
from ordinal_entropy.tasks.operators.draws import drawn_rows
from ordinal_entropy.tasks.operators.jobs import Group, Job, groups

# Of few rows the matrices of all pairs cost least: no loop over runs on a CPU, nothing to compile on a GPU.
_FEW_ROWS = 64
_PIECE = 2**14  # parameters that one processor of a GPU updates
_BLOCK = {"cpu": 2**21, "cuda": 2**25}  # numbers in one hidden layer of all runs, in an evaluation


class Draws(NamedTuple):
    """Rows for the regularizer in some steps, those of all groups behind each other."""

    rows: Tensor  # (s, k) into all rows of all runs
    targets: Tensor  # (s, k, 1)


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
    ) -> None:
        _, n, i = inputs.shape
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self.targets = targets.to(device, dtype)
        self.inputs = self._rows_with_one(i)
        self.inputs[..., :i].copy_(inputs)
        self.groups = groups(jobs, targets, like=self.targets)
        self.seeds = torch.tensor([job.seed for job in jobs], device=device)
        self.drawing = [group for group in self.groups if group.samples]
        # What a mean over runs is to be multiplied by, so that each run gets its own gradient whole.
        self.sizes = [self.targets.new_tensor(group.runs.stop - group.runs.start) for group in self.groups]

        heads: list[tuple[int, int]] = []
        for group in self.groups:
            runs, outputs = group.runs.stop - group.runs.start, group.method.outputs(1)
            if heads and heads[-1][1] == outputs:
                heads[-1] = heads[-1][0] + runs, outputs
            else:
                heads.append((runs, outputs))
        self.stack = model.empty(i, hidden, heads, dtype=dtype, device=str(device))
        model.fill(self.stack, [job.seed for job in jobs], [job.initial for job in jobs])
        self.gradient = model.like(self.stack)
        # All that a step changes and the next one needs. These tensors stay where they are.
        self.state = {
            "parameters": self.stack.flat,
            "mean": torch.zeros_like(self.stack.flat),
            "square": torch.zeros_like(self.stack.flat),
            "adam_step": torch.zeros(len(self._pieces(self.stack.flat)), dtype=torch.float32, device=device),
            "step": torch.zeros((), dtype=torch.int64, device=device),
        }
        self.hidden = [self._rows_with_one(hidden) for _ in self.stack.hidden]
        self.by_hidden = [torch.zeros_like(z) for z in self.hidden]
        self.outputs = [self.targets.new_empty(runs, n, outputs) for runs, outputs in heads]
        self.by_outputs = [torch.empty_like(z) for z in self.outputs]
        # On a GPU the regularizers of the groups run beside each other: they are many small kernels.
        self.streams = [torch.cuda.Stream(device) for _ in self.drawing] if device.type == "cuda" else []

    def _rows_with_one(self, width: int) -> Tensor:
        """Room for rows ``(r, n, width)`` that a 1 follows, each beginning where a GPU reads fastest."""
        rows = self.targets.new_zeros(*self.targets.shape[:2], -(-(width + 1) // 8) * 8)
        rows[..., width] = 1
        return rows

    @torch.no_grad()
    def advance(self, steps: int) -> None:
        """So many steps."""
        draws = self._draws(steps)
        for k in range(steps):
            self._step(None if draws is None else Draws(draws.rows[k], draws.targets[k]))
        self.state["step"] += steps

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
            _, outputs = model.forward(self.stack, inputs[..., start : start + block, :])
            y = targets[..., start : start + block, :].expand(r, -1, -1)
            for group in self.groups:
                predictions = group.method.decode(self._of(group, outputs))
                total[group.runs] += (predictions.double() - y[group.runs]).square().sum((1, 2))
        return total / n

    def _draws(self, steps: int) -> Draws | None:
        if not self.drawing:
            return None
        n = self.targets.shape[1]
        numbers = self.state["step"] + torch.arange(steps, device=self.seeds.device)
        parts = []
        for group in self.drawing:
            rows = drawn_rows(self.seeds[group.runs], numbers, n, group.samples)  # (s, runs, samples)
            first = n * torch.arange(group.runs.start, group.runs.stop, device=rows.device)
            parts.append((rows + first[:, None]).flatten(1))
        rows = torch.cat(parts, 1)
        return Draws(rows, self.targets.view(-1, 1)[rows])

    def _step(self, draws: Draws | None) -> None:
        """Forward, the gradient at outputs and features, backward, AdamW."""
        stack, gradient = self.stack, self.gradient
        x = self.inputs
        for (_, matrix), z in zip(stack.hidden, self.hidden, strict=True):
            _, below, width = matrix.shape
            torch.bmm(x[..., :below], matrix, out=z[..., :width])
            x = z.relu_()
        width = stack.hidden[-1].matrix.shape[2]
        features, by_features = self.hidden[-1][..., : width + 1], self.by_hidden[-1][..., :width]
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
        if draws is not None:  # a row that was not drawn gets nothing
            self.by_hidden[-1].flatten(0, 1)[:, :width].index_add_(0, draws.rows, self._regularizers(draws))

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
        for group, size in zip(self.groups, self.sizes, strict=True):
            if group.method.replaces_task_loss:
                leaf = self._of(group, self.outputs).detach().requires_grad_()
                with torch.enable_grad():
                    value = group.method(self.hidden[-1][group.runs], self.targets[group.runs], predictions=leaf)
                self._of(group, self.by_outputs).copy_(torch.autograd.grad(value, leaf, size)[0])

    def _regularizers(self, draws: Draws) -> Tensor:
        """Gradient ``(k, hidden)`` of the sum over all runs of what their methods add, at the drawn rows."""
        width = self.stack.hidden[-1].matrix.shape[2]
        drawn = self.hidden[-1].flatten(0, 1)[:, :width].index_select(0, draws.rows)
        found = []
        start = 0
        sizes = [size for group, size in zip(self.groups, self.sizes, strict=True) if group.samples]
        for k, (group, size) in enumerate(zip(self.drawing, sizes, strict=True)):
            shape = group.runs.stop - group.runs.start, group.samples, -1
            some = slice(start, start + shape[0] * shape[1])
            start = some.stop
            with self._beside(k):
                found.append(_gradient(group, size, drawn[some].view(shape), draws.targets[some].view(shape)))
        for stream in self.streams:
            torch.cuda.current_stream().wait_stream(stream)
        return torch.cat([part.flatten(0, 1) for part in found])

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


def _gradient(group: Group, size: Tensor, features: Tensor, targets: Tensor) -> Tensor:
    """Of the sum over the runs of a group of what its method adds, at features ``(runs, samples, hidden)``."""
    leaf = features.requires_grad_()
    values, factors = [], []
    few = kernels.use("reference") if group.samples <= _FEW_ROWS else nullcontext()
    with torch.enable_grad(), few:
        for term in group.terms:
            values.append(term.method(leaf, targets))
            with_pairs = (targets.amax(1) != targets.amin(1)).sum().to(size.dtype) if term.only_with_pairs else size
            factors.append(with_pairs)
    return torch.autograd.grad(values, leaf, factors)[0]
