"""A gradient-balanced strength: the ratio of two gradients at the features, through everything training does to it."""

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

from ordinal_entropy import OrdinalEntropy, capture, methods
from ordinal_entropy.balance import Balance
from processes import run


def problem(rows=24, dtype=torch.float32, seed=0):
    """A head, features that want a gradient, targets some of which are equal."""
    generator = torch.Generator().manual_seed(seed)
    head = nn.Linear(6, 1).to(dtype)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    features = torch.randn(rows, 6, generator=generator, dtype=dtype).requires_grad_()
    return head, features, torch.randint(5, (rows, 1), generator=generator).to(dtype)


def norm(loss, features):
    return torch.autograd.grad(loss, features, retain_graph=True)[0].norm().item()


@pytest.mark.parametrize("weights", [(1.0, 1.0), (3.0, 1.0), (1.0, 0.0), (0.0, 2.0)])
def test_each_term_has_its_fraction_of_the_task_losses_gradient(weights):
    head, features, targets = problem()
    task = mse_loss(head(features), targets)
    reg = OrdinalEntropy(*weights, balance=Balance(0.1, warm_up=4))
    for step in range(1, 7):
        loss = reg(features, targets, task_loss=task)
        terms, strengths, grown = reg.terms(features, targets), reg.strengths, min(1, step / 4)
        for term, strength, weight in zip(terms, strengths, weights, strict=True):
            assert norm(strength * term, features) == pytest.approx(
                0.1 * weight * grown * norm(task, features), rel=1e-4
            )
        expected = strengths.tightness * terms.tightness - strengths.diversity * terms.diversity
        assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_units_do_not_matter():
    """Neither that of the targets in the task loss nor the length of the features."""
    head, features, targets = problem()
    share = []
    for unit, length in ((1.0, 1.0), (1000.0, 1.0), (1.0, 0.01)):
        reg = OrdinalEntropy(balance=0.1)
        own = (length * features).detach().requires_grad_()
        task = unit * mse_loss(head(own / length), targets)
        loss = reg(own, targets, task_loss=task)
        share.append(norm(loss, own) / norm(task, own))
    assert share == pytest.approx([share[0]] * 3, rel=1e-4)


def test_a_running_mean_smooths_batches():
    reg = OrdinalEntropy(balance=Balance(0.5, decay=0.9, warm_up=0))
    squares = torch.zeros(3, dtype=torch.float64)
    for seed in range(8):
        head, features, targets = problem(seed=seed)
        task = mse_loss(head(features), targets)
        reg(features, targets, task_loss=task)
        losses = task, *reg.terms(features, targets)
        squares = 0.9 * squares + torch.tensor([norm(loss, features) ** 2 for loss in losses], dtype=torch.float64)
        expected = 0.5 * (squares[0] / squares[1:]).sqrt()
        torch.testing.assert_close(torch.stack([*reg.strengths]).double(), expected, rtol=1e-4, atol=0)


def test_the_gradient_of_the_whole_is_that_of_fixed_strengths():
    """The strengths are constants: nothing flows through them."""
    head, features, targets = problem()
    reg = OrdinalEntropy(balance=Balance(0.3, warm_up=0))
    loss = reg(features, targets, task_loss=mse_loss(head(features), targets))
    fixed = OrdinalEntropy(*(float(each) for each in reg.strengths))
    for found, expected in zip(
        torch.autograd.grad(loss, features), torch.autograd.grad(fixed(features, targets), features), strict=True
    ):
        torch.testing.assert_close(found, expected)


def test_a_checkpoint_goes_on_with_the_same_strengths():
    reg = OrdinalEntropy(balance=0.1)
    for seed in range(3):
        head, features, targets = problem(seed=seed)
        reg(features, targets, task_loss=mse_loss(head(features), targets))
    again = OrdinalEntropy(balance=0.1)
    again.load_state_dict(copy.deepcopy(reg.state_dict()))
    head, features, targets = problem(seed=9)
    task = mse_loss(head(features), targets)
    assert again(features, targets, task_loss=task) == reg(features, targets, task_loss=task)
    assert again.strengths == reg.strengths
    assert OrdinalEntropy().state_dict() == {}


