"""Checks that a group of keys makes of its values."""

import math
from typing import Any


def require_at_least_1(group: Any, *keys: str) -> None:
    """A ValueError unless these keys are at least 1."""
    for key in keys:
        if getattr(group, key) < 1:
            raise ValueError(f"expected {key} to be at least 1, got {getattr(group, key)}")


def require_positive(group: Any, *keys: str) -> None:
    """A ValueError unless these keys are numbers above 0."""
    for key in keys:
        if not (getattr(group, key) > 0 and math.isfinite(getattr(group, key))):
            raise ValueError(f"expected {key} to be a positive number, got {getattr(group, key)}")


def require_not_negative(group: Any, *keys: str) -> None:
    """A ValueError unless these keys are numbers from 0 on."""
    for key in keys:
        if getattr(group, key) < 0 or not math.isfinite(getattr(group, key)):
            raise ValueError(f"expected {key} to be a number from 0 on, got {getattr(group, key)}")
