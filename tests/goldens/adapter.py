"""All that the goldens call of the library. When walls move, this file is edited, and no other of the goldens.

Recipes are written as the command line has them, a preset and ``key=value``; scores come back as plain lists.
"""

import json
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
import typer

import ordinal_entropy as oe
from command_line import call
from ordinal_entropy import tasks
from ordinal_entropy.commands.app import app
from ordinal_entropy.environment import environment, import_torchvision
from ordinal_entropy.recipes import flat
from ordinal_entropy.tasks.tabular import generated
from ordinal_entropy.training.plans import Plan

__all__ = ["call", "environment"]  # as they are

PARTS = ("train", "validation", "test")
BALANCED = {"ld-balanced": "ld", "oe-balanced": "oe"}  # what terms were called then that are gradient-balanced now
_STRENGTHS = {"linear": 1e-3, "nonlinear": 1e-3, "nonlinear-paths": 1e-3, "tabular": 0.1}  # of the presets then; else 1


def method_names():
    """Every method that there was when the goldens were recorded, by its name then."""
    names = oe.methods.names()[: oe.methods.names().index("classification")]
    return [*names, *BALANCED, "classification"]


def strength(task):
    """The setting that gives terms the strength which they had."""
    return f"strength={_STRENGTHS.get(task, 1.0)}"


def _plan(task, preset, settings, method, seed):
    if method in BALANCED:
        return Plan(BALANCED[method], seed, tasks.recipe(task, preset, [*settings, "strength=none"]))
    return Plan(method, seed, tasks.recipe(task, preset, [strength(task), *settings]))


def regularizer(maker="", **options):
    """A module in float64; ``maker`` is a constructor of another name."""
    make = getattr(oe.OrdinalEntropy, maker) if maker else oe.OrdinalEntropy
    return make(**options).double()


def term(name, *given, **options):
    """A function of the regularizer: "diversity", "tightness" or "ordinal_entropy"."""
    return getattr(oe.functional, name)(*given, **options)


def train(task, preset, settings, runs, folder, *, stop_at=None):
    """Scores of runs, all of them trained in one call.

    Args:
        task: its name.
        preset: a name.
        settings: ``key=value``, in place of those of the preset.
        runs: method and seed of each.
        folder: for what the training writes; that of a stopped one is resumed.
        stop_at: Ctrl-C comes with the evaluation of this step or epoch.

    Returns:
        Of each run "steps", the scores by part, and the three points: "last", "best_validation", "best_test". None
        where the training was stopped.
    """
    plans = [_plan(task, preset, settings, method, seed) for method, seed in runs]

    def stop(step, scores):
        if step == stop_at:
            raise KeyboardInterrupt

    with _one_thread():
        try:
            found = tasks.load(task).train(plans, device="cpu", folder=Path(folder), on_metrics=stop)
        except KeyboardInterrupt:
            if stop_at is None:
                raise
            return None
    names = ("steps", *PARTS, "last", "best_validation", "best_test")
    return [{name: getattr(outcome, name) for name in names} for outcome in found]


def resumed(task, preset, settings, runs, folder, *, stop_at):
    """The same of runs that were stopped on the way."""
    assert train(task, preset, settings, runs, folder, stop_at=stop_at) is None
    return train(task, preset, settings, runs, folder)


def operator_rows(task, *, train, test):
    """Generated rows as arrays: functions, places and values of the training rows, then of the test rows."""
    from ordinal_entropy.tasks.operators import recipe

    settings = [f"rows={train}", "parts=1", f"test_rows={test}", "validation_rows=1", "samples=10"]
    split = recipe.split(tasks.recipe(task, "quick", settings))
    return [tuple(split.train), tuple(split.test)]


def compare(task, settings, methods, *, seeds, out):
    """The content of the summary that the command ``compare`` writes; its page is not drawn."""
    given = ["--preset=quick", f"--methods={','.join(methods)}", f"--seeds={seeds}", "--device=cpu", f"--out={out}"]
    with patch("ordinal_entropy.report.missing", lambda: "nothing"), _one_thread():
        call("compare", task, *given, *(f"--set={each}" for each in [strength(task), *settings]))
    content = json.loads((Path(out) / "summary.json").read_text())
    for key in ("references", "reference_values", "constant"):  # which there were not when summaries were recorded
        assert content.pop(key)
    return {**content, "recipe": flat(content["recipe"])}  # by the names of keys before there were groups


def command_paths():
    """The words of every command, those of the program itself first: none."""
    return [(), *_below(typer.main.get_command(app))]


def _below(command):
    found = []
    for name, each in getattr(command, "commands", {}).items():
        found += [(name,), *((name, *rest) for rest in _below(each))]
    return found


@contextmanager
def _one_thread():
    """The order of sums, and so their rounding, follows from the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def import_timm():
    """timm, beside any torchvision."""
    import_torchvision()
    import timm

    return timm


def predicted(task, folder):
    """At which point, and what, the run in a folder predicts for three inputs."""
    pixels = np.random.default_rng(0).integers(0, 256, (3, 64, 96, 3), dtype=np.uint8)
    houses = dict(zip(generated.COLUMNS, zip(*generated.houses(3, seed=1), strict=True), strict=True))
    run = oe.load(folder)
    return run.at, run.predict({"linear": (np.zeros((3, 100)), np.zeros((3, 1))), "tabular": houses}.get(task, pixels))