def test_outside_of_training_the_last_strengths_hold():
    reg = OrdinalEntropy(balance=Balance(0.1, warm_up=0))
    head, features, targets = problem()
    task = mse_loss(head(features), targets)
    reg(features, targets, task_loss=task)
    before = reg.strengths
    other = features.detach() * 3
    with torch.no_grad():
        reg(other, targets, task_loss=5 * task)
    reg.eval()
    assert reg(features, targets, task_loss=5 * task) == reg(features, targets)
    assert reg.strengths == before and reg.balance.steps == 1


@pytest.mark.parametrize("parts", [1, 4])
def test_accumulated_parts_of_a_step(parts):
    """A task loss that is divided, or a whole loss that is: what counts is the ratio."""
    head, features, targets = problem()
    shares = []
    for divided in (True, False):
        reg = OrdinalEntropy(balance=Balance(0.2, warm_up=0))
        task = mse_loss(head(features), targets) / (parts if divided else 1)
        loss = (task + reg(features, targets, task_loss=task)) / (1 if divided else parts)
        shares.append(torch.autograd.grad(loss, features)[0])
    torch.testing.assert_close(*shares)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions(dtype):
    head, features, targets = problem()
    expected = OrdinalEntropy(balance=Balance(0.1, warm_up=0))
    expected(features, targets, task_loss=1e-4 * mse_loss(head(features), targets))
    own = features.detach().to(dtype).requires_grad_()
    reg = OrdinalEntropy(balance=Balance(0.1, warm_up=0))
    reg(own, targets, task_loss=1e-4 * mse_loss(head(own.float()), targets))
    for found, other in zip(reg.strengths, expected.strengths, strict=True):
        assert found.item() == pytest.approx(other.item(), rel=2e-2 if dtype != torch.float64 else 1e-4)


def test_a_step_that_overflowed_is_left_out():
    reg = OrdinalEntropy(balance=Balance(0.1, warm_up=0))
    head, features, targets = problem()
    task = mse_loss(head(features), targets)
    reg(features, targets, task_loss=task)
    before = reg.strengths
    reg(features, targets, task_loss=task * float("inf"))
    assert reg.strengths == before and reg.balance.steps == 1


def test_a_term_without_a_gradient_has_no_strength():
    head, features, _ = problem()
    targets = torch.ones(24, 1)  # one distinct target: no diversity
    reg = OrdinalEntropy(balance=Balance(0.1, warm_up=0))
    loss = reg(features, targets, task_loss=mse_loss(head(features), targets))
    assert reg.strengths.diversity == 0 and reg.strengths.tightness > 0
    (gradient,) = torch.autograd.grad(loss, features)
    assert gradient.isfinite().all() and gradient.abs().max() > 0


def test_a_term_that_seldom_has_a_gradient_is_bounded_in_the_steps_in_which_it_has_one():
    """After any number of steps without: the running mean of its squares has at least that of the step itself."""
    features = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    task, nothing = features.square().mean(), (0 * features).sum()
    for decay in (0.9, 0.98):
        balance = Balance(0.1, decay=decay, warm_up=0, terms=1)
        seldom = 1e-3 * features.sum()
        balance(features, task, seldom)
        for _ in range(400):
            balance(features, task, nothing)
        found = balance(features, task, seldom).item() * norm(seldom, features)
        assert found == pytest.approx(0.1 * (1 - decay) ** -0.5 * norm(task, features), rel=1e-3)


def one_direction(seed, kind):
    """Features of one direction, whose cosine distances have no gradient but rounding."""
    generator = torch.Generator().manual_seed(seed)
    direction = torch.ones(1, 6) if kind == "diagonal" else torch.randn(1, 6, generator=generator)
    lengths = torch.rand(8, 1, generator=generator) + 0.5
    if kind == "opposite":  # as far apart as they can be: no gradient either
        lengths = lengths * torch.tensor([1.0, -1.0]).repeat(4)[:, None]
    targets = torch.tensor([0.0, 1.0]).repeat(4) if kind == "opposite" else torch.randint(4, (8,), generator=generator)
    weights = torch.randn(6, 1, generator=generator)
    return (direction * lengths).requires_grad_(), targets.float()[:, None], weights


@pytest.mark.parametrize("rescale", ["max", "none"])
@pytest.mark.parametrize("kind", ["diagonal", "any", "opposite"])
def test_a_gradient_that_is_rounding_has_no_strength(kind, rescale):
    for seed in range(40):
        features, targets, weights = one_direction(seed, kind)
        targets = targets if rescale == "max" else 1000 * targets
        reg = OrdinalEntropy(distance="cosine", rescale=rescale, balance=Balance(0.1, warm_up=0))
        for _ in range(4):
            loss = reg(features, targets, task_loss=mse_loss(features @ weights, targets))
            assert loss.isfinite()
            assert reg.strengths.diversity == 0


