"""Settings: what is to stand in place of a key's value, and where it was written."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from ordinal_entropy.recipes.values import written

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


def pairs(settings: Sequence[str | Setting]) -> list[Setting]:
    """``key=value`` taken apart; dashes in a key are read as underscores.

    Example:
        >>> [tuple(each)[:2] for each in pairs(["learning-rate=0.01", "data="])]
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
