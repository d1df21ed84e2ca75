"""The regularizer as pure functions: diversity, tightness, and their weighted difference."""

from contextlib import nullcontext
from functools import partial

import torch
from torch import Tensor

from ordinal_entropy import distributed, kernels
from ordinal_entropy.centers import Groups, group
from ordinal_entropy.kernels.sampled import uniform
from ordinal_entropy.kernels.unit import to_one, unit_rows
from ordinal_entropy.kernels.weights import POWERS, Function
from ordinal_entropy.layouts import rows
from ordinal_entropy.memory import Memory

_CHOICES = {
    "distance": ("l2", "cosine"),
    "rescale": ("max", "authors", "none"),
    "centers": ("normalize-first", "average-first"),
    "tightness_over": ("all", "shared"),
    "tightness_power": (1, 2),
    "per": ("batch", "image"),
}


def ordinal_entropy(
    features: Tensor,
    targets: Tensor,
    mask: Tensor | None = None,
    *,
    diversity_weight: float | Tensor = 1.0,
    tightness_weight: float | Tensor = 1.0,
    weighting: str | Function = "l2",
    distance: str = "l2",
    normalize: bool = True,
    rescale: str = "max",
    grouping: str | float = "unique",
    centers: str = "normalize-first",
    tightness_over: str = "all",
    tightness_power: int = 1,
    max_samples: int | None = None,
    num_pairs: int | None = None,
    generator: torch.Generator | None = None,
    sample_weight: Tensor | None = None,
    stride: int = 1,
    per: str = "batch",
    gather: bool = False,
    memory: Memory | None = None,
    check: bool = False,
) -> Tensor:
    """Tightness minus diversity, each times its weight: what is added to the task loss.

    Negative where the features are spread: that is the aim, not an error. A term of weight 0 is not computed.

    Args:
        features: ``(n, d)``, points ``(b, n, d)`` or maps ``(b, c, h, w)``, before the regression head, any scale.
        targets: ``(n,)`` or ``(n, t)``; ``(b, n)`` or ``(b, n, t)``; ``(b, h', w')`` or ``(b, t, h', w')`` of any
            resolution. Constants: no gradient flows to them.
        mask: boolean in the shape of the targets; what lies outside, NaN too, is ignored.
        diversity_weight: strength of the push between centers.
        tightness_weight: strength of the pull towards them.
        weighting: how far two targets are apart: "l2", "squared", "sqrt", "none" (all weights 1), or a function from
            targets ``(a, t)`` and ``(b, t)`` to weights ``(a, b)`` of at least 0.
        distance: between features: "l2", or "cosine" (1 - cos).
        normalize: project the features to the unit sphere first; a zero vector stays zero, without gradient.
        rescale: "max" divides the weights by the largest among all centers, so that the strength does not depend on
            the unit of the targets; "authors" takes (w - min) / max over the pairs; "none" leaves them as in the
            paper. The weights of "none" weighting are 1 whatever this says.
        grouping: which rows share a center: those of equal target ("unique"), of equal bin ``floor(y / width)`` (a
            positive number, the width; a bin's target is the mean of its members'), or no two ("none").
        centers: average normalised features ("normalize-first", paper) or normalise averages of raw ones
            ("average-first", authors).
        tightness_over: average over "all" rows, or over those at a non-zero distance from their center ("shared").
        tightness_power: 1, or 2 to square the distances.
        max_samples: draw at most so many rows a group, without replacement, before grouping; for the diversity only.
        num_pairs: draw so many pairs of centers a group, with replacement, instead of using all: an unbiased estimate.
        generator: for every draw, on the device of the features.
        sample_weight: non-negative, one a row; a row of weight 2 counts like that row twice, 0 like none.
        stride: maps are subsampled (nearest) to ``(h // stride, w // stride)``, targets and mask to the same grid.
        per: pairs and centers within the whole "batch" or within each "image" (then the mean over images that have
            any).
        gather: join the rows of all ranks of the default process group first; see ``ordinal_entropy.distributed``.
        memory: earlier rows as further partners, behind those of all ranks; what it remembers is not changed.
        check: refuse features that are not finite, and look at targets and weights (finite, non-negative) on a GPU
            too; on a CPU these always are looked at.

    Returns:
        Scalar, float32 for half-precision features. No rows, one distinct target, an all-false mask: a zero that is
        still part of the graph. A feature inside the mask that is NaN or infinite: NaN.

    Example:
        >>> ordinal_entropy(torch.eye(3), torch.tensor([0.0, 3.0, 3.0]))  # tightness 0.4714, diversity 1.2247
        tensor(-0.7533)
    """
    for name, value in (
        ("distance", distance),
        ("rescale", rescale),
        ("centers", centers),
        ("tightness_over", tightness_over),
        ("tightness_power", tightness_power),
        ("per", per),
    ):
        if value not in _CHOICES[name]:
            raise ValueError(f"expected {name} to be one of {_CHOICES[name]}, got {value!r}")
    if not callable(weighting) and weighting not in POWERS:
        raise ValueError(f"expected weighting to be one of {tuple(POWERS)} or a function, got {weighting!r}")
    width = isinstance(grouping, (int, float)) and not isinstance(grouping, bool) and 0 < grouping < float("inf")
    if not (width or grouping in ("unique", "none")):
        raise ValueError(f"expected grouping to be 'unique', 'none' or a positive bin width, got {grouping!r}")
    for name, count in (("max_samples", max_samples), ("num_pairs", num_pairs), ("stride", stride)):
        if count is not None and not (isinstance(count, int) and count >= 1):
            raise ValueError(f"expected {name} to be a whole number of at least 1, got {count!r}")

    push = isinstance(diversity_weight, Tensor) or diversity_weight != 0
    pull = isinstance(tightness_weight, Tensor) or tightness_weight != 0
    own_rows = partial(rows, features, targets, mask, sample_weight, stride=stride, per=per, check=check)
    if gather:
        data, generator = distributed.join(
            own_rows,
            generator,
            along="rows" if per == "batch" else "groups",
            terms=distributed.TERMS[2 * push + pull],
            device=getattr(features, "device", None),
        )
    else:
        data = own_rows()
    if memory is not None:
        data = memory.joined(data)
    x, y, amount, eager = data
    g, n, d = x.shape
    if g * n * d == 0 or not (push or pull):
        return x[:, :0].sum()  # no numbers: a zero that is part of the graph
    if amount is None and grouping != "none":
        amount = x.new_ones(g, n)
    elif amount is not None and grouping != "none" and not (sample_weight is None and memory is None):
        # only their ratios count: where they are large, lowered by a power of two, so that no sum of them overflows
        amount = amount * (2.0**64 * to_one(amount.amax(1, keepdim=True))).clamp_max(1)
    cosine = distance == "cosine"
    unit_first = normalize and centers == "normalize-first"
    coarse = features.dtype in (torch.float16, torch.bfloat16)
    drawn = max_samples is not None and max_samples < n
    # a strength that is a tensor may have a gradient: then it is a factor of the result
    push_by = 1.0 if isinstance(diversity_weight, Tensor) else float(diversity_weight)
    pull_by = 1.0 if isinstance(tightness_weight, Tensor) else float(tightness_weight)
    pairs, distances = None, None
    if grouping != "none":  # what the kernels of a GPU take together with the centers
        project = cosine or (normalize and not unit_first)
        if not callable(weighting) and num_pairs is None:
            pairs = kernels.Pairs(POWERS[weighting], distance, project, rescale, -push_by, coarse)
        if pull:
            shared = tightness_over == "shared"
            distances = kernels.Pull(cosine or normalize, project, cosine, shared, tightness_power, pull_by)
    found, unit = None, None
    if not (normalize or cosine):  # brought near 1 before anything is squared
        unit = to_one(x.detach().abs().amax())
        x = x * unit
    kind = x.device.type
    with torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext():
        if push:
            unchanged = amount is None and features.dim() == 2 and features.dtype is x.dtype
            # a view less for the gradient to go through
            as_they_came = unchanged and memory is None and not gather and unit is None
            points, values, copies = features if as_they_came else x, y, amount
            if max_samples is not None and drawn:
                chance = uniform((g, n), x.device, generator)
                chance = chance if amount is None else torch.where(amount > 0, chance, -1)
                pick = chance.topk(max_samples, dim=1).indices[..., None]  # (g, k, 1)
                points = x.gather(1, pick.expand(-1, -1, d))
                values = y.gather(1, pick.expand(-1, -1, y.shape[-1]))
                copies = None if amount is None else amount.gather(1, pick[..., 0])
            if copies is None or grouping == "none":
                found = Groups(points, points, values, copies, None, False)
            else:
                found = group(
                    points,
                    values,
                    copies,
                    grouping=grouping,
                    unit=unit_first,
                    eager=eager,
                    pairs=pairs,
                    pull=None if drawn else distances,
                )
            if found.diversity is not None:
                loss = found.diversity
            else:
                loss = kernels.pair_mean(
                    found.centers,
                    found.values,
                    found.amount,
                    weighting=weighting,
                    distance=distance,
                    rescale=rescale,
                    project=cosine or (normalize and not found.unit),
                    num_pairs=num_pairs,
                    generator=generator,
                    eager=eager,
                    times=-push_by,
                    coarse=coarse,
                )
            loss = diversity_weight * loss if isinstance(diversity_weight, Tensor) else loss
            loss = loss if unit is None else loss / unit
            if drawn or num_pairs is not None:  # what is not drawn must not be hidden
                loss = torch.where(x.detach().isfinite().all(), loss, torch.nan)
            if drawn:
                found = None
        if pull:
            if amount is not None and grouping != "none" and found is None:
                found = group(x, y, amount, grouping=grouping, unit=unit_first, eager=eager, pull=distances)
            if amount is None or found is None or found.slot is None:  # each row is its own center
                return loss if push else torch.where(x.detach().isfinite().all(), x[:, :0].sum(), torch.nan)
            if found.tightness is not None:
                mean = found.tightness
            else:
                z = unit_rows(found.features) if (cosine or normalize) and not found.unit else found.features
                own = unit_rows(found.centers) if cosine or (normalize and not found.unit) else found.centers
                own = own.gather(1, found.slot[..., None].expand(g, n, d))
                squares = (z - own).square().sum(-1)  # (g, n)
                size = z.detach().square().sum(-1)
                apart = ~(squares <= (8 * torch.finfo(z.dtype).eps) ** 2 * size)  # more than rounding, or NaN
                if cosine:  # 1 - cos between unit rows; a half more for each zero row
                    zero = 0.5 * (size < 0.5) + 0.5 * (own.detach().square().sum(-1) < 0.5)
                    spread = torch.where(apart, squares / 2 + zero, 0)
                else:
                    spread = torch.where(apart, torch.where(apart, squares, 1).sqrt(), 0)
                counted = torch.where(apart, amount, 0) if tightness_over == "shared" else amount
                counts = counted.sum(1, keepdim=True)
                means = (counted / torch.where(counts > 0, counts, 1) * spread**tightness_power).sum(1)
                mean = means.reshape(()) if g == 1 else means.sum() / (amount > 0).any(1).sum().clamp_min(1)
                mean = pull_by * mean if pull_by != 1 else mean
            mean = mean if unit is None else mean / unit**tightness_power
            mean = tightness_weight * mean if isinstance(tightness_weight, Tensor) else mean
            loss = loss + mean if push else mean
    return loss


