"""Heads on ordered levels: every loss against a loop, the levels, what all of them share, the way back to numbers."""

import copy
import math
import pickle

import pytest
import torch
from torch import nn

from ordinal_entropy import methods
from ordinal_entropy.methods import Batch, Step
from ordinal_entropy.methods.functional import coral, corn, or_cnn
from ordinal_entropy.methods.thresholds import Levels

BINS, T = 6, 2
NAMES = ("or-cnn", "coral", "corn")
PURE = {"or-cnn": or_cnn, "coral": coral, "corn": corn}
every = pytest.mark.parametrize("name", NAMES)

VALUES = [[-2.0, -1.5, 0.0, 4.0], [10.0, 20.0, 30.0, 50.0, 70.0, 71.0]]  # four levels of six, and six
TRAIN = torch.tensor([[VALUES[0][k % 4], VALUES[1][k % 6]] for k in range(12)]).double()
RANKS = torch.tensor([[0, 5], [3, 0], [1, 2], [2, 3], [3, 4], [0, 1], [1, 1]])
TARGETS = torch.tensor([[VALUES[j][k] for j, k in enumerate(row)] for row in RANKS.tolist()]).double()
LOGITS = 2 * torch.randn(7, T * (BINS - 1), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
MASK = torch.tensor([1, 0, 1, 1, 0, 1, 1]).bool()
WEIGHT = torch.tensor([0.5, 9.0, 2.0, 1.0, 7.0, 0.0, 3.0]).double()


def base(name, numbers, values, bins):
    """Logits of the base rates of one number of training targets, each of which is a level, with Python's floats."""
    found, before = [], len(numbers)
    for value in values[:-1]:
        more = sum(number > value for number in numbers)
        rate, least = (more / before, 0.5 / bins**2) if name == "corn" else (more / len(numbers), 0.5 / bins)
        rate, before = min(max(rate, least), 1 - least), more
        found.append(math.log(rate / (1 - rate)))
    return found


def with_base(name, logits, bins=BINS):
    """What the thresholds have of outputs ``(n, 10)`` after training rows ``TRAIN``."""
    found = logits.clone()
    for j, values in enumerate(VALUES):
        own = base(name, TRAIN[:, j].tolist(), values, bins)
        found[:, 5 * j : 5 * j + len(own)] += torch.tensor(own, dtype=torch.float64)
    return found


def row_loss(name, logits, rank, levels):
    """The binary losses of one number, summed, with Python's floats."""
    found = 0.0
    for k, logit in enumerate(logits[: levels - 1]):
        if name != "corn" or rank >= k:
            found += math.log1p(math.exp(-logit if rank > k else logit))
    return found


def loop(name, logits, weight=None, inside=None):
    total, count = 0.0, 0
    for i, ranks in enumerate(RANKS.tolist()):
        if inside is not None and not inside[i]:
            continue
        count += 1
        for j, (rank, values) in enumerate(zip(ranks, VALUES, strict=True)):
            own = row_loss(name, logits[i, 5 * j : 5 * j + 5].tolist(), rank, len(values))
            if name == "corn":  # tasks of a training row, of which all levels are as many
                own /= sum(min(k + 1, len(values) - 1) for k in range(len(values))) / len(values)
            total += own / T * (1.0 if weight is None else float(weight[i]))
    return total / max(count, 1)


def prepared(name, train=TRAIN, **options):
    method = methods.create(name, **{"bins": BINS, **options})
    method.prepare(train)
    return method


def task_loss(method, logits, targets, mask=None, weight=None):
    return method.task_loss(Step(Batch(None, targets, mask, weight), torch.zeros(1), logits, None))


@every
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_loss_equals_a_loop(name, weighted, masked):
    expected = loop(name, with_base(name, LOGITS), WEIGHT if weighted else None, MASK if masked else None)
    logits, targets = LOGITS.clone(), TARGETS.clone()
    if masked:
        targets[~MASK], logits[~MASK] = math.nan, math.nan
    found = task_loss(
        prepared(name), logits, targets, MASK[:, None].expand(7, 2) if masked else None,
        WEIGHT[:, None] if weighted else None,
    )  # fmt: skip
    assert found.item() == pytest.approx(expected, rel=1e-12)


@every
def test_all_training_rows_have_the_loss_of_the_pure_function(name):
    """With ranks that are not equally frequent, for the tasks of corn."""
    ranks = torch.tensor([0, 0, 0, 1, 2, 2, 5, 4, 3, 3, 0])
    targets = torch.tensor(VALUES[1]).double()[ranks]
    logits = torch.randn(11, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    method = prepared(name, targets[:, None])
    expected = PURE[name](logits + method.parts[name].levels.base, ranks).item()
    assert task_loss(method, logits, targets).item() == pytest.approx(expected, rel=1e-12)


@every
def test_pure_functions_equal_a_loop(name):
    logits, ranks = LOGITS.view(7, 2, 5), RANKS
    total = sum(row_loss(name, logits[i, j].tolist(), int(ranks[i, j]), BINS) for i in range(7) for j in range(2))
    pairs = sum(min(int(rank) + 1, BINS - 1) for rank in ranks.flatten()) if name == "corn" else 14
    assert PURE[name](logits, ranks).item() == pytest.approx(total / pairs, rel=1e-12)
    empty = torch.zeros(0, 5, requires_grad=True)
    loss = PURE[name](empty, torch.zeros(0, dtype=torch.long))
    loss.backward()
    assert loss == 0 and empty.grad.shape == (0, 5)


@every
def test_gradient(name):
    mask = MASK[:3, None].expand(3, 2)
    method, logits = prepared(name), LOGITS[:3].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: task_loss(method, x, TARGETS[:3], mask), logits)
    assert torch.autograd.gradcheck(method.decode, logits)


@every
def test_maps_equal_rows(name):
    method = prepared(name, TRAIN[:, :1])
    logits, targets, mask, weight = LOGITS[:6, :5], TARGETS[:6, :1], MASK[:6, None], WEIGHT[:6, None]
    as_maps = lambda rows: rows.T.reshape(1, -1, 2, 3)  # noqa: E731
    found = task_loss(method, *map(as_maps, (logits, targets, mask, weight)))
    assert found.item() == pytest.approx(task_loss(method, logits, targets, mask, weight).item(), rel=1e-12)
    decoded = method.decode(as_maps(logits))
    assert decoded.shape == (1, 1, 2, 3) and torch.allclose(decoded.flatten(), method.decode(logits)[:, 0])
    assert torch.equal(method.decode(logits.view(2, 3, 5)).flatten(), method.decode(logits)[:, 0])


@every
@pytest.mark.parametrize("bins", [6, 4])  # distinct targets, and uniform levels
def test_the_unit_of_the_targets_does_not_matter(name, bins):
    logits = LOGITS[:, : T * (bins - 1)]
    own, other = prepared(name, bins=bins), prepared(name, 1000 * TRAIN - 7, bins=bins)
    assert torch.allclose(task_loss(other, logits, 1000 * TARGETS - 7), task_loss(own, logits, TARGETS), rtol=1e-9)
    assert torch.allclose(other.decode(logits), 1000 * own.decode(logits) - 7, rtol=1e-9)


@every
@pytest.mark.parametrize("rows", [0, 1, 2])
def test_few_rows_and_an_all_false_mask(name, rows):
    method, logits = prepared(name), LOGITS[:rows].clone().requires_grad_()
    loss = task_loss(method, logits, TARGETS[:rows])
    loss.backward()
    assert loss.isfinite() and logits.grad.isfinite().all() and (loss > 0 if rows else loss == 0)
    logits.grad = None
    loss = task_loss(method, logits, torch.full((rows, 2), math.nan), torch.zeros(rows, 2, dtype=torch.bool))
    loss.backward()
    assert loss == 0 and (logits.grad == 0).all()


@every
def test_one_distinct_training_target_leaves_nothing_to_learn(name):
    method, logits = prepared(name, torch.full((5, 2), -4.0)), LOGITS.clone().requires_grad_()
    loss = task_loss(method, logits, TARGETS)
    loss.backward()
    assert loss == 0 and (logits.grad == 0).all()
    assert (method.decode(LOGITS) == -4).all()
    assert (prepared(name, torch.full((5, 2), -4.0), predict="median").decode(LOGITS) == -4).all()
    assert method.head(3, 2)(torch.zeros(1, 3)).isfinite().all()


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
    (loss + prepared(name).decode(logits).sum()).backward()
    assert loss.isfinite() and logits.grad.isfinite().all()


def above(name, logits):
    found, until = [], 1.0
    for logit in logits:
        own = 1 / (1 + math.exp(-logit))
        until = own * until if name == "corn" else own
        found.append(until)
    return found


@every
def test_decoding_equals_a_loop(name):
    mean, median = prepared(name).decode(LOGITS), prepared(name, predict="median").decode(LOGITS)
    for i in range(7):
        for j, values in enumerate(VALUES):
            p = above(name, with_base(name, LOGITS)[i, 5 * j : 5 * j + 5].tolist())[: len(values) - 1]
            expected = values[0] + sum(q * (b - a) for q, a, b in zip(p, values[:-1], values[1:], strict=True))
            assert mean[i, j].item() == pytest.approx(expected, rel=1e-12)
            assert median[i, j].item() == values[sum(q > 0.5 for q in p)]


@every
@pytest.mark.parametrize("predict", ["mean", "median"])
def test_sure_logits_decode_to_the_level_and_broken_ones_to_none(name, predict):
    method = prepared(name, predict=predict)
    sure = 100 * (RANKS[..., None] > torch.arange(5)).double() - 50
    assert torch.allclose(method.decode(sure.flatten(1)), TARGETS, rtol=1e-12)
    assert task_loss(method, sure.flatten(1), TARGETS) < 1e-12
    broken = LOGITS.clone()
    broken[1, 2], broken[4, 9] = math.nan, math.nan
    assert method.decode(broken).isnan().nonzero().tolist() == [[1, 0], [4, 1]]


def test_the_mean_is_the_expectation_over_the_levels():
    method = prepared("or-cnn", TRAIN[:, 1:])
    likely = torch.rand(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) + 0.01
    likely = likely / likely.sum(-1, keepdim=True)
    beyond = 1 - likely.cumsum(-1)[:, :-1]
    logits = beyond.logit() - method.parts["or-cnn"].levels.base
    assert torch.allclose(method.decode(logits)[:, 0], likely @ torch.tensor(VALUES[1]).double())


@every
def test_targets_between_and_beyond_levels_have_the_nearest(name):
    method = prepared(name, TRAIN[:, 1:])
    logits = LOGITS[:, :5]
    between = torch.tensor([[-900.0], [14.9], [15.0], [39.9], [60.1], [70.4], [1e9]]).double()
    levels = torch.tensor([[10.0], [10.0], [20.0], [30.0], [70.0], [70.0], [71.0]]).double()
    assert task_loss(method, logits, between).item() == pytest.approx(task_loss(method, logits, levels).item())


def test_levels_are_the_distinct_targets_where_they_are_few():
    levels = Levels(6)
    assert levels.prepare(TRAIN) == ()
    assert levels.values.tolist() == [[*VALUES[0], 4.0, 4.0], VALUES[1]]
    assert levels.share[0].tolist() == pytest.approx([0.75, 0.5, 0.25, 0.0, 0.0])
    assert levels.share[1].tolist() == pytest.approx([k / 6 for k in (5, 4, 3, 2, 1)])


def test_levels_are_distinct_in_the_type_that_they_have():
    targets = torch.tensor([1.0, 1.0 + 1e-12, 2.0, 3.0], dtype=torch.float64)
    assert Levels(6).prepare(targets) == () and len(targets.unique()) == 4
    levels = Levels(6).float()
    levels.prepare(targets)
    assert levels.values.tolist() == [[1.0, 2.0, 3.0, 3.0, 3.0, 3.0]]
    assert levels.share[0].tolist() == [0.5, 0.25, 0.0, 0.0, 0.0]


@every
def test_many_targets_are_binned_into_uniform_levels_and_the_log_is_told(name):
    train = torch.linspace(-1.0, 7.0, 101).double()[:, None]
    method = prepared(name, train, bins=5)
    assert method.notes == (f"{name}: real targets are binned into 5 ordered levels",)
    levels = method.parts[name].levels
    assert levels.values.tolist() == [[-1.0, 1.0, 3.0, 5.0, 7.0]]
    assert levels.share[0].tolist() == pytest.approx([88.5 / 101, 63.5 / 101, 38.5 / 101, 13.5 / 101], abs=0.006)
    assert prepared(name).notes == ()


@every
def test_ties_between_levels_go_up_in_any_precision(name):
    targets = torch.arange(9.0).double()[:, None]  # every other one is between two levels
    logits = LOGITS.flatten()[:36].view(9, 4)
    ranks = torch.tensor([0, 1, 1, 2, 2, 3, 3, 4, 4])
    levels = ranks.double()[:, None]
    expected = task_loss(prepared(name, levels, bins=5), logits, levels).item()
    losses = []
    for unit in (1.0, 1 / 3, 1e-3, 7.7):
        for dtype in (torch.float64, torch.float32):
            method = prepared(name, (unit * targets).to(dtype), bins=5).to(dtype)
            losses.append(task_loss(method, logits.to(dtype), (unit * targets).to(dtype)).item())
    assert losses == pytest.approx([expected] * 8, rel=1e-6)


def test_a_range_may_be_given():
    train = torch.linspace(-1.0, 7.0, 101).double()[:, None]
    assert prepared("or-cnn", train, bins=5, low=0.0, high=8.0).parts["or-cnn"].levels.values.tolist() == [
        [0.0, 2.0, 4.0, 6.0, 8.0]
    ]
    assert prepared("or-cnn", train, bins=5, high=3.0).parts["or-cnn"].levels.values[0, -1] == 3
    few = prepared("or-cnn", TRAIN[:, :1], low=-1.7, high=3.0).parts["or-cnn"].levels.values
    assert few.tolist() == [[-1.7, -1.5, 0.0, 3.0, 3.0, 3.0]]


@every
def test_the_levels_are_state_and_a_fresh_method_takes_them_as_they_were(name):
    method = prepared(name)
    fresh = methods.create(name, bins=BINS)
    fresh.load_state_dict(method.state_dict())
    for twin in (fresh, copy.deepcopy(method), pickle.loads(pickle.dumps(method))):
        assert torch.equal(twin.decode(LOGITS), method.decode(LOGITS))
        assert torch.equal(task_loss(twin, LOGITS, TARGETS), task_loss(method, LOGITS, TARGETS))


@every
def test_outputs_of_zero_predict_the_mean_of_the_training_targets(name):
    """Of any shape: a head that has learned nothing is at the base rates, not at one end of the levels."""
    found = prepared(name).decode(torch.zeros(3, 10))
    assert torch.allclose(found.double(), TRAIN.mean(0).expand(3, 2), atol=0.02 * 61)
    generator = torch.Generator().manual_seed(4)
    skewed = torch.randn(4000, 1, dtype=torch.float64, generator=generator).exp()
    for train in (skewed, -skewed, skewed.log()):
        off = prepared(name, train, bins=100).decode(torch.zeros(1, 99).double()) - train.mean()
        assert off.abs().item() <= 0.5 * (train.max() - train.min()).item() / 99
    assert prepared(name, torch.tensor([[2.0]])).decode(torch.zeros(1, 5)).item() == 2


@every
def test_bases_are_finite_where_no_training_target_has_a_level(name):
    train = torch.cat([torch.linspace(start, start + 10, 30, dtype=torch.float64) for start in (0.0, 90.0)])
    method = prepared(name, train, bins=51)
    own = method.parts[name].levels.base[0]
    assert own.isfinite().all()
    assert own[25].item() == pytest.approx(math.log(2 * 51**2 - 1) if name == "corn" else 0.0, abs=1e-9)
    assert method.decode(torch.zeros(1, 50)).item() == pytest.approx(train.mean().item(), abs=1.0)


def test_groups_have_bases_of_their_own():
    """Stacks join the buffers of runs as ``(g, ...)``."""
    from ordinal_entropy.training.stacked.members import joined

    trains = (TRAIN[:, 1:], TRAIN[:4, 1:] - 3)
    for name in ("or-cnn", "corn"):
        own = [prepared(name, train) for train in trains]
        together, logits = joined(own), LOGITS[:6, :5].reshape(2, 3, 5)
        targets = torch.stack([train[:3] for train in trains])
        apart = [task_loss(*each) for each in zip(own, logits, targets, strict=True)]
        assert task_loss(together, logits, targets).item() == pytest.approx(sum(apart).item() / 2, rel=1e-12)
        found = torch.stack([method.decode(each) for method, each in zip(own, logits, strict=True)])
        assert torch.allclose(together.decode(logits), found, rtol=1e-12)


def test_the_weights_of_coral_are_shared():
    head = prepared("coral").head(3, T)
    assert sum(each.numel() for each in head.parameters()) == 3 * T + 5 * T
    features = torch.randn(4, 3)
    apart = head(features).view(4, T, 5) - head(torch.zeros(4, 3)).view(4, T, 5)
    assert torch.allclose(apart, apart[..., :1].expand_as(apart), atol=1e-6)  # one score for all thresholds
    assert methods.create("coral", bins=BINS).head(3, T)(features).shape == (4, 10)  # before the training rows


@every
def test_it_learns_levels_of_different_gaps(name):
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 60)[:, None]
    y = (3 * x).round() ** 3
    method = prepared(name, y, bins=7)
    encoder = nn.Sequential(nn.Linear(1, 16), nn.Tanh())
    head = method.head(16, 1)
    parameters = [*encoder.parameters(), *head.parameters()]
    for step in range(100):
        loss = methods.training_loss(method, encoder, head, Batch(x, y), methods.squared_error)
        with torch.no_grad():  # by the sign alone: the losses differ in scale
            for each, by in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                each.sub_(0.1 * 0.96**step * by.sign())
    assert (method.decode(head(encoder(x))) - y).abs().mean() < 0.6 * (y - y.mean()).abs().mean()


