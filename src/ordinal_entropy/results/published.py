"""Scores that others have published, out of ``published.toml``, as tables."""

import math
import sys
from functools import cache
from importlib.resources import files
from typing import Any

from ordinal_entropy.comparison.text import metric_name
from ordinal_entropy.results.tables import Row, Table

_EVIDENCE = {
    "paper": "printed in the paper",
    "code": "from the authors' public code or logs",
    "computed": "computed from the files of a public repository",
}
_KEYS = {"task", "data", "split", "columns", "recipe", "source", "evidence", "scores"}
_WARNING = "Compare with the scores above only where data, split and recipe are the same."


@cache
def tables() -> tuple[dict[str, Any], ...]:
    """All tables of the file, checked.

    Example:
        >>> {table["data"] for table in tables() if table["task"] == "linear"}
        {'linear operator, imbalanced (OL-DIR)'}
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    content = tomllib.loads(files("ordinal_entropy.results").joinpath("published.toml").read_text(encoding="utf-8"))
    for table in content["table"]:
        missing = _KEYS - table.keys()
        if missing or table["evidence"] not in _EVIDENCE:
            came = f"no {sorted(missing)[0]}" if missing else repr(table["evidence"])
            raise ValueError(f"expected {', '.join(sorted(_KEYS))} of each published table, got {came} in {table}")
        for name, scores in table["scores"].items():
            if len(scores) != len(table["columns"]) or not all(math.isfinite(score) for score in scores):
                raise ValueError(f"expected {len(table['columns'])} scores of {name}, got {scores} in {table['data']}")
    return tuple(content["table"])


def of_task(task: str) -> list[Table]:
    """The tables of a task, each with where its scores come from and how sure they are.

    Example:
        >>> of_task("linear")[0].rows[0]
        Row(name='baseline', cells=['15.64'], paper=True, dots=(), zero=0.0)
    """
    return [_shown(table) for table in tables() if table["task"] == task]


def _shown(table: dict[str, Any]) -> Table:
    unit = f", {table['unit']}" if table.get("unit") else ""
    every = [score for scores in table["scores"].values() for score in scores]
    digits = max(len(f"{score:g}".partition(".")[2]) for score in every)
    return Table(
        f"Published on {table['data']}{unit}",
        [_heading(column) for column in table["columns"]],
        [
            Row(name, [f"{score:.{digits}f}" for score in scores], paper=True)
            for name, scores in table["scores"].items()
        ],
        f"Split: {table['split']}. Recipe: {table['recipe']}. "
        f"Source: {table['source']}; {_EVIDENCE[table['evidence']]}. {_WARNING}",
    )


def _heading(column: str) -> str:
    """As "MAE, few" of "mae_few"."""
    metric, shots, part = column.partition("_")
    return metric_name(metric) + shots.replace("_", ", ") + part
