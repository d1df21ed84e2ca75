"""Strengths of terms: gradient-balanced unless fixed, constant unless annealed."""

import copy

import pytest
import torch
from torch import nn

from ordinal_entropy import methods
from ordinal_entropy.balance import FRACTION, Balance
from ordinal_entropy.methods import Batch, Composition, Method
from ordinal_entropy.methods.annealing import annealed

INPUTS = torch.randn(24, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
TARGETS = torch.randint(6, (24, 1), generator=torch.Generator().manual_seed(1)).double()
TERMS = [name for name in methods.names() if methods.create(name).has_terms]
STAGED = {"rnc": {"stages": 2}}


class Pull(Method):
    """Pulls the features towards zero."""

    kind = "term"

    def term(self, step):
        return step.features.square().mean()


def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Linear(3, 4).double(), nn.Linear(4, 1).double()


def loss_of(method):
    encoder, head = network()
    method.prepare(TARGETS, INPUTS, 4)
    return methods.training_loss(method, encoder, head, Batch(INPUTS, TARGETS), methods.squared_error)


def warm(method):
    """The same without a warm-up of its balances."""
    for balance in method.balances.values():
        balance.warm_up = 0
    return method


@pytest.mark.parametrize("name", TERMS)
def test_every_term_is_balanced_unless_it_has_a_strength(name):
    method = methods.create(name)
    assert method.balances[name].fraction == FRACTION
    for fixed in (0.5, 0):
        given = methods.create(name, strength=fixed)
        assert not given.balances and given.strengths[name] == fixed
    assert methods.create(name, strength=None).balances[name].fraction == FRACTION
    assert methods.create(name, balance=0.3).balances[name].fraction == 0.3
    assert methods.option_defaults(name)["strength"] is None
    assert methods.option_defaults(name)["balance"] == FRACTION
    with pytest.raises(ValueError, match=f"a strength or a balance of '{name}', got both"):
        methods.create(name, strength=1.0, balance=0.1)


@pytest.mark.parametrize("name", TERMS)
def test_a_balanced_term_has_the_fraction_of_the_task_losss_gradient(name):
    method = warm(methods.create(name))
    encoder, head = network()
    method.prepare(TARGETS, INPUTS, 4)
    if name == "srl":  # its centers are those of the epoch before
        method.observe(encoder(INPUTS).detach(), TARGETS)
        method.end_epoch()
    step = methods.forward_step(method, encoder, head, Batch(INPUTS, TARGETS), methods.squared_error)
    task = method.task_loss(step)
    (by_task,) = torch.autograd.grad(task, step.features, retain_graph=True)
    (by_terms,) = torch.autograd.grad(method.added(step, task), step.features)
    parts = len(method.balances[name].strengths)
    assert 0 < by_terms.norm() <= 1.001 * FRACTION * parts * by_task.norm()
    if parts == 1:
        assert by_terms.norm().item() == pytest.approx(FRACTION * by_task.norm().item(), rel=1e-5)


def test_a_loss_and_parts_made_by_hand_keep_their_weights():
    from ordinal_entropy import OrdinalEntropy

    for made in (methods.compose(OrdinalEntropy()), methods.compose(Pull()), Composition({"pull": Pull()})):
        assert not made.balances and set(made.strengths.values()) == {1.0} and not made.anneals


def test_options_of_a_part_win_over_those_of_all():
    options = {"ld": {"strength": 2}, "lt": {"balance": 0.2}, "koleo": {"strength": None}, "oe": {"balance": None}}
    for strength, of_oe in ((None, {"oe"}), (5.0, set())):
        made = methods.with_default("oe+ld+lt+koleo", options, strength=strength, balance=0.3)
        assert {name: own.fraction for name, own in made.balances.items()} == {
            "lt": 0.2, "koleo": 0.3, **dict.fromkeys(of_oe, 0.3)
        }  # fmt: skip
        assert made.strengths["ld"] == 2.0 and (strength is None or made.strengths["oe"] == strength)


def test_beside_two_stages_a_term_has_a_strength_of_1_and_the_log_says_so():
    for name, terms in (("rnc", ["rnc"]), ("rnc+ld", ["rnc", "ld"])):
        method = methods.create(name, STAGED)
        assert not method.balances and method.strengths == dict.fromkeys(terms, 1.0)
        method.prepare(TARGETS, INPUTS, 4)
        said = "strength 1, which nothing balances: the first of the two stages of 'rnc' has no task loss"
        assert method.notes == tuple(f"{term}: {said}" for term in terms)
    made = methods.with_default("rnc+ld", STAGED, balance=0.3)  # a fraction of all is none of one
    assert made.strengths == {"rnc": 1.0, "ld": 1.0} and not made.balances
    given = methods.with_default("rnc+ld", STAGED, strength=0.5)
    assert given.strengths == {"rnc": 0.5, "ld": 0.5} and given.notes == ()
    assert methods.create("rnc+ld").balances.keys() == {"rnc", "ld"}  # of one stage


def test_the_names_of_before_are_met_with_the_near_ones():
    for name in ("oe", "ld"):
        with pytest.raises(ValueError, match=f"expected a method like '{name}' or .*got '{name}-balanced'; there are"):
            methods.create(f"{name}-balanced")


# --- annealing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_a_factor_falls_evenly_over_the_last_share(share):
    steps = 9
    progress = torch.arange(steps) / (steps - 1)
    found = annealed(progress, share)
    expected = [1.0 if share == 0 else min(1.0, (1 - k / 8) / share) for k in range(steps)]
    assert found.tolist() == pytest.approx(expected)
    assert found[0] == 1 and found[-1] == (share == 0)
    runs = annealed(progress[:, None], torch.tensor([share, 0.5]))
    assert torch.equal(runs[:, 0], found) and torch.equal(runs[:, 1], annealed(progress, 0.5))


@pytest.mark.parametrize("options", [{"strength": 0.5}, {"balance": 0.2}])
def test_a_strength_falls_to_0_at_the_last_step(options):
    for step, factor in ((0, 1.0), (2, 1.0), (3, 0.5), (4, 0.0)):
        plain = warm(methods.create("oe", **options))
        method = warm(methods.create("oe", **options, anneal=0.5))
        alone = loss_of(methods.create("baseline"))
        method.at(step, 5)
        added = loss_of(plain) - alone
        assert (loss_of(method) - alone).item() == pytest.approx(factor * added.item(), abs=1e-9) and added != 0
        if plain.balances:
            of = {name: factor * value.item() for name, value in plain.scalars().items()}
            assert {name: value.item() for name, value in method.scalars().items()} == pytest.approx(of)


def test_each_term_has_its_own_and_copies_keep_what_they_were_told():
    method = methods.create("oe+ld", {"oe": {"strength": 1, "anneal": 1}, "ld": {"strength": 0.0}})
    assert method.anneals == {"oe": 1.0}
    method.at(5, 11)
    expected = loss_of(methods.create("oe", strength=0.5))
    assert loss_of(method).item() == loss_of(copy.deepcopy(method)).item() == pytest.approx(expected.item())
    assert not method.state_dict()  # it follows from the step


def test_a_loop_that_does_not_tell_of_its_steps_is_told():
    method = methods.create("oe", strength=1, anneal=1.0)
    with pytest.raises(ValueError, match=r"as the strength of 'oe' is annealed, with method\.at\(step, steps\)"):
        loss_of(method)
    assert method.requirements() == {"term": "oe", "progress": "oe"}
    with pytest.raises(ValueError, match="my loop cannot train 'oe', which has to know in each step how far"):
        methods.require(method, {"term"}, "my loop", "it has no end")
    methods.require(methods.create("oe", anneal=0.0), {"term"}, "my loop", "it has no end")


def test_wrong_shares_and_steps_are_named():
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="anneal of 'oe' to be a share of the training from 0 to 1, got"):
            methods.create("oe", anneal=wrong)
    for wrong in ("1", True, None):
        with pytest.raises(TypeError, match="anneal of 'oe' to be a number"):
            methods.create("oe", anneal=wrong)
    with pytest.raises(ValueError, match=r"expected strengths of terms \(pull\), got 'push'"):
        Composition({"pull": Pull()}, anneals={"push": 1.0})
    method = methods.create("oe", anneal=1.0)
    for step, steps in ((-1, 5), (0, 0), (0, float("inf"))):
        with pytest.raises(ValueError, match="expected a step from 0 of a number of steps"):
            method.at(step, steps)
    method.at(7, 5)  # beyond the end, as a second fit may be
    assert method.progress == 1
    methods.create("oe").at(-1, 0)  # which does not look


def test_progress_stays_where_it_is():
    """A CUDA graph reads it there, and autograd does not write it down."""
    method = methods.create("oe", strength=1.0, anneal=1.0)
    place = method.progress.data_ptr()
    for step in (0, 2):
        method.at(step, 3)
        assert method(INPUTS.clone().requires_grad_(), TARGETS).grad_fn is not None
        assert method.progress.data_ptr() == place and not method.progress.requires_grad
    assert "progress" not in method.state_dict() and "progress" in dict(method.named_buffers())


def test_half_precision_and_the_dtype_of_the_loss():
    for dtype in (torch.float32, torch.float64):
        method = methods.create("oe", strength=1, anneal=1.0)
        method.at(1, 3)
        features = INPUTS.to(dtype).requires_grad_()
        assert method(features, TARGETS).dtype == dtype
    assert method(INPUTS.bfloat16(), TARGETS).dtype == torch.float32


def test_a_balance_of_ones_own_is_taken():
    own = Balance(0.4, warm_up=0)
    assert methods.create("oe", balance=own).balances["oe"] is own
