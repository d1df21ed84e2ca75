"""The regularizer against plain loops, its symmetries, its edges, its gradient, its precisions and its transforms."""

import itertools
import math
from functools import partial

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, vmap

from cases import every_value
from ordinal_entropy import kernels
from ordinal_entropy.functional import diversity, ordinal_entropy, tightness

import oracle


def affine(a, b):
    """A weighting of the user's own, not symmetric in its two arguments."""
    return (a[:, None] - b).abs().sum(-1) + 0.5 + 0.1 * a[:, None, 0].abs()


def affine_of_two(a, b):
    return sum(abs(p - q) for p, q in zip(a, b, strict=True)) + 0.5 + 0.1 * abs(a[0])


def batch(n=14, d=4, t=1, levels=5, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(n, d, generator=generator, dtype=torch.float64).to(dtype)
    targets = torch.randint(levels, (n, t), generator=generator).to(dtype) * 1.7 - 2.0
    return features, targets


OPTIONS = {
    "weighting": ["l2", "squared", "sqrt", "none", affine],
    "distance": ["l2", "cosine"],
    "normalize": [True, False],
    "rescale": ["max", "authors", "none"],
    "grouping": ["unique", "none", 2.5],
    "centers": ["normalize-first", "average-first"],
}
COMBINATIONS = [dict(zip(OPTIONS, values, strict=True)) for values in itertools.product(*OPTIONS.values())]


@pytest.mark.parametrize("kernel", ["reference", "blocked"])
@pytest.mark.parametrize("t", [1, 3])
def test_diversity_is_the_loops(kernel, t):
    features, targets = batch(t=t)
    for options in COMBINATIONS:
        loops = {
            **options,
            "weighting": affine_of_two if callable(options["weighting"]) else options["weighting"],
        }
        expected = oracle.terms(features, targets, **loops)[0]
        with kernels.use(kernel):
            assert diversity(features, targets, **options).item() == pytest.approx(expected, rel=1e-9), options


@pytest.mark.parametrize("kernel", ["reference", "blocked"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_targets_of_many_numbers(kernel, dtype):
    features, targets = batch(t=200, levels=2, dtype=dtype)
    targets[3] = targets[5]
    for grouping in ("unique", "none"):
        for rescale in ("max", "authors"):
            options = {"grouping": grouping, "rescale": rescale}
            with kernels.use(kernel):
                value = diversity(features, targets, **options).item()
            assert value == pytest.approx(oracle.terms(features, targets, **options)[0], rel=1e-5), options


@pytest.mark.parametrize("t", [1, 3])
def test_tightness_is_the_loops(t):
    features, targets = batch(t=t)
    features[targets[:, 0] == targets[0, 0]] = features[0].clone()  # one center whose members coincide
    for distance, normalize, grouping, centers, over, power in itertools.product(
        *(OPTIONS[name] for name in ("distance", "normalize", "grouping", "centers")),
        ["all", "shared"],
        [1, 2],
    ):
        options = {"distance": distance, "normalize": normalize, "grouping": grouping, "centers": centers}
        options |= {"tightness_over": over, "tightness_power": power}
        expected = oracle.terms(features, targets, **options)[1]
        assert tightness(features, targets, **options).item() == pytest.approx(expected, rel=1e-9, abs=1e-12), options


def test_the_sum_has_separate_strengths():
    features, targets = batch()
    expected = 0.25 * tightness(features, targets) - 3 * diversity(features, targets)
    assert ordinal_entropy(features, targets, diversity_weight=3, tightness_weight=0.25).item() == pytest.approx(
        expected.item()
    )
    strength = torch.tensor(3.0)  # a tensor may be stacked by vmap
    assert ordinal_entropy(features, targets, diversity_weight=strength, tightness_weight=0.25).item() == (
        pytest.approx(expected.item())
    )


def test_terms_are_not_negative():
    features, targets = batch()
    assert diversity(features, targets) > 0
    assert tightness(features, targets) > 0


@pytest.mark.parametrize("distance", ["l2", "cosine"])
def test_order_of_rows_rotation_and_scale_do_not_matter(distance):
    features, targets = batch()
    expected = ordinal_entropy(features, targets, distance=distance)
    order = torch.randperm(len(features), generator=torch.Generator().manual_seed(1))
    rotation = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2)))[0]
    factor = torch.rand(len(features), 1, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) + 0.1
    for other in (
        ordinal_entropy(features[order], targets[order], distance=distance),
        ordinal_entropy(features @ rotation, targets, distance=distance),
        ordinal_entropy(features * factor, targets, distance=distance),
        ordinal_entropy(features, -targets, distance=distance),
        ordinal_entropy(features, targets + 100, distance=distance),
        ordinal_entropy(features, targets * 1000, distance=distance),  # the unit of the targets: rescale="max"
    ):
        torch.testing.assert_close(other, expected)


