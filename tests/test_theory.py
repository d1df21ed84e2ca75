"""The theory in numbers: formulas against loops and by hand, what is proven on drawn cases, what training does."""

import functools
import itertools
import math
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy, elu, mse_loss, normalize

import ordinal_entropy as oe
from ordinal_entropy.estimators import conditional_entropy, diversity_entropy, effective_rank, mean_nn_entropy

sys.path.append(str(Path(__file__).parent.parent / "examples"))
import theory

MSE, CLASSIFICATION, DIVERSE = theory.LOSSES


def drawn(seed, n=12, k=3, d=4, theta_size=1.0):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(n, d, generator=generator, dtype=torch.float64)
    theta = theta_size * torch.randn(k, d, generator=generator, dtype=torch.float64)
    return features, torch.randint(k, (n,), generator=generator), theta


# Eq. 2


@pytest.mark.parametrize("lam", [0.1, 1.0, 7.0])
def test_the_split_is_the_formula_in_loops(lam):
    z, classes, theta = drawn(0)
    n, k = len(z), len(theta)
    p = [
        [math.exp(theta[c] @ z[i]) / sum(math.exp(theta[b] @ z[i]) for b in range(k)) for c in range(k)]
        for i in range(n)
    ]
    dot = (z @ z.T).tolist()
    loss = -sum(math.log(p[i][classes[i]]) for i in range(n)) / n
    tightness = -sum(dot[i][j] for i in range(n) for j in range(n) if classes[i] == classes[j]) / (2 * lam * n**2)
    denominators = [
        sum(math.exp(sum(p[j][c] * dot[i][j] for j in range(n)) / (lam * n)) for c in range(k)) for i in range(n)
    ]
    centers = [sum(p[i][c] * z[i] for i in range(n)) / n for c in range(k)]
    spread = sum(math.log(x) for x in denominators) / n
    found = theory.split(z, classes, theta, lam)
    assert found.loss.item() == pytest.approx(loss)
    assert (found.pull + found.push).item() == pytest.approx(loss)
    assert found.tightness.item() == pytest.approx(tightness)
    assert found.diversity.item() == pytest.approx(spread - sum((c @ c).item() for c in centers) / (2 * lam))
    assert found.printed.item() == pytest.approx(spread - sum(c.norm().item() for c in centers) / (2 * lam))


@pytest.mark.parametrize("t", [0.0, 0.3, 1.0, 3.0])
def test_two_points_by_hand(t):
    found = theory.two_points(1.0, t, lam=1.0)
    c = math.tanh(t) / 2
    assert found.loss.item() == pytest.approx(math.log1p(math.exp(-2 * t)))
    assert found.tightness.item() == pytest.approx(-1 / 4)
    assert found.diversity.item() == pytest.approx(math.log(2 * math.cosh(c)) - c**2)
    assert found.printed.item() == pytest.approx(math.log(2 * math.cosh(c)) - c)
    assert found.to_hard.item() == pytest.approx(2 * (t - 1 / 2) ** 2)
    assert found.to_soft.item() == pytest.approx(2 * (t - c) ** 2)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    lam=st.floats(0.01, 100),
    theta_size=st.floats(0, 10),
    n=st.integers(1, 20),
    k=st.integers(1, 5),
    d=st.integers(1, 6),
)
def test_what_is_proven_of_the_split(seed, lam, theta_size, n, k, d):
    z, classes, theta = drawn(seed, n, k, d, theta_size)
    s = theory.split(z, classes, theta, lam)
    curvature = torch.linalg.eigvalsh(z.T @ z / n)[-1] / 2
    slack = 1e-9 * (1 + lam) * (1 + s.to_hard + s.to_soft)
    torch.testing.assert_close(s.pull - s.tightness, lam / 2 * s.to_hard, rtol=1e-8, atol=slack.item())
    assert s.diversity - s.push >= lam / 2 * s.to_soft - slack
    assert s.diversity - s.push <= (lam + curvature) / 2 * s.to_soft + slack
    excess = s.loss - (s.tightness + s.diversity)
    assert excess <= lam / 2 * (s.to_hard - s.to_soft) + slack
    assert excess >= lam / 2 * (s.to_hard - (1 + curvature / lam) * s.to_soft) - slack


