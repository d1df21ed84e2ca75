"""Keys of recipes: their names, values and meanings; settings of them, and recipes as JSON."""

import inspect
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields, is_dataclass, replace
from typing import Any, NamedTuple, TypeVar, get_type_hints

from ordinal_entropy.recipes.values import BEFORE, fits, read, unknown_key, written

_OF_A_METHOD = "method."  # begins a setting of one part of a method: method.part.option=value


class Setting(NamedTuple):
    """A key, by any of its names, and its value as text."""

    key: str
    value: str | list[str] | None
    where: str = ""  # file, line and column; "": the command line

    def __str__(self) -> str:
        """As the command line has it."""
        return f"{self.key}={written(self.value)}"

    @property
    def part_option(self) -> str:
        """Of ``method.part.option`` the part and the option, else "".

        Example:
            >>> Setting("method.oe.strength", "5").part_option, Setting("method.strength", "5").part_option
            ('oe.strength', '')
        """
        own = self.key.removeprefix(_OF_A_METHOD)
        return own if own != self.key and "." in own else ""

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A ValueError in the ``with`` names the place of the setting."""
        try:
            yield
        except ValueError as error:
            if not self.where:
                raise
            raise ValueError(f"{self.where}: {error}") from None


def parse_settings(settings: Sequence[str | Setting]) -> list[Setting]:
    """``key=value`` taken apart; dashes in a key are read as underscores.

    Example:
        >>> [tuple(each)[:2] for each in parse_settings(["learning-rate=0.01", "data="])]
        [('learning_rate', '0.01'), ('data', '')]
    """
    found = []
    for setting in settings:
        if isinstance(setting, Setting):
            key, value, where = setting
        else:
            key, equals, value = setting.partition("=")
            value, where = value.strip(), ""
            if not equals or not key.strip():
                raise ValueError(f"expected a setting key=value, got {setting!r}")
        group, dot, last = key.strip().rpartition(".")  # names of methods have dashes
        found.append(Setting(f"{group}{dot}{last.replace('-', '_')}", value, where))
    return found


Recipe = TypeVar("Recipe")

_FOR_THE_GROUP = ("path", "name")  # keys that the name of their group stands for
_OPTIONS = "method.options"  # keeps the options of single parts of a method


def leaves(recipe: object) -> dict[str, Any]:
    """Every key by its full name, with its value.

    Example:
        >>> from dataclasses import make_dataclass
        >>> Baking = make_dataclass("Baking", ["oven", "trays"])
        >>> leaves(Baking(oven=make_dataclass("Oven", ["degrees"])(180.0), trays=2))
        {'oven.degrees': 180.0, 'trays': 2}
    """
    return _flattened(asdict(recipe))  # type: ignore[call-overload]


def full_name(names: Collection[str], name: str) -> str:
    """The full name that a name stands for; a ValueError where it stands for none or for several.

    Example:
        >>> names = ["data.path", "data.crop", "training.crop", "training.epochs"]
        >>> full_name(names, "epochs"), full_name(names, "data.crop"), full_name(names, "data")
        ('training.epochs', 'data.crop', 'data.path')
    """
    if name in names:
        return name
    found = [each for each in names if name in _stands_for(each)]
    if len(found) > 1:
        raise ValueError(f"expected one of {', '.join(found)}, got {name!r}, which stands for each of them")
    if not found:
        raise ValueError(unknown_key(name, names, _short_names(names)))
    return found[0]


def changed(recipe: Recipe, changes: Mapping[str, Any], settings: Sequence[str | Setting] = ()) -> Recipe:
    """The recipe with other values of some keys, by their full or short names.

    Args:
        recipe: stays as it is.
        changes: the values.
        settings: that they come from. A value that no recipe can have is a ValueError, which names the place in a file.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Oven:
        ...     degrees: float = 180.0
        >>> @dataclass(frozen=True)
        ... class Baking:
        ...     oven: Oven = Oven()
        ...     trays: tuple[int, ...] = (1,)
        >>> changed(Baking(), {"degrees": 200.0, "trays": (1, 3)})
        Baking(oven=Oven(degrees=200.0), trays=(1, 3))
    """
    kinds = _types(type(recipe))
    values = {full_name(kinds, key): value for key, value in changes.items()}
    for key, value in values.items():
        if not fits(value, kinds[key]):
            raise ValueError(f"expected {key} of the type that {type(recipe).__name__} has there, got {value!r}")
    try:
        return _replaced(recipe, values)
    except ValueError as error:
        raise ValueError(f"{_place_of_mistake(recipe, values, settings)}{error}") from None


def override(recipe: Recipe, settings: Sequence[str | Setting]) -> Recipe:
    """The recipe with every ``key=value`` in place of its own, each read as the type of the field.

    Later ones win. A tuple is written with commas, ``None`` as "none" or "all"; ``method.part.option=value`` goes into
    the key ``method.options``.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Baking:
        ...     degrees: float = 180.0
        ...     trays: tuple[int, ...] = (1,)
        >>> override(Baking(), ["degrees=2e2", "trays=1,3"])
        Baking(degrees=200.0, trays=(1, 3))
    """
    return changed(recipe, assigned(recipe, settings), settings)


def preset(recipe: Recipe, settings: str) -> Recipe:
    """The recipe with other values, written as the command line has them, with spaces in between.

    Example:
        >>> from dataclasses import make_dataclass
        >>> preset(make_dataclass("Baking", [("trays", int, 2)], frozen=True)(), "trays=5")
        Baking(trays=5)
    """
    return override(recipe, settings.split())


def assigned(
    recipe: object,
    settings: Sequence[str | Setting],
    *,
    beside: Sequence[str] = (),
    option: Callable[[str, str], Any] = lambda name, text: text,
) -> dict[str, Any]:
    """Values that settings put in place, by full names; a ValueError names the place of a wrong one.

    Args:
        recipe: whose keys they are.
        settings: later ones win; a file that gives a key twice is refused.
        beside: names that could have been given beside those of the recipe, for messages.
        option: refuses a value of ``part.option`` of a method.
    """
    kinds = _types(type(recipe))
    found: dict[str, Any] = {}
    written: dict[tuple[str, bool], str] = {}  # where a file gave a key
    for each in parse_settings(settings):
        with each.reading():
            if each.part_option and _OPTIONS in kinds:
                key, text = _OPTIONS, str(each).partition("=")[2]
                option(each.part_option, text)
                before = found.get(key, leaves(recipe)[key])
                kept = (own for own in before if own.partition("=")[0] != each.part_option)
                found[key] = (*kept, f"{each.part_option}={text}")
            else:
                key = full_name([*beside, *kinds], each.key)
                found[key] = read(each.key, each.value, kinds[key])
            name = f"{key}.{each.part_option}", bool(each.where)
            if each.where and name in written:
                raise ValueError(f"{each.key} is given twice, before in {written[name]}")
            written[name] = each.where
    return found


def described(recipe: object) -> dict[str, Any]:
    """The groups and keys as JSON has them: tuples are lists.

    Example:
        >>> from dataclasses import make_dataclass
        >>> described(make_dataclass("Baking", ["trays"])(trays=(1, 3)))
        {'trays': [1, 3]}
    """
    found: dict[str, Any] = asdict(recipe, dict_factory=_as_json)  # type: ignore[call-overload]
    return found


def flat(content: Mapping[str, Any]) -> dict[str, Any]:
    """What ``described`` told, by the shortest names; likewise of a recipe that was written when there were no groups.

    Example:
        >>> flat({"data": {"path": "faces", "rows": 3}, "seed": 0})
        {'data': 'faces', 'rows': 3, 'seed': 0}
    """
    found = _flattened(content)
    short = _short_names(found)
    return {BEFORE.get(short[key], short[key]): value for key, value in found.items()}


def completed(recipe: object, content: Mapping[str, Any]) -> dict[str, Any]:
    """What ``described`` told of a recipe of the kind of the one given, by full names.

    A key that the content lacks, since it was written before the key existed, has its default: that of a new key is
    always what runs did before. Keys of a newer version, or of something else, stay as they are.

    Example:
        >>> from dataclasses import make_dataclass
        >>> completed(make_dataclass("Baking", [("trays", int, 2)])(trays=5), {"degrees": 180.0})
        {'trays': 2, 'degrees': 180.0}
    """
    found = _flattened(described(type(recipe)()))
    names = list(found)
    for name, value in _flattened(content).items():
        key = BEFORE.get(name, name)
        with suppress(ValueError):
            key = full_name(names, key)
        found[key] = value
    return found


def restored(recipe: Recipe, content: Mapping[str, Any]) -> Recipe:
    """The recipe that ``described`` told of, of the same kind as the one given; see :func:`completed`.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Baking:
        ...     trays: tuple[int, ...] = (1,)
        ...     degrees: float = 180.0
        >>> restored(Baking(degrees=200.0), {"trays": [1, 3]})
        Baking(trays=(1, 3), degrees=180.0)
    """
    values, kinds = completed(recipe, content), _types(type(recipe))
    strange = [key for key in values if key not in kinds]
    if strange:
        raise ValueError(
            f"expected keys of {type(recipe).__name__}, got {', '.join(strange)}, which this version does not have: a "
            "newer version of ordinal-entropy wrote it, or something else"
        )
    return changed(type(recipe)(), {key: tuple(v) if isinstance(v, list) else v for key, v in values.items()})


def explained(recipe: object) -> list[tuple[str, Any, str]]:
    """Every key by its full name, with its value here and the comment behind its default in the source."""
    comments: dict[str, str] = {}
    for kind in reversed(type(recipe).__mro__):
        try:
            source = inspect.getsource(kind)
        except (OSError, TypeError):  # no source at hand
            continue
        comments |= dict(re.findall(r"^    (\w+): [^#\n]*?  # (.*)$", source, flags=re.MULTILINE))
    found: list[tuple[str, Any, str]] = []
    for name in (field.name for field in fields(recipe)):  # type: ignore[arg-type]
        value = getattr(recipe, name)
        if is_dataclass(value):
            found += [(f"{name}.{key}", *rest) for key, *rest in explained(value)]
        else:
            found.append((name, value, comments.get(name, "")))
    return found


def _stands_for(name: str) -> tuple[str, ...]:
    """The short names of a key."""
    group, _, last = name.rpartition(".")
    return (group, last) if group and last in _FOR_THE_GROUP else (last,)


def _short_names(names: Iterable[str]) -> dict[str, str]:
    """Of each full name the shortest one that stands for it alone, that of its group where there is such."""
    names = list(names)
    count = Counter(short for name in names for short in _stands_for(name))
    return {name: next((short for short in _stands_for(name) if count[short] == 1), name) for name in names}


def _flattened(content: Mapping[str, Any]) -> dict[str, Any]:
    """Of groups in groups, by full names."""
    found: dict[str, Any] = {}
    waiting = [*content.items()][::-1]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, Mapping) and value:
            waiting += [(f"{name}.{key}", own) for key, own in [*value.items()][::-1]]
        else:
            found[name] = value
    return found


def _types(recipe: Any) -> dict[str, Any]:
    """Of each key by its full name."""
    found: dict[str, Any] = {}
    for name, kind in get_type_hints(recipe).items():
        found |= {f"{name}.{key}": own for key, own in _types(kind).items()} if is_dataclass(kind) else {name: kind}
    return found


def _place_of_mistake(recipe: object, values: Mapping[str, Any], settings: Sequence[str | Setting]) -> str:
    """The place in a file of the setting without which there is no mistake; "" where there is none."""
    for each in parse_settings(settings):
        with suppress(ValueError):
            key = _OPTIONS if each.part_option else full_name(values, each.key)
            _replaced(recipe, {name: value for name, value in values.items() if name != key})
            return f"{each.where}: " if each.where else ""
    return ""


def _replaced(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """By full names; every group is checked once, with all its new values."""
    own: dict[str, Any] = {}
    inside: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        group, dot, rest = key.partition(".")
        if dot:
            inside.setdefault(group, {})[rest] = value
        else:
            own[key] = value
    own |= {group: _replaced(getattr(recipe, group), each) for group, each in inside.items()}
    return replace(recipe, **own)  # type: ignore[type-var]


def _as_json(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in items}
