"""All ranks' rows on every rank, with the gradient that makes data parallelism exact.

Every rank computes the same loss on the joined batch. ``DistributedDataParallel`` then averages the ranks' gradients,
each of which knows only the rank's own rows: the average is the gradient of the joined batch divided by the number of
ranks. The backward pass of the gather multiplies by that number, so that loss and gradient equal those of one process.
This asks of the caller what data parallelism asks anyway: that all ranks add the loss with the same strength, and that
gradients are averaged, not summed.
"""

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor

from ordinal_entropy.layouts import Rows

TERMS = ("nothing", "the tightness", "the diversity", "diversity and tightness")  # what a call may compute
_DTYPES = (torch.float32, torch.float64)
_CALLS: "weakref.WeakKeyDictionary[Any, int]" = weakref.WeakKeyDictionary()  # of each process group, by this rank


class _Header(NamedTuple):
    """What ranks tell each other before anything else, in the same eleven numbers whatever they have."""

    call: int  # how many this rank has made
    terms: int  # of TERMS
    failed: int  # whether this rank has no rows, but an error
    groups: int
    rows: int
    features: int  # numbers of a row, and
    features_dtype: int  # of _DTYPES
    targets: int
    targets_dtype: int
    along_groups: int
    seed: int  # rank 0's counts

    def contents(self) -> str:
        """In words."""
        features, targets = (str(_DTYPES[each])[6:] for each in (self.features_dtype, self.targets_dtype))
        apart = " of images kept apart" if self.along_groups else ""
        return f"{self.features} {features} features and {self.targets} {targets} targets{apart}"


def join(
    own: Callable[[], Rows],
    generator: torch.Generator | None = None,
    *,
    along: str = "rows",
    terms: str = TERMS[-1],
    device: torch.device | None = None,
) -> tuple[Rows, torch.Generator | None]:
    """The rows of all ranks, in the order of the ranks, and a generator that draws the same on each.

    A rank whose own rows are wrong takes part as far as to say so: then all ranks raise an error in the same call, and
    the next one finds them together again.

    Args:
        own: makes this rank's rows; their numbers may differ between ranks, and may be 0.
        generator: rank 0's decides the draws.
        along: "rows" joins one group of rows, "groups" keeps the groups of the ranks apart.
        terms: what is computed of them, one of ``TERMS``, the same on all ranks.
        device: of the rows.

    Returns:
        Both unchanged where no process group of several ranks is initialised.

    Raises:
        ValueError: on all ranks, the same: they differ in types or widths, in the terms, or in the number of their
            calls; or another rank has failed. A rank that fails raises its own error.
    """
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return own(), generator
    group = dist.group.WORLD
    call = _CALLS[group] = _CALLS.get(group, 0) + 1
    data, failure = None, None
    header = _Header(call, TERMS.index(terms), 1, 0, 0, 0, 0, 0, 0, along == "groups", 0)
    try:
        data = own()
        g, n, d = data.features.shape
        device = data.features.device
        dtypes = _DTYPES.index(data.features.dtype), data.targets.shape[-1], _DTYPES.index(data.targets.dtype)
        seed = int(torch.randint(2**62, (1,), device=device, generator=generator))
        header = _Header(call, header.terms, 0, g, n, d, *dtypes, header.along_groups, seed)
    except Exception as error:
        failure = error
    headers = _exchanged(header, _place(device))
    _CALLS[group] = max(each.call for each in headers)
    _check(headers, failure)
    assert data is not None

    shapes = [(each.groups, each.rows) for each in headers]
    amount = data.features.new_ones(data.features.shape[:2]) if data.amount is None else data.amount
    features = _Gather.apply(data.features, shapes, along)
    targets = _gather(data.targets, shapes, along)
    amount = _gather(amount[..., None], shapes, along)[..., 0]
    shared = torch.Generator(data.features.device).manual_seed(headers[0].seed)
    return Rows(features, targets, amount, data.eager), shared


def _place(device: torch.device | None) -> torch.device:
    """Where numbers are exchanged: with the rows, or where the process group can."""
    if device is not None:
        return device
    return torch.device("cuda", torch.cuda.current_device()) if "nccl" in dist.get_backend() else torch.device("cpu")


def _exchanged(header: _Header, device: torch.device) -> list[_Header]:
    """That of every rank."""
    own = torch.tensor(header, dtype=torch.int64, device=device)
    all_of_them = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(all_of_them, own)
    return [_Header(*numbers) for numbers in torch.stack(all_of_them).tolist()]


def raise_together(failure: Exception | None, what: str) -> NoReturn:
    """Raises on all ranks, which know that one has failed: there its own error, elsewhere one that tells of it.

    Args:
        failure: of this rank, if it has one.
        what: was expected of every rank, for the message.
    """
    said: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(said, None if failure is None else str(failure))
    if failure is not None:
        raise failure
    errors = "; ".join(f"on rank {rank}: {each}" for rank, each in enumerate(said) if each is not None)
    raise ValueError(f"expected {what} from every rank, got an error {errors}")


def _check(headers: list[_Header], failure: Exception | None) -> None:
    """Raises what is wrong; every rank sees the same headers, so all raise or none."""
    if any(each.failed for each in headers):
        raise_together(failure, "rows")
    for one, expected in (
        (lambda each: f"call {each.call}", "all ranks to make the same calls with gather=True"),
        (lambda each: TERMS[each.terms], "all ranks to compute the same terms with gather=True"),
        (_Header.contents, "features and targets of one type and width on all ranks"),
    ):
        found = [one(each) for each in headers]
        if len(set(found)) > 1:
            raise ValueError(f"expected {expected}, got " + ", ".join(f"{x} on rank {r}" for r, x in enumerate(found)))


def _gather(x: Tensor, shapes: list[tuple[int, int]], along: str) -> Tensor:
    """All ranks' ``x (g, n, c)``, padded with zeros for the way (and, along groups, for good)."""
    most_groups, most_rows = (max(sizes) for sizes in zip(*shapes, strict=True))
    g, n, c = x.shape
    padded = x.new_zeros(most_groups, most_rows, c)
    padded[:g, :n] = x
    parts = [torch.empty_like(padded) for _ in shapes]
    dist.all_gather(parts, padded)
    if along == "rows":
        return torch.cat([part[:, :rows] for part, (_, rows) in zip(parts, shapes, strict=True)], dim=1)
    return torch.cat([part[:groups] for part, (groups, _) in zip(parts, shapes, strict=True)])


class _Gather(torch.autograd.Function):
    """``_gather`` whose gradient is this rank's part, times the number of ranks."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, shapes: list[tuple[int, int]], along: str) -> Tensor:
        rank = dist.get_rank()
        ctx.shape, ctx.along, ctx.ranks = x.shape, along, len(shapes)
        ctx.start = sum(shape[along == "rows"] for shape in shapes[:rank])
        return _gather(x.detach(), shapes, along)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        g, n, _ = ctx.shape
        rows = gradient[:, ctx.start : ctx.start + n]
        groups = gradient[ctx.start : ctx.start + g, :n]
        return (rows if ctx.along == "rows" else groups) * ctx.ranks, None, None