def test_only_the_paper_form_follows_the_unit_of_the_targets():
    features, targets = batch()
    paper = diversity(features, targets, rescale="none")
    torch.testing.assert_close(diversity(features, targets * 1000, rescale="none"), 1000 * paper)


def test_two_authors_centers_weigh_nothing():
    features, targets = batch(n=2, levels=100)
    assert diversity(features, targets, rescale="authors") == 0


def test_large_offsets_of_targets_are_taken_off_in_their_own_precision():
    features, targets = batch(n=6, dtype=torch.float32)
    late = targets.double() + 1.6e9  # seconds since 1970
    torch.testing.assert_close(diversity(features, late), diversity(features, targets))


def test_whole_number_targets_are_exact():
    features, _ = batch(n=4)
    targets = torch.tensor([2**53 - 1, 2**53 - 2, 2**53 - 1, 2**53 - 2])
    torch.testing.assert_close(
        ordinal_entropy(features, targets), ordinal_entropy(features, torch.tensor([1.0, 0.0, 1.0, 0.0]))
    )


# ---------------------------------------------------------------------------------------------------------- weights


@pytest.mark.parametrize("grouping", ["unique", "none", 2.5])
@pytest.mark.parametrize("rescale", ["max", "authors", "none"])
@pytest.mark.parametrize("t", [1, 2])
def test_sample_weight_counts_like_repetition(grouping, rescale, t):
    features, targets = batch(t=t)
    counts = torch.randint(0, 4, (len(features),), generator=torch.Generator().manual_seed(5))
    options = {"grouping": grouping, "rescale": rescale}
    repeated = [x.repeat_interleave(counts, 0) for x in (features, targets)]
    for function in (diversity, tightness):
        keywords = options if function is diversity else {"grouping": grouping}
        for kernel in ("reference", "blocked"):
            with kernels.use(kernel):
                torch.testing.assert_close(
                    function(features, targets, sample_weight=counts, **keywords),
                    function(*repeated, **keywords),
                )


def test_copies_of_one_row_are_a_pair_at_distance_zero():
    spread = torch.eye(2)[None], torch.tensor([[0.0, 1.0]])
    both = torch.cat([spread[0], torch.eye(2)[None, [0, 0]]]), torch.tensor([[0.0, 1.0], [0.0, 0.0]])
    weight = torch.tensor([[1.0, 1.0], [2.0, 0.0]])  # the second image: one row, twice
    expected = diversity(*both, per="image", grouping="none")
    assert expected == diversity(*spread) / 2
    assert diversity(*both, per="image", grouping="none", sample_weight=weight) == expected


def test_sample_weights_that_are_shares_are_refused_where_they_must_count():
    features, targets = batch(n=4)
    share = torch.full((4,), 0.25)
    with pytest.raises(ValueError, match=r"count repetitions.*got a sum of 1\.0"):
        diversity(features, targets, sample_weight=share, grouping="none")
    torch.testing.assert_close(  # grouped, only their proportions matter
        ordinal_entropy(features, targets, sample_weight=share), ordinal_entropy(features, targets)
    )


# ------------------------------------------------------------------------------------------------------------ edges

