"""Against the library's own diversity, which has its own oracle."""

import pytest
import torch

from ordinal_entropy import functional
from ordinal_entropy.kernels.ahead import pair_weights, weighted_distances


@pytest.mark.parametrize("m", [2, 3, 10])
@pytest.mark.parametrize(("distance", "normalize"), [("l2", True), ("l2", False), ("cosine", True)])
@pytest.mark.parametrize("rescale", ["max", "authors", "none"])
@pytest.mark.parametrize("weighting", ["l2", "squared", "sqrt", "none"])
def test_both_halves_are_the_diversity(weighting, rescale, distance, normalize, m):
    generator = torch.Generator().manual_seed(m)
    features = torch.randn(4, m, 7, dtype=torch.float64, generator=generator)
    features[1, 0] = 0  # a zero row
    features[2, 1] = features[2, 0]  # coincident rows
    targets = torch.randn(4, m, 1, dtype=torch.float64, generator=generator)
    targets[3] = 2.0  # all equal
    options = {"weighting": weighting, "rescale": rescale, "distance": distance, "normalize": normalize}
    for k in range(4):
        ours, theirs = (features[k].clone().requires_grad_() for _ in range(2))
        weights = pair_weights(targets[k : k + 1], weighting, rescale)
        found = weighted_distances(ours[None], weights, distance, normalize)
        expected = functional.diversity(theirs, targets[k], grouping="none", **options)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
        (by_ours,), (by_theirs,) = torch.autograd.grad(found, ours), torch.autograd.grad(expected, theirs)
        torch.testing.assert_close(by_ours, by_theirs, rtol=1e-7, atol=1e-9)


def test_weights_of_many_steps_at_once():
    targets = torch.randn(5, 3, 6, 1)
    together = pair_weights(targets, "sqrt", "authors")
    for step in range(5):
        torch.testing.assert_close(together[step], pair_weights(targets[step], "sqrt", "authors"), rtol=0, atol=0)
