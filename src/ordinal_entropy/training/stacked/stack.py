"""Many runs trained as one stack: a step for all of them, and what each method does for its runs.

A step is rows of each run, forward, the gradients of what each method makes of them, backward, AdamW. Runs of the
baseline, those of one regularizer, whose strengths may differ, and those of one loss over groups are computed together;
every other method is called run by run. But for rounding, the numbers of a run do not depend on what trains beside it,
and a run that diverges does not disturb the others.

A run of TabM is several members that share weights. To a method each of them is what a run is otherwise: it has its own
features, its own head and its own copy of the method, and the loss of the run is the mean of theirs. They share the
batch, as the first one's method has changed it, and predict by their mean. ``k`` counts them; what is behind the
features lies in stretches of ``k`` for each run.

A step of runs that are computed together looks at no value on the host, so the same code runs in a CUDA graph. All that
it changes and the next one needs lies in tensors that stay where they are (:attr:`Stack.state`).
"""

import itertools
import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ordinal_entropy.methods import Batch, Composition, first_epochs, squared_error, step_from
from ordinal_entropy.models.embeddings import Pieces
from ordinal_entropy.runs import require_form
from ordinal_entropy.training.graphs import captured
from ordinal_entropy.training.stacked import network
from ordinal_entropy.training.stacked.members import Member, Own, Rows, joined, kind_of, prepared
from ordinal_entropy.training.stacked.network import Network, Parameters, Perceptron, Shape, Views
from ordinal_entropy.training.stacked.regularizers import Draws, Group, Regularizers, unit_of
from ordinal_entropy.training.stacked.strengths import Strengths
from ordinal_entropy.training.stacked.tabm import TabM

_LOG = logging.getLogger(__name__)
_BATCHES, _DRAWS, _DROPOUT = 2, 3, 4  # streams of a seed
_BLOCK = {"cpu": 2**21, "cuda": 2**25}  # numbers in one layer of all runs, in an evaluation
_AT_ONCE = {"cpu": 10, "cuda": 50}  # steps of which the draws are found together; on a GPU, in one graph
_PIECE = 2**14  # parameters that one processor of a GPU updates
_MOMENTS = {"exp_avg": "own_mean", "exp_avg_sq": "own_square", "step": "own_steps"}  # of what a run has of its own