EDGES = {
    "no row": (torch.zeros(0, 3), torch.zeros(0)),
    "one row": (torch.ones(1, 3), torch.ones(1)),
    "two equal targets": (torch.eye(3)[:2], torch.ones(2)),
    "one distinct target": (torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), torch.ones(5)),
    "coincident features": (torch.ones(5, 3), torch.arange(5.0)),
    "coincident pairs": (torch.eye(3)[[0, 0, 1, 1, 2]], torch.arange(5.0)),
    "zero vector": (torch.tensor([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]]), torch.arange(3.0)),
    "zero vectors only": (torch.zeros(4, 3), torch.tensor([0.0, 1, 1, 2])),
    "opposite features of one center": (torch.tensor([[1.0, 0], [-1, 0], [0, 1]]), torch.tensor([0.0, 0, 1])),
    "tiny features": (torch.eye(3) * 1e-30, torch.arange(3.0)),
    "nearly coincident": (torch.ones(4, 3) + 1e-7 * torch.eye(4)[:, :3], torch.arange(4.0)),
    "huge targets": (torch.eye(3), torch.tensor([0.0, 1e37, 3e37])),
}
DIALECTS = [
    {},
    {"rescale": "none"},
    {"rescale": "authors", "centers": "average-first", "tightness_over": "shared"},
    {"distance": "cosine"},
    {"grouping": "none"},
    {"grouping": 0.5, "weighting": "sqrt"},
    {"normalize": False, "weighting": "none"},
    {"num_pairs": 4},
    {"max_samples": 2},
]


@pytest.mark.parametrize("kernel", ["reference", "blocked"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("edge", EDGES)
def test_edges_have_a_finite_value_and_gradient(edge, dtype, kernel):
    features, targets = EDGES[edge]
    for options in DIALECTS:
        if edge == "huge targets" and options.get("rescale") == "none" and dtype == torch.float16:
            continue  # the true gradient is beyond fp16
        x = features.to(dtype, copy=True).requires_grad_()
        with kernels.use(kernel):
            loss = ordinal_entropy(x, targets, **options)
        loss.backward()
        assert loss.isfinite(), options
        assert x.grad is not None, options
        assert x.grad.isfinite().all(), options


@pytest.mark.parametrize("edge", ["no row", "one row", "zero vectors only", "two equal targets"])
def test_nothing_to_push_apart_is_a_zero_of_the_graph(edge):
    features, targets = EDGES[edge]
    loss = diversity(features.clone().requires_grad_(), targets)
    assert loss == 0
    assert loss.requires_grad


def test_a_zero_vector_gets_no_gradient():
    x = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.6, 0.8]], requires_grad=True)
    ordinal_entropy(x, torch.tensor([0.0, 1.0, 1.0])).backward()
    assert (x.grad[0] == 0).all()
    assert (x.grad[1:] != 0).any()


def test_coincident_features_get_no_gradient_from_each_other():
    x = torch.eye(2)[[0, 0]].requires_grad_()
    diversity(x, torch.tensor([0.0, 1.0])).backward()
    assert (x.grad == 0).all()


