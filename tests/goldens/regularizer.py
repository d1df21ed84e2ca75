"""Loss and gradient of small fixed inputs, for every option of the regularizer."""

import itertools
import random

import numpy as np
import torch

from goldens import adapter, store

NAME = "regularizer"
TOLERANCE = 1e-10
STEPS = 4  # calls of a case with a memory or a strength that sets itself, each with rows of its own

# What each option may be, its default first. Weights of a user's own are named, since a golden holds no functions.
OPTIONS = {
    "diversity_weight": (1.0, 0.3, 0.0),
    "tightness_weight": (1.0, 2.0, 0.0),
    "weighting": ("l2", "squared", "sqrt", "none", "manhattan"),
    "distance": ("l2", "cosine"),
    "normalize": (True, False),
    "rescale": ("max", "authors", "none"),
    "grouping": ("unique", "none", 0.8),
    "centers": ("normalize-first", "average-first"),
    "tightness_over": ("all", "shared"),
    "tightness_power": (1, 2),
    "max_samples": (None, 7),
    "num_pairs": (None, 9),
    "stride": (1, 2),
    "per": ("batch", "image"),
    "check": (False, True),
    "memory": (None, 10),
    "balance": (None, 0.1),
    # and what a call is given
    "layout": ("rows", "points", "maps"),
    "numbers": (1, 2),
    "mask": (False, True),
    "sample_weight": (False, True),
}
OF_A_CALL = ("layout", "numbers", "mask", "sample_weight")


def inputs():
    """Features, targets, masks, weights of samples and a head, by name; four steps of each."""
    draw = torch.Generator().manual_seed(21)

    def normal(*shape):
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    def targets(*shape):  # few values, some of them shared
        return torch.randint(6, shape, generator=draw).double() / 2

    shapes = {  # of features; of targets, without the numbers of one
        "rows": ((12, 4), (12,)),
        "points": ((3, 5, 4), (3, 5)),
        "maps": ((2, 3, 4, 6), (2, 8, 12)),
        "many": ((300, 3), (300,)),
    }
    found = {"head": normal(4)}
    for layout, (features, of_targets) in shapes.items():
        count = 1 if layout == "many" else STEPS
        found[f"{layout}.features"] = normal(count, *features)
        found[f"{layout}.targets1"] = targets(count, *of_targets)
        pair = (count, of_targets[0], 2, *of_targets[1:]) if layout == "maps" else (count, *of_targets, 2)
        found[f"{layout}.targets2"] = targets(*pair)
        found[f"{layout}.mask"] = torch.rand(count, *of_targets, generator=draw) > 0.25
        found[f"{layout}.sample_weight"] = torch.rand(count, *of_targets, generator=draw, dtype=torch.float64) + 0.5
    return {name: value.numpy() for name, value in found.items()}


def cases():
    """Each option alone in every layout, then any two of them together at least once, then some more."""
    found = []
    for layout in OPTIONS["layout"]:
        found.append({"layout": layout})
        for name, values in OPTIONS.items():
            if name != "layout":
                found += [{"layout": layout, name: value} for value in values[1:]]
    found += _pairwise()
    for maker in ("from_paper", "from_authors_code"):
        found += [{"maker": maker, "layout": layout} for layout in OPTIONS["layout"]]
    found += [{"maker": "from_authors_code", "layout": "maps", "stride": 2, "per": "image", "mask": True}]
    found += [{"maker": "from_authors_code", "layout": "rows", "grouping": "none", "max_samples": 7}]
    found += [{"layout": "many"}, {"layout": "many", "grouping": "none"}, {"layout": "many", "distance": "cosine"}]
    found += [
        {"function": function, "layout": layout, **options}
        for function in ("ordinal_entropy", "diversity", "tightness")
        for layout in ("rows", "maps")
        for options in ({}, {"grouping": 0.8, "distance": "cosine"}, {"normalize": False, "mask": True})
    ]
    found += [{"terms": True, "layout": layout, "rescale": "authors"} for layout in OPTIONS["layout"]]
    return [case for number, case in enumerate(found) if case not in found[:number] and possible(case)]


