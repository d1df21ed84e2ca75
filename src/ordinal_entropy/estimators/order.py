"""Ordinality: do features of similar targets lie close together?"""

from typing import Literal

import torch
from torch import Tensor

from ordinal_entropy.estimators._inputs import checked_features, checked_targets, result

# Numbers gathered at once while measuring pairs: 16 MiB in float64.
BLOCK_ELEMENTS = 2**21


@torch.no_grad()
def ordinality(
    z: Tensor,
    y: Tensor,
    *,
    method: Literal["spearman", "kendall"] = "spearman",
    num_pairs: int = 2_000_000,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Rank correlation, over pairs of rows, between feature distances and target distances.

    1: the further apart two targets, the further apart their features, without exception. 0: no relation.

    Args:
        z: ``(n, d)`` features, ``n >= 2``, any floating type; Euclidean distances in float64.
        y: ``(n,)`` or ``(n, t)`` targets; Euclidean distances.
        method: ``"spearman"`` (average ranks for ties) or ``"kendall"`` (tau-b).
        num_pairs: all ``n (n - 1) / 2`` pairs are used up to this many (``n = 2000`` by default); beyond,
            this many are drawn, uniformly and with replacement. Memory is about 150 bytes per pair.
        generator: for that draw, on the CPU. ``None`` is a fresh one with seed 0: calls repeat, and the
            global random state is left alone.

    Returns:
        Scalar in [-1, 1], float64 for float64 features, else float32. Not differentiable: it ranks. 0 where
        all feature distances or all target distances are the same, as correlation is then undefined.

    Example:
        >>> y = torch.tensor([0.0, 1.0, 3.0, 7.0])
        >>> ordinality(torch.stack([y, -y], dim=1), y)
        tensor(1.)
    """
    if method not in ("spearman", "kendall"):
        raise ValueError(f'expected method "spearman" or "kendall", got {method!r}')
    if not isinstance(num_pairs, int) or num_pairs < 1:
        raise ValueError(f"expected num_pairs as an integer >= 1, got {num_pairs!r}")
    features = checked_features(z)
    targets = checked_targets(y, len(z))
    first, second = _pairs(len(z), num_pairs, generator)  # (p,), (p,)
    first, second = first.to(z.device), second.to(z.device)
    correlation = _spearman if method == "spearman" else _kendall
    return result(correlation(_between(features, first, second), _between(targets, first, second)), z)


def _pairs(n: int, num_pairs: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """Rows ``i < j`` of all pairs, or of ``num_pairs`` drawn ones with ``i != j``."""
    if n * (n - 1) // 2 <= num_pairs:
        first, second = torch.triu_indices(n, n, offset=1)
        return first, second
    if generator is None:
        generator = torch.Generator().manual_seed(0)
    first = torch.randint(n, (num_pairs,), generator=generator)
    step = torch.randint(1, n, (num_pairs,), generator=generator)
    return first, (first + step) % n


def _between(values: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Distances ``(p,)`` between rows ``first`` and ``second`` of ``values (n, d)``, from differences."""
    step = max(1, BLOCK_ELEMENTS // values.shape[1])
    blocks = zip(torch.split(first, step), torch.split(second, step), strict=True)
    return torch.cat([torch.linalg.vector_norm(values[i] - values[j], dim=1) for i, j in blocks])


def _spearman(a: Tensor, b: Tensor) -> Tensor:
    """Pearson correlation of the average ranks; 0 where one of them is constant."""
    a, b = _average_ranks(a), _average_ranks(b)
    a, b = a - a.mean(), b - b.mean()
    norm = a.norm() * b.norm()
    return torch.where(norm > 0, (a @ b / norm).clamp(-1, 1), 0.0)


def _average_ranks(values: Tensor) -> Tensor:
    """Ranks ``(p,)`` from 0, equal values sharing the mean of theirs."""
    _, index, count = torch.unique(values, return_inverse=True, return_counts=True)
    last = count.cumsum(0)  # one past the last rank of each distinct value
    mean: Tensor = last.double() - (count + 1) / 2
    return mean[index]


def _kendall(a: Tensor, b: Tensor) -> Tensor:
    """Tau-b in ``p log p``: discordant pairs are the inversions of ``b`` in the order of ``a``."""
    p = len(a)
    in_a, a_ties = _dense_ranks(a)
    in_b, b_ties = _dense_ranks(b)
    joint = in_a * p + in_b  # orders by a, then by b
    _, joint_ties = _dense_ranks(joint)
    discordant = _inversions(joint.sort().values % p)
    everything = p * (p - 1) // 2
    difference = everything - a_ties - b_ties + joint_ties - 2 * discordant
    norm = (everything - a_ties) ** 0.5 * (everything - b_ties) ** 0.5
    return a.new_tensor(min(max(difference / norm, -1.0), 1.0) if norm > 0 else 0.0)


def _dense_ranks(values: Tensor) -> tuple[Tensor, int]:
    """Number ``(p,)`` of each distinct value in ascending order, and how many pairs are tied."""
    _, index, count = torch.unique(values, return_inverse=True, return_counts=True)
    return index, int((count * (count - 1) // 2).sum())


def _inversions(values: Tensor) -> int:
    """Pairs ``i < j`` with ``values[i] > values[j]``, by merging sorted halves from width 1 upwards."""
    size = 1 << max(len(values) - 1, 0).bit_length()
    padded = values.new_full((size,), int(values.max()))  # the largest at the end: no new inversions
    padded[: len(values)] = values
    total, width = 0, 1
    while width < size:
        left, right = (half.contiguous() for half in padded.view(-1, 2, width).unbind(1))
        total += int((width - torch.searchsorted(left, right, right=True)).sum())
        padded = padded.view(-1, 2 * width).sort(dim=1).values
        width *= 2
    return total
