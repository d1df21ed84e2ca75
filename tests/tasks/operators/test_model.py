import pytest
import torch
from torch import nn

from ordinal_entropy.tasks.operators import model
from plain_network import plain_network


def a_stack(seeds=(3, 4, 5), initials=("authors", "default", "default"), heads=((2, 1), (1, 7)), inputs=6, hidden=8):
    stack = model.empty(inputs, hidden, heads, dtype=torch.float64, device="cpu")
    model.fill(stack, seeds, initials)
    return stack


@pytest.mark.parametrize("shared", [True, False])
def test_forward_is_that_of_plain_networks(shared):
    stack = a_stack()
    x = torch.randn(*(() if shared else (3,)), 11, 6, dtype=torch.float64)
    features, outputs = model.forward(stack, x)
    assert features.shape == (3, 11, 8)
    assert [tuple(out.shape) for out in outputs] == [(2, 11, 1), (1, 11, 7)]
    for run, out in enumerate([*outputs[0], *outputs[1]]):
        network = plain_network(model.of_run(stack, run))
        rows = x if shared else x[run]
        torch.testing.assert_close(network[:-1](rows), features[run], rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(network(rows), out, rtol=1e-12, atol=1e-14)


def test_layers_are_views_of_one_tensor():
    stack = a_stack()
    stack.flat.zero_()
    assert all(not layer.weight.any() and not layer.bias.any() for layer in (*stack.hidden, *stack.heads))


def test_first_parameters_do_not_depend_on_the_stack():
    together = a_stack()
    for run, (seed, how, outputs) in enumerate([(3, "authors", 1), (4, "default", 1), (5, "default", 7)]):
        alone = a_stack([seed], [how], [(1, outputs)])
        for pair, expected in zip(model.of_run(together, run), model.of_run(alone, 0), strict=True):
            for part, single in zip(pair, expected, strict=True):
                torch.testing.assert_close(part, single, rtol=0, atol=0)


def test_seeds_differ_and_hidden_layers_do_not_depend_on_the_outputs():
    first, second, wide = (model.initial((6, 8, 8, o), s) for o, s in ((1, 0), (1, 1), (7, 0)))
    assert not torch.equal(first[0][0], second[0][0])
    for k in range(2):
        assert torch.equal(first[k][0], wide[k][0])


def test_authors_initialisation():
    (weight, bias), *_ = model.initial((300, 200, 1), seed=0)
    assert abs(float(weight.std()) - 0.001) < 1e-5
    assert abs(float(weight.mean())) < 1e-5
    assert not bias.any()


def test_default_initialisation_is_distributed_like_that_of_pytorch():
    """Both uniform with the same bounds: means and variances agree."""
    torch.manual_seed(0)
    linear = nn.Linear(200, 300)
    (weight, bias), *_ = model.initial((200, 300, 1), seed=0, how="default")
    for ours, theirs in ((weight, linear.weight), (bias, linear.bias)):
        assert float(ours.abs().max()) <= 200**-0.5
        assert float(ours.abs().max()) > 0.97 * 200**-0.5
        assert float(ours.std()) == pytest.approx(float(theirs.detach().std()), rel=0.15)


def test_unknown_initialisation():
    with pytest.raises(ValueError, match=r"expected initial to be one of \('authors', 'default'\), got 'xavier'"):
        model.initial((2, 1), 0, "xavier")
