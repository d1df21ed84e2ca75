"""Names that are looked up: an unknown one is an error that names the near ones."""

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

Value = TypeVar("Value")

BEFORE = {"method_options": "options"}  # short names in folders of version 0.1.0, whose recipes have no groups


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The sentence that names what is near an unknown name, and all there are.

    Example:
        >>> unknown("task", "liner", ["linear", "nonlinear"])
        "expected a task like 'linear' or 'nonlinear', got 'liner'; there are linear, nonlinear"
    """
    known = list(known)
    return _sentence(kind, name, _near(name, known), ", ".join(known))


def lookup(kind: str, name: str, known: Mapping[str, Value]) -> Value:
    """``known[name]``, or a ValueError that names the near ones.

    Example:
        >>> lookup("preset", "quick", {"paper": 50_000, "quick": 3_000})
        3000
    """
    if name not in known:
        raise ValueError(unknown(kind, name, known))
    return known[name]


def unknown_key(name: str, names: Collection[str], short: Mapping[str, str]) -> str:
    """The sentence about a key that a recipe does not have, or about the name of a group of keys.

    Args:
        name: what was given.
        names: the full names.
        short: of each full name the shortest one that stands for it.

    Example:
        >>> names = {"data.path": "data", "training.epochs": "epochs"}
        >>> unknown_key("model.epochs", names, names)
        "expected a key like 'training.epochs', got 'model.epochs'; there are data (path), training (epochs)"
    """
    inside = [each.removeprefix(f"{name}.") for each in names if each.startswith(f"{name}.")]
    if inside:
        return f"expected {name}.KEY, got {name!r}, a group of keys: {', '.join(inside)}"
    own, last = name.rpartition(".")[2], {each: each.rpartition(".")[2] for each in names}
    alike = [own] if own in last.values() else _near(own, dict.fromkeys(last.values()))
    inside = [each for part in alike for each in names if last[each] == part]
    near = inside or _near(name, names) if "." in name else _near(name, short.values())
    return _sentence("key", name, near, _by_group(names))


def _near(name: str, known: Iterable[str]) -> list[str]:
    return difflib.get_close_matches(name.lower(), list(known), n=3)


def _sentence(kind: str, name: str, near: Sequence[str], listed: str) -> str:
    article = "an" if kind[0] in "aeiou" else "a"
    like = f"{article} {kind} like {' or '.join(map(repr, near))}" if near else f"the name of a {kind}"
    return f"expected {like}, got {name!r}; there are {listed}"


def _by_group(names: Iterable[str]) -> str:
    """Full names, those of a group together."""
    groups: dict[str, list[str]] = {}
    for name in names:
        group, _, last = name.rpartition(".")
        groups.setdefault(group, []).append(last)
    return ", ".join(f"{group} ({', '.join(own)})" if group else ", ".join(own) for group, own in groups.items())
