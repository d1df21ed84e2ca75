"""The sum over all pairs in tiles: no m x m matrix, each pair once, the gradient on the way.

The loss is a scalar, so its gradient can be finished while the distances are at hand: three matrix products a tile,
nothing kept but one gradient in the shape of the points. The points are centered first, because the product form
``|x|^2 + |y|^2 - 2 x y`` of a squared distance is off by a few eps times ``|x|^2 + |y|^2``. On a CPU, float32 pairs
with a squared distance below 2**-10 of that, or at a distance of a few roundings of the points, are done again in
float64 (of a tile that has many, all), so that no distance is off by more than 1e-4 of itself. Points closer than
``unit.SAME`` of their root mean square coincide: what is left of such a distance is rounding, which has no direction.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from ordinal_entropy.kernels import pairs
from ordinal_entropy.kernels.autograd import differentiable
from ordinal_entropy.kernels.unit import SAME, inverse_norms, unit_rows
from ordinal_entropy.kernels.weights import Function, weight_block

_SIZE = {"cpu": 640}  # large enough for the matrix products, small enough for the cache (1.6 MiB of float32)
_DEVICE_SIZE = 2048
_CLOSE = 2.0**-10
_ROUNDINGS = 64  # of float32, of the points as they were: closer ones differ by little else
_CROWD = 64  # of so many pairs of a tile one is close: all are done again
_AT_ONCE = 2**18  # numbers of the differences of close pairs


def tiles(m: int, size: int) -> Iterator[tuple[slice, slice]]:
    """Pairs of row ranges that cover all pairs of ``m`` rows once; a range with itself is half as long as the others.

    Example:
        >>> [(i.start, i.stop, j.start, j.stop) for i, j in tiles(6, 4)]
        [(0, 2, 0, 2), (2, 4, 2, 4), (0, 2, 2, 4), (0, 4, 4, 6), (4, 6, 4, 6)]
    """
    for start in range(0, m, size):
        whole = slice(start, min(start + size, m))
        middle = min(start + size // 2, m)
        left, right = slice(start, middle), slice(middle, whole.stop)
        yield left, left
        if right.start < right.stop:
            yield right, right
            yield left, right
        for other in range(start + size, m, size):
            yield whole, slice(other, min(other + size, m))


def sums_and_gradient(
    points: Tensor,
    values: Tensor,
    amount: Tensor | None,
    low: Tensor | None,
    weighting: float | Function,
    distance: str,
    project: bool,
    with_gradient: bool,
) -> tuple[Tensor, Tensor]:
    """What ``pairs.pair_sums`` returns for the points, and its gradient ``(g, m, d)``; without it, nothing in it.

    Args:
        points: ``(g, m, d)``.
        values: ``(g, m, t)``.
        amount: ``(g, m)``, or None: all are 1.
        low: ``(g,)`` or None.
        weighting: a power or a function.
        distance: "l2" or "cosine" (with ``project``).
        project: divide the points by their norms first.
        with_gradient: compute the gradient too.
    """
    g, m, _ = points.shape
    on_cpu = points.device.type == "cpu"
    refine = on_cpu and points.dtype == torch.float32
    size = _SIZE.get(points.device.type, _DEVICE_SIZE)
    room = points.new_empty(2, min(size, m) ** 2)  # squares and weights of a tile: the same memory for all
    if on_cpu and amount is not None and bool((amount == 1).all()):
        amount = None
    empty_diagonal = not callable(weighting) and weighting != 0 and low is None and values.shape[-1] == 1
    sums = points.new_zeros(g, dtype=torch.float32 if points.device.type == "mps" else torch.float64)
    gradients = torch.zeros_like(points) if with_gradient else points.new_empty(0)
    for k in range(g):
        rows, y, total = points[k], values[k], sums[k]
        gradient = gradients[k] if with_gradient else gradients
        inverse = inverse_norms(rows) if project else torch.ones_like(rows[:, :1])  # (m, 1)
        if amount is None:
            middle = (inverse.T @ rows)[0] / m
        else:  # empty slots do not draw the middle to zero
            present = amount[k] > 0
            middle = ((inverse * present[:, None]).T @ rows)[0] / present.sum().clamp_min(1)
        mean_square = 1.0 if project else rows.square().sum(1).mean()
        least = SAME**2 * mean_square  # squared distances up to this are 0
        x = torch.addcmul(-middle, rows, inverse)  # the (unit) rows, centered
        sizes = torch.linalg.vector_norm(x, dim=1).square_()
        close, rounded = 0.0, 0.0
        if refine:  # no pair is close whose squared distance is larger
            rounded = (_ROUNDINGS * torch.finfo(x.dtype).eps) ** 2 * float(mean_square)
            close = max(_CLOSE * 2 * float(sizes.amax()), rounded)
        pulled = torch.zeros_like(sizes)
        if m == 1:  # in no pair, but NaN must show
            total += 0 * middle.sum()
        for i, j in tiles(m, size):
            shape = (i.stop - i.start, j.stop - j.start)
            squares, weights = room[:, : shape[0] * shape[1]].view(2, *shape).unbind()
            weight_block(y[i], y[j], weighting, out=weights)
            if low is not None:
                weights -= low[k]
            if amount is not None:
                weights *= amount[k, i, None] * amount[k, j]
            torch.add(sizes[i, None], sizes[j], out=squares).addmm_(x[i], x[j].T, alpha=-2)
            same = i == j
            if same:  # a point does not pair with itself; at a distance that is not close
                if not empty_diagonal:
                    weights.fill_diagonal_(0)
                squares.fill_diagonal_(1 + 2 * close)
            if refine and distance == "l2" and float(squares.amin()) <= close:
                maybe = squares <= close
                if int(maybe.sum()) * _CROWD > maybe.numel():
                    limit = (_CLOSE * (sizes[i, None] + sizes[j])).clamp_min_(rounded)
                    maybe &= (squares <= limit).logical_and_(weights != 0)
                if int(maybe.sum()) * _CROWD > maybe.numel():
                    found, left, right = _exact_tile(rows[i], rows[j], weights, least, project, same)
                    total += found
                    if with_gradient:
                        gradient[i] += left
                        gradient[j] += right
                    continue
                squares.clamp_min_(torch.finfo(squares.dtype).tiny)  # also of pairs without a weight
                r, c = maybe.nonzero(as_tuple=True)
                limit = (_CLOSE * (sizes[i][r] + sizes[j][c])).clamp_min_(rounded)
                near = (squares[r, c] <= limit) & (weights[r, c] != 0)
                r, c = r[near], c[near]
                by_rows = (gradient[i], gradient[j]) if with_gradient else None
                total += _exact_pairs(rows[i], rows[j], weights[r, c], r, c, least, project, same, by_rows)
                weights[r, c] = 0
            if distance == "cosine":  # 1 - cos; a half more for each zero row
                zero = 0.5 * (inverse[:, 0] == 0)
                found = (weights * (squares / 2 + (zero[i, None] + zero[j]))).sum()
                pulls = weights
            else:
                if not refine:
                    rounding = 4 * torch.finfo(x.dtype).eps * (sizes[i, None] + sizes[j])
                    coincide = squares <= rounding.clamp_min_(least)
                    weights.masked_fill_(coincide, 0)
                    squares.masked_fill_(coincide, 1)
                distances = squares.sqrt_()
                found = torch.dot(weights.view(-1), distances.view(-1))
                pulls = weights.div_(distances)
            total.add_(found, alpha=0.5 if same else 1)  # a tile of the same rows has each pair twice
            if with_gradient:
                pulled[i].add_(pulls.sum(1))
                gradient[i].addmm_(pulls, x[j], alpha=-1)
                if not same:
                    pulled[j].add_(pulls.sum(0))
                    gradient[j].addmm_(pulls.T, x[i], alpha=-1)
        if with_gradient and not project:
            gradient.addcmul_(x, pulled[:, None])
        elif with_gradient:
            # What points along a row z is lost in the division by its norm. So instead of x = z - middle the part
            # -middle will do, and nothing large cancels.
            for start in range(0, m, size):
                i = slice(start, start + size)
                z = rows[i] * inverse[i]
                done = gradient[i].addcmul_(middle, pulled[i, None], value=-1)
                done.addcmul_(z, (z * done).sum(1, keepdim=True), value=-1).mul_(inverse[i])
    return sums.to(points.dtype), gradients


def _exact_tile(
    x: Tensor, y: Tensor, weights: Tensor, least: float | Tensor, project: bool, same: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Sum over the pairs of rows ``x (a, d)`` and ``y (b, d)``, and its gradients there; at unit rows, if projected."""
    u, v = (unit_rows(z.double()) if project else z.double() for z in (x, y))
    shift = u.mean(0)
    u, v = u - shift, v - shift
    sizes = u.square().sum(1)[:, None] + v.square().sum(1)
    squares = torch.addmm(sizes, u, v.T, alpha=-2)
    apart = squares > (4 * torch.finfo(u.dtype).eps * sizes).clamp_min_(least)
    distances = torch.where(apart, squares, 1).sqrt_()
    pulls = torch.where(apart, weights / distances, 0)
    total = (pulls * squares).sum()
    left = torch.addmm(u * pulls.sum(1)[:, None], pulls, v, alpha=-1)
    if same:
        return total / 2, left, torch.zeros_like(left)
    return total, left, torch.addmm(v * pulls.sum(0)[:, None], pulls.T, u, alpha=-1)


