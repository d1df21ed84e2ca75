"""Every built-in method holds to the contract, and a method that does not is told what is wrong."""

import pytest
import torch

from ordinal_entropy import methods
from ordinal_entropy.methods import Method
from ordinal_entropy.methods.testing import check_method

from of_every_kind import KINDS


def part(name):
    (made,) = methods.create(name).parts.values()
    return made


@pytest.mark.parametrize("name", [name for name in methods.names() if name != "baseline"])
def test_a_built_in_method_holds_to_the_contract(name):
    check_method(lambda: part(name))


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_method_holds_to_it(kind):
    check_method(kind)


class Term(Method):
    kind = "term"


class NoTerm(Term):
    pass


class Infinite(Term):
    def term(self, step):
        return step.features.norm(dim=1).log().sum()


class Sqrt(Term):
    def term(self, step):
        return step.features.square().sum(1).sqrt().sum()


class Detached(Term):
    def term(self, step):
        return step.features.detach().sum()


class Surrogate(Term):
    exact_gradient = False

    def term(self, step):
        return step.features.sum() - step.features.sum().detach()


class Unannounced(Surrogate):
    exact_gradient = True


class Rows(Term):
    def term(self, step):
        return step.features.sum(1)


class Global(Method):
    kind = "mixing"

    def change(self, batch, generator=None):
        order = torch.randperm(len(batch.targets))
        return batch._replace(inputs=batch.inputs[order], targets=batch.targets[order])


class InPlace(Method):
    kind = "weights"

    def change(self, batch, generator=None):
        batch.targets.add_(1)
        return batch


class Unmasked(Method):
    kind = "loss"
    maps = True

    def task_loss(self, step):
        return (step.outputs - step.batch.targets).abs().mean()


class Wrong(Method):
    kind = "term"

    def term(self, step):
        return step.features.sum() * 0

    def decode(self, outputs):
        return outputs


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (NoTerm, "expected a term to override term, got none"),
        (Infinite, "degenerate batches: .*finite"),
        (Sqrt, "expected a finite gradient for features of zero"),
        (Detached, "a value with a gradient"),
        (Unannounced, "the gradient: Jacobian mismatch"),
        (Rows, r"expected a scalar from the method 'it' in step 1, got the shape \(12,\)"),
        (Global, "expected draws from the generator alone"),
        (InPlace, "expected targets of the batch left as they were"),
        (Unmasked, "finite"),
        (Wrong, "expected a term to leave decode to other parts"),
    ],
)
def test_a_method_that_does_not_is_told_what_is_wrong(wrong, why):
    with pytest.raises(AssertionError, match=f"{wrong.__name__}: .*{why}"):
        check_method(wrong)


def test_a_gradient_that_is_a_surrogate_is_held_against_no_differences():
    check_method(Surrogate)