def test_features_without_a_number_are_a_zero_of_the_graph():
    features = torch.zeros(5, 0, requires_grad=True)
    loss = ordinal_entropy(features, torch.arange(5.0) // 2)
    loss.backward()
    assert loss == 0 and features.grad.shape == (5, 0)


def test_all_false_mask_is_a_zero_of_the_graph():
    x = torch.randn(4, 3, requires_grad=True, generator=torch.Generator().manual_seed(0))
    loss = ordinal_entropy(x, torch.full((4,), math.nan), torch.zeros(4, dtype=torch.bool))
    loss.backward()
    assert loss == 0
    assert (x.grad == 0).all()


def test_both_strengths_zero_is_a_zero_of_the_graph():
    x = torch.randn(4, 3, requires_grad=True, generator=torch.Generator().manual_seed(0))
    loss = ordinal_entropy(x, torch.arange(4.0), diversity_weight=0, tightness_weight=0)
    loss.backward()
    assert loss == 0
    assert (x.grad == 0).all()


def test_outside_the_mask_nothing_matters():
    features, targets = batch()
    mask = torch.rand(len(features), generator=torch.Generator().manual_seed(7)) > 0.4
    expected = features[mask].clone().requires_grad_()
    ordinal_entropy(expected, targets[mask]).backward()
    dirty = torch.where(mask[:, None], features, math.nan).requires_grad_()
    wrong = torch.where(mask[:, None], targets, math.inf)
    for grouping in ("unique", "none", 2.5):
        for kernel in ("reference", "blocked"):
            with kernels.use(kernel):
                torch.testing.assert_close(
                    ordinal_entropy(dirty, wrong, mask, grouping=grouping),
                    ordinal_entropy(features[mask], targets[mask], grouping=grouping),
                )
    ordinal_entropy(dirty, wrong, mask).backward()
    torch.testing.assert_close(dirty.grad[mask], expected.grad)
    assert (dirty.grad[~mask] == 0).all()


# --------------------------------------------------------------------------------------------------------- gradient


@every_value(kernel=["reference", "blocked"], t=[1, 2])
def test_gradient_of_every_term(kernel, t):
    features, targets = batch(n=8, d=3, t=t, levels=4)
    features.requires_grad_()
    with kernels.use(kernel):
        for options in [
            *({"weighting": w} for w in OPTIONS["weighting"]),
            *({"rescale": r, "distance": d} for r in OPTIONS["rescale"] for d in OPTIONS["distance"]),
            *({"grouping": g, "normalize": n} for g in OPTIONS["grouping"] for n in (True, False)),
            *({"centers": "average-first", "distance": d} for d in OPTIONS["distance"]),
            {"sample_weight": torch.arange(8.0) / 3},
            {"sample_weight": torch.arange(8.0) / 3, "grouping": "none"},
        ]:
            assert gradcheck(lambda x: diversity(x, targets, **options), features), options
    for options in [
        *({"tightness_power": p, "distance": d} for p in (1, 2) for d in OPTIONS["distance"]),
        *({"tightness_over": o, "centers": c} for o in ("all", "shared") for c in OPTIONS["centers"]),
        {"normalize": False},
        {"sample_weight": torch.arange(8.0) / 3},
    ]:
        assert gradcheck(lambda x: tightness(x, targets, **options), features), options


@pytest.mark.parametrize("options", [{"num_pairs": 5}, {"max_samples": 5}, {"num_pairs": 5, "distance": "cosine"}])
def test_gradient_of_random_terms_under_a_fixed_generator(options):
    features, targets = batch(n=8, d=3)

    def loss(x):
        return diversity(x, targets, generator=torch.Generator().manual_seed(3), **options)

    assert gradcheck(loss, features.requires_grad_())


@pytest.mark.parametrize("kernel", ["reference", "blocked"])
@pytest.mark.parametrize("distance", ["l2", "cosine"])
def test_second_derivative(kernel, distance):
    features, targets = batch(n=7, d=3)
    with kernels.use(kernel):
        assert gradgradcheck(lambda x: ordinal_entropy(x, targets, distance=distance), features.requires_grad_())


def test_no_gradient_flows_to_the_targets():
    features, targets = batch()
    loss = ordinal_entropy(features.requires_grad_(), targets.requires_grad_())
    loss.backward()
    assert targets.grad is None


def test_tightness_of_many_coincident_members_has_no_rounding_gradient():
    x = torch.full((7, 5), 0.1).requires_grad_()  # the mean of seven equal numbers is an ulp off
    tightness(x, torch.zeros(7)).backward()
    assert (x.grad == 0).all()


# ------------------------------------------------------------------------------------------------------- precisions

# relative error of the gradient: that of rounding the features to the dtype, a few times over
PRECISIONS = {torch.float32: (1e-6, 1e-5), torch.bfloat16: (2e-2, 5e-2), torch.float16: (2e-3, 5e-3)}


@pytest.mark.parametrize("kernel", ["reference", "blocked"])
@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("distance", ["l2", "cosine"])
def test_precisions(dtype, distance, kernel):
    features, targets = batch(n=64, d=32, levels=20)
    exact = features.clone().requires_grad_()
    expected = ordinal_entropy(exact, targets, distance=distance)
    expected.backward()
    x = features.to(dtype, copy=True).requires_grad_()
    with kernels.use(kernel):
        loss = ordinal_entropy(x, targets, distance=distance)
    scale = 1024.0  # a loss scale keeps fp16 gradients in range
    (loss * scale).backward()
    assert loss.dtype == torch.float32
    assert x.grad.dtype == dtype
    of_value, of_gradient = PRECISIONS[dtype]
    assert abs(loss.item() - expected.item()) <= of_value * abs(expected.item())
    error = (x.grad.double() / scale - exact.grad).norm() / exact.grad.norm()
    assert error <= of_gradient


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_changes_nothing(dtype):
    features, targets = batch(n=64, d=32, dtype=torch.float32)
    expected = ordinal_entropy(features, targets)
    with torch.autocast("cpu", dtype=dtype):
        torch.testing.assert_close(ordinal_entropy(features, targets), expected, rtol=0, atol=0)


# ------------------------------------------------------------------------------------------------------- transforms

TRACED = [
    {},
    {"distance": "cosine", "rescale": "authors"},
    {"grouping": "none", "weighting": "squared"},
    {"grouping": 2.5, "centers": "average-first", "tightness_over": "shared"},
    {"weighting": affine, "rescale": "none"},
]


@every_value(kernel=["reference", "blocked"], t=[1, 2], options=TRACED)
def test_compile_with_a_full_graph(kernel, t, options):
    features, targets = batch(t=t)
    mask = torch.arange(len(features)) % 5 != 0

    def loss(x, y, mask):
        return ordinal_entropy(x, y, mask, **options)

    eager, compiled = features.clone().requires_grad_(), features.clone().requires_grad_()
    with kernels.use(kernel):
        torch.compiler.reset()
        expected = loss(eager, targets, mask)
        answer = torch.compile(loss, fullgraph=True, backend="aot_eager")(compiled, targets, mask)
    expected.backward()
    answer.backward()
    torch.testing.assert_close(answer, expected)
    torch.testing.assert_close(compiled.grad, eager.grad)


def test_compile_with_draws_and_maps():
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    y = torch.randint(5, (2, 16, 16), generator=torch.Generator().manual_seed(1)).float()

    def loss(x, y):
        return ordinal_entropy(x, y, y > 0, stride=2, per="image", max_samples=9, num_pairs=7)

    torch.compiler.reset()
    assert torch.compile(loss, fullgraph=True, backend="aot_eager")(x, y).isfinite()


@pytest.mark.parametrize("backend", ["eager", pytest.param("aot_eager", marks=pytest.mark.slow)])
@pytest.mark.parametrize("options", [{"max_samples": 9}, {"num_pairs": 7}], ids="-".join)
def test_compile_with_draws_of_batches_of_any_size(options, backend):
    x, y = batch(n=20)
    torch.compiler.reset()
    compiled = torch.compile(partial(ordinal_entropy, **options), fullgraph=True, backend=backend, dynamic=True)
    for n in (20, 13):
        assert compiled(x[:n], y[:n]).isfinite()


@pytest.mark.parametrize("kernel", ["reference", "blocked"])
@pytest.mark.parametrize("t", [1, 2])
@pytest.mark.parametrize("options", TRACED, ids=lambda options: "-".join(options) or "default")
def test_vmap_of_value_and_gradient(kernel, t, options):
    stacks = [batch(t=t, seed=seed) for seed in range(3)]
    x, y = (torch.stack(parts) for parts in zip(*stacks, strict=True))
    mask = torch.arange(x.shape[1]) % 5 != 0

    def loss(x, y):
        return ordinal_entropy(x, y, mask, **options)

    with kernels.use(kernel):
        alone = x.clone().requires_grad_()
        values = torch.stack([loss(*pair) for pair in zip(alone, y, strict=True)])
        values.sum().backward()
        torch.testing.assert_close(vmap(loss)(x, y), values.detach())
        torch.testing.assert_close(vmap(grad(loss))(x, y), alone.grad)
        torch.testing.assert_close(grad(lambda x: vmap(loss)(x, y).sum())(x), alone.grad)


def test_values_are_not_looked_at_inside_a_transform():
    x, y = batch()
    y[0] = math.nan
    vmap(lambda x: ordinal_entropy(x, y))(x[None])  # on a CPU it would raise
    with pytest.raises(ValueError, match="got 1 rows"):
        ordinal_entropy(x, y)


def test_vmap_of_draws_and_strengths():
    features, targets = batch()
    strengths = torch.tensor([0.0, 1.0, 2.0])

    def loss(strength):
        return ordinal_entropy(
            features, targets, diversity_weight=strength, tightness_weight=0.0, max_samples=6, num_pairs=9
        )

    values = vmap(loss, randomness="same")(strengths)
    assert values[0] == 0
    torch.testing.assert_close(values[2], 2 * values[1])


# --------------------------------------------------------------------------------------- scales, and what is not finite


@pytest.mark.parametrize("kernel", ["reference", "blocked"])
@pytest.mark.parametrize("options", [{}, {"grouping": "none"}, {"centers": "average-first"}], ids=str)
def test_a_power_of_two_changes_no_bit_of_the_value(kernel, options):
    features, targets = batch(n=80, dtype=torch.float32)
    with kernels.use(kernel):
        expected = ordinal_entropy(features, targets, **options)
        for power in (-100, -40, 40, 100):
            assert ordinal_entropy(features * 2.0**power, targets, **options) == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [1e-30, 1e-16, 1e14, 1e20, 1e30])
