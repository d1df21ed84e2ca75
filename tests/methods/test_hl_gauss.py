"""HL-Gauss: histograms and losses against loops, the way back to numbers, edges."""

import copy
import itertools
import math
import pickle

import pytest
import torch

from ordinal_entropy import methods
from ordinal_entropy.methods import Batch, Step
from ordinal_entropy.methods.functional import hl_gauss
from ordinal_entropy.methods.hl_gauss import HLGauss

BINS = 12
LOGITS = torch.randn(6, 2 * BINS, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
TARGETS = torch.rand(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * torch.tensor([3.0, 50.0])


def histogram(y, edges, sigma):
    """One target, with Python's floats; exact far from the middle on both sides."""
    y = min(max(y, edges[0]), edges[-1])
    mass = []
    for left, right in itertools.pairwise(edges):
        a, b = (left - y) / sigma / math.sqrt(2), (right - y) / sigma / math.sqrt(2)
        mass.append(math.erfc(a) - math.erfc(b) if a > 0 else math.erfc(-b) - math.erfc(-a))
    return [each / sum(mass) for each in mass]


def loop(logits, targets, train, bins, sigma, weight=None, inside=None):
    """The mean cross-entropy, number by number."""
    total, count = 0.0, 0
    n, t = targets.shape
    for i in range(n):
        if inside is not None and not inside[i]:
            continue
        count += 1
        for j in range(t):
            low, high = float(train[:, j].min()), float(train[:, j].max())
            width = (high - low) / (bins - 6 * sigma)
            edges = [low - 3 * sigma * width + k * width for k in range(bins + 1)]
            likely = histogram(float(targets[i, j]), edges, sigma * width)
            own = logits[i, j * bins : (j + 1) * bins].tolist()
            log_sum = math.log(sum(math.exp(each) for each in own))
            loss = sum(p * (log_sum - each) for p, each in zip(likely, own, strict=True))
            total += loss / t * (1.0 if weight is None else float(weight[i]))
    return total / max(count, 1)


def prepared(train=TARGETS, **options):
    method = HLGauss(**{"bins": BINS, "sigma": 1.0, **options})
    method.prepare(train)
    return method


def task_loss(method, logits, targets, mask=None, weight=None):
    return method.task_loss(Step(Batch(None, targets, mask, weight), torch.zeros(1), logits, None))


@pytest.mark.parametrize("sigma", [0.05, 0.7, 30.0])
def test_histograms_equal_a_loop(sigma):
    targets = torch.tensor([-9.0, 0.0, 0.4, 1.0, 2.7, 9.0]).double()
    edges = torch.tensor([0.0, 0.5, 1.0, 2.5, 3.0]).double()
    found = hl_gauss(targets, edges, sigma)
    expected = torch.tensor([histogram(float(y), edges.tolist(), sigma) for y in targets], dtype=torch.float64)
    assert torch.allclose(found, expected, rtol=1e-12, atol=1e-300)
    assert torch.allclose(found.sum(-1), torch.ones(6).double(), rtol=1e-12)


def test_tails_keep_their_relative_precision_and_any_sigma_gives_a_distribution():
    edges = torch.arange(41.0).double()
    first, last = hl_gauss(torch.tensor([0.0, 40.0]).double(), edges, 1.0)
    assert first[-10] == pytest.approx(histogram(0.0, edges.tolist(), 1.0)[-10], rel=1e-9) and first[-10] > 0
    assert torch.allclose(last, first.flip(0), rtol=1e-9, atol=0)
    for sigma in (1e-30, 1e-3, 1e3, 1e12, 1e30):
        found = hl_gauss(torch.tensor([0.0, 0.3, 17.0, 40.0]), edges, sigma)
        assert found.isfinite().all() and (found >= 0).all() and torch.allclose(found.sum(-1), torch.ones(4))
    assert torch.allclose(hl_gauss(torch.tensor(0.0), edges, 1e30), torch.full((40,), 1 / 40))
    assert hl_gauss(torch.tensor([math.nan]), edges, 1.0).isnan().all()


def test_edges_and_sigmas_of_each_number():
    edges = torch.stack([torch.arange(5.0), 10 * torch.arange(5.0)])
    found = hl_gauss(torch.tensor([[1.0, 10.0], [2.0, 20.0]]), edges, torch.tensor([0.5, 5.0]))
    assert found.shape == (2, 2, 4) and torch.allclose(found[:, 0], found[:, 1])
    assert hl_gauss(torch.ones(2).half(), torch.arange(3.0), 1.0).dtype == torch.float32


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_loss_equals_a_loop(weighted, masked):
    mask = torch.tensor([1, 0, 1, 1, 0, 1]).bool() if masked else None
    weight = torch.tensor([0.5, 9.0, 2.0, 1.0, 7.0, 0.0]).double() if weighted else None
    expected = loop(LOGITS, TARGETS, TARGETS, BINS, 1.0, weight, mask)
    targets = TARGETS.clone()
    logits = LOGITS.clone()
    if masked:
        targets[~mask], logits[~mask] = math.nan, math.nan
    found = task_loss(
        prepared(), logits, targets, None if mask is None else mask[:, None].expand(6, 2),
        None if weight is None else weight[:, None],
    )  # fmt: skip
    assert found.item() == pytest.approx(expected, rel=1e-11)


def test_maps_equal_rows():
    method = prepared(TARGETS[:, :1])
    logits, targets = LOGITS[:, :BINS], TARGETS[:, :1]
    weight = torch.arange(6.0).double()[:, None]
    rows = task_loss(method, logits, targets, None, weight)
    as_maps = {"logits": (BINS,), "targets": (1,), "weight": (1,)}
    given = {"logits": logits, "targets": targets, "weight": weight}
    maps = {key: given[key].T.reshape(*width, 1, 2, 3).transpose(0, 1) for key, width in as_maps.items()}
    found = task_loss(method, maps["logits"], maps["targets"], None, maps["weight"])
    assert found.item() == pytest.approx(rows.item(), rel=1e-12)
    decoded = method.decode(maps["logits"])
    assert decoded.shape == (1, 1, 2, 3) and torch.allclose(decoded.flatten(), method.decode(logits)[:, 0])


def test_gradient():
    method, mask = prepared(), torch.tensor([1, 0, 1, 1, 0, 1]).bool()
    assert torch.autograd.gradcheck(
        lambda logits: task_loss(method, logits, TARGETS, mask), LOGITS.clone().requires_grad_()
    )
    for predict in ("mean", "median"):
        assert torch.autograd.gradcheck(prepared(predict=predict).decode, LOGITS.clone().requires_grad_())


@pytest.mark.parametrize("predict", ["mean", "median", "mode"])
@pytest.mark.parametrize("sigma", [0.5, 2.0])
def test_the_best_logits_decode_to_the_target(predict, sigma):
    targets = torch.linspace(-3.0, 7.0, 101).double()[:, None]
    method = HLGauss(100, sigma, predict)
    method.prepare(targets)
    places = (targets - method.bins.low) / method.bins.width
    logits = hl_gauss(places, torch.arange(101), sigma)[:, 0].clamp(min=1e-300).log()
    off = (method.decode(logits) - targets).abs().max() / method.bins.width
    assert off < {"mean": 0.02, "median": 0.1, "mode": 0.5 + 1e-9}[predict]


def test_decoding_equals_a_loop():
    likely = LOGITS[:, :BINS].softmax(-1)
    for predict in ("mean", "median", "mode"):
        method = prepared(TARGETS[:, :1], predict=predict)
        low, width = float(method.bins.low), float(method.bins.width)
        for row, found in zip(likely.tolist(), method.decode(LOGITS[:, :BINS])[:, 0].tolist(), strict=True):
            until = 0.0
            for k, own in enumerate(row):
                if until + own >= 0.5:
                    median = k + (0.5 - until) / own
                    break
                until += own
            place = {
                "mean": sum(p * (k + 0.5) for k, p in enumerate(row)),
                "median": median,
                "mode": row.index(max(row)) + 0.5,
            }[predict]
            assert found == pytest.approx(low + width * place, rel=1e-10)


@pytest.mark.parametrize("predict", ["mean", "median", "mode"])
def test_a_logit_that_is_no_number_is_a_prediction_that_is_none(predict):
    logits = LOGITS.clone()
    logits[1, 3], logits[2, BINS] = math.nan, math.inf
    found = prepared(predict=predict).decode(logits)
    assert found.isnan().nonzero().tolist() == [[1, 0], [2, 1]]


def test_the_unit_of_the_targets_does_not_matter():
    own, other = prepared(), prepared(1000 * TARGETS - 7)
    assert torch.allclose(task_loss(other, LOGITS, 1000 * TARGETS - 7), task_loss(own, LOGITS, TARGETS), rtol=1e-9)
    assert torch.allclose(other.decode(LOGITS), 1000 * own.decode(LOGITS) - 7, rtol=1e-9)


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_few_rows_and_an_all_false_mask(rows):
    logits = LOGITS[:rows].clone().requires_grad_()
    loss = task_loss(prepared(), logits, TARGETS[:rows])
    loss.backward()
    assert loss.isfinite() and logits.grad.isfinite().all() and (loss > 0 if rows else loss == 0)
    logits.grad = None
    loss = task_loss(prepared(), logits, torch.full((rows, 2), math.nan), torch.zeros(rows, 2, dtype=torch.bool))
    loss.backward()
    assert loss == 0 and (logits.grad == 0).all()


@pytest.mark.parametrize("value", [0.0, -4.0, 1e20])
def test_one_distinct_target_is_predicted(value):
    method = prepared(torch.full((5, 1), value, dtype=torch.float64), bins=13)
    places = (torch.tensor([[value]], dtype=torch.float64) - method.bins.low) / method.bins.width
    logits = hl_gauss(places, torch.arange(14), 1.0)[:, 0].clamp(min=1e-300).log()
    assert method.decode(logits).item() == pytest.approx(value, abs=1e-9 * max(abs(value), 1))


def test_targets_beyond_the_range_count_as_its_ends():
    method = prepared(TARGETS[:, :1])
    low = method.bins.low
    loss = [
        task_loss(method, LOGITS[:1, :BINS], torch.full((1, 1), each, dtype=torch.float64))
        for each in (-1e9, float(low))
    ]
    assert loss[0] == loss[1] and loss[0].isfinite()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
def test_lower_precisions(dtype, tolerance):
    loss = task_loss(prepared(), LOGITS.to(dtype), TARGETS.to(dtype))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(task_loss(prepared(), LOGITS, TARGETS).item(), rel=tolerance)
    decoded = prepared().decode(LOGITS.to(dtype))
    assert decoded.dtype == torch.float32
    assert torch.allclose(decoded.double(), prepared().decode(LOGITS), rtol=tolerance, atol=tolerance)


def test_a_range_may_be_given():
    method = methods.create("hl-gauss", bins=16, sigma=1.0, low=0.0, high=10.0)
    assert method.decode(torch.zeros(1, 16)).item() == pytest.approx(5.0)  # without the training targets
    method.prepare(TARGETS)  # two numbers
    assert method.decode(torch.zeros(1, 32)).tolist() == [[5.0, 5.0]]
    half = HLGauss(16, 1.0, low=-10.0)
    half.prepare(torch.tensor([[1.0], [10.0]]))
    assert half.decode(torch.zeros(1, 16)).item() == pytest.approx(0.0)
    with pytest.raises(ValueError, match=r"low <= high, got low=20.*one was given"):
        HLGauss(16, 1.0, low=20.0).prepare(torch.tensor([[1.0], [10.0]]))


def test_the_range_is_state_and_a_fresh_method_takes_it_as_it_was():
    method = methods.create("hl-gauss", bins=BINS, sigma=1.0)
    method.prepare(TARGETS)
    fresh = methods.create("hl-gauss", bins=BINS, sigma=1.0)
    fresh.load_state_dict(method.state_dict())
    for twin in (fresh, copy.deepcopy(method), pickle.loads(pickle.dumps(method))):
        assert torch.equal(twin.decode(LOGITS), method.decode(LOGITS))


def test_mistakes_are_named():
    for options, message in [
        ({"bins": 12}, "more than 12 bins for a range with 6 of them beyond it on both sides, got 12"),
        ({"bins": 2.0}, "bins to be a whole number, got 2.0"),
        ({"sigma": 0.0}, "sigma to be a positive number, got 0"),
        ({"predict": "mid"}, "predict to be one of mean, median, mode, got 'mid'"),
        ({"low": 1.0, "high": 1.0}, "finite low < high, got low=1.0, high=1.0"),
    ]:
        with pytest.raises(ValueError, match=message):
            HLGauss(**options)
    with pytest.raises(ValueError, match=r"prepare\(targets\) before the first step"):
        HLGauss().decode(torch.zeros(1, 100))
    with pytest.raises(ValueError, match=r"finite training targets, at least one, got \(0, 1\)"):
        HLGauss().prepare(torch.zeros(0, 1))
    with pytest.raises(ValueError, match=r"24 logits a row, got \(3, 12\)"):
        prepared().decode(torch.zeros(3, 12))
    with pytest.raises(ValueError, match=r"predictions with 24 numbers a row, got \(6, 12\)"):
        task_loss(prepared(), LOGITS[:, :12], TARGETS)
    with pytest.raises(ValueError, match=r"targets of 2 numbers a row, got \(6, 1\)"):
        task_loss(prepared(), LOGITS, TARGETS[:, :1])
    with pytest.raises(ValueError, match="got 1 rows with NaN"):
        task_loss(prepared(), LOGITS[:1], torch.full((1, 2), math.nan))


@pytest.mark.slow
def test_equals_another_implementation():
    other = pytest.importorskip("hl_gauss_pytorch").HLGaussLoss(0.0, 6.0, num_bins=6, sigma=1.3)
    targets = torch.tensor([0.0, 0.2, 2.5, 4.0, 6.0])
    logits = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    own = -(hl_gauss(targets, torch.arange(7.0), 1.3) * logits.log_softmax(-1)).sum(-1).mean()
    assert own.item() == pytest.approx(other(logits, targets).item(), rel=1e-5)
    method = HLGauss(12, 0.5, low=0.0, high=9.0)
    wide = torch.cat([torch.full((5, 2), -1e4), logits, torch.full((5, 4), -1e4)], 1)  # the first bin is at -1.5
    assert torch.allclose(method.decode(wide)[:, 0], other(logits) + 0.5, rtol=1e-5)
