"""Recipes: frozen dataclasses of groups of keys, which are frozen dataclasses too.

A key has a full name, ``training.learning_rate``, and a short one where no other group has the same, ``learning_rate``.
The name of a group stands for its key ``path`` or ``name``: ``data=DIR`` is ``data.path=DIR``.
"""

from ordinal_entropy.recipes.config import read_config
from ordinal_entropy.recipes.groups import cache_folder
from ordinal_entropy.recipes.keys import (
    Setting,
    assigned,
    changed,
    completed,
    described,
    explained,
    flat,
    full_name,
    leaves,
    override,
    parse_settings,
    preset,
    restored,
)  # fmt: skip
from ordinal_entropy.recipes.values import (
    BEFORE,
    literal,
    lookup,
    require_at_least_1,
    require_not_negative,
    require_positive,
    unknown,
    written,
)

__all__ = [
    "BEFORE", "Setting", "assigned", "cache_folder", "changed", "completed", "described", "explained", "flat",
    "full_name", "leaves", "literal", "lookup", "override", "parse_settings", "preset", "read_config",
    "require_at_least_1", "require_not_negative", "require_positive", "restored", "unknown", "written",
]  # fmt: skip
