"""ConR against loops, its gradient, its edges, the predictions that it sees."""

import math

import pytest
import torch

from ordinal_entropy import methods
from ordinal_entropy.integrations.sklearn import OrdinalEntropyRegressor
from ordinal_entropy.integrations.tapped import TappedMethod
from ordinal_entropy.methods import Batch, Method, Step
from ordinal_entropy.methods.conr import ConR
from ordinal_entropy.methods.functional import conr
from ordinal_entropy.training.stacked import members

GENERATOR = torch.Generator().manual_seed(0)
N = 12
FEATURES = torch.randn(N, 4, dtype=torch.float64, generator=GENERATOR)
TARGETS = torch.randint(5, (N, 2), generator=GENERATOR).double()
PREDICTIONS = 3 * torch.rand(N, 2, dtype=torch.float64, generator=GENERATOR)
WEIGHT = 0.5 + torch.rand(N, dtype=torch.float64, generator=GENERATOR)
WINDOW, SLOPE = 1.6, 0.3


def loop(features, targets, predictions, window, slope, temperature, weight):
    """The formula, row by row, with Python's floats; the mean over all rows."""
    z = [[value / math.hypot(*row) for value in row] for row in features.tolist()]
    y, p, n = targets.tolist(), predictions.tolist(), len(z)
    total = 0.0
    for i in range(n):
        similar = [sum(a * b for a, b in zip(z[i], z[j], strict=True)) / temperature for j in range(n)]
        positive = [j for j in range(n) if j != i and math.dist(y[i], y[j]) <= window]
        negative = [j for j in range(n) if math.dist(y[i], y[j]) > window >= math.dist(p[i], p[j])]
        if positive and negative:
            below = sum(math.exp(similar[j]) for j in positive)
            below += sum(weight[i] * math.exp(slope * math.dist(y[i], y[j]) + similar[j]) for j in negative)
            total -= sum(math.log(math.exp(similar[j]) / below) for j in positive) / len(positive)
    return total / n


def term(features, targets, predictions, mask=None, weight=None, **options):
    method = ConR(**options)
    method.spread = torch.tensor(2.0, dtype=torch.float64)
    return method.term(Step(Batch(None, targets, mask, weight), features, predictions, None))


@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_equals_the_loop(temperature):
    expected = loop(FEATURES, TARGETS, PREDICTIONS, WINDOW, SLOPE, temperature, WEIGHT.tolist())
    assert expected > 0.1
    own = {"slope": SLOPE, "temperature": temperature, "weight": WEIGHT}
    assert conr(FEATURES, TARGETS, PREDICTIONS, WINDOW, **own).item() == pytest.approx(expected, rel=1e-12)
    options = {"window": WINDOW / 2, "slope": 2 * SLOPE, "temperature": temperature}  # targets spread by 2
    weighted = term(FEATURES, TARGETS, PREDICTIONS, weight=WEIGHT[:, None].expand(N, 2), **options)
    assert weighted.item() == pytest.approx(expected, rel=1e-12)
    nothing = term(FEATURES[:0], TARGETS[:0, 0], PREDICTIONS[:0, :1], weight=WEIGHT[:0])
    assert nothing == 0
    plain = loop(FEATURES, TARGETS, PREDICTIONS, WINDOW, SLOPE, temperature, [1.0] * N)
    assert term(FEATURES, TARGETS, PREDICTIONS, **options).item() == pytest.approx(plain, rel=1e-12)
    one = loop(FEATURES, TARGETS[:, :1], PREDICTIONS[:, :1], WINDOW, SLOPE, temperature, [1.0] * N)
    assert term(FEATURES, TARGETS[:, 0], PREDICTIONS[:, :1], **options).item() == pytest.approx(one, rel=1e-12)


def test_gradient():
    mask = torch.arange(N) % 5 != 1

    def loss(features):
        return conr(features, TARGETS, PREDICTIONS, WINDOW, slope=SLOPE, temperature=0.5, weight=WEIGHT, mask=mask)

    assert torch.autograd.gradcheck(loss, FEATURES.clone().requires_grad_())


def test_the_unit_of_the_targets_does_not_matter():
    found = []
    for factor in (1.0, 1000.0):
        method = ConR(window=0.5)
        method.prepare(factor * TARGETS)
        found.append(method.term(Step(Batch(None, factor * TARGETS), FEATURES, factor * PREDICTIONS, None)))
    assert found[0] > 0 and torch.allclose(*found, rtol=1e-12)
    method = ConR()
    method.prepare(torch.full((4, 1), 7.0))  # no spread
    assert method.spread == 1


def test_rows_outside_the_mask_leave_no_trace():
    mask = torch.arange(N) % 4 != 0
    features, targets, predictions = FEATURES.clone(), TARGETS.clone(), PREDICTIONS.clone()
    features[~mask], targets[~mask], predictions[~mask] = math.nan, math.nan, math.nan
    features.requires_grad_()
    loss = term(features, targets, predictions, mask[:, None].expand(N, 2), window=0.8, slope=0.0)
    expected = loop(FEATURES[mask], TARGETS[mask], PREDICTIONS[mask], WINDOW, 0.0, 0.07, [1.0] * N)
    assert expected > 0 and loss.item() == pytest.approx(expected, rel=1e-12)
    loss.backward()
    assert features.grad.isfinite().all() and (features.grad[~mask] == 0).all()


