"""Feature distribution smoothing: running statistics against a loop, when they act, resuming, edges."""

import copy
import math
import pickle

import pytest
import torch

import processes
from ordinal_entropy import methods
from ordinal_entropy.methods import Batch
from ordinal_entropy.methods.fds import FDS

BINS = 6
OPTIONS = {"bins": BINS, "kernel": 3, "sigma": 1.0, "momentum": 0.7}
SHIFT = torch.arange(3.0).double()


def epoch(seed, n=40):
    """Features whose statistics depend on the target; none in the third bin but in the first epoch."""
    generator = torch.Generator().manual_seed(seed)
    targets = 12 * torch.rand(n, 1, dtype=torch.float64, generator=generator)
    if seed:
        targets = targets[(targets[:, 0] < 4) | (targets[:, 0] >= 6)]
    noise = torch.randn(len(targets), 3, dtype=torch.float64, generator=generator)
    return targets * SHIFT + (1 + targets) * noise, targets


EPOCHS = [epoch(seed) for seed in range(3)]


def prepared(**options):
    method = FDS(**{**OPTIONS, **options})
    method.prepare(torch.tensor([[0.0], [12.0]]).double(), width=3)
    return method


def trained(method=None, epochs=EPOCHS, parts=3):
    method = prepared() if method is None else method
    for features, targets in epochs:
        for rows in torch.arange(len(features)).tensor_split(parts):
            method.observe(features[rows], targets[rows])
        method.end_epoch()
    return method


def loop(epochs, features, targets, momentum=0.7, sigma=1.0, reach=1):
    """With Python's floats: statistics of each bin and number, smoothed, and features recoloured by them."""

    def place(y):
        return min(max(int(y / 12.0 * BINS), 0), BINS - 1)

    found = features.tolist()
    for c in range(features.shape[1]):
        running = {}
        for z, y in epochs:
            own = {}
            for value, target in zip(z[:, c].tolist(), y[:, 0].tolist(), strict=True):
                own.setdefault(place(target), []).append(value)
            for b, values in own.items():
                mean = sum(values) / len(values)
                now = (mean, sum((each - mean) ** 2 for each in values) / len(values))
                old = running.get(b)
                running[b] = now if old is None else tuple(
                    momentum * p + (1 - momentum) * q for p, q in zip(old, now, strict=True)
                )  # fmt: skip
        for i, target in enumerate(targets[:, 0].tolist()):
            b = place(target)
            if b not in running or running[b][1] == 0:
                continue
            near = [(k, math.exp(-(((k - b) / sigma) ** 2) / 2)) for k in running if abs(k - b) <= reach]
            whole = sum(share for _, share in near)
            mean, variance = (sum(share * running[k][m] for k, share in near) / whole for m in range(2))
            factor = math.sqrt(min(max(variance / running[b][1], 0.1), 10.0))
            found[i][c] = (found[i][c] - running[b][0]) * factor + mean
    return torch.tensor(found, dtype=torch.float64)


@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_equals_a_loop(epochs):
    features, targets = epoch(9)
    found = trained(epochs=EPOCHS[:epochs]).calibrate(features, Batch(None, targets))
    assert torch.allclose(found, loop(EPOCHS[:epochs], features, targets), rtol=1e-9)
    assert not torch.allclose(found, features)


def test_the_options_are_those_of_the_loop():
    features, targets = epoch(9)
    method = trained(prepared(kernel=5, sigma=0.6, momentum=0.0))
    expected = loop(EPOCHS, features, targets, momentum=0.0, sigma=0.6, reach=2)
    assert torch.allclose(method.calibrate(features, Batch(None, targets)), expected, rtol=1e-9)
    alone = trained(prepared(kernel=1)).calibrate(features, Batch(None, targets))
    assert torch.allclose(alone, features, rtol=1e-9)  # a bin's own statistics


