"""Values of keys: read from text as the type of their field, checked, looked up by name, and written again."""

import difflib
import math
import types
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

_TRUE, _FALSE, _NONE = ("true", "yes", "on", "1"), ("false", "no", "off", "0"), ("none", "all")


def read(key: str, value: str | list[str] | None, kind: Any) -> Any:
    """A value of a type, from text.

    Args:
        key: whose value it is, for messages.
        value: the text; a list of texts of a file that has such; None of a file that has nothing there.
        kind: the type: a number, a text, true or false, a choice, any of them or nothing, several of them.
    """
    origin, inside = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):  # T | None
        if value is None or (isinstance(value, str) and value.lower() in _NONE):
            return None
        return read(key, value, next(part for part in inside if part is not type(None)))
    if origin is tuple:  # tuple[T, ...]
        return _several(key, value, inside[0])
    if value is None or isinstance(value, list):
        raise ValueError(f"expected one value of {key}, got {'nothing' if value is None else ', '.join(value)}")
    if origin is Literal:
        return lookup(f"value of {key}", value, {str(choice): choice for choice in inside})
    if kind is bool:
        if value.lower() not in _TRUE + _FALSE:
            raise ValueError(f"expected {key} to be true or false, got {value!r}")
        return value.lower() in _TRUE
    if kind is int:
        return _whole(key, value)
    if kind is float:
        number = _number(key, value, "a number")
        if not math.isfinite(number):
            raise ValueError(f"expected {key} to be a finite number, got {value!r}")
        return number
    return value


def fits(value: Any, kind: Any) -> bool:
    """Whether a value is of the type of a field."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Literal:
        return value in inside
    if origin in (Union, types.UnionType):
        return any(fits(value, part) for part in inside)
    if origin is tuple:
        return isinstance(value, tuple) and all(fits(part, inside[0]) for part in value)
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def literal(text: str) -> Any:
    """A value of a method's option: a number, true or false, none, or the text itself.

    Example:
        >>> literal("5"), literal("2.5"), literal("true"), literal("none"), literal("unique")
        (5, 2.5, True, None, 'unique')
    """
    plain = {"true": True, "false": False, "none": None}
    if text.lower() in plain:
        return plain[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def written(value: Any) -> str:
    """A value of a recipe, as ``described`` tells of it, in the form that is read.

    Example:
        >>> written([27, 36]), written([]), written(None), written(True), written(1e-5)
        ('27,36', 'none', 'none', 'true', '1e-05')
    """
    if isinstance(value, list):
        return ",".join(map(written, value)) or "none"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _several(key: str, value: str | list[str] | None, kind: Any) -> tuple[Any, ...]:
    if isinstance(value, str):
        if value.lower() == "none":
            return ()
        parts = [part.strip() for part in value.split(",") if part.strip()]
        if not parts:
            raise ValueError(f"expected {key}=VALUE,VALUE,..., or none, got {key}={value}")
        value = parts
    return tuple(read(key, part, kind) for part in value or [])


def _whole(key: str, text: str) -> int:
    """50000, 50_000 and 5e4 are all the same whole number."""
    number = _number(key, text, "a whole number")
    if not number.is_integer():
        raise ValueError(f"expected {key} to be a whole number, got {text!r}")
    return int(text) if text.lstrip("+-").replace("_", "").isdigit() else int(number)


def _number(key: str, text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"expected {key} to be {what}, got {text!r}") from None


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