@pytest.mark.parametrize(
    ("features", "targets", "predictions", "zero"),
    [
        (FEATURES[:0], TARGETS[:0], PREDICTIONS[:0], True),
        (FEATURES[:2], TARGETS[:2], PREDICTIONS[:2], True),
        (FEATURES, torch.ones(N, 2).double(), PREDICTIONS, True),  # no negatives
        (FEATURES, 100 * torch.arange(N).double()[:, None], PREDICTIONS, True),  # no positives
        (FEATURES, TARGETS, 100 * torch.arange(2 * N).double().view(N, 2), True),  # nothing confused
        (torch.zeros(N, 4).double(), TARGETS, PREDICTIONS, False),
        (FEATURES[:1].expand(N, 4), TARGETS, PREDICTIONS, False),
        (1e200 * FEATURES, TARGETS, PREDICTIONS, False),
        (FEATURES, TARGETS, torch.full((N, 2), math.nan), False),  # of a run that diverges
    ],
)
def test_degenerate_batches_have_a_finite_gradient(features, targets, predictions, zero):
    features = features.clone().requires_grad_()
    loss = term(features, targets, predictions[:, : targets.shape[1]], window=0.8)
    loss.backward()
    assert loss.isfinite() and features.grad.isfinite().all()
    assert (loss == 0) == zero


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2), (torch.float16, 5e-3)])
def test_lower_precisions(dtype, tolerance):
    exact, low = FEATURES.clone().requires_grad_(), FEATURES.to(dtype).requires_grad_()
    losses = [conr(each, TARGETS, PREDICTIONS, WINDOW) for each in (exact, low)]
    for each in losses:
        each.backward()
    assert losses[1].dtype == torch.float32 and losses[1].item() == pytest.approx(losses[0].item(), rel=tolerance)
    assert (low.grad.double() - exact.grad).norm() <= 3 * tolerance * exact.grad.norm()


def test_beside_another_head_it_sees_what_the_head_predicts():
    method = methods.create(
        "classification+conr", {"classification": {"bins": 5}, "conr": {"window": 0.5, "strength": 1}}
    )
    targets = TARGETS[:, :1]
    method.prepare(targets, width=4)
    logits = torch.randn(N, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    step = Step(Batch(None, targets), FEATURES, logits, None)
    expected = step._replace(outputs=method.decode(logits))
    assert torch.equal(method.added(step), method.parts["conr"].term(expected))
    assert method.added(step) > 0


def test_whole_numbers_as_targets_leave_predictions_as_they_are():
    targets = TARGETS[:, :1].long()
    expected = term(FEATURES, targets.double(), PREDICTIONS[:, :1], window=0.4)
    assert term(FEATURES, targets, PREDICTIONS[:, :1], window=0.4) == expected > 0


def test_loops_without_predictions_refuse_it():
    why = "cannot train 'conr', which has to see the predictions of each step: it computes the task loss by itself"
    with pytest.raises(ValueError, match=why):
        TappedMethod("conr", who="the callback")
    with pytest.raises(
        ValueError, match=r"no method of two stages beside 'conr'.*got 'rnc', whose first stage has none"
    ):
        methods.create("conr+rnc", {"rnc": {"stages": 2}})
    method = methods.create("conr", strength=1)
    with pytest.raises(ValueError, match="expected predictions beside the features for 'conr', got none"):
        method(FEATURES, TARGETS)
    assert method(FEATURES, TARGETS, predictions=PREDICTIONS).isfinite()
    assert set(method.requirements()) == {"term", "predictions"}


def test_loops_that_train_heads_have_predictions_for_it():
    assert OrdinalEntropyRegressor(method="hl-gauss+conr")._method().name == "hl-gauss+conr"
    members.require_trainable(methods.create("hl-gauss+conr"))


def test_mistakes_are_named():
    for options, message in [
        ({"window": 0.0}, "window to be a positive number, got 0"),
        ({"temperature": -1.0}, "temperature to be a positive number, got -1"),
        ({"slope": math.inf}, "slope to be a number from 0 on, got inf"),
    ]:
        with pytest.raises(ValueError, match=message):
            ConR(**options)
    with pytest.raises(ValueError, match=r"features \(n, d\) for conr.*got \(2, 3, 4, 4\)"):
        term(torch.zeros(2, 3, 4, 4), torch.zeros(2, 1, 4, 4), torch.zeros(2, 1, 4, 4))
    with pytest.raises(ValueError, match=r"finite training targets, at least one, got \(0, 1\)"):
        ConR().prepare(torch.zeros(0, 1))


def test_a_term_that_needs_predictions_keeps_their_graph():
    class Pull(Method):
        kind = "term"
        needs = frozenset({"predictions"})

        def term(self, step):
            return step.outputs.square().sum()

    outputs = PREDICTIONS.clone().requires_grad_()
    methods.compose(Pull())(FEATURES, TARGETS, predictions=outputs).backward()
    assert torch.equal(outputs.grad, 2 * PREDICTIONS)
