"""The tasks of the paper, each with its data, models, metrics and recipe; needs the [train] extra.

A task is looked up by name and loaded when it is asked for.
"""

import difflib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ordinal_entropy import methods, runs
from ordinal_entropy.recipes import (
    Setting,
    assigned,
    changed,
    completed,
    described,
    flat,
    leaves,
    literal,
    lookup,
    parse_settings,
    restored,
    unknown,
    written,
)
from ordinal_entropy.recipes.groups import MethodOptions
from ordinal_entropy.tasks.using import Used
from ordinal_entropy.training import runner
from ordinal_entropy.training.plans import Outcome, Plan
from ordinal_entropy.training.runner import Trainable

_WHERE = {
    "linear": "ordinal_entropy.tasks.operators.recipe",
    "nonlinear": "ordinal_entropy.tasks.operators.recipe",
    "nonlinear-paths": "ordinal_entropy.tasks.operators.recipe",
    "age": "ordinal_entropy.tasks.age.recipe",
    "crowd": "ordinal_entropy.tasks.crowd.recipe",
    "depth": "ordinal_entropy.tasks.depth.recipe",
    "tabular": "ordinal_entropy.tasks.tabular.recipe",
}
_DATA = {  # packages with a module ``data`` and a module ``generated``
    "age": "ordinal_entropy.tasks.age",
    "crowd": "ordinal_entropy.tasks.crowd",
    "depth": "ordinal_entropy.tasks.depth",
    "tabular": "ordinal_entropy.tasks.tabular",
}

_CLASSICAL = {"tabular": "ordinal_entropy.tasks.tabular.classical"}  # modules with ``ROWS`` that are no methods

TASK = "task"  # names the task beside the keys of a recipe, in files
_STRENGTHS = ("strength", "balance")  # keys of a recipe, for terms that have neither among their own options
_OF_METHODS = {each.name for each in fields(MethodOptions)} - {"options", *_STRENGTHS}


def _no_references(recipe: Any, seeds: Sequence[int], without: Collection[str]) -> dict[str, list[float]]:
    return {}


class Task(NamedTuple):
    """What the command line and the studies need of a task."""

    training: Trainable  # how its runs train
    about: str  # one line
    presets: Mapping[str, Any]  # recipes by name
    fixed: tuple[str, ...]  # keys of the recipe that the name of the task stands for, by full names
    evaluate: Callable[..., dict[str, float]]  # (plan, device, folder): scores of the checkpoint there
    used: Callable[..., Used]  # (plan, at, device, folder): the run there, to predict with
    check_method: Callable[[Plan], None]  # refuses a method that no such run can have, before anything is written
    check: Callable[[Any], None] = lambda recipe: None  # refuses a recipe without data, likewise
    details: Mapping[str, Mapping[str, str]] = {}  # tables of details: title -> heading -> name
    paper_at: str = "best_test"  # which score of a run the paper has: "last", "best_validation" or "best_test"
    pictured: Callable[..., list[Any]] | None = None  # (plan, count, device, folder): predicted maps of test images
    lower_is_better: bool = True
    # (recipe, number of a tuning) -> the recipe whose runs all have the same test rows, whatever their seeds
    set_aside: Callable[[Any, int], Any] = lambda recipe, tuning: recipe
    # (recipe, seeds, names to be left out) -> by name, the test score of each seed without any network
    references: Callable[[Any, Sequence[int], Collection[str]], dict[str, list[float]]] = _no_references
    constant: str = "a constant"  # what the reference of that name predicts, as in "predicting the training mean"

    @property
    def metric(self) -> str:
        """The score that decides."""
        return self.training.metric

    @property
    def train(self) -> Callable[..., list[Outcome]]:
        """Trains its runs: :func:`ordinal_entropy.training.runner.train` from its second argument on."""
        return partial(runner.train, self.training)

    @property
    def gather(self) -> Callable[..., list[Outcome]]:
        """The outcomes of runs that were trained: :func:`ordinal_entropy.training.runner.gather`, likewise."""
        return partial(runner.gather, self.training)

    @property
    def seconds(self) -> Callable[..., list[float]]:
        """What runs took that were timed: :func:`ordinal_entropy.training.runner.seconds`, likewise."""
        return partial(runner.seconds, self.training)


