"""Real processes against one process on the joined batch: the loss on every rank, the gradient after averaging."""

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ordinal_entropy import OrdinalEntropy, distributed
from ordinal_entropy.functional import ordinal_entropy
from processes import run

# rows of each rank: equal, uneven, one rank without any
BATCHES = {2: [(6, 6), (7, 3), (5, 0)], 3: [(4, 4, 4), (1, 8, 3)]}


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 4)).double()


def rows(sizes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(sum(sizes), 5, generator=generator, dtype=torch.float64)
    y = torch.randint(4, (sum(sizes),), generator=generator).double()
    return x, y, torch.rand(sum(sizes), generator=generator) > 0.2


CASES = [
    {},
    {"grouping": "none", "distance": "cosine"},
    {"grouping": 2.0, "rescale": "authors", "tightness_over": "shared", "centers": "average-first"},
]


def parameters(net):
    return torch.cat([p.grad.flatten() for p in net.parameters()])


def one_process(sizes, options):
    net, (x, y, mask) = model(), rows(sizes)
    loss = ordinal_entropy(net(x), y, mask, **options)
    loss.backward()
    return loss.detach(), parameters(net)


def joined_loss_and_gradient(rank, world):
    answers = []
    for sizes in BATCHES[world]:
        own = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
        for options in CASES:
            net = DistributedDataParallel(model())
            x, y, mask = (part[own] for part in rows(sizes))
            loss = OrdinalEntropy(gather=True, **options)(net(x), y, mask)
            loss.backward()
            answers.append((loss.detach(), parameters(net)))
    return answers


@pytest.mark.parametrize("world", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_loss_and_averaged_gradient_are_those_of_one_process(world):
    expected = [one_process(sizes, options) for sizes in BATCHES[world] for options in CASES]
    for answers in run(joined_loss_and_gradient, world):
        for (loss, gradient), (true_loss, true_gradient) in zip(answers, expected, strict=True):
            torch.testing.assert_close(loss, true_loss)
            torch.testing.assert_close(gradient, true_gradient)
            assert true_gradient.abs().max() > 1e-3


def maps(images, size, seed):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(images, 3, size, size, generator=generator, dtype=torch.float64)
    return features, torch.randint(4, (images, size, size), generator=generator).double()


def images_of_their_own_size(rank, world):
    features, targets = maps(rank + 1, 3 + rank, seed=rank)
    features.requires_grad_()
    loss = ordinal_entropy(features, targets, per="image", gather=True)
    loss.backward()
    return loss.detach(), features.grad / world  # what averaging over the ranks leaves of it


def test_images_of_all_ranks_keep_their_own_pairs():
    world, total, count = 2, 0.0, 0
    leaves = []
    for rank in range(world):
        features, targets = maps(rank + 1, 3 + rank, seed=rank)
        leaves.append(features.requires_grad_())
        total = total + (rank + 1) * ordinal_entropy(features, targets, per="image")
        count += rank + 1
    (total / count).backward()
    for leaf, (loss, gradient) in zip(leaves, run(images_of_their_own_size, world), strict=True):
        torch.testing.assert_close(loss, (total / count).detach())
        torch.testing.assert_close(gradient, leaf.grad)


def draws(rank, world):
    torch.manual_seed(rank)  # generators that differ
    x, y, _ = rows((6, 6))
    own = slice(6 * rank, 6 * rank + 6)
    return [
        ordinal_entropy(x[own], y[own] + torch.rand(6), gather=False).item(),  # moves the generator
        *(ordinal_entropy(x[own], y[own], gather=True, num_pairs=3) for _ in range(4)),
        *(ordinal_entropy(x[own], y[own], gather=True, max_samples=4, grouping="none") for _ in range(4)),
    ]


@pytest.mark.slow
def test_all_ranks_make_the_same_draws_and_new_ones_each_time():
    first, second = run(draws, 2)
    assert first[0] != second[0]
    assert first[1:] == second[1:]
    assert len(set(first[1:])) > 2


def alone(rank, world):
    x, y, mask = rows((6,))
    return ordinal_entropy(x, y, mask, gather=True) == ordinal_entropy(x, y, mask)


def test_one_rank_or_no_process_group_is_an_ordinary_call():
    assert alone(0, 1)
    assert run(alone, 1) == [torch.tensor(True)]


# --- ranks that do not agree ------------------------------------------------------------------------------------------


def said(call):
    """The sentence of the error that a call raises."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def disagreements(rank, world):
    """Errors of calls in which the ranks differ; after each, whether the next call is of both ranks' same step."""
    x, y, _ = rows((6, 6))
    own = slice(6 * rank, 6 * rank + 6)
    x, y = x[own], y[own]
    nan = torch.where(torch.arange(6) < 2 * rank, torch.nan, y)
    calls = [
        lambda: ordinal_entropy(x, y.long() if rank else y.float(), gather=True),
        lambda: ordinal_entropy(x.float() if rank else x, y, gather=True),
        lambda: ordinal_entropy(x[:, : 5 - rank], y, gather=True),
        lambda: ordinal_entropy(x, torch.stack([y] * (1 + rank), 1), gather=True),
        lambda: ordinal_entropy(x, nan, gather=True),  # two rows of rank 1
        lambda: ordinal_entropy(x.tolist() if rank == 0 else x, y, gather=True),
        lambda: OrdinalEntropy(gather=True)(x, y) if rank else OrdinalEntropy(gather=True).terms(x, y),
    ]
    answers = []
    for step, call in enumerate(calls):
        answers.append((said(call), ordinal_entropy(x + step, y, gather=True)))
    calls = distributed._CALLS
    calls[next(iter(calls))] += rank  # a call of rank 1 that came to nothing
    answers.append((said(lambda: ordinal_entropy(x, y, gather=True)), ordinal_entropy(x, y, gather=True)))
    return answers


def test_ranks_that_differ_raise_together_and_meet_again_in_the_next_call():
    x, y, _ = rows((6, 6))
    types = "expected features and targets of one type and width on all ranks, got "
    usual = "5 float64 features and 1 float64 targets on rank"
    sentences = [
        f"{types}5 float64 features and 1 float32 targets on rank 0, {usual} 1",
        f"{types}{usual} 0, 5 float32 features and 1 float64 targets on rank 1",
        f"{types}{usual} 0, 4 float64 features and 1 float64 targets on rank 1",
        f"{types}{usual} 0, 5 float64 features and 2 float64 targets on rank 1",
        None,
        None,
        "expected all ranks to compute the same terms with gather=True, got the diversity on rank 0, diversity and "
        "tightness on rank 1",
        "expected all ranks to make the same calls with gather=True, got call 15 on rank 0, call 16 on rank 1",
    ]
    nan = "expected finite targets inside the mask, got 2 rows with NaN or infinite values"
    kind = "expected features and targets to be tensors, got list and Tensor"
    alone = {4: (1, f"ValueError: {nan}"), 5: (0, f"TypeError: {kind}")}
    for rank, answers in enumerate(run(disagreements, 2)):
        for step, (sentence, after) in enumerate(answers):
            if step in alone:
                failing, error = alone[step]
                other = f"got an error on rank {failing}: {error.partition(': ')[2]}"
                assert sentence == (error if rank == failing else f"ValueError: expected rows from every rank, {other}")
            else:
                assert sentence == f"ValueError: {sentences[step]}"
            torch.testing.assert_close(after, ordinal_entropy(x + (step if step < 7 else 0), y))