def test_nothing_changes_before_the_start_and_in_evaluation():
    features, targets = epoch(9)
    batch = Batch(None, targets)
    method = prepared(start=2)
    assert torch.equal(method.calibrate(features, batch), features)
    trained(method, EPOCHS[:1])
    assert torch.equal(method.calibrate(features, batch), features)
    method.observe(*EPOCHS[1])
    assert torch.equal(method.calibrate(features, batch), features)  # in the middle of an epoch
    method.end_epoch()
    assert torch.allclose(method.calibrate(features, batch), loop(EPOCHS[:2], features, targets), rtol=1e-9)
    assert torch.equal(method.eval().calibrate(features, batch), features)


def test_features_are_not_changed_in_place_and_have_their_gradient():
    features, targets = epoch(9)
    method, kept = trained(), features.clone()
    method.calibrate(features, Batch(None, targets))
    method.observe(features, targets)
    assert torch.equal(features, kept)
    assert torch.autograd.gradcheck(lambda z: method.calibrate(z, Batch(None, targets)), features.requires_grad_())


def test_bins_that_were_never_seen_leave_features_as_they_are():
    method = trained(epochs=EPOCHS[1:])
    features, targets = EPOCHS[0]
    inside = (targets[:, 0] >= 4) & (targets[:, 0] < 6)
    found = method.calibrate(features, Batch(None, targets))
    assert inside.any() and torch.equal(found[inside], features[inside])
    assert not (found[~inside] == features[~inside]).any()


def test_numbers_without_a_variance_stay_and_factors_are_bounded():
    method = prepared(bins=2, kernel=3, sigma=100.0)
    targets = torch.tensor([[0.0], [0.0], [12.0], [12.0]]).double()
    features = torch.tensor([[5.0, 0.0, -1e-4], [5.0, 1.0, 1e-4], [1.0, 5.0, -9.0], [2.0, 5.0, 9.0]]).double()
    trained(method, [(features, targets)], parts=1)
    found = method.calibrate(features, Batch(None, targets))
    assert torch.equal(found[:2, 0], features[:2, 0]) and torch.equal(found[2:, 1], features[2:, 1])
    factor = (found[1, 2] - found[0, 2]) / 2e-4
    assert factor.item() == pytest.approx(10**0.5, rel=1e-6)
    one = trained(prepared(), [(features[:1], targets[:1])], parts=1)  # a bin of a single row
    assert torch.equal(one.calibrate(features, Batch(None, targets)), features)


def test_the_unit_of_the_targets_and_the_order_of_the_rows_do_not_matter():
    features, targets = epoch(9)
    other = FDS(**OPTIONS)
    other.prepare(torch.tensor([[-7.0], [11_993.0]]).double(), width=3)
    trained(other, [(z.flip(0), 1000 * y.flip(0) - 7) for z, y in EPOCHS])
    found = other.calibrate(features, Batch(None, 1000 * targets - 7))
    assert torch.allclose(found, trained().calibrate(features, Batch(None, targets)), rtol=1e-9)


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_few_rows_and_targets_that_are_no_numbers(rows):
    method, (features, targets) = trained(), epoch(9)
    features = features[:rows].clone().requires_grad_()
    found = method.calibrate(features, Batch(None, targets[:rows]))
    found.sum().backward()
    assert found.shape == (rows, 3) and features.grad.isfinite().all()
    nothing = torch.full((rows, 1), math.nan).double()
    assert torch.equal(method.calibrate(features, Batch(None, nothing)), features)
    before = copy.deepcopy(method.state_dict())
    method.observe(torch.full((rows, 3), math.nan).double(), nothing)
    assert all(torch.equal(each, before[name]) for name, each in method.state_dict().items())


def test_an_epoch_without_rows_changes_no_statistics():
    method = trained()
    features, targets = epoch(9)
    expected = method.calibrate(features, Batch(None, targets))
    method.end_epoch()
    assert torch.equal(method.calibrate(features, Batch(None, targets)), expected)


