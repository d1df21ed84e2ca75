"""Recipes: frozen dataclasses of groups of keys, which are frozen dataclasses too.

A key has a full name, ``training.learning_rate``, and a short one where no other group has the same, ``learning_rate``.
The name of a group stands for its key ``path`` or ``name``: ``data=DIR`` is ``data.path=DIR``.
"""

from ordinal_entropy.recipes.cache import cache_folder
from ordinal_entropy.recipes.checks import require_at_least_1, require_not_negative, require_positive
from ordinal_entropy.recipes.config import read_config
from ordinal_entropy.recipes.keys import (
    assigned,
    changed,
    completed,
    described,
    explained,
    flat,
    full_name,
    leaves,
    override,
    preset,
    restored,
)  # fmt: skip
from ordinal_entropy.recipes.names import BEFORE, lookup, unknown
from ordinal_entropy.recipes.settings import Setting, pairs
from ordinal_entropy.recipes.values import literal, written

__all__ = [
    "BEFORE", "Setting", "assigned", "cache_folder", "changed", "completed", "described", "explained", "flat",
    "full_name", "leaves", "literal", "lookup", "override", "pairs", "preset", "read_config", "require_at_least_1",
    "require_not_negative", "require_positive", "restored", "unknown", "written",
]  # fmt: skip
