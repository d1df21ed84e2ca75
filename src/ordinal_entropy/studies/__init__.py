"""The tables and figures of the paper, each as one command: ``ordinal-entropy reproduce STUDY``."""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ordinal_entropy import runs, tasks
from ordinal_entropy.recipes import (
    BEFORE,
    Setting,
    changed,
    described,
    flat,
    full_name,
    leaves,
    lookup,
    override,
    parse_settings,
)
from ordinal_entropy.studies import age, crowd, depth, entropy, fig4a, fig4b, init, table1, table6, table7
from ordinal_entropy.studies.grid import Variant, plans_of, seeds_from, summary_of
from ordinal_entropy.studies.study import Picture, Study
from ordinal_entropy.training.plans import Progress

Settings = Sequence[str | Setting]
QUICK = "The quick preset trains for a small part of the published steps: it shows how, not how much."

_SUMMARY: runs.Form = {
    "task": str,
    "metric": str,
    "lower_is_better": bool,
    "methods": {str: {"values": [runs.NUMBER]}},
    "paired": {str: dict},
}
_SUMMARY_REMEDY = "remove it, and the same command writes it again from the runs"
_LABEL_REMEDY = "remove it, and summary.json if there is one, and the same command resumes"

_STUDIES: dict[str, Study] = {
    **table1.STUDIES,
    **fig4a.STUDIES,
    **fig4b.STUDIES,
    **table6.STUDIES,
    **table7.STUDIES,
    **init.STUDIES,
    **age.STUDIES,
    **crowd.STUDIES,
    **depth.STUDIES,
    **entropy.STUDIES,
}


def names() -> list[str]:
    """The studies there are.

    Example:
        >>> names()[:2]
        ['table1-linear', 'table1-nonlinear']
    """
    return list(_STUDIES)


def get(name: str) -> Study:
    """The study of that name; a ValueError names those near an unknown one."""
    return lookup("study", name, _STUDIES)


def describe(name: str) -> str:
    """What a study is, in one line.

    Example:
        >>> describe("fig4b-linear")
        'Figure 4b, linear operator: error against strength from 1e-5 to 1'
    """
    return get(name).about


@dataclass(frozen=True)
class ResolvedStudy:
    """A study with every setting in place: its keys, its variants, and their recipes."""

    name: str
    preset: str
    settings: Settings
    keys: Any
    variants: list[Variant]
    recipes: dict[str, Any]  # by the labels of the variants

    @property
    def study(self) -> Study:
        """What it is made of."""
        return get(self.name)

    @property
    def recipe(self) -> Any:
        """Of variants without a label."""
        return self.recipes[""]

    @property
    def purpose(self) -> dict[str, Any]:
        """What its folder is for."""
        return {"study": self.name, **flat(described(self.recipe)), **described(self.keys)}


def resolve(name: str, settings: Settings = (), preset: str = "paper") -> ResolvedStudy:
    """A study with every ``key=value`` in place; the study's own keys come first, then those of its recipes.

    A preset that the task of the study does not have is a ValueError that names those it has.

    Example:
        >>> found = resolve("table1-linear", ["seeds=3", "steps=100"])
        >>> found.keys.seeds, found.recipe.training.steps
        (3, 100)
    """
    study = get(name)
    own = list(leaves(study.keys))
    given = parse_settings(settings)
    keys = override(study.keys, [each for each in given if each.key in own])
    for key, value in leaves(keys).items():
        if value == () != getattr(study.keys, key):
            raise ValueError(f"expected {key}=VALUE,VALUE,..., got none")
    rest = [each for each in given if each.key not in own]
    task, variants = study.task(keys), study.variants(keys)

    def recipe_of(preset: str) -> Any:
        if study.recipes is None:
            recipe = tasks.recipe(task, preset)
            if recipe.method.strength is None:
                recipe = changed(recipe, {"method.strength": study.strength})
        else:
            recipe = lookup(f"preset of {name}", preset, study.recipes)
        names = dict(zip(leaves(recipe), flat(described(recipe)), strict=True))  # full -> short
        fixed = {full_name(names, key): value for key, value in study.fixed(keys).items()}
        values = tasks.values_of(task, recipe, rest, beside=own)
        for key, value in values.items():
            if value != fixed.get(key, value):
                known = [*own, *(short for each, short in names.items() if each not in fixed)]
                raise ValueError(f"{name} sets {names[key]} itself; the keys it takes: {', '.join(known)}")
        return changed(recipe, {**values, **fixed}, rest)

    recipes = {"": recipe_of(preset)}
    for variant in variants:
        if variant.label not in recipes:
            recipes[variant.label] = recipe_of(
                lookup(f"preset of {name} with {variant.label}", preset, variant.presets)
            )
        changed(recipes[variant.label], dict(variant.changes))  # values that no run can have are an error here
    if study.recipes is None:
        for label, made in recipes.items():
            tasks.require_parts(made, [variant.method for variant in variants if variant.label == label])
    return ResolvedStudy(name, preset, settings, keys, variants, recipes)


def check(resolved: ResolvedStudy) -> None:
    """Refuses a recipe without the dataset that a study needs; nothing is read."""
    study = resolved.study
    if study.recipes is None:
        for recipe in resolved.recipes.values():
            study.check(recipe)
            tasks.load(study.task(resolved.keys)).check(recipe)