@pytest.mark.parametrize("weighting", ["l2", torch.cdist])
def test_strengths_are_finite_whatever_the_unit(weighting):
    """Of weights by a function it is not known what rounding is."""
    for seed in range(40):
        features, targets, weights = one_direction(seed, "diagonal")
        reg = OrdinalEntropy(distance="cosine", weighting=weighting, rescale="none", balance=Balance(0.1, warm_up=0))
        loss = reg(features, 1e-6 * targets, task_loss=1e6 * mse_loss(features @ weights, targets))
        assert loss.isfinite() and torch.stack([*reg.strengths]).isfinite().all()
        (gradient,) = torch.autograd.grad(loss, features)
        assert gradient.isfinite().all()


def test_after_a_collapse_the_fraction_holds_at_once():
    features, targets, weights = one_direction(0, "diagonal")
    reg = OrdinalEntropy(distance="cosine", balance=Balance(0.1, warm_up=0))
    for _ in range(20):
        reg(features, targets, task_loss=mse_loss(features @ weights, targets))
    assert reg.strengths.diversity == 0
    head, spread, targets = problem()
    task = mse_loss(head(spread), targets)
    for _ in range(300):  # what the task loss had at the collapse is forgotten
        reg(spread, targets, task_loss=task)
    diversity = reg.terms(spread, targets).diversity
    assert norm(reg.strengths.diversity * diversity, spread) == pytest.approx(0.1 * norm(task, spread), rel=1e-2)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.fc = nn.Linear(5, 8), nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 1))

    def features(self, x):
        return self.body(x).tanh()

    def forward(self, x):
        return self.fc(self.features(x))


def compiled_steps(make, way):
    """Losses, strengths and weights of some steps, in which the step or the model is compiled."""
    torch._dynamo.reset()
    model, reg = Model(), OrdinalEntropy(balance=Balance(0.1, warm_up=2), memory=16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        features = model.features(x)
        task = mse_loss(model.fc(features), y)
        return task + reg(features, y, task_loss=task)

    if way == "step":
        step = make(step)
    else:
        called = make(model)
        tap = capture(called, "fc")

        def step(x, y):
            task = mse_loss(called(x), y)
            return task + reg(tap.features, y, task_loss=task)

    losses = []
    for seed, n in enumerate([24, 24, 17, 9]):  # smaller last batches: sizes that vary
        x = torch.randn(n, 5, generator=torch.Generator().manual_seed(seed))
        loss = step(x, (2 * x.sum(1, keepdim=True)).round())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    torch._dynamo.reset()
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    return torch.stack(losses), torch.stack([*reg.strengths]), weights


TORCH = tuple(map(int, torch.__version__.split(".")[:2]))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of its compiler
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.parametrize("way", ["step", "model"])
@pytest.mark.parametrize("dynamic", [None, pytest.param(True, marks=pytest.mark.slow)])
def test_compiled_steps_are_those_without_a_compiler(way, backend, dynamic):
    if way == "step" and TORCH < (2, 13):
        pytest.skip("this torch cannot leave a function to Python")
    expected = compiled_steps(lambda each: each, way)
    make = partial(torch.compile, backend=backend, dynamic=dynamic)
    for found, other in zip(compiled_steps(make, way), expected, strict=True):
        torch.testing.assert_close(found, other)


def test_one_compiled_graph_is_told_from_a_loss_of_something_else():
    torch._dynamo.reset()
    model = Model()
    both = torch.compile(lambda x: (model.features(x), model(x).square().mean()), backend="aot_eager")
    features, task = both(torch.ones(4, 5))
    with pytest.raises(ValueError, match=r"expected a graph of torch\.compile to end at the features"):
        OrdinalEntropy(balance=0.1)(features, torch.arange(4.0), task_loss=task)
    torch._dynamo.reset()


def test_it_goes_where_the_features_are():
    """Without a look at any number: "meta" has none."""
    balance = Balance(terms=1)
    features = torch.ones(4, 3, device="meta", requires_grad=True)
    strengths = balance(features, features.square().sum(), features.sum())
    assert {each.device.type for each in (strengths, *balance.buffers())} == {"meta"}
    saved = {"squares": torch.tensor([4.0, 1.0]), "steps": torch.tensor(100.0)}
    balance = Balance(terms=1)
    balance.load_state_dict(saved)
    assert balance.strengths == 0.2


def networks():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh()), nn.Linear(8, 1)