@pytest.mark.parametrize("grouping", ["unique", "none"])
def test_the_gradient_of_features_of_any_scale(size, dtype, grouping):
    features, targets = batch(dtype=torch.float32)
    features = (features * size).to(dtype)
    gradients = []
    for rows in (features, features.double()):
        x = rows.detach().requires_grad_()
        gradients.append(torch.autograd.grad(ordinal_entropy(x, targets, grouping=grouping), x)[0].double() * size)
    tolerance = 1e-5 if dtype == torch.float32 else 4e-3
    assert (gradients[0] - gradients[1]).norm() < tolerance * gradients[1].norm()


@pytest.mark.parametrize("kernel", ["reference", "blocked"])
@pytest.mark.parametrize("t", [1, 3])
@pytest.mark.parametrize("size", [3e-30, 1e20, 1e38])
@pytest.mark.parametrize("rescale", ["max", "authors", "none"])
def test_targets_of_any_scale(kernel, t, size, rescale):
    features, targets = batch(t=t, dtype=torch.float32)
    targets = targets / targets.abs().max()
    with kernels.use(kernel):
        expected = diversity(features, targets, rescale=rescale)
        found = diversity(features, targets * size, rescale=rescale)
    times = size if rescale == "none" else 1.0
    assert found.item() == pytest.approx(expected.item() * times, rel=1e-5)


