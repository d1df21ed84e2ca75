"""Learning rates against the schedulers of torch."""

import pytest
import torch

from ordinal_entropy.training.large.optimization import rate


@pytest.mark.parametrize("steps", [7, 10, 100, 333])
def test_one_cycle_is_that_of_torch(steps):
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.AdamW([weight], lr=1.0)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2.0, steps, div_factor=25, final_div_factor=100)
    for step in range(steps):
        found = rate("one-cycle", step, steps, epochs=1)
        assert 2.0 * found.factor == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-9)
        assert found.momentum == pytest.approx(optimizer.param_groups[0]["betas"][0], rel=1e-9)
        optimizer.step()
        if step + 1 < steps:
            scheduler.step()


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_short_runs_have_a_rate(steps):
    for name in ("milestones", "poly", "one-cycle"):
        for step in range(steps):
            assert 0 < rate(name, step, steps, epochs=1).factor <= 1


def test_poly_falls_to_a_tenth_by_a_power():
    found = [rate("poly", step, 1000, epochs=10).factor for step in (0, 500, 1000)]
    assert found == pytest.approx([1, 0.1 + 0.9 * 0.5**0.9, 0.1])


def test_milestones_are_epochs():
    found = [rate("milestones", step, 12, epochs=4, milestones=(1, 3)).factor for step in range(12)]
    assert found == pytest.approx([1] * 3 + [0.1] * 6 + [0.01] * 3)


def test_an_unknown_one_is_refused():
    with pytest.raises(ValueError, match="expected a schedule like 'poly'"):
        rate("polly", 0, 1, epochs=1)
