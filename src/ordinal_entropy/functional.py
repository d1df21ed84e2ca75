"""The regularizer as pure functions: diversity, tightness, and their weighted difference."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ordinal_entropy import distributed
from ordinal_entropy.centers import Groups, group
from ordinal_entropy.kernels.choice import groups_fused
from ordinal_entropy.kernels.pairs import pair_mean
from ordinal_entropy.kernels.unit import to_one, unit_rows
from ordinal_entropy.kernels.weights import POWERS
from ordinal_entropy.layouts import Rows, drawn, lowered, rows
from ordinal_entropy.memory import Memory
from ordinal_entropy.options import DEFAULTS, OfAll, OfDiversity, OfTightness, Options, checked, spelled

if TYPE_CHECKING:
    from typing_extensions import Unpack

_ALL, _DIVERSITY, _TIGHTNESS = (frozenset(kinds.__annotations__) for kinds in (OfAll, OfDiversity, OfTightness))


@spelled(_ALL)
def ordinal_entropy(
    features: Tensor,
    targets: Tensor,
    mask: Tensor | None = None,
    *,
    diversity_weight: float | Tensor = 1.0,
    tightness_weight: float | Tensor = 1.0,
    sample_weight: Tensor | None = None,
    memory: Memory | None = None,
    **options: "Unpack[OfAll]",
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
        sample_weight: non-negative, one a row; a row of weight 2 counts like that row twice, 0 like none.
        memory: earlier rows as further partners, behind those of all ranks; what it remembers is not changed.
        options: of :class:`~ordinal_entropy.options.Options`, by name.

    Returns:
        Scalar, float32 for half-precision features. No rows, one distinct target, an all-false mask: a zero that is
        still part of the graph. A feature inside the mask that is NaN or infinite: NaN.

    Example:
        >>> ordinal_entropy(torch.eye(3), torch.tensor([0.0, 3.0, 3.0]))  # tightness 0.4714, diversity 1.2247
        tensor(-0.7533)
    """
    own = checked(Options(**options)) if options else DEFAULTS
    return loss(features, targets, mask, sample_weight, own, diversity_weight, tightness_weight, memory)


