"""Tables as they are shown everywhere: a title, headings, cells of text, a note."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ordinal_entropy import comparison
from ordinal_entropy.comparison import references
from ordinal_entropy.comparison.text import (
    NONE,
    count,
    decimals,
    interval,
    mean_and_std,
    metric_name,
    number,
    probability,
    published,
    times,
)
from ordinal_entropy.comparison.verdicts import unit
from ordinal_entropy.recipes import flat

_MOST_SCREENED = 8  # rows of a round that are shown, beside those that were tuned
POINTS = {"last": "last step", "best_validation": "best on validation", "best_test": "best on test"}


class Row(NamedTuple):
    """A name and its cells."""

    name: str
    cells: Sequence[str]
    paper: bool = False  # numbers of the paper's alone, or of a reference: drawn dim
    dots: Sequence[tuple[float, float, float]] = ()  # low, value, high of each file, in percent of a line; drawn
    zero: float = 0.0  # where the zero is on that line


class Table(NamedTuple):
    """What is above and below the cells, and these."""

    title: str
    headings: Sequence[str]  # of the cells
    rows: Sequence[Row]
    note: str = ""
    prose: bool = False  # the last column is a sentence


def scale_of(summary: Mapping[str, Any]) -> float:
    """What scores are shown in multiples of: as the summary says, or so that the baseline's mean has digits up front.

    Example:
        >>> scale_of({"baseline": "baseline", "methods": {"baseline": {"mean": 0.0031}}})
        0.001
    """
    shown, mean = (summary.get("shown") or {}).get("scale"), summary["methods"][summary["baseline"]].get("mean")
    if shown:
        return float(shown)
    if not mean or math.isnan(mean) or abs(mean) >= 1:
        return 1.0
    return 1e-3 if abs(mean) >= 1e-4 else 1e-6


def score_name(summary: Mapping[str, Any], scale: float) -> str:
    """The score with its scale, of the rows that it is of.

    Example:
        >>> score_name({"metric": "mse", "methods": {}, "variants": {}}, 1e-3)
        'Test MSE x 1e-3'
    """
    rows = "" if comparison.scored_once(summary) else "Test "
    return f"{rows}{metric_name(summary['metric'])}{times(scale)}"


def scores(summary: Mapping[str, Any], scale: float, paper_at: str | None) -> Table:
    """Mean and standard deviation over the runs at three steps, beside the paper's; then references, and its own rows.

    Args:
        summary: of a comparison.
        scale: numbers are multiples of it.
        paper_at: which of the three steps the paper has; None where that is not known.
    """
    methods, paper = summary["methods"], summary.get("paper") or {}
    once = comparison.scored_once(summary)
    at = [point for point in POINTS if not once and all(point in own.get("at", {}) for own in methods.values())]
    headings = [POINTS[point] + (", as the paper" if point == paper_at and paper else "") for point in at] or ["mean"]
    rows = [
        Row(
            name,
            [mean_and_std(own["at"][point], scale) for point in at]
            or [mean_and_std(own["values"], scale)],
        )
        for name, own in methods.items()
    ]  # fmt: skip
    needless = {name: number(score, scale) for name, score in references.beside(summary).items()}
    rows += [Row(references.called(name), [shown] * len(headings), paper=True) for name, shown in needless.items()]
    if paper:
        headings.append("paper")
        digits = decimals([score.get("mean") for score in paper.values()], scale)
        rows = [Row(row.name, [*row.cells, _published(paper.get(row.name), scale, digits)]) for row in rows]
        alone = [name for name in paper if name not in methods]
        blank = [NONE] * (len(headings) - 1)
        rows += [Row(name, [*blank, _published(paper[name], scale, digits)], paper=True) for name in alone]
    n = max(len(own["values"]) for own in methods.values())
    better = "lower" if summary["lower_is_better"] else "higher"
    spread = f"mean ± standard deviation of {n} runs" if n > 1 else "one run"
    fast = flat(summary.get("recipe") or {}).get("tf32") and str(summary.get("device", "")).startswith("cuda")
    note = f"{spread.capitalize()}; {better} is better{'; TF32' if fast else ''}."
    if references.CONSTANT in needless and summary.get("constant"):
        note += f" The constant is {summary['constant']}."
    return Table(score_name(summary, scale), headings, rows, note)


def differences(summary: Mapping[str, Any], scale: float) -> Table | None:
    """Each method against what it is held to, seed by seed; None where there is only one."""
    if not summary["paired"]:
        return None
    spreads = (summary.get("spread") or {}) if unit(summary) == "seed" else {}
    held_to = summary.get("held_to") or {}
    several, adjusted = len(summary["paired"]) > 1, comparison.adjusted(summary)
    rows = []
    for name, pair in summary["paired"].items():
        difference, low, high = interval(pair["difference"], pair["ci_low"], pair["ci_high"], scale)
        cells = [difference, NONE if low is None else f"{low} to {high}", probability(adjusted[name])]
        cells += [probability(pair["p_value"])] if several else []
        if spreads:
            own = spreads.get(name, {})
            cells += [number(own.get("ratio")), probability(own.get("p_value"))]
        rows.append(Row(name, cells))
    headings = ["difference", "95% CI", *(["p after Holm", "raw p"] if several else ["p"])]
    headings += ["std over the baseline's", "p of that"] if spreads else []
    base = "its own baseline" if held_to else next(n for n in summary["methods"] if n not in summary["paired"])
    at = "" if comparison.scored_once(summary) else ", best on validation"
    looked = "intervals and p-values that hold however often one looked, for the differences"
    how = looked if summary.get("stop_early") else "Student's t on the differences"
    note = f"Method minus baseline{at}; {how} within each {unit(summary)}."
    note += f" {comparison.skew_warning(summary)}" if comparison.skew_warning(summary) else ""
    return Table(f"Against {base}: {metric_name(summary['metric'])}{times(scale)}", headings, rows, note)


def details(summary: Mapping[str, Any], shown: Mapping[str, Mapping[str, str]]) -> list[Table]:
    """Further scores, best on validation, the paper's in rows below.

    Args:
        summary: with "details" and, where the paper has any of them, "paper_details".
        shown: title -> heading -> name of a score; all in one table where nothing is said.
    """
    own, paper = summary.get("details") or {}, summary.get("paper_details") or {}
    if not own:
        return []
    have = {name: None for points in own.values() for name in points["best_validation"]}
    wanted = shown or {"Further scores": {name: name for name in have}}
    found = []
    for title, names in wanted.items():
        known = {heading: name for heading, name in names.items() if name in have}
        if not known:
            continue
        rows = []
        digits = decimals([theirs.get(name) for theirs in paper.values() for name in known.values()])
        for variant in dict.fromkeys([*own, *paper]):
            if variant in own:
                scores = own[variant]["best_validation"]
                rows.append(Row(variant, [mean_and_std(scores.get(name, [])) for name in known.values()]))
            theirs = paper.get(variant, {})
            if any(name in theirs for name in known.values()):
                cells = [published(theirs.get(name), 1.0, digits) for name in known.values()]
                rows.append(Row("paper" if variant in own else f"{variant}, paper", cells, paper=True))
        found.append(Table(title, list(known), rows, "Best on validation, mean ± standard deviation over the runs."))
    return found


def tuning(summary: Mapping[str, Any], scale: float) -> list[Table]:
    """What tuning chose and gave, and the validation scores against the learning rate; none where nothing was tuned.

    Of several tunings each has a row, and the curves are those of the first.
    """
    rows, about = summary.get("tuning") or {}, summary.get("tuned") or {}
    if not rows:
        return []
    axis = str(about.get("axis", "learning_rate"))
    metric = f"validation {metric_name(summary['metric'])}{times(scale)}"
    known = any(own.get("untuned") is not None for own in rows.values())
    chosen = []
    for row, first in rows.items():
        every = first.get("tunings") or [first]
        for place, own in enumerate(every):
            cells = [
                f"{own['trials']}" + (f" ({own['failed']} failed)" if own["failed"] else ""),
                number(own["seconds"]),
            ]
            cells += [number(own.get("untuned"), scale)] if known else []
            settings = "; ".join(f"{key} {_plain_short(value)}" for key, value in own["chosen"].items())
            edge = f" (at the edge: {', '.join(own['at_edge'])})" if own.get("at_edge") else ""
            cells += [number(own["validation"], scale), f"{settings or NONE}{edge}"]
            chosen.append(Row(row if len(every) == 1 else f"{row}, tuning {place + 1}", cells))
    headings = ["trials", "seconds", *(["before"] if known else []), "after", "chosen"]
    before = f"Before: at the {axis.replace('_', ' ')} of the recipe, after: at what was chosen" if known else "After"
    over = count(int(about.get("seeds", 0)), "tuning seed")
    note = (
        f"{before}; means over {over}, on validation data. A score that was chosen for being the best is too good by "
        "as much as chance gives; the test scores are not."
    )
    found = [Table(f"Tuning: {metric}", headings, chosen, note, prose=True)]
    values = sorted({value for own in rows.values() for value, _ in own["curve"]})
    curves = {row: dict(own["curve"]) for row, own in rows.items() if own["curve"]}
    lines = [Row(f"{value:.3g}", [number(own.get(value), scale) for own in curves.values()]) for value in values]
    title = f"Against the {axis.replace('_', ' ')}, all else at its default: {metric}"
    return [*found, Table(title, list(curves), lines, "")]


def selection(summary: Mapping[str, Any], scale: float) -> list[Table]:
    """What each round of a search for the best composition tried; none where there was no search."""
    metric = f"validation {metric_name(summary['metric'])}{times(scale)}"
    sign = 1 if summary["lower_is_better"] else -1
    found = []
    for place, own in enumerate((summary.get("best") or {}).get("rounds") or [], 1):
        screened = {row: math.nan if value is None else float(value) for row, value in own["screened"].items()}
        order = sorted(screened, key=lambda row: sign * screened[row] if math.isfinite(screened[row]) else math.inf)
        shown = [*dict.fromkeys([own["best"], *(row for row in order if row in own["tuned"]), *order[:_MOST_SCREENED]])]
        rows = []
        for row in shown:
            tuned, gain = own["tuned"].get(row, {}), own["confirmed"].get(row)
            cells = [number(screened.get(row, own["best_screened"]), scale), number(tuned.get("validation"), scale)]
            if gain is None:
                cells.append(NONE)
            else:
                error = number(gain["error"], scale)
                cells.append(f"{number(gain['difference'], scale, sign=True)} ± {error} (n = {gain['n']})")
            cells.append("added" if row == own["added"] else "")
            rows.append(Row(row, cells))
        rest = len(screened) + 1 - len(shown)
        note = (
            f"Screened: at the settings of {own['best']}. Confirmed: mean difference and its standard error on seeds "
        )
        note += "that chose nothing."
        note += f" {count(rest, 'other')} did worse when screened." if rest > 0 else ""
        note += f" The budget was too short for {own['left_out']} more." if own["left_out"] else ""
        title = f"Round {place}, beside {own['best']}: {metric}"
        found.append(Table(title, ["screened", "tuned", "confirmed", ""], rows, note))
    return found


def costs(summary: Mapping[str, Any]) -> Table:
    """Seconds and megabytes, beside the paper's."""
    methods, paper, memory = summary["methods"], summary.get("paper") or {}, summary["memory_mb"]
    base, theirs = methods[summary["baseline"]]["mean"], paper.get(summary["baseline"], {}).get("seconds")
    rows = []
    for name, own in methods.items():
        cited = paper.get(name, {})
        seconds = cited.get("seconds")
        cells = [mean_and_std(own["values"]), number(own["mean"] / base if base else None), number(memory.get(name))]
        cells += [number(seconds), number(seconds / theirs if seconds and theirs else None)]
        rows.append(Row(name, [*cells, number(cited.get("megabytes"))]))
    headings = ["seconds", "over the baseline's", "MB", "paper: seconds", "over the baseline's", "MB"]
    return Table(summary["metric"].capitalize(), headings, rows, f"MB: {summary.get('memory_is', 'as measured')}.")


