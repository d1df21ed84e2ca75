"""Terms with ``gather=True`` in two processes: loss and averaged gradient are those of one process."""

import pytest
import torch

from ordinal_entropy import methods
from ordinal_entropy.methods import Batch, Step
from processes import run

NAMES = ("conr", "ranksim", "srl", "vicreg", "koleo", "uniformity")
SIZES = [(6, 6), (7, 4), (9, 0)]  # rows of each rank


def part(name, gather):
    options = {"conr": {"window": 0.7}, "srl": {"directions": 20}}.get(name, {})
    (made,) = methods.create(name, gather=gather, **options).parts.values()
    return made


def rows(n):
    generator = torch.Generator().manual_seed(n)
    features = torch.randn(n, 4, generator=generator, dtype=torch.float64)
    targets = torch.randint(5, (n, 1), generator=generator).double()
    outputs = 4 * torch.rand(n, 1, generator=generator, dtype=torch.float64)
    weight = 0.5 + torch.rand(n, 1, generator=generator, dtype=torch.float64)
    return features, targets, outputs, weight, torch.rand(n, 1, generator=generator) > 0.2


def found(method, some, averaged_over=1):
    """Loss and gradient, and the loss after an epoch of which a method may have learned something."""
    features, targets, outputs, weight, mask = some
    method.prepare(torch.arange(5.0).double()[:, None], None, 4)
    features = features.clone().requires_grad_()
    step = Step(Batch(None, targets, mask, weight), features, outputs, None)
    method.observe(features.detach(), targets)
    loss = method.term(step)
    loss.backward()
    method.end_epoch()
    return loss.detach(), features.grad / averaged_over, method.term(step).detach()


def job(rank, world):
    answers = []
    for sizes in SIZES:
        own = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
        some = tuple(each[own] for each in rows(sum(sizes)))
        answers += [found(part(name, True), some, world) for name in NAMES]
    return answers


@pytest.mark.slow
def test_loss_and_averaged_gradient_are_those_of_one_process():
    expected = [found(part(name, False), rows(sum(sizes))) for sizes in SIZES for name in NAMES]
    every = run(job, 2)
    for number, (loss, gradient, later) in enumerate(expected):
        assert loss != 0 and gradient.any()
        for answers in every:
            torch.testing.assert_close(answers[number][0], loss)
            torch.testing.assert_close(answers[number][2], later)
        # the average of what each rank has of its own rows, elsewhere 0
        torch.testing.assert_close(torch.cat([answers[number][1] for answers in every]), gradient)