def trained(rank, world):
    """Three steps on this rank's part of 12 rows; strengths and weights."""
    body, head = networks()
    model = nn.Sequential(body, head)
    if world > 1:
        model = DistributedDataParallel(model)
    reg = OrdinalEntropy(balance=Balance(0.3, warm_up=0), gather=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(3, 12, 5, generator=generator), torch.randint(4, (3, 12, 1), generator=generator).float()
    own = slice(12 // world * rank, 12 // world * (rank + 1))
    features = []
    body.register_forward_hook(lambda module, inputs, output: features.append(output))
    for step in range(3):
        task = mse_loss(model(x[step, own]), y[step, own])
        loss = task + reg(features.pop(), y[step, own], task_loss=task)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return torch.stack([*reg.strengths]), torch.cat([p.detach().flatten() for p in model.parameters()])


def test_ranks_have_the_strengths_of_one_process():
    strengths, weights = trained(0, 1)
    for own, ranks_weights in run(trained, 2):
        torch.testing.assert_close(own, strengths)
        torch.testing.assert_close(ranks_weights, weights)


def wrong_on_one_rank(rank, world):
    """What each call gives: a loss, or an error that is caught."""
    told = []
    for gather in (True, False):
        reg = OrdinalEntropy(balance=0.1, gather=gather)
        for step in range(6):
            features = torch.randn(6, 4, generator=torch.Generator().manual_seed(step)).requires_grad_()
            targets, task = torch.arange(6.0), features.square().mean()
            if rank == step % 2:
                task = {1: task.detach(), 2: features.square().mean(1), 3: None}.get(step, task)
                targets = torch.full((6,), torch.nan) if step == 4 else targets
            try:
                told.append(reg(features, targets, task_loss=task).item())
            except ValueError as error:
                told.append(str(error))
    return told


@pytest.mark.slow
def test_what_is_wrong_on_one_rank_is_an_error_on_all_and_the_next_step_is_of_all():
    ranks = run(wrong_on_one_rank, 2)
    wrong = {
        1: "that depends on the features",
        2: "to be a scalar",
        3: "with balance=0.1",
        4: "got 6 rows with NaN",
    }
    for call, answers in enumerate(zip(*ranks, strict=True)):
        step = call % 6
        if step not in wrong:
            assert answers[0] == answers[1] and isinstance(answers[0], float)
            continue
        own, other = answers[step % 2], answers[1 - step % 2]
        assert own.startswith("expected ") and wrong[step] in own
        what = "rows" if call == 4 else "losses"
        assert other == f"expected {what} from every rank, got an error on rank {step % 2}: {own}"


@pytest.mark.parametrize("name", ["ld", "oe"])
def test_methods_hand_the_task_loss_on(name):
    head, features, targets = problem()
    method = methods.create(name, balance=Balance(0.1, warm_up=0))
    task = mse_loss(head(features), targets)
    loss = method(features, targets, task_loss=task)
    parts = 2 if name == "oe" else 1
    assert 0 < norm(loss, features) <= 0.1001 * parts * norm(task, features)


def test_mistakes_are_told():
    head, features, targets = problem()
    reg = OrdinalEntropy(balance=0.1)
    with pytest.raises(ValueError, match=r"expected task_loss with balance=0\.1"):
        reg(features, targets)
    with pytest.raises(ValueError, match="expected task_loss to be a scalar"):
        reg(features, targets, task_loss=(head(features) - targets).square())
    with pytest.raises(ValueError, match="expected a task_loss that depends on the features"):
        reg(features, targets, task_loss=mse_loss(head(features.detach()), targets))
    for wrong in (0, -0.1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="expected balance to be a positive fraction"):
            OrdinalEntropy(balance=wrong)
    for wrong in (True, "0.1"):
        with pytest.raises(TypeError, match="expected balance to be a number"):
            OrdinalEntropy(balance=wrong)
    with pytest.raises(ValueError, match="decay"):
        Balance(decay=1.0)
    with pytest.raises(ValueError, match="warm_up"):
        Balance(warm_up=-1)