@pytest.mark.parametrize("kernel", ["reference", "blocked"])
@pytest.mark.parametrize("grouping", ["unique", "none"])
def test_sample_weights_of_any_size(kernel, grouping):
    features, targets = batch(dtype=torch.float32)
    weight = torch.arange(1.0, 15.0)
    with kernels.use(kernel):
        found, *larger = (
            ordinal_entropy(features, targets, grouping=grouping, sample_weight=weight * size)
            for size in (1e10, 1e20, 2e37)  # whose sum is infinite in float32
        )
    assert [each.item() for each in larger] == pytest.approx([found.item()] * 2, rel=1e-5)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("n", [14, 100])
@pytest.mark.parametrize("kernel", ["reference", "blocked"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"grouping": "none"},
        {"grouping": 2.5},
        {"distance": "cosine"},
        {"normalize": False},
        {"centers": "average-first", "tightness_over": "shared"},
        {"diversity_weight": 0.0},
        {"diversity_weight": 0.0, "grouping": "none"},
        {"tightness_weight": 0.0, "max_samples": 5},
        {"tightness_weight": 0.0, "num_pairs": 5},
    ],
    ids=str,
)
def test_a_feature_that_is_not_finite_is_not_hidden(value, n, kernel, options):
    features, targets = batch(n=n)
    features[3, 1] = value
    with kernels.use(kernel):
        assert ordinal_entropy(features, targets, **options).isnan()
        with pytest.raises(ValueError, match="expected finite features inside the mask, got 1 rows"):
            ordinal_entropy(features, targets, check=True, **options)
        mask = torch.ones(n, dtype=torch.bool)
        mask[3] = False
        assert ordinal_entropy(features, targets, mask, check=True, **options).isfinite()


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("kernel", ["reference", "blocked"])
@pytest.mark.parametrize("options", [{}, {"tightness_weight": 0.0}], ids=str)
@pytest.mark.parametrize("grouping", ["unique", "none", 2.5])
def test_a_feature_that_is_not_finite_is_not_hidden_where_there_is_no_pair(value, kernel, options, grouping):
    features = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))
    features[1, 2, 3] = value
    targets = torch.arange(12.0).reshape(3, 4)
    targets[1] = 1.0  # of equal targets: one center
    mask = torch.tensor([True, False, True])[:, None] | (torch.arange(4) == 2)  # of one row: none but itself
    with kernels.use(kernel):
        assert ordinal_entropy(features[1, 2:3], targets[1, 2:3], grouping=grouping, **options).isnan()
        assert ordinal_entropy(features[1], targets[1], grouping=grouping, **options).isnan()
        assert ordinal_entropy(features, targets, grouping=grouping, per="image", **options).isnan()
        assert ordinal_entropy(features, targets, mask, grouping=grouping, per="image", **options).isnan()
        mask[1] = False
        assert ordinal_entropy(features, targets, mask, grouping=grouping, per="image", **options).isfinite()


