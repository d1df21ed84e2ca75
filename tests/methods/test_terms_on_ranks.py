"""Terms that compare rows, on two ranks, against one process on the joined batch: loss and averaged gradient."""

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ordinal_entropy import methods
from ordinal_entropy.methods import Batch, Step
from processes import run

NAMES = ("rnc", "ph-reg", "rot-reg")
SIZES = ((7, 5), (6, 1))  # rows of each rank


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 4)).double()


def rows(count):
    generator = torch.Generator().manual_seed(count)
    x = torch.randn(count, 5, dtype=torch.float64, generator=generator)
    return (
        x,
        torch.randint(6, (count, 1), generator=generator).double(),
        torch.rand(count, 1, generator=generator) > 0.2,
    )


def loss_and_gradient(name, net, x, y, mask):
    (term,) = methods.create(name, {name: {"gather": True}}).parts.values()
    loss = term.term(Step(Batch(x, y, mask), net(x), None, None))
    loss.backward()
    return loss.detach(), torch.cat([parameter.grad.flatten() for parameter in net.parameters()])


def on_a_rank(rank, world):
    found = []
    for sizes in SIZES:
        own = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
        part = [each[own] for each in rows(sum(sizes))]
        found += [loss_and_gradient(name, DistributedDataParallel(network()), *part) for name in NAMES]
    return found


@pytest.mark.slow
def test_loss_and_averaged_gradient_are_those_of_one_process():
    expected = [loss_and_gradient(name, network(), *rows(sum(sizes))) for sizes in SIZES for name in NAMES]
    for answers in run(on_a_rank, 2):
        for (loss, gradient), (true_loss, true_gradient) in zip(answers, expected, strict=True):
            torch.testing.assert_close(loss, true_loss)
            torch.testing.assert_close(gradient, true_gradient)
            assert true_gradient.abs().max() > 1e-5