class Data(NamedTuple):
    """What the command line needs of the datasets of a task."""

    check: Callable[..., list[Any]]  # (root, progress): what is wrong, each a file and a reason
    make: Callable[..., None]  # (folder, seed, count, progress): writes a small generated set; a count of its own


def names() -> list[str]:
    """The tasks there are.

    Example:
        >>> names()
        ['linear', 'nonlinear', 'nonlinear-paths', 'age', 'crowd', 'depth', 'tabular']
    """
    return list(_WHERE)


def load(name: str) -> Task:
    """The task of that name; a ValueError names those near an unknown one.

    Example:
        >>> load("linear").metric
        'mse'
    """
    module = import_module(lookup("task", name, _WHERE))
    task: Task = module.TASKS[name]
    return task


def data_names() -> list[str]:
    """The tasks whose datasets are folders of files.

    Example:
        >>> data_names()
        ['age', 'crowd', 'depth', 'tabular']
    """
    return list(_DATA)


def load_data(name: str) -> Data:
    """The datasets of the task of that name; a ValueError names those near an unknown one."""
    package = lookup("task with a dataset", name, _DATA)
    return Data(
        check=import_module(f"{package}.data").check,
        make=import_module(f"{package}.generated").make,
    )


def classical(name: str) -> Mapping[str, str]:
    """Rows of a task that are no methods, such as models of scikit-learn on tables, each with what it is.

    Example:
        >>> list(classical("tabular")), list(classical("linear"))
        (['hist-gradient-boosting', 'ridge', 'constant'], [])
    """
    found: Mapping[str, str] = import_module(_CLASSICAL[name]).ROWS if name in _CLASSICAL else {}
    return found


def require_row(task: str, name: str) -> None:
    """A ValueError where a comparison on a task can have no row of a name: an unknown method, a model of another task.

    Example:
        >>> require_row("tabular", "ridge")
        >>> require_row("tabular", "ridge+oe")
        Traceback (most recent call last):
        ValueError: expected 'ridge' by itself, which is a model of its own and joins no method, got 'ridge+oe'
    """
    models = {model: where for where in _CLASSICAL for model in classical(where)}
    model = next((part for part in str(name).split("+") if part in models), None)
    if model is None:
        try:
            methods.create(name)
        except ValueError:
            if difflib.get_close_matches(name, classical(task)):
                raise ValueError(unknown(f"row of {task}", name, classical(task))) from None
            raise
    elif name != model:
        raise ValueError(f"expected {model!r} by itself, which is a model of its own and joins no method, got {name!r}")
    elif model not in classical(task):
        raise ValueError(f"expected a method, got {model!r}, which is a row of {models[model]} alone")


def parts_of(name: str) -> list[str]:
    """The parts of a method; none of a row that is no method.

    Example:
        >>> parts_of("huber+oe"), parts_of("ridge")
        (['huber', 'oe'], [])
    """
    return [] if any(name in classical(task) for task in _CLASSICAL) else methods.split(name)


def preset_of(name: str, preset: str = "paper") -> str:
    """The preset itself, or for "paper" of a task that the paper does not have, the task's first one.

    Example:
        >>> preset_of("linear"), preset_of("tabular"), preset_of("tabular", "quick")
        ('paper', 'small', 'quick')
    """
    presets = load(name).presets
    return next(iter(presets)) if preset == "paper" and preset not in presets else preset


def recipe(name: str, preset: str = "paper", settings: Sequence[str | Setting] = ()) -> Any:
    """A recipe of a task, a frozen dataclass, with every ``key=value`` in place of its own.

    Example:
        >>> recipe("linear", "quick", ["hidden=50"]).model.hidden
        50
    """
    task = load(name)
    found = lookup(f"preset of {name}", preset_of(name, preset), task.presets)
    values, own = values_of(name, found, settings), leaves(found)
    for key in task.fixed:
        if values.get(key, own[key]) != own[key]:
            raise ValueError(f"{key} comes with the name of the task, got it as a setting of {name}")
    return changed(found, values, settings)


