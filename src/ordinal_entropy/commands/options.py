"""Options that several commands take, and what is made of them."""

from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from ordinal_entropy import tasks
from ordinal_entropy.recipes import Setting, read_config

Task = Annotated[str, typer.Argument(metavar="TASK", help=f"One of {', '.join(tasks.names())}.")]
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
    task: str, preset: str, config: Path | None, settings: list[str] | None
) -> tuple[str, list[str | Setting], Any]:
    """The name of the preset, the settings over it, and the recipe that these make."""
    own, given = tasks.preset_of(task, preset), given_settings(config, settings)
    return own, given, tasks.recipe(task, own, given)


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
