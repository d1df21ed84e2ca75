"""What the command line says and writes: help, summaries of comparisons, and run folders that later versions read."""

import os
import re
import shutil
import tempfile
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from goldens import adapter, backbone, store
from goldens.curves import CROWDS, FACES, ROOMS, TABLE

WIDTH = "100"  # of a terminal
DRAWN_BY = ("typer", "rich")  # what lays out the help
TASKS = ("linear", "age", "crowd", "depth", "tabular")

OPERATOR = ("rows=40", "parts=2", "validation_rows=50", "test_rows=50", "hidden=8", "steps=40", "evaluate_every=10")
IN_SINGLE = ("precision=float32", "optimizer=sgd", "learning_rate=0.003", "feature_rows=8", "bins=8")
RUNS = {  # a run of each kind of task: settings in place of those of the preset quick
    "linear": (*OPERATOR, "feature_rows=10"),
    "age": (*FACES, *IN_SINGLE, "epochs=2", "milestones=1", f"backbone={backbone.SMALLER}"),
    "crowd": (*CROWDS, *IN_SINGLE, "epochs=2", "repeats=2", "widths=4", f"front={backbone.SMALLER}"),
    "depth": (*ROOMS, *IN_SINGLE, "epochs=2", "batch_size=8", f"backbone={backbone.SMALLER}", "channels=2"),
    "tabular": ("generated=200", "hidden=8", "embedding_size=4", "pieces=4", "epochs=3", "feature_rows=10"),
}
METHOD = "oe"
COMPARED = {
    "linear": (*OPERATOR, "dtype=float64"),
    "age": (*FACES, "epochs=2", "feature_rows=16"),
    "tabular": (*TABLE, "epochs=4", "feature_rows=16"),
}
SEEDS = {"age": 2}  # which train one after the other
KEPT_IN_HALF = 1e-2  # relative: entropies of kept features, which are rounded to float16
OF_A_MACHINE = ("environment", "seconds", "command", "device")
DERIVED = ("paired", "spread", "details")  # move farther than the scores they are made from


# --- help -------------------------------------------------------------------------------------------------------------


def help_files():
    """The help of the program and of every command, by name."""
    found = {}
    for path in adapter.command_paths():
        name = "-".join(path) or "program"
        lines = said(*path, "--help").splitlines()
        found[name] = "\n".join(line.rstrip() for line in lines).strip("\n") + "\n"
    return found


def record_help():
    folder = store.RECORDED / "help"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, text in help_files().items():
        (folder / f"{name}.txt").write_text(text)
    store.write("help/drawn-by", laid_out_by())


def recorded_help():
    return {path.stem: path.read_text() for path in sorted((store.RECORDED / "help").glob("*.txt"))}


def laid_out_by():
    """The packages whose other versions may lay out the same help differently."""
    return {name: ".".join(version(name).split(".")[:2]) for name in DRAWN_BY}


def options_in(text):
    """The words that begin with two dashes."""
    return sorted(set(re.findall(r"--[a-z][a-z-]*", text)))


# --- summaries --------------------------------------------------------------------------------------------------------


def summary(task, folder):
    """What a small comparison writes, without what belongs to the machine; the recipe as keys and values."""
    backbone.register()
    content = adapter.compare(
        task, COMPARED[task], ("baseline", "oe"), seeds=SEEDS.get(task, 3), out=Path(folder) / "compared"
    )
    content = {key: value for key, value in content.items() if key not in OF_A_MACHINE}
    content["recipe"] = leaves(content["recipe"])
    return content


def leaves(recipe):
    """Keys and values of a recipe, whatever they are nested in."""
    found = {}
    for key, value in recipe.items():
        found |= leaves(value) if isinstance(value, dict) else {key: value}
    return found


def tolerance(task):
    """How far a number of a summary may be from what is recorded, by its place."""
    scores = store.tolerance(task)
    return lambda place: max(KEPT_IN_HALF, scores) if place.startswith(".details") else scores


def record_summaries():
    for task in COMPARED:
        with tempfile.TemporaryDirectory() as folder:
            store.write(f"summaries/{task}", summary(task, folder))


# --- run folders ------------------------------------------------------------------------------------------------------


def settings_of(task):
    """Of the run that is recorded."""
    return [adapter.strength(task), *RUNS[task]]


def record_folders():
    backbone.register()
    scores = {}
    for task in TASKS:
        place = store.RECORDED / "folders" / task
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="run-") as folder, chdir(folder):
            settings = [f"--set={each}" for each in settings_of(task)]
            said("train", task, "--preset=quick", f"--method={METHOD}", *settings, "--device=cpu", "--out=run")
            shutil.copytree("run", place, ignore=shutil.ignore_patterns(".lock", "report.html"))
        scores[task] = evaluated(place)
    store.write("folders/evaluated", scores)


def evaluated(run):
    """The scores that ``evaluate`` prints, by the name of the row."""
    found = {}
    for line in said("evaluate", run, "--device=cpu").splitlines():
        number = re.fullmatch(r"\s*(\S.*?)\s+([-+0-9.e]+)\s*", line)
        if number:
            found[number[1]] = float(number[2])
    return found


def said(*arguments):
    """What a command prints on a terminal of a fixed width."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = WIDTH
    try:
        return adapter.call(*arguments).stdout
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


@contextmanager
def chdir(folder):
    """In a folder for a while: what a run writes then names no other place."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