def test_mistakes_are_named():
    for options, message in [
        ({"bins": 1}, "at least 2 bins, got 1"),
        ({"bins": 2.0}, "bins to be a whole number, got 2.0"),
        ({"predict": "mode"}, "predict to be one of mean, median, got 'mode'"),
        ({"low": 1.0, "high": 1.0}, "finite low < high, got low=1.0, high=1.0"),
    ]:
        for name in NAMES:
            with pytest.raises(ValueError, match=message):
                methods.create(name, **options)
    with pytest.raises(ValueError, match=r"prepare\(targets\) before the first step"):
        methods.create("corn").decode(torch.zeros(1, 99))
    with pytest.raises(ValueError, match=r"finite training targets, at least one, got \(0, 1\)"):
        methods.create("corn").prepare(torch.zeros(0, 1))
    with pytest.raises(ValueError, match=r"10 logits a row, got \(3, 5\)"):
        prepared("coral").decode(torch.zeros(3, 5))
    with pytest.raises(ValueError, match=r"targets of 2 numbers a row, got \(7, 1\)"):
        task_loss(prepared("or-cnn"), LOGITS, TARGETS[:, :1])


@pytest.mark.slow
def test_equal_coral_pytorch():
    losses = pytest.importorskip("coral_pytorch.losses")
    dataset = pytest.importorskip("coral_pytorch.dataset")
    ranks = torch.tensor([0, 5, 2, 3, 3, 1, 4])
    logits = LOGITS[:, :5]
    levels = dataset.levels_from_labelbatch(ranks, 6, dtype=torch.float64)
    expected = losses.coral_loss(logits, levels).item()
    assert or_cnn(logits, ranks).item() == pytest.approx(expected, rel=1e-6)
    assert coral(logits, ranks).item() == pytest.approx(expected, rel=1e-6)
    assert corn(logits, ranks).item() == pytest.approx(losses.corn_loss(logits, ranks, 6).item(), rel=1e-6)
    median = prepared("coral", torch.arange(6.0).double(), predict="median")
    own = logits - median.parts["coral"].levels.base
    assert torch.equal(median.decode(own)[:, 0].long(), dataset.proba_to_label(logits.sigmoid()).long())