def _exact_pairs(
    x: Tensor,
    y: Tensor,
    weights: Tensor,
    rows: Tensor,
    columns: Tensor,
    least: float | Tensor,
    project: bool,
    same: bool,
    gradients: tuple[Tensor, Tensor] | None,
) -> Tensor:
    """The same for some pairs alone, ``(p,)`` rows of ``x`` with as many of ``y``; adds to the gradients."""
    total = torch.zeros((), dtype=torch.float64)
    some = max(1, _AT_ONCE // x.shape[1])
    for w, i, j in zip(weights.split(some), rows.split(some), columns.split(some), strict=True):
        u, v = (unit_rows(z.double()) if project else z.double() for z in (x[i], y[j]))
        apart = u.sub_(v)
        squares = apart.square().sum(1)
        there = squares > least
        pulls = torch.where(there, w / torch.where(there, squares, 1).sqrt_(), 0)
        total += torch.dot(pulls, squares)
        if gradients is not None:
            by_rows = apart.mul_(pulls[:, None]).to(x.dtype)
            gradients[0].index_add_(0, i, by_rows)
            if not same:  # a tile of the same rows has each pair twice
                gradients[1].index_add_(0, j, by_rows, alpha=-1)
    return total / 2 if same else total


operator, _call = differentiable(
    "pair_sums",
    "(Tensor points, Tensor values, Tensor? amount, Tensor? low, float weighting, str distance, bool project, "
    "bool with_gradient) -> (Tensor, Tensor)",
    sums_and_gradient,
    pairs.pair_sums,
    tensors=4,
)


def pair_sums(
    points: Tensor,
    values: Tensor,
    amount: Tensor | None,
    low: Tensor | None,
    weighting: float | Function,
    distance: str,
    project: bool = False,
) -> Tensor:
    """What ``pairs.pair_sums`` returns, with memory for one gradient and a few blocks.

    Example:
        >>> x, y = torch.tensor([[[0.0], [3.0], [4.0]]]), torch.tensor([[[0.0], [1.0], [2.0]]])
        >>> pair_sums(x, y, None, None, 1.0, "l2")  # 1 * 3 + 2 * 4 + 1 * 1
        tensor([12.])
    """
    return _call(points, values, amount, low, weighting, distance, project)
