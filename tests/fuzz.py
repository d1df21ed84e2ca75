"""Random calls of the regularizer: any option, layout, precision and scale, checked against float64.

    finite: wherever the float64 result can be represented in the precision at hand
    right:  wherever the terms are within its range. The value to 64 roundings of what it were if all points were as far
            apart as they are large; each row of the gradient to 64 roundings, times the condition of the problem, of
            the largest norm that it can have

The condition is one over the smallest distance that counts, in units of the points: the direction between two points
at a distance of 1e-3 is known to 1e3 roundings. Of float64 features, whose products are not done again in anything more
precise, it is the square of that. The fused kernels take half-precision features by one product of 11
bits: there the value and the gradient are right to 4 roundings of these.
"""

import math
from typing import NamedTuple

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ordinal_entropy import kernels
from ordinal_entropy.functional import ordinal_entropy

import dense_oracle

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
ROUNDINGS = 64
HUGE = 30  # powers of ten


def absolute(left, right):
    """A weighting of a user's own."""
    return (left[:, None] - right).abs().sum(-1)


OPTIONS = {
    "weighting": st.sampled_from(["l2", "squared", "sqrt", "none", absolute]),
    "distance": st.sampled_from(["l2", "cosine"]),
    "normalize": st.sampled_from([True, True, False]),
    "rescale": st.sampled_from(["max", "authors", "none"]),
    "grouping": st.sampled_from(["unique", "none", "bins"]),
    "centers": st.sampled_from(["normalize-first", "average-first"]),
    "tightness_over": st.sampled_from(["all", "shared"]),
    "tightness_power": st.sampled_from([1, 2]),
    "per": st.sampled_from(["batch", "image"]),
}
POWERS = st.floats(-HUGE, HUGE, allow_nan=False)


class Call(NamedTuple):
    """One call, all that is random in its numbers but the seed."""

    layout: str
    images: int
    n: int
    d: int
    t: int
    dtype: torch.dtype
    kernel: str
    shape: str  # of the features
    features: float  # power of ten
    targets: float
    weights: float | None
    levels: int | None  # of the targets; None: continuous
    masked: bool
    strengths: tuple[float, float]
    options: dict
    seed: int


def calls(of=("auto", "reference", "blocked"), most=40, dtypes=DTYPES, widths=range(1, 10)):
    """A Hypothesis strategy of calls of some kernels, on at most so many rows (or points of an image)."""
    return st.builds(
        Call,
        layout=st.sampled_from(["rows", "points", "maps"]),
        images=st.integers(1, 3),
        n=st.integers(0, most),
        d=st.sampled_from(widths),
        t=st.integers(1, 3),
        dtype=st.sampled_from(dtypes),
        kernel=st.sampled_from(of),
        shape=st.sampled_from(["spread", "spread", "collapsed", "collinear", "copies"]),
        features=POWERS,
        targets=POWERS,
        weights=st.one_of(st.none(), st.floats(0, 20)),
        levels=st.one_of(st.none(), st.integers(1, 8)),
        masked=st.booleans(),
        strengths=st.sampled_from([(1.0, 0.0), (0.0, 1.0), (0.7, 1.3)]),
        options=st.fixed_dictionaries(OPTIONS),
        seed=st.integers(0, 2**31),
    )


def of_calls(number, **which):
    """Decorates a test of one call: so many random ones, the same in every run; ``which`` are those of ``calls``."""

    def decorated(test):
        fixed = settings(
            max_examples=number,
            derandomize=True,
            database=None,
            suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
        )
        return fixed(given(call=calls(**which))(test))

    return decorated


