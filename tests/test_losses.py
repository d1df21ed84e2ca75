"""The module: the function with its options remembered, and the two dialects."""

import copy
import inspect
import math
import pickle

import pytest
import torch

from ordinal_entropy import OrdinalEntropy, Terms, functional
from ordinal_entropy.options import OfAll, Options

import oracle

FEATURES = torch.randn(12, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
TARGETS = torch.randint(6, (12,), generator=torch.Generator().manual_seed(1)).double() * 3.0


def test_module_equals_function():
    mask, weight = torch.arange(12) % 4 != 0, torch.arange(12.0)
    options = {"weighting": "sqrt", "distance": "cosine", "rescale": "authors", "grouping": 4.0}
    reg = OrdinalEntropy(2.0, 0.5, **options)
    expected = functional.ordinal_entropy(
        FEATURES, TARGETS, mask, diversity_weight=2.0, tightness_weight=0.5, sample_weight=weight, **options
    )
    assert reg(FEATURES, TARGETS, mask=mask, sample_weight=weight, task_loss=torch.ones(())) == expected


def test_module_and_function_have_the_same_options_and_defaults():
    function = inspect.signature(functional.ordinal_entropy).parameters
    module = inspect.signature(OrdinalEntropy.__init__).parameters
    per_call = {"features", "targets", "mask", "sample_weight"}
    assert {name: p.default for name, p in function.items() if name not in per_call} == {
        name: p.default for name, p in module.items() if name not in ("self", "balance")
    }
    for name, p in inspect.signature(functional.diversity).parameters.items():
        assert p.default == function[name].default
    for name, p in inspect.signature(functional.tightness).parameters.items():
        assert p.default == function[name].default


def test_terms_are_what_is_summed():
    reg = OrdinalEntropy(2.0, 0.5)
    terms = reg.terms(FEATURES, TARGETS)
    assert isinstance(terms, Terms)
    assert min(terms) > 0
    assert reg(FEATURES, TARGETS).item() == pytest.approx((0.5 * terms.tightness - 2 * terms.diversity).item())


def test_every_option_has_a_type_and_is_named_in_the_documentation():
    assert set(OfAll.__annotations__) == set(Options._fields)
    for name in Options._fields:
        assert f"\n        {name}: " in Options.__doc__
        assert f"``{name}``" in OrdinalEntropy.__doc__


@pytest.mark.parametrize(
    ("term", "option"),
    [(functional.diversity, "tightness_over"), (functional.tightness, "weighting"), (functional.diversity, "rescales")],
)
def test_a_term_takes_its_own_options_alone(term, option):
    with pytest.raises(TypeError, match=rf"{term.__name__}\(\) got an unexpected keyword argument '{option}'"):
        term(FEATURES, TARGETS, **{option: "l2"})


def test_options_are_checked_when_the_module_is_made():
    with pytest.raises(ValueError, match="weighting"):
        OrdinalEntropy(weighting="l3")
    with pytest.raises(TypeError, match="weightings"):
        OrdinalEntropy.from_paper(weightings="l2")


def test_it_has_no_state_and_can_be_copied_and_pickled():
    reg = OrdinalEntropy(2.0, grouping=1.0)
    assert reg.state_dict() == {}
    assert list(reg.parameters()) == []
    for twin in (copy.deepcopy(reg), pickle.loads(pickle.dumps(reg))):
        assert twin(FEATURES, TARGETS) == reg(FEATURES, TARGETS)


def test_repr_shows_what_was_changed():
    assert repr(OrdinalEntropy(2.0, per="image")) == (
        "OrdinalEntropy(diversity_weight=2.0, tightness_weight=1.0, per='image')"
    )


def test_from_paper_is_the_printed_formula():
    z = torch.nn.functional.normalize(FEATURES, dim=1)
    values = TARGETS.unique()
    centers = torch.stack([z[value == TARGETS].mean(0) for value in values])
    m = len(values)
    diversity = sum(
        abs(values[i] - values[j]) * (centers[i] - centers[j]).norm() for i in range(m) for j in range(m) if i != j
    ) / (m * (m - 1))
    own = torch.stack([centers[values == y][0] for y in TARGETS])
    terms = OrdinalEntropy.from_paper().terms(FEATURES, TARGETS)
    assert terms.diversity.item() == pytest.approx(diversity.item())
    assert terms.tightness.item() == pytest.approx((z - own).norm(dim=1).mean().item())


def authors_way(features, targets):
    """The steps that the authors' age code takes, restated."""
    values, index = torch.unique(targets, return_inverse=True)
    raw = torch.zeros(len(values), features.shape[1], dtype=features.dtype).index_add(0, index, features)
    raw = raw / torch.bincount(index)[:, None]
    centers, z = (torch.nn.functional.normalize(x, dim=1) for x in (raw, features))
    upper = torch.ones(len(values), len(values)).triu(1).bool()
    weights = torch.cdist(values[:, None], values[:, None])[upper]
    weights = (weights - weights.min()) / weights.max()
    diversity = (torch.cdist(centers, centers)[upper] * weights).mean()
    squares = (z - centers[index]).square().sum(1)
    return diversity, squares[squares > 0].sqrt().mean()


def test_from_authors_code_is_what_their_code_computes():
    terms = OrdinalEntropy.from_authors_code().terms(FEATURES, TARGETS)
    diversity, tightness = authors_way(FEATURES, TARGETS)
    assert terms.diversity.item() == pytest.approx(diversity.item())
    assert terms.tightness.item() == pytest.approx(tightness.item())
    squared = OrdinalEntropy.from_authors_code(tightness_power=2).terms(FEATURES, TARGETS)
    expected = oracle.terms(
        FEATURES, TARGETS[:, None], centers="average-first", tightness_over="shared", tightness_power=2
    )[1]
    assert squared.tightness.item() == pytest.approx(expected)


def test_where_the_authors_code_gives_nan_or_raises_there_is_a_zero():
    reg = OrdinalEntropy.from_authors_code()
    distinct = torch.arange(12.0)
    assert math.isnan(authors_way(FEATURES, distinct)[1])
    assert reg.terms(FEATURES, distinct).tightness == 0
    with pytest.raises(RuntimeError):
        authors_way(FEATURES, torch.zeros(12))
    assert reg.terms(FEATURES, torch.zeros(12)).diversity == 0


def test_a_step_of_training_raises_the_diversity():
    features = FEATURES.clone().requires_grad_()
    reg = OrdinalEntropy(tightness_weight=0.0)
    before = reg.terms(features, TARGETS).diversity
    for _ in range(20):
        (gradient,) = torch.autograd.grad(reg(features, TARGETS), features)
        features = (features - 0.5 * gradient).detach().requires_grad_()
    assert reg.terms(features, TARGETS).diversity > before