def values_of(
    name: str, recipe: Any, settings: Sequence[str | Setting], *, beside: Sequence[str] = ()
) -> dict[str, Any]:
    """The values that settings put in place in a recipe of a task, by full names; see ``recipes.assigned``.

    The setting ``task=NAME`` of a file changes nothing: another task is an error.
    """
    given = parse_settings(settings)
    for each in given:
        with each.reading():
            if each.key == TASK and each.value != name:
                raise ValueError(f"expected settings of the task {name}, got those of {each.value}")
    given = [each for each in given if each.key != TASK]
    return assigned(recipe, given, beside=beside, option=option_value)


def method_of(plan: Plan, **offered: Any) -> methods.Composition:
    """The method of a run on images or tables; operators make theirs in ``tasks.operators.train``, likewise.

    Every part takes, of the keys of the recipe and of what its loop offers, the options that it knows; then its own
    ones out of ``method.options``, which win: a strength of its own over a balance too, and the other way round. The
    recipe's ``bins`` are those of heads alone.

    Args:
        plan: of the run.
        offered: by the loop, beyond the recipe: ranges of targets, layouts.

    Example:
        >>> plan = Plan("classification+oe", 0, recipe("linear", "quick", ["method.oe.strength=5"]))
        >>> made = method_of(plan)
        >>> made.strengths, made.outputs(1)
        ({'oe': 5.0}, 100)
    """
    offered = {**{key: getattr(plan.recipe.method, key) for key in _OF_METHODS}, **offered}
    found: dict[str, dict[str, Any]] = {}
    for part in methods.split(plan.method):
        known = methods.options(part)
        found[part] = {key: value for key, value in offered.items() if key in known}
        if methods.kind(part) != "head":  # the bins of a recipe are those of predictions
            found[part].pop("bins", None)
    for part, option, value in part_options(plan.recipe):
        if part in found:
            found[part][option] = value
    strengths = {key: getattr(plan.recipe.method, key) for key in _STRENGTHS}
    return methods.with_default(plan.method, found, **strengths)


def part_options(recipe: Any) -> list[tuple[str, str, Any]]:
    """The options of single parts that a recipe has: part, option, value.

    Example:
        >>> part_options(recipe("linear", "quick", ["method.oe.strength=5"]))
        [('oe', 'strength', 5)]
    """
    found = []
    for setting in recipe.method.options:
        name, _, text = setting.partition("=")
        found.append((*_part_and_option(name), option_value(name, text)))
    balanced = {part for part, option, value in found if option == "balance" and value is not None}
    for part, option, value in found:
        if option == "strength" and value is not None and part in balanced:
            raise ValueError(f"expected a strength or a balance of {part!r}, got both")
    return found


def option_value(name: str, text: str) -> Any:
    """The value of ``part.option``; a ValueError where there is no such option, or the text is of another type.

    Example:
        >>> option_value("hl-gauss.sigma", "1"), option_value("oe.memory", "none"), option_value("oe.rescale", "none")
        (1, None, 'none')
        >>> option_value("hl-gauss.sigma", "wide")
        Traceback (most recent call last):
        ValueError: expected a number for method.hl-gauss.sigma, got 'wide'
    """
    part, option = _part_and_option(name)
    default, value = methods.option_defaults(part)[option], literal(text)
    if isinstance(default, str) and value is None:  # one of its words
        return text.lower()
    if isinstance(default, bool) and not isinstance(value, bool):
        raise ValueError(f"expected true or false for method.{part}.{option}, got {text!r}")
    wrong = isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value)
    if wrong and (type(default) in (int, float) or (option == "strength" and value is not None)):
        raise ValueError(f"expected a number for method.{part}.{option}, got {text!r}")
    if option == "generator" and value is not None:
        raise ValueError(f"expected no method.{part}.generator, which is an object of Python's, got {text!r}")
    return value