def made(call):
    """Features, targets, mask, weights and options as a user would hand them over."""
    random = torch.Generator().manual_seed(call.seed)
    half = call.dtype == torch.float16
    power = max(-3.0, min(3.0, call.features / 10)) if half else call.features
    n, d, t = call.n, call.d, call.t
    lead = {"rows": (n,), "points": (call.images, n), "maps": (call.images, max(n // 8, 1), 4)}[call.layout]
    rows = math.prod(lead)

    def normal(*size):
        return torch.randn(*size, generator=random, dtype=torch.float64)

    x = normal(rows, d)
    if call.shape == "collapsed":
        x = normal(1, d) + 1e-3 * x
    elif call.shape == "collinear":
        x = normal(1, d) * 2.0 ** torch.randint(-3, 4, (rows, 1), generator=random)
    elif call.shape == "copies" and rows:
        x = x[torch.randint(max(rows // 3, 1), (rows,), generator=random)]
        x[0] = 0
    x = (x * 10.0**power).to(call.dtype)
    if call.levels is None:
        y = normal(rows, t)
    else:
        y = torch.randint(call.levels, (rows, t), generator=random).double() + 0.25
    y = (y * 10.0**call.targets).to(wide(call.dtype))
    options = dict(call.options)
    if options["grouping"] == "bins":
        options["grouping"] = 2.0 * 10.0**call.targets  # the levels lie off its edges
    mask = weight = None
    if call.masked:
        mask = torch.rand(rows, generator=random) < 0.7
    if call.weights is not None:
        weight = (torch.randint(0, 4, (rows,), generator=random) * 10.0**call.weights).float()
    x, y = x.reshape(*lead, d), y.reshape(*lead, t)
    mask, weight = (None if part is None else part.reshape(lead) for part in (mask, weight))
    if mask is not None:
        y = torch.where(mask[..., None], y, torch.nan)
    return x, y, mask, weight, options


def groups(call, x, y, mask, weight, options):
    """The same as the oracle takes it: (g, n, ...) in float64."""
    amount = torch.ones(x.shape[:-1], dtype=torch.float64) if weight is None else weight.double()
    amount = amount if mask is None else torch.where(mask, amount, 0)
    y = torch.where(amount[..., None] > 0, y.double(), 0)
    x = torch.where(amount[..., None] > 0, x.double(), 0)
    several = call.layout != "rows" and options["per"] == "image"
    shape = (x.shape[0], -1) if several else (1, amount.numel())
    size = amount.numel() // shape[0] if shape[0] else 0
    return (part.reshape(shape[0], size, *rest) for part, rest in ((x, x.shape[-1:]), (y, y.shape[-1:]), (amount, ())))


def check(call, device="cpu"):
    """Fails with the call where it is not finite or not right; returns how far off it was, in parts of what may be."""
    x, y, mask, weight, options = made(call)
    working = wide(call.dtype)
    parts = groups(call, x, y, mask, weight, options)
    expected = dense_oracle.answer(*parts, call.strengths, options, torch.finfo(working))
    shown = [part if part is None else part.to(device) for part in (x, y, mask, weight)]
    if call.layout == "maps":
        shown[:2] = (part.permute(0, 3, 1, 2) for part in shown[:2])
    features = shown[0].detach().requires_grad_()
    with kernels.use(call.kernel):
        loss = ordinal_entropy(
            features,
            *shown[1:3],
            sample_weight=shown[3],
            diversity_weight=call.strengths[0],
            tightness_weight=call.strengths[1],
            **options,
        )
    if expected.size > torch.finfo(working).max / 4:  # the weights are beyond it
        return 0.0
    norms = expected.gradient.norm(dim=-1)
    scale = 1.0
    if call.dtype == torch.float16 and float(norms.max() if norms.numel() else 0) > 0:
        scale = 2.0 ** min(round(math.log2(16 / float(norms.max()))), 60)
    if not float(expected.largest.max() if expected.largest.numel() else 0) * scale < torch.finfo(call.dtype).max / 8:
        return 0.0
    assert loss.dtype == working
    assert bool(loss.isfinite()), (call, loss, expected.value)
    roundings = ROUNDINGS * max(torch.finfo(working).eps, 2.0**-48)
    if (call.kernel == "fused" or device == "cuda") and call.dtype in (torch.bfloat16, torch.float16):
        roundings = 4 * 2.0**-11
    bound = roundings * max(expected.size, torch.finfo(working).tiny)
    if not expected.condition < math.inf:  # averages that cancel, terms that vanish: finite is all that can be asked
        bound = math.inf
    off_value = abs(loss.item() - float(expected.value)) / bound
    assert off_value <= 1, (call, loss.item(), float(expected.value), off_value)
    (gradient,) = torch.autograd.grad(loss, features, torch.tensor(scale, dtype=working, device=device))
    if call.layout == "maps":
        gradient = gradient.permute(0, 2, 3, 1)
    gradient = gradient.detach().cpu().double().reshape(expected.gradient.shape) / scale
    assert bool(gradient.isfinite().all()), (call, "gradient")
    error = (gradient - expected.gradient).norm(dim=-1)
    rounded = 2 * torch.finfo(call.dtype).eps * norms + torch.finfo(call.dtype).tiny / scale * math.sqrt(call.d)
    condition = expected.condition if working == torch.float32 else expected.condition**2
    allowed = min(roundings * condition, 2.0) * expected.largest + rounded
    off = float((error / allowed.clamp_min(1e-300)).max()) if error.numel() and bound < math.inf else 0.0
    assert off <= 1, (call, off, expected.condition)
    return max(off, off_value)


def wide(dtype):
    """What half precision is computed in."""
    return torch.promote_types(dtype, torch.float32)