@spelled(_DIVERSITY)
def diversity(
    features: Tensor,
    targets: Tensor,
    mask: Tensor | None = None,
    *,
    sample_weight: Tensor | None = None,
    **options: "Unpack[OfDiversity]",
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
    _require_known("diversity", options, _DIVERSITY)
    own = checked(Options(**options)) if options else DEFAULTS
    return loss(features, targets, mask, sample_weight, own, -1.0, 0.0)


@spelled(_TIGHTNESS)
def tightness(
    features: Tensor,
    targets: Tensor,
    mask: Tensor | None = None,
    *,
    sample_weight: Tensor | None = None,
    **options: "Unpack[OfTightness]",
) -> Tensor:
    """Mean distance of the features from their centers, at least 0: the paper's ``L_t``.

    For arguments see :func:`ordinal_entropy`.

    Returns:
        Scalar. Where every row is its own center: a zero that is still part of the graph.

    Example:
        >>> tightness(torch.eye(3), torch.tensor([0.0, 3.0, 3.0]))  # one row at 0, two at 0.7071
        tensor(0.4714)
    """
    _require_known("tightness", options, _TIGHTNESS)
    own = checked(Options(**options)) if options else DEFAULTS
    return loss(features, targets, mask, sample_weight, own, 0.0, 1.0)


def loss(
    features: Tensor,
    targets: Tensor,
    mask: Tensor | None,
    sample_weight: Tensor | None,
    options: Options,
    diversity_weight: float | Tensor,
    tightness_weight: float | Tensor,
    memory: Memory | None = None,
) -> Tensor:
    """:func:`ordinal_entropy` of options that were checked: rows, centers, pairs of these, distances from them."""
    # a strength that is a tensor may have a gradient: then it is a factor of the result
    push = 1.0 if isinstance(diversity_weight, Tensor) else float(diversity_weight)
    pull = 1.0 if isinstance(tightness_weight, Tensor) else float(tightness_weight)
    prepare = partial(
        rows, features, targets, mask, sample_weight, stride=options.stride, per=options.per, check=options.check
    )
    if options.gather or memory is not None:
        terms, device = distributed.TERMS[2 * (push != 0) + (pull != 0)], getattr(features, "device", None)
        data, options = _with_others(prepare, options, memory, terms, device)
    else:
        data = prepare()
    x = data.features
    if x.numel() == 0 or not (push or pull):
        return x[:, :0].sum()  # no numbers: a zero that is part of the graph
    if options.grouping != "none" and not (sample_weight is None and memory is None):
        data = lowered(data)
    cosine = options.distance == "cosine"
    on_sphere, unit = options.normalize or cosine, options.normalize and options.centers == "normalize-first"
    coarse = features.dtype in (torch.float16, torch.bfloat16)  # half precision will do for products of these
    unchanged = data.amount is None and features.dim() == 2 and features.dtype is x.dtype and not options.gather
    kind, most = x.device.type, options.max_samples
    with torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext():
        scale = None
        if not on_sphere:  # brought near 1 before anything is squared
            scale = to_one(x.detach().abs().amax())
            data = data._replace(features=x * scale)
        parts, all_seen = [(data, push, pull)], options.num_pairs is None
        if push and most is not None and most < x.shape[1]:
            parts, all_seen = [(drawn(data, most, options.generator), push, 0.0)], False
            parts += [(data, 0.0, pull)] if pull else []

        spread: Tensor | None = None  # the diversity, times -push
        tight: Tensor | None = None  # the tightness, times pull
        for part, push_now, pull_now in parts:
            z, y, amount, eager = part
            if options.grouping == "none":  # a view less for the gradient to go through
                groups = Groups(z, features if unchanged and z is x else z, y, amount, None, False)
            elif not eager and groups_fused(z, y):
                groups, found, tight = _fused(part, options, push_now, pull_now, unit=unit, coarse=coarse)
                spread = found if spread is None else spread
            else:
                groups = group(z, y, amount, grouping=options.grouping, unit=unit, eager=eager)
            if push_now and spread is None:
                spread = pair_mean(
                    groups.centers,
                    groups.values,
                    groups.amount,
                    weighting=options.weighting,
                    distance=options.distance,
                    rescale=options.rescale,
                    project=cosine or (options.normalize and not groups.unit),
                    num_pairs=options.num_pairs,
                    generator=options.generator,
                    eager=eager,
                    times=-push_now,
                    coarse=coarse,
                    weighed=options.grouping == "none",
                )
            if pull_now and tight is None and groups.slot is not None:
                z = unit_rows(groups.features) if on_sphere and not groups.unit else groups.features
                centers = unit_rows(groups.centers) if cosine or (on_sphere and not groups.unit) else groups.centers
                if len(centers) == 1:
                    own = centers.index_select(1, groups.slot[0])  # (g, n, d)
                else:
                    own = centers.gather(1, groups.slot[..., None].expand_as(z))
                squares = (z - own).square().sum(-1)  # (g, n)
                rounding: float | Tensor = (8 * torch.finfo(z.dtype).eps) ** 2
                rounding = rounding if on_sphere else rounding * z.detach().square().sum(-1)
                same = squares.detach() <= rounding  # False for NaN
                if cosine:  # 1 - cos between unit rows; a half more for each zero row
                    zero, center_zero = (0.5 * (each.detach().square().sum(-1) < 0.5) for each in (z, own))
                    distances = (squares / 2 + zero + center_zero).masked_fill(same, 0)
                else:
                    distances = squares.masked_fill(same, 1).sqrt().masked_fill(same, 0)
                distances = distances if options.tightness_power == 1 else distances.square()
                if amount is None and options.tightness_over == "all":
                    tight = distances.mean()
                else:
                    counted = z.new_ones(z.shape[:2]) if amount is None else amount
                    there = (counted > 0).any(1)
                    counted = counted.masked_fill(same, 0) if options.tightness_over == "shared" else counted
                    counts = counted.sum(1, keepdim=True)
                    means = (counted / torch.where(counts > 0, counts, 1) * distances).sum(1)  # (g,)
                    tight = means.reshape(()) if len(means) == 1 else means.sum() / there.sum().clamp_min(1)
                tight = tight if pull_now == 1 else pull_now * tight

        if spread is not None:
            spread = diversity_weight * spread if isinstance(diversity_weight, Tensor) else spread
            spread = spread if scale is None else spread / scale
            spread = spread if all_seen else torch.where(x.detach().isfinite().all(), spread, torch.nan)
        if tight is not None:
            tight = tight if scale is None else tight / scale**options.tightness_power
            tight = tightness_weight * tight if isinstance(tightness_weight, Tensor) else tight
        if spread is None:
            alone = torch.where(x.detach().isfinite().all(), x[:, :0].sum(), torch.nan)  # each row is its own center
            return alone if tight is None else tight
        return spread if tight is None else tight + spread


def _with_others(
    prepare: Callable[[], Rows], options: Options, memory: Memory | None, terms: str, device: torch.device | None
) -> tuple[Rows, Options]:
    """These rows with those of all ranks and of earlier batches, and options with a generator that all ranks share."""
    if options.gather:
        along = "rows" if options.per == "batch" else "groups"
        data, generator = distributed.join(prepare, options.generator, along=along, terms=terms, device=device)
        options = options._replace(generator=generator)
    else:
        data = prepare()
    return (data if memory is None else memory.joined(data)), options


def _fused(
    data: Rows, options: Options, push: float, pull: float, *, unit: bool, coarse: bool
) -> tuple[Groups, Tensor | None, Tensor | None]:
    """Centers, and the terms that the kernels of a GPU take together with them, each times its strength."""
    from ordinal_entropy.kernels import grouped

    cosine = options.distance == "cosine"
    project = cosine or (options.normalize and not unit)
    pairs, distances = None, None
    if push and not callable(options.weighting) and options.num_pairs is None:
        power = POWERS[options.weighting]
        pairs = grouped.Pairs(power, options.distance, project, options.rescale, -push, coarse)
    if pull:
        shared = options.tightness_over == "shared"
        distances = grouped.Pull(cosine or options.normalize, project, cosine, shared, options.tightness_power, pull)
    width = 0.0 if isinstance(options.grouping, str) else float(options.grouping)
    x, y, amount, _ = data
    found = grouped.terms(x, y, amount, width=width, unit=unit, pairs=pairs, pull=distances)
    slot, _, values, there, _ = found.where
    return Groups(x, found.centers, values, there, slot, unit), found.diversity, found.tightness


def _require_known(name: str, given: object, known: frozenset[str]) -> None:
    assert isinstance(given, dict)
    strange = next((option for option in given if option not in known), None)
    if strange is not None:
        raise TypeError(f"{name}() got an unexpected keyword argument {strange!r}")