def _part_and_option(name: str) -> tuple[str, str]:
    """Of ``part.option``; one that does not exist is a ValueError."""
    part, dot, option = name.rpartition(".")
    if not dot:
        raise ValueError(f"expected method.PART.OPTION=VALUE, as method.oe.strength=5, got method.{name}")
    known = methods.options(part)
    if option not in known:
        raise ValueError(unknown(f"option of {part}", option, known))
    return part, option


def require_parts(recipe: Any, names: Sequence[str]) -> None:
    """A ValueError where a recipe has options of a part that none of the methods has.

    Example:
        >>> require_parts(recipe("linear", "quick", ["method.oe.strength=5"]), ["baseline", "ld"])
        Traceback (most recent call last):
        ValueError: expected options of parts of baseline, ld, got method.oe.strength, which none of them has
    """
    parts = {part for name in names for part in parts_of(name)}
    for part, option, _ in part_options(recipe):
        if part not in parts:
            raise ValueError(
                f"expected options of parts of {', '.join(names)}, got method.{part}.{option}, which none of them has"
            )


def options_of(settings: Sequence[str | Setting]) -> list[str]:
    """Settings as options of the command line, those of a file as if they had been given there.

    Example:
        >>> options_of(["steps=50", Setting("training.tf32", "true", "mine.yaml, line 3, column 3")])
        ['--set=steps=50', '--set=training.tf32=true']
    """
    return [f"--set={each}" for each in settings if not (isinstance(each, Setting) and each.key == TASK)]


def arguments(name: str, content: Mapping[str, Any]) -> list[str] | None:
    """The options of the command line that make a recipe: its preset, or the nearest one, and ``--set`` for the rest.

    Args:
        name: of the task.
        content: the recipe, as ``described`` tells of it and as a run folder has it; a key that it lacks, since it was
            written before the key existed, has its default.

    Returns:
        The options; None where there are none: another task, or a recipe of a newer version.

    Example:
        >>> arguments("linear", described(recipe("linear", "quick", ["steps=50", "data=rows"])))
        ['--preset', 'quick', '--set=data=rows', '--set=steps=50']
    """
    found = []
    for preset, plain in (load(name).presets if name in _WHERE else {}).items():
        own, whole = flat(described(plain)), completed(plain, content)
        differing = {key: value for key, value in flat(whole).items() if value != own.get(key)}
        options = [f"method.{each}" for each in differing.pop("options", [])]
        settings = [*(f"{key}={written(value)}" for key, value in differing.items()), *options]
        with suppress(ValueError):
            if completed(plain, described(recipe(name, preset, settings))) == whole:
                found.append(["--preset", preset, *(f"--set={setting}" for setting in settings)])
    return min(found, key=len, default=None)


def planned(folder: Path, settings: Sequence[str | Setting] = ()) -> tuple[str, Plan]:
    """The task of a run folder that ``train`` wrote, and its plan.

    Args:
        folder: of the run.
        settings: ``key=value`` in place of what its recipe has.
    """
    run = runs.open(folder)
    content = dict(run.recipe)
    name = content.pop(TASK, None)
    if not isinstance(name, str):
        raise ValueError(f"expected a run folder of the command train, got {folder}, whose recipe names no task")
    with runs.reading(folder / "recipe.json", "remove the run folder and train again"):
        require_row(name, run.method)
        try:
            own = restored(next(iter(load(name).presets.values())), content)
        except ValueError as error:
            version = run.environment.get("ordinal_entropy")
            raise ValueError(f"written by version {version}: {error}" if version else str(error)) from None
    return name, Plan(run.method, run.seed, changed(own, values_of(name, own, settings), settings))


def spread_rows(count: int, most: int) -> Tensor:
    """The rows whose features are saved: up to ``most`` out of ``count``, evenly spread, the same in every run.

    Example:
        >>> spread_rows(10, most=4), spread_rows(2, most=4)
        (tensor([0, 2, 5, 7]), tensor([0, 1]))
    """
    number = min(count, most)
    return torch.arange(number) * count // max(number, 1)
