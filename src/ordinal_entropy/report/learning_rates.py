"""The chart of a tuned comparison: validation scores against the learning rate, a line for each row."""

from collections.abc import Mapping
from typing import Any

from ordinal_entropy.comparison.text import metric_name, number, times
from ordinal_entropy.report.charts import Chart, View, line
from ordinal_entropy.results import tables


def chart(summary: Mapping[str, Any], scale: float) -> Chart | None:
    """The common grid of a summary's first tuning; None where nothing was tuned."""
    rows = summary.get("tuning") or {}
    if not rows:
        return None
    axis = str(summary["tuned"].get("axis", "learning_rate")).replace("_", " ")
    metric = f"validation {metric_name(summary['metric'])}{times(scale)}"
    traces = []
    for place, (row, own) in enumerate(rows.items()):
        points = [(value, score / scale) for value, score in own["curve"] if score is not None]
        said = [f"{axis} {value:.3g}: {number(score)}" for value, score in points]
        traces.append(line(row, place, [value for value, _ in points], [score for _, score in points], said))
    layout = {"xaxis": {"type": "log", "title": {"text": axis}}, "yaxis": {"title": {"text": metric}}}
    caption = f"Means over the tuning seeds; all but the {axis} is at its default."
    return Chart(f"Against the {axis}", caption, [View("", traces, layout)], tables.tuning(summary, scale)[1])
