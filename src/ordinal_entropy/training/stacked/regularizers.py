"""Regularizers of many runs: gradients at the features of runs that differ in strengths alone, in one call.

A run may take all rows of a step, or some that are drawn. The weights of few drawn rows are found ahead of the steps,
and runs that differ in these alone share one sum over pairs.
"""

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from ordinal_entropy.kernels.ahead import pair_weights, weighted_distances
from ordinal_entropy.losses import OrdinalEntropy
from ordinal_entropy.methods import Composition
from ordinal_entropy.methods.ordinal_entropy import Regularizer
from ordinal_entropy.training.stacked.draws import drawn_rows
from ordinal_entropy.training.stacked.strengths import Strengths

# Up to so many drawn rows a matrix of all pairs for each of several steps costs less than the fused operator.
DENSE_ROWS = {"cpu": 128, "cuda": 32}

Gradients = list[dict[int, Tensor]]  # of each bundle by term, each (runs, rows, hidden), without strengths


class Group(NamedTuple):
    """Runs next to each other that have a regularizer in common but for its strengths."""

    runs: slice
    unit: OrdinalEntropy
    samples: int | None  # rows drawn in each step; None: all


class Draws(NamedTuple):
    """Rows for the regularizers in a step, those of all bundles that draw behind each other."""

    rows: Tensor  # (k,) into all rows of all runs
    targets: Tensor  # (k, 1)
    weights: list[Tensor | None]  # (runs, samples, samples) of each bundle whose weights are found ahead


class _Bundle(NamedTuple):
    """Groups whose regularizers are one sum over pairs, or one group that calls its own."""

    groups: list[Group]
    runs: Tensor  # their places in the stack
    samples: int | None
    ahead: bool  # weights are found ahead


def unit_of(method: Composition, targets: Tensor) -> OrdinalEntropy | None:
    """The regularizer of a method that is nothing else, without its strengths, a group of rows for each run.

    Runs of which this is the same are one call. None where the method has other parts, or draws or remembers rows.
    Where no two rows have equal targets, each is a center of its own and the tightness is 0.

    Args:
        method: of a run.
        targets: that it is trained on.
    """
    part = next(iter(method.parts.values()))
    if len(method.parts) > 1 or not isinstance(part, Regularizer):
        return None
    own, options = part.regularizer, part.regularizer.options._replace(per="image")
    if own.memory is not None or options.max_samples is not None or options.num_pairs is not None:
        return None
    push, pull = float(own.diversity_weight != 0), float(own.tightness_weight != 0)
    if options.grouping == "unique" and len(torch.unique(targets)) == targets.numel():
        options, pull = options._replace(grouping="none"), 0.0
    return OrdinalEntropy(push, pull, **options._asdict())