@pytest.mark.parametrize("kernel", ["reference", "blocked"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_collinear_features_get_no_gradient(kernel, dtype):
    generator = torch.Generator().manual_seed(0)
    row = torch.randn(1, 7, generator=generator, dtype=dtype)
    times = torch.randint(1, 2**20, (90, 1), generator=generator).to(dtype)
    features = row * (times if dtype == torch.float64 else 2.0 ** times.log2().round())  # in float32 exactly
    features.requires_grad_()
    with kernels.use(kernel):
        loss = diversity(features, torch.arange(90.0), grouping="none")
    (gradient,) = torch.autograd.grad(loss, features)
    assert loss < 1e-7
    assert (gradient.norm(dim=1) * features.detach().norm(dim=1)).max() < 1e-9  # at most 2 / 90 were possible


# ------------------------------------------------------------------------------------------------------- Hypothesis


@settings(max_examples=60)
@given(data=st.data())
def test_any_shape_and_value(data):
    n, d, t = (data.draw(st.integers(low, high)) for low, high in ((0, 9), (1, 4), (1, 3)))
    number = st.floats(-1e3, 1e3, allow_nan=False, width=32)
    features = torch.tensor(
        data.draw(st.lists(st.lists(number, min_size=d, max_size=d), min_size=n, max_size=n)),
        dtype=torch.float64,
    ).reshape(n, d)
    level = st.sampled_from([-3.0, -0.5, 0.0, 0.25, 7.0])
    targets = torch.tensor(
        data.draw(st.lists(st.lists(level, min_size=t, max_size=t), min_size=n, max_size=n)),
        dtype=torch.float64,
    ).reshape(n, t)
    options = {name: data.draw(st.sampled_from(values[:4])) for name, values in OPTIONS.items()}
    over, power = data.draw(st.sampled_from(["all", "shared"])), data.draw(st.sampled_from([1, 2]))
    kernel = data.draw(st.sampled_from(["reference", "blocked"]))
    if options["distance"] == "cosine":  # the cosine jumps where a center vanishes: rounding decides there
        width = options["grouping"]
        keys = {"unique": targets, "none": torch.arange(n)[:, None]}.get(width)
        keys = torch.floor(targets / width) if keys is None else keys
        same = (keys[:, None] == keys[None]).all(-1).double()
        for rows in (features, torch.nn.functional.normalize(features, dim=1)):
            assume(bool(((same @ rows).norm(dim=1) > 1e-3).all() and (rows.norm(dim=1) > 0).all()))

    features.requires_grad_()
    with kernels.use(kernel):
        loss = ordinal_entropy(features, targets, **options, tightness_over=over, tightness_power=power)
    loss.backward()
    assert features.grad.isfinite().all()

    expected = oracle.mean_of_groups(
        [(features.detach(), targets)], **options, tightness_over=over, tightness_power=power
    )
    # distances between nearly coincident points are rounding: 1e-7 of the spread
    scale = max(1.0, float(features.detach().abs().max()) ** 2) if n else 1.0
    scale *= 100 if options["rescale"] == "none" else 1
    assert loss.item() == pytest.approx(expected[1] - expected[0], rel=1e-6, abs=1e-6 * scale)


@pytest.mark.parametrize("kernel", ["reference", "blocked"])
@pytest.mark.parametrize(
    "options",
    [{}, {"grouping": "none"}, {"distance": "cosine"}, {"centers": "average-first"}, {"normalize": False}],
    ids=str,
)
def test_second_derivatives_at_zero_rows_are_finite(kernel, options):
    features = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    features[[2, 4]] = 0
    x = features.requires_grad_()
    with kernels.use(kernel):
        loss = ordinal_entropy(x, torch.tensor([0.0, 1, 1, 2, 3, 3]), **options)
        first = torch.autograd.grad(loss, x, create_graph=True)[0]
        second = torch.autograd.grad(first.square().sum(), x)[0]
    assert first.isfinite().all()
    assert second.isfinite().all()


# -------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("keywords", "error", "message"),
    [
        (
            {"features": torch.ones(4, 2, dtype=torch.int64)},
            TypeError,
            "floating-point features, got torch.int64",
        ),
        ({"features": [[1.0]]}, TypeError, "to be tensors, got list and Tensor"),
        ({"features": torch.ones(4)}, ValueError, r"expected features .*, got \(4,\)"),
        ({"targets": torch.ones(3)}, ValueError, r"expected targets with n=4 rows, got \(3,\)"),
        ({"targets": torch.ones(4, 1, 1)}, ValueError, r"expected targets with n=4 rows, got \(4, 1, 1\)"),
        ({"targets": torch.ones(4, dtype=torch.complex64)}, TypeError, "real targets, got torch.complex64"),
        ({"targets": torch.tensor([0.0, math.nan, 1, math.inf])}, ValueError, "finite targets .* got 2 rows"),
        ({"mask": torch.ones(4)}, TypeError, "boolean mask, got torch.float32"),
        ({"mask": [True] * 4}, TypeError, "boolean mask, got list"),
        ({"mask": torch.ones(3, dtype=torch.bool)}, ValueError, r"expected mask with n=4 rows, got \(3,\)"),
        ({"mask": torch.ones(4, 2, dtype=torch.bool)}, ValueError, "mask with the shape of the targets"),
        ({"sample_weight": torch.ones(4, 2)}, ValueError, "sample_weight with the shape of the targets"),
        ({"sample_weight": [1, 1]}, TypeError, "sample_weight to be a tensor"),
        ({"sample_weight": torch.tensor([1.0, -2, 1, 1])}, ValueError, "at least 0, got -2.0"),
        ({"weighting": "l3"}, ValueError, "expected weighting to be one of .* got 'l3'"),
        ({"weighting": lambda a, b: -(a - b.mT).abs()}, ValueError, "weights of at least 0, got -"),
        ({"weighting": lambda a, b: a - a}, ValueError, r"return weights \(4, 4\), got \(4, 1\)"),
        ({"weighting": lambda a, b: 1.0}, ValueError, r"return weights \(4, 4\), got float"),
        ({"distance": "l1"}, ValueError, "expected distance to be one of .* got 'l1'"),
        ({"rescale": "mean"}, ValueError, "expected rescale to be one of .* got 'mean'"),
        ({"centers": "first"}, ValueError, "expected centers to be one of .* got 'first'"),
        ({"grouping": "bins"}, ValueError, "'unique', 'none' or a positive bin width, got 'bins'"),
        ({"grouping": 0.0}, ValueError, "positive bin width, got 0.0"),
        ({"grouping": math.nan}, ValueError, "positive bin width, got nan"),
        ({"grouping": True}, ValueError, "positive bin width, got True"),
        ({"tightness_over": "some"}, ValueError, "expected tightness_over to be one of .* got 'some'"),
        ({"tightness_power": 3}, ValueError, "expected tightness_power to be one of .* got 3"),
        ({"per": "pixel"}, ValueError, "expected per to be one of .* got 'pixel'"),
        ({"max_samples": 0}, ValueError, "max_samples to be a whole number of at least 1, got 0"),
        ({"num_pairs": 2.5}, ValueError, "num_pairs to be a whole number of at least 1, got 2.5"),
        ({"stride": 0}, ValueError, "stride to be a whole number of at least 1, got 0"),
    ],
)
def test_bad_input_is_one_clear_sentence(keywords, error, message):
    arguments = {"features": torch.rand(4, 2), "targets": torch.arange(4.0), **keywords}
    with pytest.raises(error, match=message) as raised:
        ordinal_entropy(arguments.pop("features"), arguments.pop("targets"), **arguments)
    assert "\n" not in str(raised.value)


def test_an_unknown_option_is_a_type_error():
    with pytest.raises(TypeError, match="weights"):
        ordinal_entropy(torch.rand(4, 2), torch.arange(4.0), weights="l2")
