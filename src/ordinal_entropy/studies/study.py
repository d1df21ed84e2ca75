"""What a study is made of, and its pictures."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ordinal_entropy.recipes import flat
from ordinal_entropy.results import summary_figures, tables
from ordinal_entropy.results.figures import Axis, Figure, Panel
from ordinal_entropy.results.tables import Table
from ordinal_entropy.studies.grid import Variant
from ordinal_entropy.studies.paper import Score
from ordinal_entropy.training.plans import Plan

Picture = Callable[[dict[str, Any], Path], None]  # from a summary to a PNG, with an SVG beside it
Details = Mapping[str, Mapping[str, float]]  # by names of variants, then of scores

_NOTHING = Figure("", "", [Panel(Axis(""), Axis(""), [])], Table("", [], []))


class Study(NamedTuple):
    """A table or figure: what it varies, over which task, and what the paper has for it."""

    about: str  # one line
    keys: Any  # frozen dataclass: what is varied, with the defaults of the paper; ``--set`` overrides
    task: Callable[[Any], str]  # from the keys to the task, whose published recipe is taken; ``--set`` overrides it too
    fixed: Callable[
        [Any], dict[str, Any]
    ]  # from the keys to those of the recipe that the study itself sets, by short names
    variants: Callable[[Any], list[Variant]]  # from the keys; the first is what the others are held to
    paper: Callable[[Any, Sequence[Variant]], Mapping[str, Score]] = lambda keys, variants: {}  # by names of variants
    paper_details: Callable[[Any, Sequence[Variant]], Details] = (
        lambda keys, variants: {}
    )  # its further scores, likewise
    measured: Callable[..., dict[str, Any]] | None = None  # (keys, recipe, device, progress): in place of training
    recipes: Mapping[str, Any] | None = None  # presets of its own in place of the task's; it then needs no dataset
    strength: float = 1.0  # of terms, fixed, where a preset of the task has none
    least_seeds: int = 2  # an interval needs two
    check: Callable[[Any], None] = lambda recipe: None  # refuses a recipe that the task has nothing against
    further: Callable[[Sequence[Variant], Sequence[Plan], Path, str], dict[str, Any]] | None = (
        None  # (variants, their plans, folder of the study, device): more of the summary, made of the finished runs
    )
    report: Callable[[dict[str, Any]], list[Table]] | None = None  # of a summary, in place of differences and details
    scale: float = 1.0  # scores are printed in multiples of it
    notes: tuple[str, ...] = ()  # printed below the tables
    picture: Picture | None = None  # named like the study
    further_pictures: Mapping[str, Picture] = {}  # by what is added to that name
    draws_with: tuple[str, ...] = ("matplotlib",)  # packages without which they are drawn later


def draws(
    title: str | Callable[[dict[str, Any]], str], figure: Callable[[dict[str, Any], Path], Figure | None]
) -> Picture:
    """A picture of the figure that ``figure`` makes of a summary and its folder; of none, one that says so."""

    def draw(summary: dict[str, Any], path: Path) -> None:
        from ordinal_entropy.figures import drawing

        above = title if isinstance(title, str) else title(summary)
        drawing.draw(figure(summary, path.parent) or _NOTHING, path, title=above)

    return draw


def draws_differences(title: str) -> Picture:
    """A picture of the paired differences; above it the number of training images, where that was set."""

    def above(summary: dict[str, Any]) -> str:
        rows = flat(summary["recipe"]).get("train_rows")
        return f"{title}{f', {rows:,} training images' if rows else ''}: paired differences"

    return draws(above, lambda summary, _: summary_figures.differences(summary, tables.scale_of(summary)))