def run(
    name: str,
    out: Path,
    settings: Settings = (),
    device: str = "cpu",
    progress: Progress | None = None,
    preset: str = "paper",
    jobs: int = 1,
) -> dict[str, Any]:
    """Carries out a study by its name: :func:`carry_out` of what :func:`resolve` makes of the settings."""
    return carry_out(resolve(name, settings, preset), out, device, progress, jobs)


def carry_out(
    resolved: ResolvedStudy, out: Path, device: str = "cpu", progress: Progress | None = None, jobs: int = 1
) -> dict[str, Any]:
    """Carries out a study, or reads back a finished one, and writes ``out/summary.json``.

    Args:
        resolved: what :func:`resolve` returns.
        out: its folder; an unfinished study resumes from the checkpoint there.
        device: "cpu", "cuda", ...
        progress: told the steps done and the steps in all.
        jobs: processes that train runs side by side, where the task does not train them as one stack.

    Returns:
        The content of summary.json. Figures are drawn beside it where what they need is installed.
    """
    study, name, keys, variants = resolved.study, resolved.name, resolved.keys, resolved.variants
    if not (out / "summary.json").exists():
        check(resolved)
    earlier = {**flat(described(type(resolved.recipe)())), **described(type(keys)())}
    summary = finished(out, resolved.purpose, earlier)
    read_back = summary is not None
    if summary is None:
        if study.measured is not None:
            found = study.measured(keys, resolved.recipe, device, progress)
        else:
            seeds = seeds_from(keys.seeds, study.least_seeds)
            found = summary_of(
                study.task(keys),
                variants,
                resolved.recipes,
                seeds,
                out=out,
                device=device,
                progress=progress,
                paper=study.paper(keys, variants),
                jobs=jobs,
            )
            published = study.paper_details(keys, variants)
            found |= {"paper_details": published} if published else {}
            if study.further is not None:
                found |= study.further(variants, plans_of(variants, resolved.recipes, seeds), out, device)
        given = tasks.options_of(resolved.settings)
        summary = write_summary(
            out,
            {"study": name, **found},
            about=study.about,
            scale=study.scale,
            notes=(*study.notes, *([QUICK] if resolved.preset == "quick" and study.measured is None else [])),
            command=["reproduce", name, "--preset", resolved.preset, *given, "--device", device],
        )
    if all(find_spec(needed) is not None for needed in study.draws_with):
        for path, draw in pictures(name, out).items():
            if not path.exists():
                with reading_summary(out) if read_back else nullcontext():
                    draw(summary, path)
    return summary


def write_summary(
    out: Path, found: dict[str, Any], *, about: str, scale: float, notes: Sequence[str] = (), command: Sequence[str]
) -> dict[str, Any]:
    """Writes ``out/summary.json``: what was found, and what a page says of it.

    Args:
        out: the folder.
        found: the numbers.
        about: what they are, in one line.
        scale: scores are shown in multiples of it.
        notes: sentences below the tables.
        command: its arguments, which do it again.

    Returns:
        The content, as whoever reads it later has it.
    """
    task = tasks.load(found["task"])
    shown = {"about": about, "scale": scale, "paper_at": task.paper_at, "details": task.details, "notes": notes}
    again = shlex.join(["ordinal-entropy", *command])
    runs.write_json(out / "summary.json", {**found, "shown": shown, "command": again})
    content: dict[str, Any] = runs.read_json(out / "summary.json")
    return content


def pictures(name: str, out: Path) -> dict[Path, Picture]:
    """Where the figures of a study lie in its folder, each with what draws it.

    Example:
        >>> [path.name for path in pictures("fig3", Path("runs/fig3"))]
        ['fig3.png', 'fig3-sphere.png', 'fig3-ordinality.png']
    """
    study = get(name)
    drawn = {} if study.picture is None else {out / f"{name}.png": study.picture}
    return drawn | {out / f"{name}-{what}.png": draw for what, draw in study.further_pictures.items()}


def reading_summary(out: Path) -> AbstractContextManager[None]:
    """What is raised in the ``with`` says that the summary in a folder, which was read back, is damaged."""
    return runs.reading(out / "summary.json", _SUMMARY_REMEDY)


def finished(out: Path, what: dict[str, Any], earlier: Mapping[str, Any]) -> dict[str, Any] | None:
    """The summary in a folder that was made for exactly this; None if it is still to be made.

    ``out/study.json`` says what a folder is for. One that is for something else is a ValueError, unless that was
    stopped before anything was trained.

    Args:
        out: the folder.
        what: it is to be made for; keys of recipes by their short names.
        earlier: what keys stand for that the folder lacks, since it was written before they existed.
    """
    label = out / "study.json"
    if not label.exists():
        if (out / "summary.json").exists():
            raise ValueError(f"expected a new or unfinished folder, got {out} with a summary.json of something else")
        runs.write_json(label, what)
        return None
    found = {BEFORE.get(key, key): value for key, value in runs.read_json(label, dict, remedy=_LABEL_REMEDY).items()}
    found |= {key: earlier[key] for key in what if key in earlier and key not in found}
    different = [key for key in {**found, **what} if found.get(key) != what.get(key)]
    begun = (out / "training").exists() or (out / "summary.json").exists()
    if different and not begun:
        runs.write_json(label, what)
    elif different:
        key = different[0]
        raise ValueError(
            f"{out} holds another study: {key} is {found.get(key)!r} there and {what.get(key)!r} here; "
            "choose another --out, or remove the folder"
        )
    if not (out / "summary.json").exists():
        return None
    summary: dict[str, Any] = runs.read_json(out / "summary.json", _SUMMARY, remedy=_SUMMARY_REMEDY)
    return summary
