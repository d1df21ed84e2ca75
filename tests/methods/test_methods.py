"""The registry, and what a training loop may ask of every method."""

import copy
import inspect
import pickle

import pytest
import torch

from ordinal_entropy import OrdinalEntropy, functional, methods

FEATURES = torch.randn(12, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
TARGETS = torch.randint(6, (12,), generator=torch.Generator().manual_seed(1)).double() * 3.0
LOGITS = torch.randn(12, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
NEEDED = {"classification": {"bins": 7, "low": 0.0, "high": 16.0}}
EVERY = [
    "baseline", "ld-unweighted", "ld", "ld-cosine", "ld-no-norm", "ld-squared", "ld-sqrt", "lt", "oe", "classification",
]  # fmt: skip


def create(name, **options):
    """At a fixed strength; tests/methods/test_strengths.py is about others."""
    fixed = {"strength": 1.0} if "strength" in methods.options(name) else {}
    return methods.create(name, **{**fixed, **NEEDED.get(name, {}), **options})


def test_names_are_in_the_order_of_the_tables():
    assert methods.names()[:10] == EVERY


@pytest.mark.parametrize("name", EVERY)
def test_a_method_is_described_in_one_line_of_its_own(name):
    line = methods.describe(name)
    assert line and "\n" not in line
    assert [methods.describe(other) for other in methods.names()].count(line) == 1


@pytest.mark.parametrize("name", EVERY)
def test_every_method_can_be_asked_the_same(name):
    method = create(name)
    features = FEATURES.clone().requires_grad_()
    logits = LOGITS.clone().requires_grad_()
    loss = method(features, TARGETS, mask=None, predictions=logits)
    assert loss.shape == () and loss.dtype == torch.float64
    loss.backward()  # whatever the method looks at is part of the graph
    looked_at = logits if name == "classification" else features
    assert looked_at.grad is not None and looked_at.grad.isfinite().all()
    assert method.replaces_task_loss is (name == "classification")
    assert method.outputs(1) == (7 if name == "classification" else 1)
    assert method.decode(torch.zeros(3, method.outputs(1))).shape == (3, 1)


@pytest.mark.parametrize("name", EVERY)
def test_a_method_has_no_state_and_can_be_copied_and_pickled(name):
    method = create(name)
    assert method.state_dict() == {}
    for twin in (copy.deepcopy(method), pickle.loads(pickle.dumps(method))):
        assert twin(FEATURES, TARGETS, None, LOGITS) == method(FEATURES, TARGETS, None, LOGITS)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("rows", [0, 1])
def test_too_few_rows_are_a_zero_or_finite_and_part_of_the_graph(name, rows):
    features, logits = FEATURES[:rows].clone().requires_grad_(), LOGITS[:rows].clone().requires_grad_()
    loss = create(name)(features, TARGETS[:rows], None, logits)
    assert loss.requires_grad and loss.isfinite()
    assert loss == 0 or (name == "classification" and rows == 1)


@pytest.mark.parametrize("name", EVERY)
def test_what_lies_outside_the_mask_does_not_matter(name):
    method = create(name)
    mask = torch.arange(12) % 3 != 0
    features, targets, logits = FEATURES.clone(), TARGETS.clone(), LOGITS.clone()
    features[~mask], targets[~mask], logits[~mask] = 1e3, float("nan"), float("nan")
    expected = method(FEATURES[mask], TARGETS[mask], None, LOGITS[mask])
    assert method(features, targets, mask, logits).item() == pytest.approx(expected.item(), rel=1e-12)


@pytest.mark.parametrize("name", EVERY)
def test_stacked_groups_give_the_mean_over_the_groups(name):
    per = {"per": "image"} if "per" in methods.options(name) else {}
    stacked = create(name, **per)(FEATURES.view(3, 4, 5), TARGETS.view(3, 4), None, LOGITS.view(3, 4, 7))
    alone = [
        create(name)(FEATURES[i : i + 4], TARGETS[i : i + 4], None, LOGITS[i : i + 4]).item() for i in range(0, 12, 4)
    ]
    assert stacked.item() == pytest.approx(sum(alone) / 3, rel=1e-12)


@pytest.mark.parametrize("name", EVERY)
def test_half_precision_gives_float32(name):
    loss = create(name)(FEATURES.bfloat16(), TARGETS, None, LOGITS.bfloat16())
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(create(name)(FEATURES, TARGETS, None, LOGITS).item(), rel=2e-2)


def test_options_are_those_the_method_takes():
    every = set(inspect.signature(OrdinalEntropy).parameters)
    assert methods.options("baseline") == ()
    assert methods.options("classification") == ("bins", "low", "high", "decode")
    assert set(methods.options("oe")) == every | {"strength", "anneal"}
    assert every - set(methods.options("ld-cosine")) == {"tightness_weight", "distance"}
    for name in EVERY:
        if name != "classification":
            defaults = {n: p.default for n, p in inspect.signature(OrdinalEntropy).parameters.items()}
            taken = {n: defaults[n] for n in methods.options(name) if n in defaults}
            assert create(name, **taken)(FEATURES, TARGETS) == create(name)(FEATURES, TARGETS)


@pytest.mark.parametrize(
    ("name", "near"),
    [("l-d", "'ld'"), ("OE", "'oe'"), ("ld-cosin", "'ld-cosine'"), ("classifcation", "'classification'")],
)
def test_an_unknown_name_is_met_with_the_near_ones_and_all(name, near):
    for ask in (methods.create, methods.describe, methods.options):
        with pytest.raises(ValueError, match=f"{near}.*got '{name}'; there are {', '.join(methods.names())}"):
            ask(name)


def test_a_name_near_nothing_is_met_with_all():
    with pytest.raises(ValueError, match="expected the name of a method, got 'dropout'; there are baseline"):
        methods.create("dropout")


def test_an_option_that_a_method_does_not_take_is_met_with_those_it_takes():
    with pytest.raises(ValueError, match="options of 'baseline': none; got strength"):
        methods.create("baseline", strength=1.0)
    with pytest.raises(
        ValueError,
        match=r"options of 'ld': one of strength, balance, anneal, diversity_weight, memory.*got temperature",
    ):
        methods.create("ld", temperature=1.0)
    with pytest.raises(ValueError, match="got weighting"):
        methods.create("ld-sqrt", weighting="l2")
    with pytest.raises(ValueError, match="expected both of low and high, or neither"):
        methods.create("classification", bins=3, low=0.0)
    with pytest.raises(ValueError, match="expected weighting to be one of"):
        methods.create("ld", weighting="l3")


def test_baseline_is_zero_whatever_the_features_are():
    features = torch.full((3, 2), float("nan"), requires_grad=True)
    loss = methods.create("baseline")(features, torch.zeros(3))
    loss.backward()
    assert loss == 0 and (features.grad == 0).all()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ld-unweighted", {"tightness_weight": 0, "weighting": "none"}),
        ("ld", {"tightness_weight": 0}),
        ("ld-cosine", {"tightness_weight": 0, "distance": "cosine"}),
        ("ld-no-norm", {"tightness_weight": 0, "normalize": False}),
        ("ld-squared", {"tightness_weight": 0, "weighting": "squared"}),
        ("ld-sqrt", {"tightness_weight": 0, "weighting": "sqrt"}),
        ("lt", {"diversity_weight": 0}),
        ("oe", {}),
    ],
)
def test_a_name_is_the_function_with_some_options_fixed(name, options):
    dialect = {"rescale": "authors", "centers": "average-first", "tightness_over": "shared"}
    expected = functional.ordinal_entropy(FEATURES, TARGETS, **options, **dialect)
    assert create(name, **dialect)(FEATURES, TARGETS) == expected
    assert expected != 0
    scaled = methods.create(name, strength=1e-3, **dialect)(FEATURES, TARGETS)
    assert scaled.item() == pytest.approx(1e-3 * expected.item(), rel=1e-12)


def test_weights_are_relative_to_the_strength():
    terms = OrdinalEntropy().terms(FEATURES, TARGETS)
    loss = methods.create("oe", strength=10.0, tightness_weight=0.1)(FEATURES, TARGETS)
    assert loss.item() == pytest.approx((terms.tightness - 10 * terms.diversity).item())


def test_oe_equals_ld_where_every_target_is_distinct():
    targets = torch.arange(12.0)
    assert create("oe")(FEATURES, targets) == create("ld")(FEATURES, targets)
    assert create("lt")(FEATURES, targets) == 0