class Regularizers:
    """Those of a stack.

    Args:
        groups: of runs, none of whose regularizers is 0 throughout.
        strengths: of all runs of the stack.
        seeds: ``(r,)`` of the draws.
        hidden: width of the features.
    """

    def __init__(self, groups: Sequence[Group], strengths: Strengths, seeds: Tensor, hidden: int) -> None:
        self.strengths, self.seeds, self.hidden = strengths, seeds, hidden
        self.bundles = _bundles(groups, seeds.device)
        drawn = sum(len(bundle.runs) * bundle.samples for bundle in self.bundles if bundle.samples is not None)
        self.drawn = strengths.weights.new_empty(drawn, hidden)  # features of the drawn rows; read on several streams
        # On a GPU the regularizers run beside each other: they are many small kernels.
        on_gpu = seeds.device.type == "cuda"
        self.streams = [torch.cuda.Stream(seeds.device) for _ in self.bundles] if on_gpu else []

    def draws(self, first: Tensor, steps: int, targets: Tensor) -> list[Draws]:
        """Of so many steps, found at once: few operations instead of few in each step.

        Args:
            first: number of the first step.
            steps: how many.
            targets: ``(r, n, 1)``.
        """
        n, numbers = targets.shape[1], first + torch.arange(steps, device=first.device)
        rows, values, weights = [], [], []
        for bundle in self.bundles:
            in_bundle = []
            for group in bundle.groups:
                if bundle.samples is None:
                    continue
                own = drawn_rows(self.seeds[group.runs], numbers, n, bundle.samples)  # (s, runs, samples)
                own = own + n * torch.arange(group.runs.start, group.runs.stop, device=own.device)[:, None]
                y = targets.reshape(-1, 1)[own]  # (s, runs, samples, 1)
                rows.append(own.flatten(1))
                values.append(y.flatten(1, 2))
                if bundle.ahead:
                    options = group.unit.options
                    in_bundle.append(-pair_weights(y, str(options.weighting), options.rescale))
            weights.append(torch.cat(in_bundle, 1) if in_bundle else None)
        if not rows:
            return [Draws(self.seeds[:0], targets[0, :0], weights)] * steps
        by_step = zip(torch.cat(rows, 1), torch.cat(values, 1), strict=True)
        return [Draws(*both, [w if w is None else w[k] for w in weights]) for k, both in enumerate(by_step)]

    def gradients(self, features: Tensor, targets: Tensor, draws: Draws) -> Gradients:
        """Gradients at the features of what the methods add, on a GPU beside what follows.

        Args:
            features: ``(r * n, hidden)``.
            targets: ``(r, n, 1)``.
            draws: of this step.
        """
        if len(draws.rows):
            torch.index_select(features, 0, draws.rows, out=self.drawn)
        found: Gradients = []
        for k, (bundle, z, y) in enumerate(self._seen(features, targets, draws)):
            with self._beside(k), torch.enable_grad():
                # A copy is memory of the stream that reads it: that of another one may be written anew meanwhile.
                leaf = z.detach().contiguous().requires_grad_()
                weights = draws.weights[k]
                if weights is not None:
                    options = bundle.groups[0].unit.options
                    value = weighted_distances(leaf, weights, options.distance, options.normalize)
                    found.append({0: torch.autograd.grad(value, leaf)[0].contiguous()})
                else:
                    terms = _terms(bundle.groups[0].unit, leaf, y)
                    found.append({k: torch.autograd.grad(*own)[0].contiguous() for k, own in terms.items()})
        return found

    def add(self, by_features: Tensor, features: Tensor, targets: Tensor, draws: Draws, gradients: Gradients) -> None:
        """Adds the gradients, at their strengths, to those of the task losses.

        Args:
            by_features: ``(r * n, hidden)``, changed in place.
            features: as in :meth:`gradients`.
            targets: likewise.
            draws: likewise.
            gradients: what it gave.
        """
        for stream in self.streams:
            torch.cuda.current_stream().wait_stream(stream)
        if not self.bundles:
            return
        if self.strengths.balanced:
            self._observe(by_features, features, targets, draws, gradients)
        strengths, n = self.strengths.now(), targets.shape[1]
        drawn = []
        for bundle, each in zip(self.bundles, gradients, strict=True):
            terms = [own * strengths[term, bundle.runs][:, None, None] for term, own in each.items()]
            whole = (terms[0] if len(terms) == 1 else terms[0] + terms[1]).flatten(0, 1)
            if bundle.samples is None:
                runs = bundle.groups[0].runs
                by_features[runs.start * n : runs.stop * n].add_(whole)
            else:
                drawn.append(whole)
        if drawn:  # a row that was not drawn gets nothing
            by_features.index_add_(0, draws.rows, torch.cat(drawn))

    def _observe(
        self, by_features: Tensor, features: Tensor, targets: Tensor, draws: Draws, gradients: Gradients
    ) -> None:
        """Moves the sums of the gradient-balanced strengths."""
        r = len(self.seeds)
        now = torch.zeros_like(self.strengths.squares)
        now[0] = by_features.view(r, -1, self.hidden).square().sum((1, 2))
        rounding = torch.zeros_like(now[1:])
        each = zip(self._seen(features, targets, draws), gradients, strict=True)
        for (bundle, z, y), own in each:
            for term, gradient in own.items():
                now[1 + term, bundle.runs] = gradient.square().sum((1, 2))
            start = 0
            for group in bundle.groups:
                some = slice(start, start + group.runs.stop - group.runs.start)
                start = some.stop
                rounding[:, group.runs] = group.unit.rounding(z[some], y[some]).to(rounding)
        self.strengths.observe(now, rounding)

    def _seen(self, features: Tensor, targets: Tensor, draws: Draws) -> Iterator[tuple[_Bundle, Tensor, Tensor]]:
        """Each bundle with its features ``(runs, rows, hidden)`` and targets."""
        start, n = 0, targets.shape[1]
        for bundle in self.bundles:
            if bundle.samples is None:
                runs = bundle.groups[0].runs
                yield bundle, features[runs.start * n : runs.stop * n].unflatten(0, (-1, n)), targets[runs]
                continue
            some = slice(start, start + len(bundle.runs) * bundle.samples)
            start = some.stop
            shape = len(bundle.runs), bundle.samples, -1
            yield bundle, self.drawn[some].view(shape), draws.targets[some].view(shape)

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


def _terms(unit: OrdinalEntropy, features: Tensor, targets: Tensor) -> dict[int, tuple[Tensor, Tensor, Tensor]]:
    """By term, what ``torch.autograd.grad`` takes for sums over the runs: of minus the diversity, and of the tightness.

    A call gives means over runs: of the diversity over those with a pair of centers, of the tightness over all.
    """
    everyone = features.new_full((), float(len(features)))
    with_pairs = everyone
    grouping = unit.options.grouping
    if grouping != "none":
        keys = targets if isinstance(grouping, str) else torch.floor(targets / grouping)
        with_pairs = (keys.amax((1, 2)) != keys.amin((1, 2))).sum().to(features.dtype)
    if unit.tightness_weight == 0:
        return {0: (unit(features, targets), features, with_pairs)}
    if unit.diversity_weight == 0:
        return {1: (unit(features, targets), features, everyone)}
    diversity, tightness = unit.terms(features, targets)
    return {0: (diversity, features, -with_pairs), 1: (tightness, features, everyone)}


def _bundles(groups: Sequence[Group], device: torch.device) -> list[_Bundle]:
    """Groups that differ in the weights of their pairs only, together."""
    alike: dict[Hashable, list[Group]] = {}
    for k, group in enumerate(groups):
        unit, options = group.unit, group.unit.options
        small = group.samples is not None and 2 <= group.samples <= DENSE_ROWS[device.type]
        plain = options.grouping == "none" and isinstance(options.weighting, str)
        ahead = small and plain and unit.tightness_weight == 0
        normalize = options.normalize or options.distance == "cosine"
        alike.setdefault((group.samples, options.distance, normalize) if ahead else k, []).append(group)
    found = []
    for key, together in alike.items():
        runs = torch.cat([torch.arange(group.runs.start, group.runs.stop) for group in together])
        found.append(_Bundle(together, runs.to(device), together[0].samples, isinstance(key, tuple)))
    return found
