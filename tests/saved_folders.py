"""Folders as studies and runs leave them, made in no time."""

import json
import math

import numpy as np
import pytest

from ordinal_entropy import comparison, runs
from ordinal_entropy.environment import environment

RECIPE = {"epochs": 6, "strength": 1.0, "data": "faces"}


def make_run(folder, method, seed, *, recipe=RECIPE, over=True, version=None, task="age", epochs=6):
    """A run folder, as ``train`` writes it."""
    run = runs.create(folder, {"task": task, **recipe}, method, seed)
    if version is not None:
        content = json.loads((folder / "recipe.json").read_text())
        content["environment"]["ordinal_entropy"] = version
        (folder / "recipe.json").write_text(json.dumps(content))
    level = 8.0 if method == "baseline" else 7.0
    for step in range(1, epochs + 1):
        score = level + seed / 10 + 10 / step
        run.log(step=step, train_mae=score - 1, validation_mae=score, test_mae=score, test_gm=score / 2)
    if over:
        score = level + seed / 10
        points = {"last": score + 0.2, "best_validation": score + (0.01 if seed % 2 else 0.0), "best_test": score}
        run.finish({"metric": "mae", "lower_is_better": True, **points, "steps": epochs})
    return run


def save_features(folder, method, *, part="test", epochs=(1, 2, 3), rows=60, width=8, grid=None):
    """Features as a run on images keeps them: an arc of the targets, and noise that is the method's own."""
    save_file = pytest.importorskip("safetensors.numpy", reason="saved features are safetensors").save_file
    places = None
    if grid is not None:
        down, across = np.meshgrid(np.arange(grid[0]) * 4, np.arange(grid[1]) * 4, indexing="ij")
        places = np.stack([down.ravel(), across.ravel()], axis=1).astype("int32")
        rows = len(places)
    targets = np.linspace(1, 9, rows, dtype="float32")[:, None]
    draw = np.random.default_rng(len(method))
    (folder / "features").mkdir(parents=True, exist_ok=True)
    for epoch in epochs:
        z = draw.normal(size=(rows, width)) / (1 + epoch)
        z[:, :1] += np.cos(targets / 4)
        z[:, 1:2] += np.sin(targets / 4)
        content = {"features": z.astype("float16"), "targets": targets, "predictions": targets + 0.5 / epoch}
        if places is not None:
            content["places"] = places
        save_file(content, folder / "features" / f"{part}-{epoch:04d}.safetensors")


def make_study(folder, methods=("baseline", "ld", "oe"), seeds=4, *, epochs=6, grid=None, features=True, **further):
    """A study on images that is over: summary, curves and runs with features."""
    draw = np.random.default_rng(0)
    scores, curves = {}, []
    for place, method in enumerate(methods):
        scores[method] = {at: [] for at in ("last", "best_validation", "best_test")}
        for seed in range(seeds):
            course = 9 - place * (seed > -1) * 0.5 + 10 / np.arange(1, epochs + 1) + draw.normal(0, 0.1, epochs)
            for at, score in zip(scores[method], (course[-1], course[-1], course.min()), strict=True):
                scores[method][at].append(float(score))
            lines = {part: course.round(4).tolist() for part in ("train", "validation", "test")}
            curves.append({"variant": method, "seed": seed, **lines})
            run = folder / "training" / f"{place}-seed{seed}"
            make_run(run, method, seed, epochs=2)
            if features:
                kept = np.unique(np.linspace(1, epochs, 3).astype(int))
                save_features(run, method, part="image" if grid else "test", epochs=kept, grid=grid)
    summary = comparison.summary(
        task="age",
        metric="mae",
        lower_is_better=True,
        scores=scores,
        recipe=RECIPE,
        environment=environment(),
        baseline=methods[0],
    )
    summary |= {"study": "table4-age", "baseline": methods[0], "device": "cpu"}
    summary |= {"variants": {name: {"method": name} for name in methods}, "paper": {}, **further}
    runs.write_json(folder / "summary.json", summary)
    runs.write_json(folder / "curves.json", {"steps": list(range(1, epochs + 1)), "runs": curves})
    return folder


def summary_of(values, *, paper=None, lower_is_better=True, **further):
    """A summary of scores by method, the first of which is the baseline."""
    at = {name: dict.fromkeys(("last", "best_validation", "best_test"), own) for name, own in values.items()}
    found = comparison.summary(
        task="age",
        metric="mae",
        lower_is_better=lower_is_better,
        scores=at,
        recipe={},
        environment={},
        baseline=next(iter(values)),
    )
    found |= {"baseline": next(iter(values)), "variants": {name: {"method": name} for name in values}}
    found |= {"paper": paper or {}, **further}
    return json.loads(json.dumps(found), parse_constant=lambda text: None if math.isnan(float(text)) else text)