def claims(summary: Mapping[str, Any]) -> Table | None:
    """What the paper says of the entropies, and whether it held; None where nothing was looked at."""
    found = summary.get("claims") or []
    estimators = list(dict.fromkeys(claim["estimator"] for claim in found))
    by: dict[tuple[str, str], dict[str, str]] = {}
    for claim in found:
        by.setdefault((claim["claim"], claim["part"]), {})[claim["estimator"]] = held(claim)
    rows = [
        Row(f"{text} ({'test' if part == 'test' else 'training'})", [own.get(each, NONE) for each in estimators])
        for (text, part), own in by.items()
    ]
    note = "Of the mean over the runs; in brackets, in how many of the seeds."
    return Table("What the paper says of the entropies", estimators, rows, note) if rows else None


def key_values(title: str, content: Mapping[str, Any]) -> Table:
    """Keys and values."""
    return Table(title, ["value"], [Row(str(key), [_plain(value)]) for key, value in content.items()])


def held(claim: Mapping[str, Any]) -> str:
    """Whether a claim of the paper held, from when on, and in how many of the seeds.

    Example:
        >>> held({"held": True, "since": 13, "seeds": 2, "of": 3})
        'held from epoch 13 (2 of 3)'
    """
    if claim["held"] is None:
        return "no number"
    since = f" from epoch {claim['since']}" if claim.get("since") else ""
    seeds = f" ({claim['seeds']} of {claim['of']})" if claim["of"] > 1 else ""
    return f"{'held' if claim['held'] else 'not held'}{since}{seeds}"


def _published(score: Mapping[str, Any] | None, scale: float, digits: int) -> str:
    if score is None or score.get("mean") is None:
        return NONE
    spread = f" ± {score['std'] / scale:.2g}" if score.get("std") is not None else ""
    return f"{published(score['mean'], scale, digits)}{spread}"


def _plain_short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else _plain(value)


def _plain(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(_plain(each) for each in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None or value == "" else f"{value:g}" if isinstance(value, float) else str(value)