def diversity(
    features: Tensor,
    targets: Tensor,
    mask: Tensor | None = None,
    *,
    weighting: str | Function = "l2",
    distance: str = "l2",
    normalize: bool = True,
    rescale: str = "max",
    grouping: str | float = "unique",
    centers: str = "normalize-first",
    max_samples: int | None = None,
    num_pairs: int | None = None,
    generator: torch.Generator | None = None,
    sample_weight: Tensor | None = None,
    stride: int = 1,
    per: str = "batch",
    gather: bool = False,
    check: bool = False,
) -> Tensor:
    """Mean over the pairs of centers of target distance times feature distance, at least 0: the paper's ``-L_d``.

    With ``weighting="none"`` the mean distance alone, ``-L'_d``. For arguments see :func:`ordinal_entropy`.

    Returns:
        Scalar. Fewer than two centers: a zero that is still part of the graph.

    Example:
        >>> diversity(torch.eye(2), torch.tensor([0.0, 3.0]))
        tensor(1.4142)
        >>> diversity(torch.eye(2), torch.tensor([0.0, 3.0]), rescale="none")
        tensor(4.2426)
    """
    return ordinal_entropy(
        features,
        targets,
        mask,
        diversity_weight=-1.0,
        tightness_weight=0.0,
        weighting=weighting,
        distance=distance,
        normalize=normalize,
        rescale=rescale,
        grouping=grouping,
        centers=centers,
        max_samples=max_samples,
        num_pairs=num_pairs,
        generator=generator,
        sample_weight=sample_weight,
        stride=stride,
        per=per,
        gather=gather,
        check=check,
    )


def tightness(
    features: Tensor,
    targets: Tensor,
    mask: Tensor | None = None,
    *,
    distance: str = "l2",
    normalize: bool = True,
    grouping: str | float = "unique",
    centers: str = "normalize-first",
    tightness_over: str = "all",
    tightness_power: int = 1,
    sample_weight: Tensor | None = None,
    stride: int = 1,
    per: str = "batch",
    gather: bool = False,
    check: bool = False,
) -> Tensor:
    """Mean distance of the features from their centers, at least 0: the paper's ``L_t``.

    For arguments see :func:`ordinal_entropy`.

    Returns:
        Scalar. Where every row is its own center: a zero that is still part of the graph.

    Example:
        >>> tightness(torch.eye(3), torch.tensor([0.0, 3.0, 3.0]))  # one row at 0, two at 0.7071
        tensor(0.4714)
    """
    return ordinal_entropy(
        features,
        targets,
        mask,
        diversity_weight=0.0,
        distance=distance,
        normalize=normalize,
        grouping=grouping,
        centers=centers,
        tightness_over=tightness_over,
        tightness_power=tightness_power,
        sample_weight=sample_weight,
        stride=stride,
        per=per,
        gather=gather,
        check=check,
    )