def test_one_distinct_target_has_one_bin():
    method = FDS(**OPTIONS)
    method.prepare(torch.full((4, 1), 3.0), width=3)
    features, targets = EPOCHS[0][0], torch.full((40, 1), 3.0)
    trained(method, [(features, targets)])
    assert torch.allclose(method.calibrate(features, Batch(None, targets)), features, rtol=1e-9)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_lower_precisions(dtype, tolerance):
    features, targets = epoch(9)
    method = trained(epochs=[(z.to(dtype), y.to(dtype if dtype == torch.float32 else y.dtype)) for z, y in EPOCHS])
    found = method.calibrate(features.to(dtype), Batch(None, targets))
    exact = trained().calibrate(features, Batch(None, targets))
    assert found.dtype == dtype and (found.double() - exact).norm() <= tolerance * exact.norm()


@pytest.mark.parametrize("stop", [1, 4, 5, 8])
def test_a_run_that_is_resumed_ends_alike(stop):
    """Stopped within an epoch or between two; the fresh method takes the shapes that were saved."""
    cuts = [(slice(0, 9), False), (slice(9, 25), False), (slice(25, None), True)]
    steps = [((z[rows], y[rows]), last) for z, y in EPOCHS for rows, last in cuts]

    def go_on(method, steps):
        for rows, last in steps:
            method.observe(*rows)
            if last:
                method.end_epoch()
        return method

    whole = go_on(prepared(), steps)
    stopped = go_on(prepared(), steps[:stop])
    for resume in (
        lambda: (fresh := FDS(**OPTIONS)).load_state_dict(stopped.state_dict()) and fresh,
        lambda: copy.deepcopy(stopped),
        lambda: pickle.loads(pickle.dumps(stopped)),
    ):
        resumed = go_on(resume(), steps[stop:])
        for name, value in whole.state_dict().items():
            assert torch.equal(value, resumed.state_dict()[name]), name


@pytest.mark.parametrize(("rows", "bins"), [(1, 2), (29, 2), (30, 3), (200, 20), (1000, 100), (5000, 100)])
def test_as_many_bins_as_have_ten_rows_each_on_average(rows, bins):
    method = methods.create("fds")
    (part,) = method.parts.values()
    targets = torch.linspace(0.0, 1.0, rows)[:, None]
    method.prepare(targets, width=3)
    assert part.amount.shape == (bins,) and part.mean.shape == (bins, 3)
    assert part.bins is None and "bins=None" in repr(part)
    given = FDS(bins=7)
    given.prepare(targets, width=3)
    assert given.amount.shape == (7,)
    method.prepare(torch.linspace(0.0, 1.0, 50)[:, None], width=3)  # anew, of other rows
    assert part.amount.shape == (5,)


def test_bins_that_were_not_given_are_those_of_the_given_number_and_in_the_state():
    features, targets = epoch(9)
    rows = torch.linspace(0.0, 12.0, 10 * BINS + 9).double()[:, None]
    options = {name: value for name, value in OPTIONS.items() if name != "bins"}
    own, given = FDS(**options), FDS(**OPTIONS)
    for method in (own, given):
        method.prepare(rows, width=3)
        trained(method)
    expected = given.calibrate(features, Batch(None, targets))
    assert torch.equal(own.calibrate(features, Batch(None, targets)), expected)
    fresh = FDS(**options)  # not prepared: the number is in the checkpoint
    fresh.load_state_dict(own.state_dict())
    for twin in (fresh, copy.deepcopy(own), pickle.loads(pickle.dumps(own))):
        twin.observe(*EPOCHS[0])
        twin.end_epoch()
    own.observe(*EPOCHS[0])
    own.end_epoch()
    assert torch.equal(fresh.calibrate(features, Batch(None, targets)), own.calibrate(features, Batch(None, targets)))


