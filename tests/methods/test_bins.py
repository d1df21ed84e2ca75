"""Heads on bins: every loss against a loop, what all of them share, and the way back to numbers."""

import copy
import math
import pickle

import pytest
import torch

from ordinal_entropy import methods
from ordinal_entropy.methods import Batch, Step

BINS = 15
SIGMA, SCALE, MEAN, VARIANCE = 0.7, 0.9, 0.3, 0.04
OPTIONS = {
    "ce": {},
    "hl-gauss": {"sigma": SIGMA},
    "dldl": {"sigma": SIGMA},
    "dldl-v2": {"sigma": SIGMA, "mean_weight": MEAN},
    "sord": {"scale": SCALE},
    "mean-variance": {"mean_weight": MEAN, "variance_weight": VARIANCE},
}
PADDING = {"ce": 0.5, "mean-variance": 0.5, "sord": 3 * SCALE}  # of the others 3 SIGMA
every = pytest.mark.parametrize("name", OPTIONS)

LOGITS = torch.randn(7, 2 * BINS, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
TARGETS = torch.rand(7, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * torch.tensor([3.0, 50.0])
MASK = torch.tensor([1, 0, 1, 1, 0, 1, 1]).bool()
WEIGHT = torch.tensor([0.5, 9.0, 2.0, 1.0, 7.0, 0.0, 3.0]).double()


def labels(name, y):
    """Of the bins, with Python's floats; places in widths from the first edge."""
    middles = [k + 0.5 for k in range(BINS)]
    if name in ("ce", "mean-variance"):
        found = [float(k <= y < k + 1 or (k == BINS - 1 and y >= BINS)) for k in range(BINS)]
    elif name == "hl-gauss":
        cdf = lambda x: 0.5 * (1 + math.erf((x - y) / SIGMA / math.sqrt(2)))  # noqa: E731
        found = [cdf(k + 1) - cdf(k) for k in range(BINS)]
    elif name == "sord":
        found = [math.exp(-abs(c - y) / SCALE) for c in middles]
    else:
        found = [math.exp(-((c - y) ** 2) / 2 / SIGMA**2) for c in middles]
    return [each / sum(found) for each in found]


def loss_of(name, logits, y):
    """Of one number of a target, likewise."""
    total = sum(math.exp(each) for each in logits)
    p = [math.exp(each) / total for each in logits]
    found = -sum(own * math.log(q) for own, q in zip(labels(name, y), p, strict=True))
    mean = sum(q * (k + 0.5) for k, q in enumerate(p))
    if name == "dldl-v2":
        found += MEAN * abs(mean - y)
    if name == "mean-variance":
        found += MEAN * (mean - y) ** 2 / 2 + VARIANCE * sum(q * (k + 0.5 - mean) ** 2 for k, q in enumerate(p))
    return found


def place(name, y, low, high):
    padding = PADDING.get(name, 3 * SIGMA)
    width = (high - low) / (BINS - 2 * padding)
    return min(max((y - low) / width + padding, 0.0), float(BINS))


def loop(name, logits, targets, train, weight=None, inside=None):
    """The mean of weight times loss over the rows inside."""
    total, count = 0.0, 0
    for i in range(len(targets)):
        if inside is not None and not inside[i]:
            continue
        count += 1
        for j in range(2):
            y = place(name, float(targets[i, j]), float(train[:, j].min()), float(train[:, j].max()))
            own = loss_of(name, logits[i, j * BINS : (j + 1) * BINS].tolist(), y)
            total += own / 2 * (1.0 if weight is None else float(weight[i]))
    return total / max(count, 1)


def prepared(name, train=TARGETS, **options):
    method = methods.create(name, **{"bins": BINS, **OPTIONS[name], **options})
    method.prepare(train)
    return method


def task_loss(method, logits, targets, mask=None, weight=None):
    return method.task_loss(Step(Batch(None, targets, mask, weight), torch.zeros(1), logits, None))


@every
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_loss_equals_a_loop(name, weighted, masked):
    train = TARGETS[1:6]  # some of the targets are beyond the range
    weight, inside = (WEIGHT if weighted else None), (MASK if masked else None)
    expected = loop(name, LOGITS, TARGETS, train, weight, inside)
    logits, targets = LOGITS.clone(), TARGETS.clone()
    if masked:
        targets[~MASK], logits[~MASK] = math.nan, math.nan
    found = task_loss(
        prepared(name, train), logits, targets, MASK[:, None].expand(7, 2) if masked else None,
        WEIGHT[:, None] if weighted else None,
    )  # fmt: skip
    assert found.item() == pytest.approx(expected, rel=1e-10)


@every
def test_maps_equal_rows(name):
    method = prepared(name, TARGETS[:, :1])
    logits, targets = LOGITS[:6, :BINS], TARGETS[:6, :1]
    as_maps = lambda rows: rows.T.reshape(1, -1, 2, 3)  # noqa: E731
    mask = MASK[:6, None]
    found = task_loss(method, as_maps(logits), as_maps(targets), as_maps(mask), as_maps(WEIGHT[:6, None]))
    assert found.item() == pytest.approx(task_loss(method, logits, targets, mask, WEIGHT[:6, None]).item(), rel=1e-12)
    decoded = method.decode(as_maps(logits))
    assert decoded.shape == (1, 1, 2, 3) and torch.allclose(decoded.flatten(), method.decode(logits)[:, 0])
    points = method.decode(logits.view(2, 3, BINS))
    assert points.shape == (2, 3, 1) and torch.equal(points.flatten(), method.decode(logits)[:, 0])


@every
def test_gradient(name):
    method = prepared(name)
    mask = MASK[:3, None].expand(3, 2)
    logits = LOGITS[:3].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: task_loss(method, x, TARGETS[:3], mask), logits)


@every
def test_the_unit_of_the_targets_does_not_matter(name):
    own, other = prepared(name), prepared(name, 1000 * TARGETS - 7)
    assert torch.allclose(task_loss(other, LOGITS, 1000 * TARGETS - 7), task_loss(own, LOGITS, TARGETS), rtol=1e-9)
    assert torch.allclose(other.decode(LOGITS), 1000 * own.decode(LOGITS) - 7, rtol=1e-9)


@every
@pytest.mark.parametrize("rows", [0, 1, 2])
def test_few_rows_and_an_all_false_mask(name, rows):
    method = prepared(name)
    logits = LOGITS[:rows].clone().requires_grad_()
    loss = task_loss(method, logits, TARGETS[:rows])
    loss.backward()
    assert loss.isfinite() and logits.grad.isfinite().all() and (loss > 0 if rows else loss == 0)
    logits.grad = None
    loss = task_loss(method, logits, torch.full((rows, 2), math.nan), torch.zeros(rows, 2, dtype=torch.bool))
    loss.backward()
    assert loss == 0 and (logits.grad == 0).all()


@every
@pytest.mark.parametrize("bins", [15, 16])
@pytest.mark.parametrize("value", [0.0, -4.0, 1e20])
def test_one_distinct_target_is_learned_and_predicted(name, bins, value):
    targets = torch.full((3, 1), value, dtype=torch.float64)
    method = prepared(name, targets, bins=bins)
    logits = torch.zeros(3, bins, dtype=torch.float64, requires_grad=True)
    for _ in range(60):
        (by,) = torch.autograd.grad(task_loss(method, logits, targets), logits)
        logits = (logits - 8 * by).detach().requires_grad_()
    size = abs(value) or 1.0
    assert (method.decode(logits) - value).abs().max() < 0.02 * size


@every
def test_targets_beyond_the_range_count_as_its_ends(name):
    method = prepared(name, TARGETS[:, :1])
    ends = method.parts[name].bins.low, method.parts[name].bins.low + BINS * method.parts[name].bins.width
    for end, far in zip(ends, (-1e9, 1e9), strict=True):
        loss = [
            task_loss(method, LOGITS[:1, :BINS], torch.full((1, 1), float(y), dtype=torch.float64)) for y in (end, far)
        ]
        assert loss[1].isfinite() and loss[1].item() == pytest.approx(loss[0].item(), rel=1e-9)


@every
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_lower_precisions(name, dtype, tolerance):
    method = prepared(name)
    expected, decoded = task_loss(method, LOGITS, TARGETS), method.decode(LOGITS)
    loss = task_loss(method, LOGITS.to(dtype), TARGETS)
    assert loss.dtype == torch.float32 and loss.item() == pytest.approx(expected.item(), rel=tolerance)
    low = method.decode(LOGITS.to(dtype))
    assert low.dtype == torch.float32 and torch.allclose(low.double(), decoded, rtol=tolerance, atol=tolerance)


@every
def test_large_logits_have_finite_losses(name):
    logits = (1e4 * LOGITS).float().requires_grad_()
    loss = task_loss(prepared(name), logits, TARGETS)
    loss.backward()
    assert loss.isfinite() and logits.grad.isfinite().all()


@every
def test_the_range_is_state_and_a_fresh_method_takes_it_as_it_was(name):
    method = prepared(name)
    fresh = methods.create(name, bins=BINS, **OPTIONS[name])
    fresh.load_state_dict(method.state_dict())
    for twin in (fresh, copy.deepcopy(method), pickle.loads(pickle.dumps(method))):
        assert torch.equal(twin.decode(LOGITS), method.decode(LOGITS))
        assert torch.equal(task_loss(twin, LOGITS, TARGETS), task_loss(method, LOGITS, TARGETS))


@every
@pytest.mark.parametrize("predict", ["mean", "median", "mode"])
def test_decoding_equals_a_loop(name, predict):
    method = prepared(name, TARGETS[:, :1], predict=predict)
    low, width = float(method.parts[name].bins.low), float(method.parts[name].bins.width)
    for row, found in zip(LOGITS[:, :BINS].softmax(-1).tolist(), method.decode(LOGITS[:, :BINS]), strict=True):
        if predict == "mean":
            where = sum(p * (k + 0.5) for k, p in enumerate(row))
        elif predict == "mode":
            where = row.index(max(row)) + 0.5
        else:
            k = next(k for k in range(BINS) if sum(row[: k + 1]) >= 0.5)
            where = k + (0.5 - sum(row[:k])) / row[k]
        assert found.item() == pytest.approx(low + width * where, rel=1e-10)
    broken = LOGITS[:, :BINS].clone()
    broken[1, 3], broken[2, 0] = math.nan, math.inf
    assert method.decode(broken)[:, 0].isnan().tolist() == [False, True, True, False, False, False, False]


@every
def test_a_range_may_be_given(name):
    method = prepared(name, low=-10.0, high=10.0)
    assert torch.allclose(method.decode(torch.zeros(1, 2 * BINS)), torch.zeros(1, 2), atol=1e-5)
    half = prepared(name, torch.tensor([[1.0], [10.0]]), low=-10.0)
    assert half.decode(torch.zeros(1, BINS)).item() == pytest.approx(0.0, abs=1e-5)


@every
def test_which_runs_of_a_stack_are_alike_can_be_read_off_a_method(name):
    alike, other = prepared(name), prepared(name, TARGETS + 1)
    assert repr(alike) == repr(other)
    for option, value in {**OPTIONS[name], "predict": "mode"}.items():
        changed = "median" if option == "predict" else value * (1 + 1e-7)
        assert repr(prepared(name, **{option: changed})) != repr(alike)


def test_the_outermost_centers_are_the_outermost_targets():
    for name in ("ce", "mean-variance"):
        method = prepared(name, torch.tensor([[20.0], [34.0]]), predict="mode")
        every_bin = method.decode(torch.eye(BINS))[:, 0]
        assert torch.allclose(every_bin, torch.arange(20.0, 35.0))


def test_a_target_on_an_edge_is_in_the_upper_bin_in_any_precision():
    targets = torch.arange(0.0, 15.0, 0.5).double()[:, None]  # every other one is on an edge
    train = torch.tensor([[0.0], [14.0]]).double()
    logits = torch.randn(len(targets), BINS, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    losses = []
    for unit in (1.0, 1 / 3, 1e-3, 7.7):
        for dtype in (torch.float64, torch.float32):
            method = prepared("ce", (unit * train).to(dtype)).to(dtype)
            losses.append(task_loss(method, logits.to(dtype), (unit * targets).to(dtype)).item())
    expected = -logits.log_softmax(-1)[torch.arange(30), (targets[:, 0] + 0.5).long().clamp(max=14)].mean()
    assert losses == pytest.approx([expected.item()] * 8, rel=1e-6)


def test_mistakes_are_named():
    for name, options, message in [
        ("ce", {"bins": 1}, "more than 1 bins for a range with 0.5 of them beyond it on both sides, got 1"),
        ("ce", {"bins": True}, "bins to be a whole number, got True"),
        ("dldl", {"sigma": -1.0}, "sigma to be a positive number, got -1"),
        ("dldl", {"sigma": 20.0}, "more than 120 bins"),
        ("dldl-v2", {"mean_weight": -1.0}, "mean_weight to be a number from 0 on, got -1"),
        ("dldl-v2", {"sigma": 0.0}, "sigma to be a positive number"),
        ("sord", {"scale": math.inf}, "scale to be a positive number, got inf"),
        ("mean-variance", {"mean_weight": math.nan}, "mean_weight to be a number from 0 on, got nan"),
        ("mean-variance", {"variance_weight": -1}, "variance_weight to be a number from 0 on, got -1"),
        ("sord", {"predict": "expectation"}, "predict to be one of mean, median, mode, got 'expectation'"),
        ("ce", {"low": 2.0, "high": 1.0}, "finite low < high, got low=2.0, high=1.0"),
    ]:
        with pytest.raises(ValueError, match=message):
            methods.create(name, **options)
    with pytest.raises(ValueError, match=r"prepare\(targets\) before the first step"):
        methods.create("ce").decode(torch.zeros(1, 100))
    with pytest.raises(ValueError, match="finite training targets, at least one"):
        methods.create("ce").prepare(torch.tensor([[1.0], [math.inf]]))
    with pytest.raises(ValueError, match=r"30 logits a row, got \(3, 15\)"):
        prepared("sord").decode(torch.zeros(3, 15))
    with pytest.raises(ValueError, match=r"predictions with 30 numbers a row, got \(7, 15\)"):
        task_loss(prepared("dldl"), LOGITS[:, :15], TARGETS)
