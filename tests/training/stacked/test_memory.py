"""The count of what runs take, against what a stack really has, and how many runs make a stack."""

import pytest
import torch

from ordinal_entropy import methods
from ordinal_entropy.training.stacked import memory
from ordinal_entropy.training.stacked.members import Member, Rows
from ordinal_entropy.training.stacked.network import Shape
from ordinal_entropy.training.stacked.stack import Stack

SHAPES = [
    Shape(0, 11, hidden=20),
    Shape(3, 5, hidden=16, layers=3, embedding="periodic", dtype=torch.float64),
    Shape(3, 5, hidden=16, network="tabm", members=4),
]


def buffers(shape, n):
    """Bytes of parameters and buffers of a stack of two runs that differ in their rates, after a step."""
    x, y = torch.randn(2, n, shape.inputs), torch.randn(2, n, 1)
    rows = Rows(x, y.double(), range(2), [n] * 2, range(2), epochs=1)
    members = [Member(seed, methods.create("baseline"), 1e-2 / (1 + seed), 0.1) for seed in range(2)]
    stack = Stack(members, shape, rows, device=torch.device("cpu"))
    stack.advance(1)
    net = stack.network
    flats = [net.parameters, net.gradient, *stack.moments, stack.best, stack._ways]
    tensors = [each.flat for each in flats] + [*net._rows, *net.by_rows, *net.outputs, *net.by_outputs, stack.inputs]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n", [50, 5000])
def test_no_run_takes_less_than_it_has_and_none_much_more(shape, n):
    counted = 2 * memory.bytes_of(shape, n)
    assert 0.8 * buffers(shape, n) < counted < 12 * buffers(shape, n)  # autograd, of TabM, keeps what is not seen here
    assert memory.bytes_of(shape, 2 * n) > 1.2 * memory.bytes_of(shape, n)


@pytest.mark.parametrize("finished", [0, 1, 2])
def test_what_is_left_of_full_stacks_is_the_same_stacks(finished):
    whole = memory.stacks(range(10), most=2.0, available=9.0)
    assert whole == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    left = [item for k, stack in enumerate(whole) for item in stack if k != finished]
    assert memory.stacks(left, most=2.0, available=9.0) == [stack for k, stack in enumerate(whole) if k != finished]


def test_a_run_that_does_not_fit_trains_alone():
    assert memory.stacks("ab", most=10.0, available=1.0) == [["a"], ["b"]]
    assert memory.limit("cpu") == 2**32
