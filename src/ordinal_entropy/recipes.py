"""Recipes are frozen dataclasses: one look-up of names, one reading of ``key=value``."""

import difflib
import inspect
import math
import os
import re
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

Recipe = TypeVar("Recipe")
Value = TypeVar("Value")

OF_A_METHOD = "method."  # begins a setting of one part of a method: method.part.option=value
_METHOD_OPTIONS = "method_options"  # the key of a recipe that keeps them
_TRUE, _FALSE, _NONE = ("true", "yes", "on", "1"), ("false", "no", "off", "0"), ("none", "all")


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The sentence that names what is near an unknown name, and all there are.

    Example:
        >>> unknown("task", "liner", ["linear", "nonlinear"])
        "expected a task like 'linear' or 'nonlinear', got 'liner'; there are linear, nonlinear"
    """
    known = list(known)
    near = difflib.get_close_matches(name.lower(), known, n=3)
    article = "an" if kind[0] in "aeiou" else "a"
    like = f"{article} {kind} like {' or '.join(map(repr, near))}" if near else f"the name of a {kind}"
    return f"expected {like}, got {name!r}; there are {', '.join(known)}"


def lookup(kind: str, name: str, known: Mapping[str, Value]) -> Value:
    """``known[name]``, or a ValueError that names the near ones.

    Example:
        >>> lookup("preset", "quick", {"paper": 50_000, "quick": 3_000})
        3000
    """
    if name not in known:
        raise ValueError(unknown(kind, name, known))
    return known[name]


def require_at_least_1(recipe: Any, *keys: str) -> None:
    """A ValueError unless these keys of a recipe are at least 1."""
    for key in keys:
        if getattr(recipe, key) < 1:
            raise ValueError(f"expected {key} to be at least 1, got {getattr(recipe, key)}")


def require_positive(recipe: Any, *keys: str) -> None:
    """A ValueError unless these keys of a recipe are numbers above 0."""
    for key in keys:
        if not (getattr(recipe, key) > 0 and math.isfinite(getattr(recipe, key))):
            raise ValueError(f"expected {key} to be a positive number, got {getattr(recipe, key)}")


def require_not_negative(recipe: Any, *keys: str) -> None:
    """A ValueError unless these keys of a recipe are numbers from 0 on."""
    for key in keys:
        if getattr(recipe, key) < 0 or not math.isfinite(getattr(recipe, key)):
            raise ValueError(f"expected {key} to be a number from 0 on, got {getattr(recipe, key)}")


def cache_folder() -> Path:
    """Where generated rows are kept: ``$ORDINAL_ENTROPY_CACHE``, or ``~/.cache/ordinal-entropy``."""
    named = os.environ.get("ORDINAL_ENTROPY_CACHE")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "ordinal-entropy"


def override(recipe: Recipe, settings: Sequence[str]) -> Recipe:
    """The recipe with every ``key=value`` in place of its own, each read as the type of the field.

    Later ones win. A tuple is written with commas, ``None`` as "none" or "all"; ``method.part.option=value`` goes into
    the key ``method_options``.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Baking:
        ...     degrees: float = 180.0
        ...     trays: tuple[int, ...] = (1,)
        >>> override(Baking(), ["degrees=2e2", "trays=1,3"])
        Baking(degrees=200.0, trays=(1, 3))
    """
    hints = get_type_hints(type(recipe))
    names = [field.name for field in fields(recipe)]  # type: ignore[arg-type]
    found: dict[str, Any] = {}
    for key, text in pairs(settings):
        if key.startswith(OF_A_METHOD) and _METHOD_OPTIONS in names:
            before = found.get(_METHOD_OPTIONS, getattr(recipe, _METHOD_OPTIONS))
            own = key.removeprefix(OF_A_METHOD)
            kept = tuple(each for each in before if each.partition("=")[0] != own)
            found[_METHOD_OPTIONS] = (*kept, f"{own}={text}")
            continue
        if key not in names:
            raise ValueError(unknown("key", key, names))
        found[key] = _read(key, text, hints[key])
    return replace(recipe, **found)  # type: ignore[type-var]


def pairs(settings: Sequence[str]) -> list[tuple[str, str]]:
    """``key=value`` taken apart; dashes in a key are read as underscores.

    Example:
        >>> pairs(["learning-rate=0.01", "data="])
        [('learning_rate', '0.01'), ('data', '')]
    """
    found = []
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"expected a setting key=value, got {setting!r}")
        part, dot, last = key.strip().rpartition(".")  # names of methods have dashes
        found.append((f"{part}{dot}{last.replace('-', '_')}", text.strip()))
    return found


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


def described(recipe: object) -> dict[str, Any]:
    """The fields as JSON has them: tuples are lists.

    Example:
        >>> from dataclasses import make_dataclass
        >>> described(make_dataclass("Baking", ["trays"])(trays=(1, 3)))
        {'trays': [1, 3]}
    """
    content = asdict(recipe)  # type: ignore[call-overload]
    return {key: list(value) if isinstance(value, tuple) else value for key, value in content.items()}


def written(value: Any) -> str:
    """A value of a recipe, as ``described`` tells of it, in the form that ``override`` reads.

    Example:
        >>> written([27, 36]), written(None), written(True), written(1e-5)
        ('27,36', 'none', 'true', '1e-05')
    """
    if isinstance(value, list):
        return ",".join(map(written, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def restored(recipe: Recipe, content: Mapping[str, Any]) -> Recipe:
    """The recipe that ``described`` told of, of the same kind as the one given.

    A key that the content lacks, since it was written before the key existed, has its default: that of a new key is
    always what runs did before.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Baking:
        ...     trays: tuple[int, ...] = (1,)
        ...     degrees: float = 180.0
        >>> restored(Baking(degrees=200.0), {"trays": [1, 3]})
        Baking(trays=(1, 3), degrees=180.0)
    """
    hints = get_type_hints(type(recipe))
    known = [field.name for field in fields(recipe)]  # type: ignore[arg-type]
    strange = [key for key in content if key not in known]
    if strange:
        raise ValueError(
            f"expected keys of {type(recipe).__name__}, got {', '.join(strange)}, which this version does not have: a "
            "newer version of ordinal-entropy wrote it, or something else"
        )
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in content.items()}
    for key, value in values.items():
        if not _fits(value, hints[key]):
            raise ValueError(f"expected {key} of the type that {type(recipe).__name__} has there, got {value!r}")
    return type(recipe)(**values)


def defaults(recipe: object) -> dict[str, Any]:
    """What the keys stand for in a folder that was written before they existed, as :func:`described` has them.

    Example:
        >>> from dataclasses import make_dataclass
        >>> defaults(make_dataclass("Baking", [("trays", int, 2)])(trays=5))
        {'trays': 2}
    """
    return described(type(recipe)())


def explained(recipe: object) -> list[tuple[str, Any, str]]:
    """Every key with its value here and the comment behind its default in the source."""
    try:
        source = inspect.getsource(type(recipe))
    except (OSError, TypeError):  # no source at hand
        source = ""
    comments = dict(re.findall(r"^    (\w+): [^#\n]*?  # (.*)$", source, flags=re.MULTILINE))
    return [(field.name, getattr(recipe, field.name), comments.get(field.name, "")) for field in fields(recipe)]  # type: ignore[arg-type]


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is of the type of a field."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Literal:
        return value in inside
    if origin in (Union, types.UnionType):
        return any(_fits(value, part) for part in inside)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(part, inside[0]) for part in value)
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _read(key: str, text: str, kind: Any) -> Any:
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Literal:
        return lookup(f"value of {key}", text, {str(choice): choice for choice in inside})
    if origin in (Union, types.UnionType):  # T | None
        if text.lower() in _NONE:
            return None
        return _read(key, text, next(part for part in inside if part is not type(None)))
    if origin is tuple:  # tuple[T, ...]
        parts = [part.strip() for part in text.split(",") if part.strip()]
        if not parts:
            raise ValueError(f"expected {key}=VALUE,VALUE,..., got {key}={text}")
        return tuple(_read(key, part, inside[0]) for part in parts)
    if kind is bool:
        if text.lower() not in _TRUE + _FALSE:
            raise ValueError(f"expected {key} to be true or false, got {text!r}")
        return text.lower() in _TRUE
    if kind is int:
        return _whole(key, text)
    if kind is float:
        number = _number(key, text, "a number")
        if not math.isfinite(number):
            raise ValueError(f"expected {key} to be a finite number, got {text!r}")
        return number
    return text


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
