"""Options that several commands take, and what is made of them."""

from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from ordinal_entropy import files, tasks
from ordinal_entropy.recipes import Setting, read_config
from ordinal_entropy.tasks.tabular.data import ENDINGS

_TABULAR = "tabular"
_TASK_HELP = f"One of {', '.join(tasks.names())}; or a table, a file that ends in {', '.join(ENDINGS)}."
Task = Annotated[str, typer.Argument(metavar="TASK", help=_TASK_HELP)]
_TARGET_HELP = "The column of a table to predict, short for --set target=NAME."
Target = Annotated[str | None, typer.Option("--target", metavar="NAME", help=_TARGET_HELP)]
_SETTINGS_HELP = "Override a key of the recipe; may be given often. `--keys` shows all keys."
_CONFIG_HELP = "Keys of the recipe in a YAML file, or recipe.json of a run; --set overrides them."
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help=_SETTINGS_HELP)]
Config = Annotated[Path | None, typer.Option("--config", metavar="FILE", help=_CONFIG_HELP)]
_OUT_HELP = "Where everything is written.  [default: a folder in ./runs]"
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help=_OUT_HELP)]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1, ...; auto: a GPU if there is one.")]
_PRESET_HELP = (
    "paper: as published. small: for small real sets, where a task has any. quick: minutes on a CPU.  "
    "[default: paper; tabular: small]"
)
Preset = Annotated[str, typer.Option("--preset", metavar="NAME", help=_PRESET_HELP, show_default=False)]
_STUDY_PRESET_HELP = "paper: as published. small: for small real sets, of studies on images. quick: minutes on a CPU."
StudyPreset = Annotated[str, typer.Option("--preset", metavar="NAME", help=_STUDY_PRESET_HELP)]
_JOBS_HELP = (
    "Runs on images that train side by side on a device, each a process; on a CPU the numbers are those of one after "
    "the other. Operators and tables train all at once anyway."
)
Jobs = Annotated[int, typer.Option("--jobs", metavar="N", min=1, help=_JOBS_HELP)]
Keys = Annotated[bool, typer.Option("--keys", help="Show the keys that --set takes, and stop.")]


def given_settings(config: Path | None, settings: list[str] | None) -> list[str | Setting]:
    """The settings of a file, then those of the command line, which win."""
    return [*([] if config is None else read_config(config)), *(settings or [])]


def recipe_of(
    task: str, preset: str, config: Path | None, settings: list[str] | None, target: str | None
) -> tuple[str, str, list[str | Setting], Any]:
    """The name of the task and of the preset, the settings over it, and the recipe that these make.

    Args:
        task: its name, or the file of a table.
        preset: its name.
        config: file of settings.
        settings: of the command line.
        target: column of a table.
    """
    name, short = _in_full(task, target)
    own = tasks.preset_of(name, preset)
    twice = tasks.values_of(name, tasks.recipe(name, own), settings or []).keys() & short.keys() if short else ()
    if twice:
        key = min(twice)
        raise ValueError(f"expected {key} once, got --set {key}=... beside {short[key]}, which stands for it")
    given = [*given_settings(config, settings), *(f"{key}={value}" for key, value in short.items())]
    return name, own, given, tasks.recipe(name, own, given)


def _in_full(task: str, target: str | None) -> tuple[str, dict[str, str]]:
    """The name of a task, of a table too, and the settings that the file and its target stand for.

    Example:
        >>> _in_full("linear", None), _in_full("tabular", "price")
        (('linear', {}), ('tabular', {'data.target': 'price'}))
    """
    found = {}
    if Path(task).suffix.lower() in ENDINGS:
        files.size(task, "a table")  # which is an error where there is no such file
        task, found["data.path"] = _TABULAR, task
    if target is not None:
        if task != _TABULAR:
            raise ValueError(f"expected --target beside a table, as in houses.csv --target price, got it beside {task}")
        found["data.target"] = target
    return task, found


def device_named(name: str) -> str:
    """The same name, if there is such a device; of auto, the one that is taken."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    expected = f"expected --device to be auto, cpu or cuda, got {name!r}"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(expected) from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"expected a device that is here, got {name!r}; CUDA devices found: {torch.cuda.device_count()}"
        )
    if device.type not in ("cpu", "cuda"):
        raise ValueError(expected)
    return name