def possible(case):
    """Whether the regularizer takes such a call at all."""
    layout, per = case.get("layout", "rows"), case.get("per", "batch")
    if case.get("stride", 1) > 1 and layout != "maps":
        return False
    if layout in ("rows", "many") and per == "image":
        return False
    if layout == "maps" and case.get("sample_weight"):
        return False
    if not case.get("diversity_weight", 1.0) and not case.get("tightness_weight", 1.0):
        return False
    return not (case.get("memory") and per == "image")


def computed(case, given):
    """Loss and gradient of a case, one vector: of each of its calls."""
    options = {name: value for name, value in case.items() if name not in ("maker", "function", "terms", *OF_A_CALL)}
    if options.get("weighting") == "manhattan":
        options["weighting"] = lambda a, b: torch.cdist(a, b, p=1) + 0.1
    if "max_samples" in options or "num_pairs" in options:
        options["generator"] = torch.Generator().manual_seed(5)
    module = None if "function" in case else adapter.regularizer(case.get("maker", ""), **options)
    steps = STEPS if {"memory", "balance"} & case.keys() else 1
    found = []
    for step in range(steps):
        features, further = _call(case, given, step)
        targets, task_loss = further.pop("targets"), _task_loss(features, given)
        if module is None:
            losses = [adapter.term(case["function"], features, targets, **further, **options)]
        elif "terms" in case:
            losses = list(module.terms(features, targets, **further))
        else:
            if "balance" in options:
                further["task_loss"] = task_loss
            losses = [module(features, targets, **further)]
        for loss in losses:
            gradient = torch.autograd.grad(loss, features, retain_graph=True)[0]
            found += [loss.detach().reshape(1), gradient.reshape(-1)]
        if module is not None and "terms" not in case:
            found.append(torch.stack(list(module.strengths)).detach().double().reshape(-1))
    return torch.cat(found).numpy()


def _call(case, given, step):
    layout = case.get("layout", "rows")

    def own(name):
        return torch.from_numpy(given[f"{layout}.{name}"][step])

    further = {"targets": own(f"targets{case.get('numbers', 1)}")}
    if case.get("mask"):
        mask = own("mask")
        further["mask"] = mask
        if case.get("numbers", 1) == 2:  # as the targets are
            place = 1 if layout == "maps" else -1
            further["mask"] = torch.stack([mask, mask], place)
    if case.get("sample_weight"):
        further["sample_weight"] = own("sample_weight")
    return own("features").requires_grad_(), further


def _task_loss(features, given):
    """The mean square of a linear head, whatever the layout."""
    last = features.movedim(1, -1) if features.dim() == 4 else features
    return (last @ torch.from_numpy(given["head"])[: last.shape[-1]]).square().mean()


def _pairwise():
    """Cases in which any two values of two options that go together meet: greedy, from a fixed seed."""
    draw = random.Random(21)
    names = list(OPTIONS)
    waiting = {
        frozenset(((one, first), (two, second)))
        for one, two in itertools.combinations(names, 2)
        for first in OPTIONS[one]
        for second in OPTIONS[two]
    }
    found = []
    for _ in range(4000):
        tried = [{name: draw.choice(OPTIONS[name]) for name in names} for _ in range(30)]
        tried = [case for case in tried if possible(case)]
        new = [waiting & _meetings(case) for case in tried]
        if not tried or not any(new):
            continue
        place = max(range(len(new)), key=lambda number: len(new[number]))
        waiting -= new[place]
        found.append({name: value for name, value in tried[place].items() if value != OPTIONS[name][0]})
    return found


def _meetings(case):
    return {frozenset(pair) for pair in itertools.combinations(case.items(), 2)}


def record():
    given, found = inputs(), cases()
    store.write(NAME, [{"case": case} for case in found])
    arrays = {f"{number:03d}": computed(case, given) for number, case in enumerate(found)}
    store.write_arrays(NAME, {**given, **arrays})


def recorded():
    """The inputs, and each case with its vector."""
    arrays = store.read_arrays(NAME)
    return arrays, [(each["case"], arrays[f"{number:03d}"]) for number, each in enumerate(store.read(NAME))]


def farthest(found, true):
    """How far two vectors are from each other, where 1 is as far as they may be."""
    assert found.shape == true.shape, f"{found.shape} is not {true.shape}"
    off = np.abs(found - true) / (TOLERANCE * np.maximum(1e-3 * np.abs(true).max(), np.abs(true)))
    off[np.isnan(found) & np.isnan(true)] = 0
    return float(off.max(initial=0.0))