@pytest.mark.parametrize("lam", [0.1, 1.0, 10.0])
def test_the_bound_is_reversed_at_the_minimum_of_the_cross_entropy(lam):
    z, classes, theta = drawn(1, n=60)
    theta.requires_grad_()
    optimizer = torch.optim.LBFGS(
        [theta], max_iter=500, tolerance_grad=1e-10, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure():
        optimizer.zero_grad()
        loss = cross_entropy(z @ theta.T, classes)
        loss.backward()
        return loss

    optimizer.step(closure)
    assert theta.grad.abs().max() < 1e-7  # the classes overlap: there is a minimum
    s = theory.split(z, classes, theta.detach(), lam)
    hard = torch.stack([z[classes == c].sum(0) for c in range(3)]) / (60 * lam)
    assert s.to_soft.item() == pytest.approx(s.to_hard.item(), rel=1e-5)
    assert (s.tightness + s.diversity).item() == pytest.approx(cross_entropy(z @ hard.T, classes).item(), rel=1e-5)
    assert s.tightness + s.diversity > s.loss + 0.01


def test_an_untrained_classifier_of_centered_features_is_bounded():
    z, classes, theta = drawn(2)
    s = theory.split(z - z.mean(0), classes, 0 * theta, 1.0)
    assert s.to_soft < 1e-20
    assert s.loss > s.tightness + s.diversity


def test_the_form_with_the_square_knows_no_units():
    z, classes, theta = drawn(3)
    one, two = theory.split(z, classes, theta, 1.0), theory.split(2 * z, classes, theta / 2, 4.0)
    for name in ("loss", "pull", "push", "tightness", "diversity"):
        torch.testing.assert_close(getattr(one, name), getattr(two, name))
    assert (one.printed - two.printed).abs() > 0.1


def test_the_tightness_of_features_of_length_one_is_the_scatter_within_classes():
    z = normalize(drawn(4)[0], dim=1)
    classes = torch.arange(12) % 3
    means = torch.stack([z[classes == c].mean(0) for c in range(3)])
    within = (z - means[classes]).square().sum(1).mean()
    found = theory.split(z, classes, torch.zeros(3, 4, dtype=torch.float64), 0.5).tightness
    torch.testing.assert_close(found, -(1 - within) / (2 * 0.5 * 3))


# Lemma 1


def test_lemma1_by_hand():
    gap, bound = theory.lemma1(torch.tensor([3.0]), torch.tensor([0.9]), 1.0)  # the middle of the bin is 0.5
    assert gap == pytest.approx(2.5**2 - 2.1**2)
    assert bound == pytest.approx(0.5 * (6 - 0.5 - 0.9))


def test_lemma1_is_tight_for_targets_at_an_edge():
    gap, bound = theory.lemma1(torch.tensor([3.0, 5.0]), torch.tensor([0.0, 1.0]), 1.0)
    assert gap == pytest.approx(bound)


def test_a_left_edge_breaks_lemma1():
    prediction, target, edge, width = 3.0, 0.9, 0.0, 1.0
    gap = abs((prediction - target) ** 2 - (prediction - edge) ** 2)
    allowed = abs(2 * prediction - edge - target) * width
    assert gap == pytest.approx(4.59)
    assert allowed / 2 < gap <= allowed


@settings(max_examples=100)
@given(seed=st.integers(0, 10_000), width=st.floats(1e-4, 10), error=st.floats(0, 10))
def test_lemma1_holds(seed, width, error):
    generator = torch.Generator().manual_seed(seed)
    y = torch.randn(30, generator=generator, dtype=torch.float64)
    predictions = y + error * torch.randn(30, generator=generator, dtype=torch.float64)
    gap, bound = theory.lemma1(predictions, y, width)
    assert gap <= bound + 1e-12
    assert gap <= width * (predictions - y).abs().mean().item() + width**2 / 4 + 1e-12  # with no center in it


def test_lemma1_shrinks():
    found = [theory.lemma1(*theory.predicted(), width) for width in (0.4, 0.2, 0.1, 0.05)]
    for coarse, fine in itertools.pairwise(found):
        assert coarse.bound / fine.bound == pytest.approx(2, rel=0.2)
        assert coarse.gap / fine.gap == pytest.approx(4, rel=0.3)
    for width in (0.4, 0.2, 0.1):
        assert theory.lemma1(*theory.predicted(), width).gap == pytest.approx(width**2 / 12, rel=0.3)


# Theorem 1


@pytest.mark.parametrize("noise", [0.1, 0.5, 2.0])
def test_clusters_have_their_closed_forms(noise):
    z, y = theory.clusters(noise)
    variance = y.var(correction=0).item()
    error = variance * noise**2 / (9 * variance + noise**2)  # the line is 3 long
    assert theory.readout_error(z, y) == pytest.approx(error, rel=0.05)
    exact = 1.5 * math.log(2 * math.pi * math.e * noise**2)
    assert conditional_entropy(z, y, bins="unique").item() == pytest.approx(exact, abs=0.1)


def test_error_and_conditional_entropy_rise_together_with_the_noise():
    found = [theory.clusters(noise) for noise in (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)]
    errors = [theory.readout_error(z, y) for z, y in found]
    entropies = [conditional_entropy(z, y, bins="unique") for z, y in found]
    assert errors == sorted(errors)
    assert entropies == sorted(entropies)


def test_scale_moves_the_conditional_entropy_alone():
    z, y = theory.clusters(0.2)
    assert theory.readout_error(3 * z + 1, y) == pytest.approx(theory.readout_error(z, y))
    more = conditional_entropy(3 * z + 1, y, bins="unique") - conditional_entropy(z, y, bins="unique")
    assert more.item() == pytest.approx(3 * math.log(3))


def test_the_inequality_as_printed_fails_where_it_is_called_tight():
    z = torch.randn(20_000, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    printed = z.square().sum(1).mean().item()
    entropy = 2 * math.log(2 * math.pi * math.e)
    assert printed < entropy - 1
    assert printed / 2 + 2 * math.log(2 * math.pi) == pytest.approx(entropy, abs=0.05)


def test_the_error_to_a_center_is_scatter_along_theta_and_bias():
    z, y = theory.clusters(0.3)
    theta = torch.tensor([0.5, 0.1, 0.2], dtype=torch.float64)
    values, index = y.unique(return_inverse=True)
    means = torch.stack([z[index == b].mean(0) for b in range(len(values))])
    scatter = ((z - means[index]) @ theta).square().mean()
    bias = (means[index] @ theta - y).square().mean()
    assert bias > 1e-3
    torch.testing.assert_close((z @ theta - y).square().mean(), scatter + bias)


# Training


@pytest.mark.parametrize("loss", theory.LOSSES)
def test_a_seed_of_the_stack_is_an_ordinary_training(loss):
    seed, generator = 3, torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x = normal(10, 80, 8)
    y = torch.sin(2 * x[..., 0]) + x[..., 1] * x[..., 2]
    x, y = x[seed], y[seed, :, None] / y.std()
    outputs = 10 if loss == CLASSIFICATION else 1
    layers = [nn.Linear(8, 32), nn.Linear(32, 8), nn.Linear(8, outputs)]
    for layer, factor in zip(layers, (0.1, 0.1, 1.0), strict=True):
        w = normal(10, layer.in_features, layer.out_features)[seed]
        layer.weight = nn.Parameter(factor * w.T / math.sqrt(layer.in_features))
        layer.bias = nn.Parameter(torch.zeros(layer.out_features, dtype=torch.float64))
    classes = torch.empty(80, dtype=torch.long)
    classes[y[:, 0].argsort()] = torch.arange(80) // 8
    optimizer = torch.optim.AdamW(nn.ModuleList(layers).parameters(), lr=0.01, weight_decay=0.0)
    for _ in range(20):
        z = elu(layers[1](elu(layers[0](x))))
        out = layers[2](z)
        objective = cross_entropy(out, classes) if loss == CLASSIFICATION else mse_loss(out, y)
        if loss == DIVERSE:
            objective = objective - oe.functional.diversity(z, y)
        optimizer.zero_grad()
        objective.backward()
        optimizer.step()
    z = elu(layers[1](elu(layers[0](x)))).detach()
    course = theory.trained(loss, theory.SETTINGS["small start"], steps=20)
    assert (course.steps[0], course.steps[-1]) == (0, 20)
    assert course.raw.shape == course.unit.shape == (len(course.steps), 10)
    torch.testing.assert_close(course.raw[-1, seed], mean_nn_entropy(z, scale="entropy"), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(course.unit[-1, seed], mean_nn_entropy(z, True, scale="entropy"), rtol=1e-5, atol=1e-5)


def test_an_unknown_loss():
    with pytest.raises(ValueError, match=r"expected a loss out of .* got 'l1'"):
        theory.trained("l1", theory.Setting())


def test_interval_by_hand():
    mean, half, above = theory.interval(torch.tensor([-1.0, 1.0] * 5))
    assert (mean, above) == (0.0, 5)
    assert half == pytest.approx(2.262 * math.sqrt(10 / 9) / math.sqrt(10))


# Which way the entropy goes where it goes one way in nearly all seeds: from the first step to the last ("change"), or
# against the MSE at the last step ("against"); of the features as they are, or brought to length 1.
DIRECTIONS = {
    "small start": [
        ("change", MSE, "raw", "up"),
        ("change", MSE, "unit", "down"),
        ("change", CLASSIFICATION, "raw", "up"),
        ("change", CLASSIFICATION, "unit", "down"),
        ("against", CLASSIFICATION, "raw", "up"),
        ("against", DIVERSE, "unit", "up"),
    ],
    "usual start": [
        ("change", MSE, "raw", "up"),
        ("change", MSE, "unit", "down"),
        ("change", CLASSIFICATION, "raw", "up"),
        ("change", CLASSIFICATION, "unit", "down"),
        ("change", DIVERSE, "unit", "up"),
        ("against", CLASSIFICATION, "raw", "up"),
        ("against", CLASSIFICATION, "unit", "down"),
        ("against", DIVERSE, "raw", "down"),
        ("against", DIVERSE, "unit", "up"),
    ],
    "large start": [
        ("change", MSE, "raw", "down"),
        ("change", DIVERSE, "unit", "up"),
        ("against", CLASSIFICATION, "raw", "up"),
        ("against", DIVERSE, "unit", "up"),
    ],
    "straight target": [
        ("change", CLASSIFICATION, "raw", "up"),
        ("change", CLASSIFICATION, "unit", "down"),
        ("change", DIVERSE, "unit", "down"),
        ("against", CLASSIFICATION, "raw", "up"),
        ("against", CLASSIFICATION, "unit", "down"),
        ("against", DIVERSE, "unit", "down"),
    ],
    "straight, decay": [
        ("change", MSE, "raw", "down"),
        ("change", MSE, "unit", "down"),
        ("change", CLASSIFICATION, "raw", "up"),
        ("change", DIVERSE, "unit", "down"),
        ("against", CLASSIFICATION, "raw", "up"),
        ("against", CLASSIFICATION, "unit", "down"),
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", theory.SETTINGS)
def test_training_moves_the_entropy(name):
    courses = {loss: theory.trained(loss, theory.SETTINGS[name]) for loss in theory.LOSSES}
    for course in courses.values():
        assert course.fit < (0.2 if name == "large start" else 0.01)
    for what, loss, which, direction in DIRECTIONS[name]:
        entropies = getattr(courses[loss], which)
        first = entropies[0] if what == "change" else getattr(courses[MSE], which)[-1]
        found = theory.interval(entropies[-1] - first)
        sign = 1 if direction == "up" else -1
        assert sign * found.mean > found.half, (what, loss, which, str(found))
        assert (found.above if direction == "up" else 10 - found.above) >= 8, (what, loss, which, str(found))
    if name == "small start":  # the MSE collapses on the way
        lowest = {loss: course.unit.amin(0) - course.unit[0] for loss, course in courses.items()}
        assert (lowest[MSE] < -3).all()
        assert (lowest[CLASSIFICATION] > lowest[MSE]).all()
        assert (lowest[DIVERSE] > lowest[MSE]).all()
    if name == "large start":  # classification is not above the MSE all the way
        assert ((courses[CLASSIFICATION].raw - courses[MSE].raw).amin(0) < -1).all()


@pytest.mark.slow
def test_free_features_go_where_the_diversity_is_largest():
    y = torch.linspace(0, 1, 60, dtype=torch.float64)
    ends = {}
    for weighting in ("l2", "none"):
        for start in ("random", "collapsed"):
            first, last = theory.spread_out(weighting, start)
            torch.testing.assert_close(last.norm(dim=1), torch.ones(60, dtype=torch.float64))
            ends[weighting, start] = last
            entropy = mean_nn_entropy(last) - mean_nn_entropy(first)
            assert (entropy < 0) == (weighting == "l2" and start == "random")
            assert diversity_entropy(last, y) > diversity_entropy(first, y)
    # one optimum, in order, in few directions; better than the two poles, which are worth 1/2 for many targets
    values = [diversity_entropy(ends["l2", start], y).item() for start in ("random", "collapsed")]
    assert values[0] == pytest.approx(values[1], rel=1e-3)
    assert min(values) > 0.52
    for start in ("random", "collapsed"):
        assert effective_rank(ends["l2", start]) < 3
        assert effective_rank(ends["none", start]) > 3.9
        assert oe.estimators.ordinality(ends["l2", start], y) > 0.8


@pytest.mark.slow
def test_the_script_prints_and_draws(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib", reason="a picture needs matplotlib")
    monkeypatch.setattr(theory, "trained", functools.partial(theory.trained, steps=3))
    monkeypatch.setattr(torch, "set_num_threads", lambda n: None)  # the other tests keep theirs
    monkeypatch.setattr(sys, "argv", ["theory.py", "--picture", str(tmp_path / "new" / "picture.png")])
    theory.main()
    assert len(capsys.readouterr().out.splitlines()) == len(theory.SETTINGS) * len(theory.LOSSES)
    assert (tmp_path / "new" / "picture.png").read_bytes().startswith(b"\x89PNG")
