"""Settings out of a file: YAML, which JSON is too."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ordinal_entropy import files
from ordinal_entropy.recipes.keys import Setting
from ordinal_entropy.recipes.values import BEFORE

_MOST_BYTES = 2**20  # a recipe has a few thousand
_DEEPEST = 8  # groups in groups
_NOTHING = ("", "~", "null", "Null", "NULL")
_RUN = "recipe.", "method", "seed"  # what recipe.json of a run folder has


def read_config(path: Path) -> list[Setting]:
    """The settings of a YAML file, or of the ``recipe.json`` of a run folder, in the order of the file.

    Groups are mappings inside the mapping; full and short names may be mixed. Nothing is resolved or executed: tags,
    anchors and aliases are refused. Values are text, read as the type of their key like those of ``--set``.

    Args:
        path: of the file.

    Raises:
        ValueError: it holds something else; the message names the line and the column.
        OSError: it is not a file, or cannot be read.
    """
    found = _File(path).settings()
    keys = [each.key for each in found]
    of_run = any(key.startswith(_RUN[0]) for key in keys) and set(_RUN[1:]) <= set(keys)
    if not of_run:
        return found
    own = [(each, each.key.removeprefix(_RUN[0])) for each in found if each.key.startswith(_RUN[0])]
    return [each._replace(key=BEFORE.get(key, key)) for each, key in own]


class _File:
    """A file as a stream of events."""

    def __init__(self, path: Path) -> None:
        import yaml

        self.yaml, self.path = yaml, path
        self.events: Iterator[Any] = iter(yaml.parse(_text(path), Loader=yaml.SafeLoader))

    def settings(self) -> list[Setting]:
        """All of it."""
        try:
            self._next()  # the stream begins
            if isinstance(self._next(), self.yaml.StreamEndEvent):
                raise ValueError(f"expected keys and values in {self.path}, got an empty file")
            first = self._next()
            if not isinstance(first, self.yaml.MappingStartEvent):
                raise self._error(first, "keys with their values, as in epochs: 10")
            found = list(self._mapping(""))
            self._next()  # the document ends
            last = self._next()
            if not isinstance(last, self.yaml.StreamEndEvent):
                raise self._error(last, "one document")
        except self.yaml.MarkedYAMLError as error:
            said = ", ".join(filter(None, (error.context, error.problem)))
            raise ValueError(f"{self._place(error.problem_mark)}: expected YAML, got an error: {said}") from None
        except self.yaml.YAMLError as error:  # characters that no text has
            raise ValueError(f"expected a text file in YAML, got {self.path}: {error}") from None
        return found

    def _mapping(self, group: str) -> Iterator[Setting]:
        keys: dict[str, str] = {}
        while not isinstance(event := self._next(), self.yaml.MappingEndEvent):
            if not isinstance(event, self.yaml.ScalarEvent):
                raise self._error(event, "the name of a key")
            key, where = f"{group}{self._characters(event)}", self._place(event.start_mark)
            if key in keys:
                raise ValueError(f"{where}: {key} is given twice, before in {keys[key]}")
            keys[key] = where
            value = self._next()
            if isinstance(value, self.yaml.MappingStartEvent):
                if key.count(".") >= _DEEPEST:
                    raise self._error(value, f"at most {_DEEPEST} groups inside each other")
                yield from self._mapping(f"{key}.")
            elif isinstance(value, self.yaml.SequenceStartEvent):
                yield Setting(key, list(self._sequence()), where)
            else:
                yield Setting(key, self._scalar(value), where)

    def _sequence(self) -> Iterator[str]:
        while not isinstance(event := self._next(), self.yaml.SequenceEndEvent):
            text = self._scalar(event) if isinstance(event, self.yaml.ScalarEvent) else None
            if text is None:
                raise self._error(event, "a plain value in a list")
            yield text

    def _scalar(self, event: Any) -> str | None:
        plain = event.style is None and event.value in _NOTHING
        return None if plain else self._characters(event)

    def _characters(self, event: Any) -> str:
        """JSON writes one that is beyond 16 bits as two halves."""
        try:
            return str(event.value).encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise self._error(event, "whole characters") from None

    def _next(self) -> Any:
        event = next(self.events)
        if isinstance(event, self.yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise self._error(event, "values themselves", "an anchor or an alias")
        if getattr(event, "tag", None) is not None:
            raise self._error(event, "plain values", f"the tag {event.tag}")
        return event

    def _error(self, event: Any, expected: str, got: str = "") -> ValueError:
        kinds = {self.yaml.SequenceStartEvent: "a list", self.yaml.DocumentStartEvent: "another document"}
        value = getattr(event, "value", None)
        got = got or (kinds.get(type(event), "a group") if value is None else repr(value))
        return ValueError(f"{self._place(event.start_mark)}: expected {expected}, got {got}")

    def _place(self, mark: Any) -> str:
        return f"{self.path}, line {mark.line + 1}, column {mark.column + 1}"


def _text(path: Path) -> str:
    size = files.size(path, "settings")
    if size > _MOST_BYTES:
        raise ValueError(f"expected settings of at most {_MOST_BYTES:,} bytes in {path}, got {size:,}")
    try:
        return files.text(path)
    except UnicodeDecodeError:
        raise ValueError(f"expected a text file in YAML, got {path}, which is not one in UTF-8") from None