def test_ten_rows_in_a_bin_change_less_by_noise_than_two():
    """Features that are the target plus noise keep more of it where the bins have more rows."""
    generator = torch.Generator().manual_seed(0)
    targets = torch.rand(200, 1, dtype=torch.float64, generator=generator)
    noise = 0.2 * torch.randn(200, 1, dtype=torch.float64, generator=generator)
    features, lost = targets + noise, []
    for bins in (None, 100):
        method = FDS(bins=bins)
        method.prepare(targets, width=1)
        method.observe(features, targets)
        method.end_epoch()
        found = method.calibrate(features, Batch(None, targets))
        lost.append((found - features).square().mean() / noise.square().mean())
    assert lost[0] < 0.6 * lost[1], lost


def test_statistics_are_those_of_one_epoch_anew_after_prepare():
    method = trained()
    method.prepare(torch.tensor([[0.0], [12.0]]).double(), width=3)
    expected = prepared().state_dict()
    assert all(torch.equal(each, expected[name]) for name, each in method.state_dict().items())


class Step(torch.nn.Module):
    """What data parallelism wraps: the method is a part of it, as in a module of Lightning's."""

    def __init__(self):
        super().__init__()
        self.method = prepared()
        self.head = torch.nn.Linear(3, 1).double()

    def forward(self, features, targets):
        self.method.observe(features, targets)
        return self.head(self.method.calibrate(features, Batch(None, targets))).sum()


def _of_rank(rank, world):
    wrapped = torch.nn.parallel.DistributedDataParallel(Step())
    rows = (slice(0, 11), slice(11, None))[rank]
    for z, y in [(z[rows], y[rows]) for z, y in EPOCHS]:
        for part in torch.arange(len(z)).tensor_split(3):
            wrapped(z[part], y[part]).backward()
        wrapped.module.method.end_epoch()
    return wrapped.module.method.state_dict()


@pytest.mark.slow
def test_ranks_together_have_the_statistics_of_one_process():
    expected = trained().state_dict()
    for state in processes.run(_of_rank, 2):
        for name, value in expected.items():
            torch.testing.assert_close(state[name], value, rtol=1e-9, atol=1e-12, msg=name)


def test_sums_are_those_of_all_ranks_after_every_step(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    told = []
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda own: told.append(own.clone()))
    prepared().observe(*EPOCHS[1])  # the other rank
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda own: own.add_(told[0]))
    method = prepared()
    method.observe(*EPOCHS[0])
    monkeypatch.undo()
    expected = prepared()
    expected.observe(*(torch.cat(each) for each in zip(*EPOCHS[:2], strict=True)))
    for name in ("amount", "sums", "squares"):
        torch.testing.assert_close(getattr(method, name), getattr(expected, name), rtol=1e-12, atol=1e-12)


def test_mistakes_are_named():
    for options, message in [
        ({"bins": 1}, "bins to be a whole number of at least 2, got 1"),
        ({"kernel": 4}, "kernel to be an odd number of bins, got 4"),
        ({"sigma": 0.0}, "sigma to be a positive number of bins"),
        ({"momentum": 1.0}, "momentum from 0 to below 1, got 1"),
        ({"start": 0}, "start to be a whole number of at least 1, got 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            FDS(**options)
    targets = torch.zeros(2, 1)
    with pytest.raises(ValueError, match=r"prepare\(targets, width=d\) before the first step"):
        FDS().observe(torch.zeros(2, 3), targets)
    with pytest.raises(ValueError, match=r"width of the features for fds, prepare\(targets, width=d\), got 0"):
        methods.create("fds").prepare(targets)
    with pytest.raises(ValueError, match=r"one number a row for fds, got \(2, 2\)"):
        FDS().prepare(torch.zeros(2, 2), width=3)
    with pytest.raises(ValueError, match="finite training targets"):
        FDS().prepare(torch.full((2, 1), math.nan), width=3)
    with pytest.raises(ValueError, match=r"features \(n, 3\) for fds, not maps, got \(2, 3, 4, 4\)"):
        prepared().calibrate(torch.zeros(2, 3, 4, 4), Batch(None, torch.zeros(2, 1, 4, 4)))
    with pytest.raises(ValueError, match=r"one number a row for fds, got \(2, 2\)"):
        prepared().calibrate(torch.zeros(2, 3), Batch(None, torch.zeros(2, 2)))
