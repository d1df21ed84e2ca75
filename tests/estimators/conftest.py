"""Fixed draws for the tests of the estimators."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor


def _normal(n: int, d: int, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def normal() -> Callable[..., Tensor]:
    """Unit Gaussian rows ``(n, d)`` in float64."""
    return _normal


@pytest.fixture
def rotation() -> Callable[..., Tensor]:
    """A random orthogonal matrix ``(d, d)``."""
    return lambda d, seed=7: torch.linalg.qr(_normal(d, d, seed)).Q
