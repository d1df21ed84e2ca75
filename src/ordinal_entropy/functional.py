"""The regularizer as pure functions: diversity, tightness, and their weighted difference."""

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ordinal_entropy import distributed, kernels
from ordinal_entropy.centers import Groups, group
from ordinal_entropy.kernels.unit import to_one
from ordinal_entropy.kernels.weights import POWERS
from ordinal_entropy.layouts import Rows, drawn, lowered, rows
from ordinal_entropy.memory import Memory
from ordinal_entropy.options import OfAll, OfDiversity, OfTightness, Options, checked, spelled
from ordinal_entropy.tightness import mean_distance

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
    own = checked(Options(**options))
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
    return loss(features, targets, mask, sample_weight, checked(Options(**options)), -1.0, 0.0)


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
    return loss(features, targets, mask, sample_weight, checked(Options(**options)), 0.0, 1.0)


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
    """:func:`ordinal_entropy` of options that were checked."""
    # a strength that is a tensor may have a gradient: then it is a factor of the result
    push = 1.0 if isinstance(diversity_weight, Tensor) else float(diversity_weight)
    pull = 1.0 if isinstance(tightness_weight, Tensor) else float(tightness_weight)
    prepare = partial(
        rows, features, targets, mask, sample_weight, stride=options.stride, per=options.per, check=options.check
    )
    if options.gather:
        along = "rows" if options.per == "batch" else "groups"
        terms = distributed.TERMS[2 * (push != 0) + (pull != 0)]
        device = getattr(features, "device", None)
        data, generator = distributed.join(prepare, options.generator, along=along, terms=terms, device=device)
        options = options._replace(generator=generator)
    else:
        data = prepare()
    if memory is not None:
        data = memory.joined(data)
    x = data.features
    if x.numel() == 0 or not (push or pull):
        return x[:, :0].sum()  # no numbers: a zero that is part of the graph
    if options.grouping != "none" and not (sample_weight is None and memory is None):
        data = lowered(data)
    unchanged = data.amount is None and features.dim() == 2 and features.dtype is x.dtype
    points = features if unchanged and not options.gather else None  # a view less for the gradient to go through
    coarse = features.dtype in (torch.float16, torch.bfloat16)
    kind, most = x.device.type, options.max_samples
    with torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext():
        unit = None
        if not options.normalize and options.distance != "cosine":  # brought near 1 before anything is squared
            unit = to_one(x.detach().abs().amax())
            data, points = data._replace(features=x * unit), None
        if push and most is not None and most < x.shape[1]:
            spread, _ = _terms(drawn(data, most, options.generator), options, push, 0.0, points=None, coarse=coarse)
            tight = _terms(data, options, 0.0, pull, points=None, coarse=coarse)[1] if pull else None
            all_seen = False
        else:
            spread, tight = _terms(data, options, push, pull, points=points, coarse=coarse)
            all_seen = options.num_pairs is None
        if spread is not None:  # the diversity, times -push
            spread = diversity_weight * spread if isinstance(diversity_weight, Tensor) else spread
            spread = spread if unit is None else spread / unit
            spread = spread if all_seen else torch.where(x.detach().isfinite().all(), spread, torch.nan)
        if tight is not None:  # the tightness, times pull
            tight = tight if unit is None else tight / unit**options.tightness_power
            tight = tightness_weight * tight if isinstance(tightness_weight, Tensor) else tight
        if spread is None:
            alone = torch.where(x.detach().isfinite().all(), x[:, :0].sum(), torch.nan)  # each row is its own center
            return alone if tight is None else tight
        return spread if tight is None else tight + spread


def _terms(
    data: Rows, options: Options, push: float, pull: float, *, points: Tensor | None, coarse: bool
) -> tuple[Tensor | None, Tensor | None]:
    """``-push * diversity`` and ``pull * tightness``; None for one of strength 0, or that is 0 whatever the features.

    Args:
        data: the rows; those that are not projected not far from 1.
        options: of the regularizer.
        push: strength of the diversity.
        pull: strength of the tightness.
        points: the features of the rows as they came, ``(n, d)``, where nothing had to be changed.
        coarse: half precision will do for products of the features, which were computed in it.
    """
    x, y, amount, eager = data
    cosine = options.distance == "cosine"
    unit = options.normalize and options.centers == "normalize-first"  # before rows are averaged
    spread, tight = None, None
    if options.grouping == "none":
        groups = Groups(x, x if points is None else points, y, amount, None, False)
    else:
        amount = x.new_ones(x.shape[:2]) if amount is None else amount
        if not eager and kernels.groups_fused(x, y):
            groups, spread, tight = _fused(data._replace(amount=amount), options, push, pull, unit=unit, coarse=coarse)
        else:
            groups = group(x, y, amount, grouping=options.grouping, unit=unit, eager=eager)
    if push and spread is None:
        spread = kernels.pair_mean(
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
            times=-push,
            coarse=coarse,
            weighed=options.grouping == "none",
        )
    if pull and tight is None and amount is not None and groups.slot is not None:
        tight = mean_distance(groups, amount, groups.slot, options)
        tight = tight if pull == 1 else pull * tight
    return spread, tight


def _fused(
    data: Rows, options: Options, push: float, pull: float, *, unit: bool, coarse: bool
) -> tuple[Groups, Tensor | None, Tensor | None]:
    """Centers, and the terms that the kernels of a GPU take together with them; arguments as in :func:`_terms`."""
    from ordinal_entropy.kernels import grouped

    cosine = options.distance == "cosine"
    project = cosine or (options.normalize and not unit)
    pairs, distances = None, None
    if push and not callable(options.weighting) and options.num_pairs is None:
        power = POWERS[options.weighting]
        pairs = kernels.Pairs(power, options.distance, project, options.rescale, -push, coarse)
    if pull:
        shared = options.tightness_over == "shared"
        distances = kernels.Pull(cosine or options.normalize, project, cosine, shared, options.tightness_power, pull)
    width = 0.0 if isinstance(options.grouping, str) else float(options.grouping)
    x, y, amount, _ = data
    assert amount is not None
    found = grouped.terms(x, y, amount, width=width, unit=unit, pairs=pairs, pull=distances)
    slot, _, values, there, _ = found.where
    return Groups(x, found.centers, values, there, slot, unit), found.diversity, found.tightness


def _require_known(name: str, given: object, known: frozenset[str]) -> None:
    assert isinstance(given, dict)
    strange = next((option for option in given if option not in known), None)
    if strange is not None:
        raise TypeError(f"{name}() got an unexpected keyword argument {strange!r}")