class Stack:
    """Runs in training.

    Args:
        members: in the order of :func:`members.order_of`, with stages of one length.
        shape: of the networks, but for the outputs.
        rows: that they are trained on.
        device: that is computed on.
        pieces: of each run ``(r, p, t)``, for the embedding that asks for them.
    """

    def __init__(
        self,
        members: Sequence[Member],
        shape: Shape,
        rows: Rows,
        *,
        device: torch.device,
        pieces: Pieces | None = None,
    ) -> None:
        self.members, self.rows, self.device = list(members), rows, device
        self.k = shape.members  # of the network of each run
        self.step = 0  # steps done
        self.epoch_steps, self.step_rows = rows.steps_and_rows()
        self._steps = rows.epochs * self.epoch_steps  # of the whole training
        firsts = {first_epochs(member.method, rows.epochs) for member in members}
        if len(firsts) > 1:
            raise ValueError("expected runs with stages of one length in a stack, got several")
        self.first_stage = self.epoch_steps * firsts.pop()  # steps; 0: there is one stage
        self.inputs, self.targets = rows.inputs.to(device, shape.dtype), rows.targets.to(device, shape.dtype)
        self.which = torch.tensor(rows.which, device=device)
        self._sets, self._runs = (torch.arange(n, device=device)[:, None] for n in (len(rows.inputs), len(members)))
        self.own = [own.to(device) for run in range(len(members)) for own in self._prepared(run, shape)]
        for note in dict.fromkeys(note for own in self.own for note in own.method.notes):
            _LOG.warning("%s", note)
        self._sort()
        self.network = self._network(shape, pieces)
        self._regularize(shape.hidden)
        self._optimize()
        # of each run that predicts by an average of its weights: these, and the average
        self._weights = {run: self._weights_of(run) for run in self._single_runs() if members[run].method.averages}
        self._averages = {run: self._begun_average(run) for run in self._weights}
        self.best = network.empty(shape, self._heads, device)  # parameters of each run where validation was best
        self.best.flat.copy_(self.network.parameters.flat)
        self.best_own = [_copied(self._own_of(run)) for run in range(len(members))]
        self.best_score = torch.full((len(members),), math.inf, dtype=torch.float64)
        self.squared_errors = torch.zeros(len(members), dtype=torch.float64, device=device)  # of this epoch's steps
        self._batches: dict[int, Batch] = {}  # of runs that are called one by one, in this step
        self._outputs: dict[int, Any] = {}  # likewise
        self._seeds: dict[int, int] = {}  # likewise, of what their methods draw
        # of each of them the linear head, weight and bias, as leaves of autograd, and where their gradients belong
        self._linear = {run: self._linear_of(run) for run in self.singles}
        self._graph: torch.cuda.CUDAGraph | None = None
        self._graph_steps = 0
        if rows.batch_size is None:
            self.network.load(self.inputs[self.which])

    # What is made once

    def _prepared(self, run: int, shape: Shape) -> list[Own]:
        inputs, targets = self.rows.of_run(run)
        return prepared(self.members[run], inputs.to(shape.dtype), targets.to(shape.dtype), shape.hidden, self.k)

    def _sort(self) -> None:
        """Which runs are computed together, and how."""
        kinds = [kind_of(member, self.rows.of_run(run)[1]) for run, member in enumerate(self.members)]
        if any(later < earlier for earlier, later in itertools.pairwise(kinds)):
            raise ValueError("expected the members of a stack in the order of order_of")
        by_rank: list[list[slice]] = [[], [], [], []]
        self._heads: list[tuple[int, int]] = []  # runs and outputs of each stretch of runs
        start = 0
        for end in range(1, len(kinds) + 1):
            if end < len(kinds) and kinds[end] == kinds[start]:
                continue
            by_rank[kinds[start].rank].append(slice(self.k * start, self.k * end))
            count, outputs = self.k * (end - start), kinds[start].outputs
            if self._heads and self._heads[-1][1] == outputs:
                self._heads[-1] = self._heads[-1][0] + count, outputs
            else:
                self._heads.append((count, outputs))
            start = end
        baselines, self._regularized, together, singles = by_rank
        self._squared = slice(0, max([0, *(runs.stop for runs in (*baselines, *self._regularized))]))
        self.singles = [run for runs in singles for run in range(runs.start, runs.stop)]
        self._losses = [(runs, joined([own.method for own in self.own[runs]])) for runs in together]

    def _network(self, shape: Shape, pieces: Pieces | None) -> Network:
        found = (Perceptron if shape.network == "perceptron" else TabM)(shape, self._heads, self.device, pieces)
        found.active = [
            k for k, (runs, _) in enumerate(found.parameters.heads) if {*range(runs.start, runs.stop)} - {*self.singles}
        ]
        for run, member in enumerate(self.members):
            views = found.parameters.of_run(run, member.first)
            first = {name: tuple(view.shape) for name, view in views.items()}
            inputs = shape.inputs - (shape.first - first[network.FIRST][0])
            own = Shape(**{**vars(shape), "inputs": inputs, "outputs": first["head.bias"][-1]})
            for name, value in network.initial(own, member.seed, member.initial).items():
                views[name].copy_(value)
        return found

    def _regularize(self, hidden: int) -> None:
        methods: list[Composition | None] = [None] * len(self.own)
        groups = []
        for runs in self._regularized:
            methods[runs] = [own.method for own in self.own[runs]]
            run = runs.start // self.k
            member = self.members[run]
            unit, samples = unit_of(member.method, self.rows.of_run(run)[1]), member.samples
            assert unit is not None
            if samples is not None and self.rows.batch_size is not None:
                raise ValueError("expected steps of all rows where rows are drawn for regularizers, got batches")
            groups.append(Group(runs, unit, samples if samples is None else min(samples, self.step_rows)))
        self.strengths = Strengths(methods, self.targets)
        seeds = torch.tensor([member.seed for member in self.members for _ in range(self.k)], device=self.device)
        self.regularizers = Regularizers(groups, self.strengths, seeds, hidden)

    def _optimize(self) -> None:
        """AdamW, on a GPU of pieces of the flat tensor that keep all processors busy.

        Where runs have settings of their own, it moves zeros in place of the parameters, at a learning rate of 1: what
        it makes of them is the way that each parameter goes, but for the learning rate of its run (:meth:`_move`).
        """
        own, gradient = self.network.parameters, self.network.gradient.flat
        settings = [(member.learning_rate, member.weight_decay) for member in self.members]
        alike = len({*settings}) == 1
        self.moments = [network.empty(self.network.shape, self._heads, self.device) for _ in range(2)]
        self._ways = None if alike else network.empty(self.network.shape, self._heads, self.device)
        rates, decays = torch.tensor(settings, dtype=torch.float64).unbind(1)
        self._rates = rates.to(own.flat)  # of each run, and what remains of its parameters by weight decay alone:
        self._kept = (1 - rates * decays).to(own.flat)
        moved = own if self._ways is None else self._ways
        pieces, flats = [], (moved.flat, gradient, *(moment.flat for moment in self.moments))
        for some in (slice(0, own.encoder), slice(own.encoder, None)):
            size = _PIECE if self.device.type == "cuda" else own.flat[some].numel()
            pieces.append([each[some].split(size) for each in flats])
        counts = [len(each[0]) for each in pieces]
        self._adam_steps = torch.zeros(sum(counts), dtype=torch.float32, device=self.device)
        self._encoder, self._heads_of = ([(p.detach(), g) for p, g, *_ in zip(*each, strict=True)] for each in pieces)
        every = [*self._encoder, *self._heads_of]
        groups = {settings[0] if alike else (1.0, 0.0): [piece for piece, _ in every]}
        for place in self.singles:
            groups.setdefault(settings[place // self.k], []).extend(self.own[place].parameters())
        brought = [each for place in self.singles for each in self.own[place].parameters()]
        self.optimizer = torch.optim.AdamW(
            [{"params": each, "lr": rate, "weight_decay": decay} for (rate, decay), each in groups.items()],
            fused=True,
            capturable=self.device.type == "cuda",
        )
        moments = [pair for each in pieces for pair in zip(*each[2:], strict=True)]
        for (piece, _), (mean, square), step in zip(every, moments, self._adam_steps, strict=True):
            self.optimizer.state[piece] = {"step": step, "exp_avg": mean, "exp_avg_sq": square}
        for tensor in brought:
            self.optimizer.state[tensor] = {
                "step": torch.zeros((), device=self.device),
                "exp_avg": torch.zeros_like(tensor),
                "exp_avg_sq": torch.zeros_like(tensor),
            }
        self._number = torch.zeros((), dtype=torch.int64, device=self.device)  # of the step, where draws are found
        self._state = {
            "parameters": own.flat,
            "mean": self.moments[0].flat,
            "square": self.moments[1].flat,
            "step": self._number,
            "squares": self.strengths.squares,
            "balanced_steps": self.strengths.steps,
        }

    def _weights_of(self, run: int) -> list[Tensor]:
        """All that a run predicts by, but for what its method counts."""
        network = self.network.parameters.of_run(run, self.members[run].first).values()
        heads = [own.head for own in self.own[self.k * run : self.k * (run + 1)]]
        return [each.detach() for each in (*network, *(part for head in heads for part in head.parameters()))]

    def _begun_average(self, run: int) -> list[Tensor]:
        """Copies of the weights, as buffers of what the run has of its own, which are in its checkpoints."""
        found = [each.clone() for each in self._weights[run]]
        for number, each in enumerate(found):
            self.own[self.k * run].register_buffer(f"average_{number}", each)
        return found

    # Steps

    @property
    def stage(self) -> str:
        """Of the next step."""
        stages = self.members[0].method.stages
        return stages[0] if len(stages) == 1 else stages[int(self.step >= self.first_stage)]

    @property
    def epoch(self) -> int:
        """Epochs done."""
        return self.step // self.epoch_steps

    def in_first_stage(self) -> bool:
        """Whether of two stages the second one, which trains the head, has not begun."""
        return self.step <= self.first_stage > 0

    def at_once(self, every: int) -> int:
        """The most steps that :meth:`advance` is to take at once, as a divisor of a number of steps."""
        self._graph_steps = max(k for k in range(1, _AT_ONCE[self.device.type] + 1) if every % k == 0)
        return self._graph_steps

    def advance(self, steps: int) -> None:
        """So many steps; on a GPU, where all is computed together, those of :meth:`at_once` are a graph."""
        alone = self.device.type != "cuda" or self.singles or self.rows.batch_size is not None
        if alone or steps != self._graph_steps:
            self._advance(steps)
            return
        if self._graph is None:
            self._graph = self.captured(steps)
        self._graph.replay()
        self.step += steps

    def captured(self, steps: int) -> torch.cuda.CUDAGraph:
        """A graph of so many steps from wherever the training is, which is not changed by capturing them."""
        now, warm_up = self.step, {**self._state, "adam_steps": self._adam_steps}
        with torch.cuda.device(self.device):
            graph, _ = captured(lambda: self._advance(steps), warm_up=warm_up)
        self.step = now
        return graph

    @torch.no_grad()
    def _advance(self, steps: int) -> None:
        for k, draws in enumerate(self.regularizers.draws(self._number, steps, self.targets)):
            self.strengths.at(self._number + k, self._steps)
            self._step(draws)
            self.step += 1
            if self.step % self.epoch_steps == 0:
                for run in self.singles:
                    self.own[run].method.end_epoch()
        self._number += steps

    def _step(self, draws: Draws) -> None:
        """Rows, forward, gradients at the outputs and the features, backward, AdamW."""
        stage, net = self.stage, self.network
        targets = self._load()
        net.forward(differentiable=stage != "head", seeds=self._seeds_of_dropout())
        features, by_features = net.features.flatten(0, 1), net.by_features.flatten(0, 1)
        gradients = self.regularizers.gradients(features, targets, draws)  # on a GPU beside what follows
        net.forward_heads()
        self._by_outputs(targets)
        net.backward_heads()
        if self.singles:
            self._by_singles(stage)
        self.regularizers.add(by_features, features, targets, draws, gradients)
        if stage != "head":
            net.backward()
        if self.k > 1:
            self._average()
        if self.rows.batch_size is not None:
            self._add_errors(targets)
        for pieces, idle in ((self._encoder, stage == "head"), (self._heads_of, stage == "encoder")):
            for piece, gradient in pieces:
                piece.grad = None if idle else gradient
        if self._ways is not None:
            self._ways.flat.zero_()
        self.optimizer.step()
        if self._ways is not None:
            self._move(self._ways, stage)
        for run, weights in self._weights.items():
            share = self.own[self.k * run].method.share(torch.tensor(self.step + 1), self._steps)
            torch._foreach_lerp_(self._averages[run], weights, float(share))

    def _move(self, ways: Views, stage: str) -> None:
        """Moves the parameters of this stage by the learning rate and the weight decay of each run."""
        for (runs, now), (_, way) in zip(self.network.parameters.parts(stage), ways.parts(stage), strict=True):
            each = -1, *[1] * (now.dim() - 1)
            now.mul_(self._kept[runs].view(each)).addcmul_(way, self._rates[runs].view(each))

    def _average(self) -> None:
        """Makes of the gradient of a sum over the members of each run that of their mean."""
        self.network.gradient.flat.div_(self.k)
        for place in self.singles:
            for parameter in self.own[place].parameters():
                if parameter.grad is not None:
                    parameter.grad.div_(self.k)

    def _load(self) -> Tensor:
        """Puts the rows of this step into the network; their targets ``(r * k, n, 1)``."""
        epoch, number = divmod(self.step, self.epoch_steps)
        x, y = self.inputs, self.targets
        if self.rows.batch_size is not None:
            if number == 0 or self._drawn[0] != epoch:
                self._drawn = epoch, self._drawn_rows(epoch)
                self.squared_errors.zero_()
            rows = self._drawn[1][number]
            x, y = x[self._sets, rows], y[self._runs, rows[self.which]]
            self.network.load(x[self.which])
        for run in self._single_runs():
            first, seed = self.k * run, self._seed_of(run, _DRAWS)
            before = Batch(x[self.which[run]], y[run])
            batch = self.own[first].method.change(before, torch.Generator().manual_seed(seed))
            for place in range(first, first + self.k):
                self._batches[place], self._seeds[place] = batch, seed
            if batch.inputs is not before.inputs:
                self.network.load_run(run, batch.inputs)
        return y if self.k == 1 else y.repeat_interleave(self.k, 0)

    _drawn: tuple[int, list[Tensor]] = (-1, [])  # of an epoch: the rows (s, b) of each step

    def _drawn_rows(self, epoch: int) -> list[Tensor]:
        """Of each set its own."""
        most = self.epoch_steps * self.step_rows
        drawn = [
            np.random.default_rng([seed, _BATCHES, epoch]).permutation(count)[:most]
            for seed, count in zip(self.rows.seeds, self.rows.counts, strict=True)
        ]
        return list(torch.from_numpy(np.stack(drawn)).to(self.device).split(self.step_rows, dim=1))

    def _seed_of(self, run: int, stream: int) -> int:
        """Of what is drawn in this step."""
        place = divmod(self.step, self.epoch_steps)
        return int(np.random.default_rng([self.members[run].seed, stream, *place]).integers(2**62))

    def _seeds_of_dropout(self) -> list[int]:
        """Of each run; none where nothing is left out."""
        if not self.network.shape.dropout:
            return []
        return [self._seed_of(run, _DROPOUT) for run in range(len(self.members))]

    def _single_runs(self) -> list[int]:
        """Those that are called one by one."""
        return [place // self.k for place in self.singles[:: self.k]]

    def _own_of(self, run: int) -> nn.Module:
        """What a run has beside its part of the stack; of several members, of all of them."""
        own = self.own[self.k * run : self.k * (run + 1)]
        return own[0] if self.k == 1 else nn.ModuleList(own)

    def _by_outputs(self, targets: Tensor) -> None:
        """Gradients at the outputs: of squared errors, and of losses that stand in their place."""
        net, runs = self.network, self._squared
        if runs.stop:
            out = net.outputs[0][runs]
            torch.sub(out, targets[runs], out=net.by_outputs[0][runs]).mul_(2 / out.shape[1])
        for runs, method in self._losses:
            k = next(k for k, head in enumerate(net.parameters.heads) if runs.start < head.runs.stop)
            start = net.parameters.heads[k].runs.start
            some = slice(runs.start - start, runs.stop - start)
            leaf = net.outputs[k][some].detach().requires_grad_()
            with torch.enable_grad():
                value = method(net.features[runs], targets[runs], predictions=leaf)
            size = leaf.new_full((), float(len(leaf)))  # of which the value is the mean
            net.by_outputs[k][some].copy_(torch.autograd.grad(value, leaf, size)[0])

    def _by_singles(self, stage: str) -> None:
        """Gradients of the losses of runs that are called one by one, at their features and heads."""
        each = [self._single(run, stage) for run in self.singles]
        torch.autograd.backward([loss for _, loss in each])
        for run, (features, _) in zip(self.singles, each, strict=True):
            weight, bias, *rooms = self._linear[run]
            rooms = [self.network.by_features[run], *rooms]
            for room, leaf in zip(rooms, (features, weight, bias), strict=True):
                room.zero_() if leaf.grad is None else room.copy_(leaf.grad)

    def _single(self, run: int, stage: str) -> tuple[Tensor, Tensor]:
        """Features and loss of a run, as :func:`ordinal_entropy.methods.training_loss` has it behind the encoder."""
        own, batch = self.own[run], self._batches[run]
        features = self.network.features[run].contiguous().requires_grad_(stage != "head")
        weight, bias, *_ = self._linear[run]
        head = own.head if own.method.own_head else lambda z: torch.addmm(bias, z, weight)
        for parameter in (weight, bias, *own.parameters()):
            parameter.grad = None
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seeds[run])  # of regularizers that draw rows
            own.method.at(self.step, self._steps)
            step = step_from(features, own.method, head, batch, squared_error, stage=stage)
            loss = own.method.loss(step, stage)
        self._outputs[run] = step.outputs
        return features, loss

    def _linear_of(self, place: int) -> list[Tensor]:
        now, by = (each.head_of(place) for each in (self.network.parameters, self.network.gradient))
        return [*(each.detach().requires_grad_() for each in now), *by]

    def _add_errors(self, targets: Tensor) -> None:
        """Adds the squared errors of this step's predictions, as they were trained on."""
        predictions = self._decoded([out.detach() for out in self.network.outputs], self._outputs)
        seen = targets[:: self.k]
        if self._batches:
            own = [self._batches.get(self.k * run) for run in range(len(seen))]
            seen = torch.stack([y if batch is None else batch.targets for batch, y in zip(own, seen, strict=True)])
        self.squared_errors += (predictions - seen).double().square().sum((1, 2))

    # What has been learned

    def predictions(self, inputs: Tensor, *, best: bool = False) -> Iterator[tuple[Tensor, Tensor]]:
        """Of each run features ``(r, n, hidden)`` and predictions ``(r, n, 1)``, some rows at a time.

        The features are those of the first member of a run, the predictions are the mean of all.

        Args:
            inputs: rows of each set ``(s, n, i)``, or rows that all share ``(n, i)``.
            best: by the parameters that were best on validation.
        """
        shape = self.network.shape
        width = max(shape.hidden, shape.first, shape.numbers * shape.encoded)
        block = max(1, _BLOCK[self.device.type] // (len(self.own) * width))
        for some in inputs.split(block, dim=-2):
            with torch.no_grad(), self._own_at(best):
                x = some if some.dim() == 2 else some[self.which]
                features, outputs = self.network.predict(x, self.best if best else None)
                brought = {
                    run: self.own[run].head(features[run]) for run in self.singles if self.own[run].method.own_head
                }
                yield features[:: self.k], self._decoded(outputs, brought)

    def _decoded(self, outputs: Sequence[Tensor], replaced: dict[int, Any]) -> Tensor:
        """Predictions ``(r, n, 1)``, the means of those of the members, out of outputs that are one tensor a head."""
        runs = self._squared.stop
        rest = [out for k, head in enumerate(outputs) for out in (head[runs:] if k == 0 and runs else head)]
        found = [outputs[0][:runs]] if runs else []
        for run, out in enumerate(rest, start=runs):
            own = replaced.get(run, out)
            found.append(self.own[run].method.decode(out if own is None else own)[None])
        each = found[0] if len(found) == 1 else torch.cat(found)
        return each if self.k == 1 else each.unflatten(0, (-1, self.k)).mean(1)

    def scalars(self, run: int) -> dict[str, float]:
        """Numbers of the method of a run, for its log; of several members their means."""
        each = [self._scalars(place) for place in range(self.k * run, self.k * (run + 1))]
        return {name: sum(own[name] for own in each) / self.k for name in each[0]}

    def _scalars(self, place: int) -> dict[str, float]:
        found = self.strengths.of_run(place)
        return found or {name: float(value) for name, value in self.own[place].method.scalars().items()}

    @torch.no_grad()
    def note_best(self, validation: Sequence[float]) -> None:
        """Keeps the parameters of the runs that were never better on validation."""
        with self._averages_in_place():
            self._note_best(validation)

    def _note_best(self, validation: Sequence[float]) -> None:
        score = self.best_score.new_tensor(validation)
        better = score < self.best_score
        self.best_score = torch.where(better, score, self.best_score)
        mask = better.to(self.device)
        for (runs, now), (_, best) in zip(self.network.parameters.parts(), self.best.parts(), strict=True):
            best.copy_(torch.where(mask[runs].view(-1, *[1] * (now.dim() - 1)), now, best))
        for run in self._single_runs():
            if bool(better[run]):
                self.best_own[run] = _copied(self._own_of(run))

    @contextmanager
    def _own_at(self, best: bool) -> Iterator[None]:
        """With what methods and their heads were where validation was best, if so wanted; else with the averages."""
        if not best:
            with self._averages_in_place():
                yield
            return
        now = {run: _copied(self._own_of(run)) for run in self._single_runs()}
        for run in now:
            self._own_of(run).load_state_dict(self.best_own[run])
        try:
            yield
        finally:
            for run, state in now.items():
                self._own_of(run).load_state_dict(state)

    @contextmanager
    def _averages_in_place(self) -> Iterator[None]:
        """With the averages of weights in place of these."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        for run, weights in self._weights.items():
            before: Any = [each.clone() for each in weights]
            torch._foreach_copy_(weights, self._averages[run])
            torch._foreach_copy_(self._averages[run], before)

    # What a checkpoint holds

    @property
    def state(self) -> dict[str, Tensor]:
        """All that a step changes and the next one needs, by name: the tensors themselves."""
        self._number.fill_(self.step)
        found = dict(self._state)
        for run in self._single_runs():
            every = {**self._own_of(run).state_dict(), **self._moments_of(run)}
            found |= {f"{run}.{name}": tensor for name, tensor in every.items()}
        return found

    @torch.no_grad()
    def restore(self, state: dict[str, Tensor]) -> None:
        """Goes back to a copy of :attr:`state`; sums of strengths that it lacks stay as they are."""
        for name, tensor in self.state.items():
            if name in state or name not in ("squares", "balanced_steps"):
                tensor.copy_(state[name])
        self._go_to(int(state["step"]))

    def run_state(self, run: int) -> dict[str, Any]:
        """Of one run, on the CPU, without what its parameters are padded with."""
        first = self.members[run].first
        views = [self.network.parameters, *self.moments, self.best]
        found: dict[str, Any] = {
            name: {key: value.cpu().clone() for key, value in each.of_run(run, first).items()}
            for name, each in zip(("parameters", "mean", "square", "best"), views, strict=True)
        }
        found["best_score"] = float(self.best_score[run])
        squares, steps = self._balance_of(run)
        found["balance"] = torch.cat([squares, steps]).flatten().cpu()
        found["own"], found["own_best"] = _copied(self._own_of(run)), self.best_own[run]
        for key, name in _MOMENTS.items():
            own = {each: tensor for each, tensor in self._moments_of(run).items() if each.startswith(f"{key}.")}
            found[name] = {each.partition(".")[2]: tensor.cpu().clone() for each, tensor in own.items()}
        return found

    @torch.no_grad()
    def learned(self, run: int, *, best: bool) -> dict[str, Tensor]:
        """All that a run predicts by, on the CPU, for :class:`ordinal_entropy.training.stacked.single.Single`.

        Args:
            run: its place.
            best: where validation was best; else as it is now.

        Returns:
            "network.NAME", its parameters; "pieces.NAME", where its embedding has them; "K.head.NAME" and
            "K.decoder.NAME", what member K has of its own.
        """
        with self._own_at(best):
            views = self.best if best else self.network.parameters
            found = {f"network.{name}": each for name, each in views.of_run(run, self.members[run].first).items()}
            if self.network.pieces is not None:
                found |= {f"pieces.{name}": each[run] for name, each in self.network.pieces._asdict().items()}
            for number, own in enumerate(self.own[self.k * run : self.k * (run + 1)]):
                brought = {"head": own.head, "decoder": own.method.decoding}
                for name, part in brought.items():
                    if part is not None:
                        found |= {f"{number}.{name}.{key}": each for key, each in part.state_dict().items()}
            return {name: each.detach().cpu().clone() for name, each in found.items()}

    def check_run(self, run: int, state: dict[str, Any]) -> None:
        """A ValueError where a state has not the form of :meth:`run_state`; one of a method may be missing whole."""
        example = self.run_state(run)
        for name in _MOMENTS.values():  # none of what no step has changed yet
            example[name] = {key: tensor for key, tensor in example[name].items() if key in state["own_mean"]}
        for name, form in example.items():
            if name == "best_score" or (name.startswith("own") and not state["own"]):
                continue
            if isinstance(form, dict) and state[name].keys() != form.keys():
                there, got = (", ".join(each) or "nothing" for each in (form, state[name]))
                raise ValueError(f"expected {name} of {there}, got {got}")
            require_form(state[name], form, name)

    @torch.no_grad()
    def restore_runs(self, states: Sequence[dict[str, Any]], epoch: int) -> None:
        """Goes on from the states of all runs, of which each was in a stack after so many epochs."""
        views = [self.network.parameters, *self.moments, self.best]
        for run, state in enumerate(states):
            for name, each in zip(("parameters", "mean", "square", "best"), views, strict=True):
                for key, view in each.of_run(run, self.members[run].first).items():
                    view.copy_(state[name][key])
            self.best_score[run] = state["best_score"]
            squares, steps = self._balance_of(run)
            saved = state["balance"].view(-1, self.k)
            squares.copy_(saved[:-1])
            steps.copy_(saved[-1:])
            if state["own"]:
                self._own_of(run).load_state_dict(state["own"])
                self.best_own[run] = state["own_best"]
            moments = self._moments_of(run)
            for key, name in _MOMENTS.items():
                for each, value in state[name].items():
                    moments[f"{key}.{each}"].copy_(value)
        self._losses = [(runs, joined([own.method for own in self.own[runs]])) for runs, _ in self._losses]
        self._go_to(epoch * self.epoch_steps)

    def _moments_of(self, run: int) -> dict[str, Tensor]:
        """Of AdamW, of what a run has of its own."""
        named = self._own_of(run).named_parameters() if self.k * run in self.singles else ()
        return {f"{key}.{name}": self.optimizer.state[each][key] for name, each in named for key in _MOMENTS}

    def _balance_of(self, run: int) -> tuple[Tensor, Tensor]:
        """Sums ``(3, k)`` and steps ``(1, k)`` of the strengths of a run, as views."""
        own = slice(self.k * run, self.k * (run + 1))
        return self.strengths.squares[:, own], self.strengths.steps[None, own]

    def _go_to(self, step: int) -> None:
        """So many steps are done: of two stages, AdamW has made the first ones of the encoder, others of the heads."""
        self.step, first = step, self.first_stage
        self._number.fill_(step)
        self._adam_steps[: len(self._encoder)] = min(step, first) if first else step
        self._adam_steps[len(self._encoder) :] = max(step - first, 0)


def _copied(own: nn.Module) -> Parameters:
    """The state of what a run has of its own, on the CPU."""
    return {name: tensor.detach().cpu().clone() for name, tensor in own.state_dict().items()}
