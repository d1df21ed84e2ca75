"""Figures 1, 3, 4c and A: the entropy of the features during training, and the features that their drawings need.

    ordinal-entropy reproduce fig4c --preset small --set data=datasets/nyu
    ordinal-entropy reproduce figA --preset quick

Regression and classification learn the depth of rooms. After every epoch a run keeps the features of fixed pixels of
training and test images, and of one test image on a grid; entropies are computed of these files when all runs are over.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, NamedTuple

from ordinal_entropy import runs, tasks
from ordinal_entropy.studies.grid import Variant, seeds_from
from ordinal_entropy.studies.study import Study
from ordinal_entropy.tasks import Plan
from ordinal_entropy.tasks.on_images import require_positive, run_names

if TYPE_CHECKING:
    from rich.table import Table

ESTIMATORS = {"E1": "E1, nats", "E2": "E2, nats", "E3": "E3, m"}  # with their headings
_DIGITS = {"E1": 1, "E2": 1, "E3": 2}  # that are printed
PARTS = {"test": "test images", "train": "training images"}
_MOST_BINS = 4  # which is as many lines as can be told apart
_TASK = "depth"
_SCALE = 1e-3  # millimetres of the scores

Curves = Mapping[str, Sequence[float]]  # an entropy after each epoch, by variant


@dataclass(frozen=True)
class Features:
    """What is varied."""

    seeds: int = 3  # runs of each row; the paper has one

    def __post_init__(self) -> None:
        """Checked before anything is trained."""
        seeds_from(self.seeds, 1)


@dataclass(frozen=True)
class Entropies:
    """What is varied."""

    seeds: int = 3  # runs of each row; the paper has one
    bins: tuple[int, ...] = (256, 64)  # of classification, a row each: the authors' 256, and fewer

    def __post_init__(self) -> None:
        """Checked before anything is trained."""
        seeds_from(self.seeds, 1)
        if not 1 <= len(set(self.bins)) == len(self.bins) <= _MOST_BINS:
            got = ", ".join(map(str, self.bins)) or "none"
            raise ValueError(f"expected one to {_MOST_BINS} different bins, got {got}")


class Claim(NamedTuple):
    """What the paper says of the entropies during training."""

    text: str
    needs: tuple[str, ...]  # names of variants
    holds: Callable[[Curves], bool]
    since: Callable[[Curves], int] | None = None  # if it holds: the epoch from which on


def claims_about(part: str, names: Sequence[str]) -> list[Claim]:
    """Those of the paper on test or training images that some variants allow to look at.

    Example:
        >>> [claim.text for claim in claims_about("test", ["baseline", "ld"])]
        ['baseline falls', 'ld is the highest in the end']
    """
    found = [
        Claim(f"{name} is always above baseline", (name, "baseline"), partial(_always_above, name))
        for name in names
        if name.startswith("classification")
    ]
    if part == "train":  # Figure A has the others for test images alone
        return found
    found.append(Claim("baseline falls", ("baseline",), _falls))
    if "ld" in names:
        others = tuple(name for name in names if name not in ("ld", "ld-unweighted"))
        found.append(Claim("ld is the highest in the end", ("ld", *others), partial(_highest, "ld", others)))
    if "oe" in names:
        found.append(Claim("oe overtakes baseline", ("oe", "baseline"), partial(_ends_above, "oe"), since=_since))
    return found


def _always_above(name: str, curves: Curves) -> bool:
    return all(own > base for own, base in zip(curves[name], curves["baseline"], strict=True))


def _falls(curves: Curves) -> bool:
    return curves["baseline"][-1] < curves["baseline"][0]


def _highest(name: str, others: Sequence[str], curves: Curves) -> bool:
    return all(curves[name][-1] > curves[other][-1] for other in others)


def _ends_above(name: str, curves: Curves) -> bool:
    return curves[name][-1] > curves["baseline"][-1]


def _since(curves: Curves) -> int:
    """The epoch, from 1 on, from which on ``oe`` stays above ``baseline``."""
    epoch = len(curves["oe"])
    while epoch > 1 and curves["oe"][epoch - 2] > curves["baseline"][epoch - 2]:
        epoch -= 1
    return epoch


def _variants(methods: Sequence[str], keys: Any) -> list[Variant]:
    """Regression, then classification with each number of bins, if that is varied, then what is added to regression."""
    classified = [Variant("classification", (("bins", bins),)) for bins in getattr(keys, "bins", ())]
    return [Variant("baseline"), *classified, *map(Variant, methods)]


def _further(variants: Sequence[Variant], plans: Sequence[Plan], out: Path, device: str) -> dict[str, Any]:
    """Entropies, claims and places of the features, of runs that are over."""
    path, count = out / "entropies.json", len(plans) // len(variants)
    names = [variants[place // count].name for place in range(len(plans))]
    folders = [out / "training" / name for name in run_names(plans)]
    if not path.exists():
        runs.write_json(path, _measured(names, plans, folders, device), indent=None)
    content = runs.read_json(path)
    kept: dict[str, list[dict[str, Any]]] = {}
    for name, plan, folder in zip(names, plans, folders, strict=True):
        kept.setdefault(name, []).append({"seed": plan.seed, **_image_files(folder, out)})
    return {"entropies": _ends(content), "claims": _judged(content), "features": kept}


def _measured(names: Sequence[str], plans: Sequence[Plan], folders: Sequence[Path], device: str) -> dict[str, Any]:
    """The content of entropies.json."""
    from ordinal_entropy.vision.features import kept_entropies

    where = device if device.startswith("cuda") else "cpu"  # in float64, which others may not have
    epochs, found = list(range(1, plans[0].recipe.epochs + 1)), []
    for name, plan, folder in zip(names, plans, folders, strict=True):
        run: dict[str, Any] = {"variant": name, "seed": plan.seed}
        for part in PARTS:
            each = [kept_entropies(folder, part, epoch, where) for epoch in epochs]
            run[part] = {estimator: [own[estimator] for own in each] for estimator in ESTIMATORS}
        found.append(run)
    return {"epochs": epochs, "runs": found}


def _image_files(folder: Path, out: Path) -> dict[str, str]:
    """Where the features of one test image lie, after the last epoch and the best one on validation."""
    from ordinal_entropy.vision.features import kept_file

    metric = tasks.load(_TASK).metric
    scores = [epoch["validation"][metric] for epoch in (runs.open(folder).result() or {})["history"]]
    scores = [math.inf if score is None else score for score in scores]
    epochs = {"last": len(scores), "best_validation": scores.index(min(scores)) + 1}
    return {
        "folder": kept_file(folder, "image", 1).parent.relative_to(out).as_posix(),
        **{at: kept_file(folder, "image", epoch).name for at, epoch in epochs.items()},
    }


def _curves(content: Mapping[str, Any], part: str, estimator: str) -> dict[str, list[list[float]]]:
    """Of each variant those of its runs; NaN for what is no number."""
    found: dict[str, list[list[float]]] = {}
    for run in content["runs"]:
        own = [math.nan if value is None else value for value in run[part][estimator]]
        found.setdefault(run["variant"], []).append(own)
    return found


def _ends(content: Mapping[str, Any]) -> dict[str, Any]:
    """After the first and the last epoch, one entropy a seed: by variant, part and estimator."""
    found: dict[str, Any] = {}
    for part in PARTS:
        for estimator in ESTIMATORS:
            for name, each in _curves(content, part, estimator).items():
                ends = {"first": [own[0] for own in each], "last": [own[-1] for own in each]}
                found.setdefault(name, {}).setdefault(part, {})[estimator] = ends
    return found


def _judged(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every claim, for each part and estimator: of the mean over the runs, and in how many seeds it holds."""
    found = []
    for part in PARTS:
        for claim in claims_about(part, list(dict.fromkeys(run["variant"] for run in content["runs"]))):
            for estimator in ESTIMATORS:
                each = _curves(content, part, estimator)
                means = {name: _mean(each[name]) for name in claim.needs}
                seeds = [{name: each[name][k] for name in claim.needs} for k in range(len(each["baseline"]))]
                held = _held(claim, means)
                found.append(
                    {
                        "part": part,
                        "claim": claim.text,
                        "estimator": estimator,
                        "held": held,
                        "since": claim.since(means) if held and claim.since is not None else None,
                        "seeds": sum(_held(claim, own) is True for own in seeds),
                        "of": len(seeds),
                    }
                )
    return found


def _held(claim: Claim, curves: Curves) -> bool | None:
    """None where a number is missing."""
    whole = all(math.isfinite(value) for own in curves.values() for value in own)
    return claim.holds(curves) if whole else None


def _mean(each: Sequence[Sequence[float]]) -> list[float]:
    """At each epoch over the runs that have a number everywhere."""
    whole = [own for own in each if all(map(math.isfinite, own))]
    return [fmean(values) for values in zip(*whole, strict=True)] if whole else [math.nan] * len(each[0])


def _report(summary: Mapping[str, Any]) -> "list[tuple[str, Table]]":
    from ordinal_entropy.studies import tables

    count = len(summary["methods"][summary["baseline"]]["values"])
    of_runs = f"mean ± std of {count} runs" if count > 1 else "one run"
    metric = f"test {summary['metric'].upper()}{tables.times(_SCALE)}, {of_runs}; lower is better"
    paper_at = tasks.load(summary["task"]).paper_at
    return [
        (metric, tables.scores_table(summary, scale=_SCALE, paper_at=paper_at)),
        (
            f"Entropies after the last epoch ({of_runs}), change since the first, and what the paper says",
            _table(summary),
        ),
        ("Features of one test image, in features/image-EPOCH.safetensors of a run; those of seed 0:", _files(summary)),
    ]


def _table(summary: Mapping[str, Any]) -> "Table":
    """For test and training images: a row a variant, then a row a claim."""
    from rich.text import Text

    from ordinal_entropy.studies import tables

    table = tables.plain(*ESTIMATORS.values())
    for part, title in PARTS.items():
        table.add_row(Text(title, style="bold"))
        for name, ends in summary["entropies"].items():
            table.add_row(
                Text(f"  {name}"), *(_last_and_change(ends[part][each], _DIGITS[each]) for each in ESTIMATORS)
            )
        for text, cells in _verdicts(summary["claims"], part):
            table.add_row(Text(f"  paper: {text}", style="italic"), *cells)
        table.add_section()
    return table


def _verdicts(claims: Sequence[Mapping[str, Any]], part: str) -> Iterator[tuple[str, list[str]]]:
    own = [claim for claim in claims if claim["part"] == part]
    for text in dict.fromkeys(claim["claim"] for claim in own):
        by_estimator = {claim["estimator"]: claim for claim in own if claim["claim"] == text}
        yield text, [_verdict(by_estimator[each]) for each in ESTIMATORS]


def _verdict(claim: Mapping[str, Any]) -> str:
    if claim["held"] is None:
        return "no number"
    since = f" from epoch {claim['since']}" if claim["since"] else ""
    seeds = f" ({claim['seeds']}/{claim['of']})" if claim["of"] > 1 else ""
    return f"{'held' if claim['held'] else 'not held'}{since}{seeds}"


def _last_and_change(ends: Mapping[str, list[float | None]], digits: int) -> str:
    """Mean and standard deviation over the seeds with a number, and the mean change."""
    pairs = [(a, b) for a, b in zip(ends["first"], ends["last"], strict=True) if a is not None and b is not None]
    if not pairs:
        return "no number"
    last, change = [b for _, b in pairs], fmean(b - a for a, b in pairs)
    spread = f" ± {stdev(last):.{digits}f}" if len(last) > 1 else ""
    lost = f" ({len(ends['last']) - len(pairs)} lost)" if len(pairs) < len(ends["last"]) else ""
    return f"{fmean(last):.{digits}f}{spread}{lost}, {change:+.{digits}f}"


def _files(summary: Mapping[str, Any]) -> "Table":
    from rich.text import Text

    from ordinal_entropy.studies import tables

    table = tables.plain("run", "last epoch", "best on\nvalidation", justify="left")
    for name, kept in summary["features"].items():
        own = kept[0]
        epochs = [Path(own[at]).stem for at in ("last", "best_validation")]
        table.add_row(Text(name), Text(str(Path(own["folder"]).parent)), *epochs)
    return table


_NAMES = {
    "baseline": "regression",
    "ld-unweighted": "regression + $L'_d$",
    "ld": "regression + $L_d$",
    "oe": "regression + $L_d$ + $L_t$",
}


def _picture(study: str, summary: Mapping[str, Any], path: Path) -> None:
    from ordinal_entropy.figures import entropy

    names = {
        name: _NAMES.get(own["method"]) or f"classification, {own['bins']} bins"
        for name, own in summary["variants"].items()
    }
    classified = [name for name, own in summary["variants"].items() if own["method"] == "classification"]
    without = ["baseline", *classified]
    regularized = [name for name in names if name not in without]
    Panel = entropy.Panel
    if study == "figA":
        rows = [
            [
                Panel("training", "train", each, without),
                Panel("testing", "test", each, without),
                Panel("testing, with ordinal entropy", "test", each, ["baseline", classified[0], *regularized]),
            ]
            for each in ESTIMATORS
        ]
        title = "Figure A, entropy of the features"
    elif study == "fig1":
        rows, title = [[Panel("", "train", "E1", list(names))]], "Figure 1a, features of training images"
    else:
        rows, title = [[Panel("", "test", "E1", list(names))]], "Figure 4c, features of test images"
    entropy.draw(runs.read_json(path.parent / "entropies.json"), path, rows=rows, variants=names, title=title)


_NOTES = (
    "E1: meanNN entropy of the features; E2: of the L2-normalised features. Both are half of Eq. 1 as printed, which "
    "makes them nats, up to a constant. E3: diversity. Each of the same pixels of fixed images, all together.",
    "Held or not: of the mean over the runs; in brackets, in how many of the seeds. Falls: less after the last epoch "
    "than after the first. Overtakes: above in the end, from that epoch on (paper, Figure 4c: after the 13th).",
    "image-EPOCH.safetensors holds features, predictions and targets of one test image and their places in it; "
    "train-EPOCH and test-EPOCH are what the entropies are of.",
)


def _study(name: str, about: str, keys: Any, methods: Sequence[str], *, drawn: bool = True) -> Study:
    return Study(
        about=f"{about}; --set data=ROOT",
        keys=keys,
        task=lambda keys: _TASK,
        fixed=lambda keys: {"bins": keys.bins[0]} if hasattr(keys, "bins") else {},
        variants=partial(_variants, methods),
        least_seeds=1,
        check=lambda recipe: require_positive(recipe, "feature_rows"),
        further=_further,
        report=_report,
        notes=_NOTES,
        picture=partial(_picture, name) if drawn else None,
    )


STUDIES = {
    "fig1": _study("fig1", "Figure 1, depth: entropy of features, regression against classification", Entropies(), ()),
    "fig3": _study(
        "fig3",
        "Figure 3, depth: features of one image, plain and regularized",
        Features(),
        ("ld-unweighted", "ld", "oe"),
        drawn=False,
    ),
    "fig4c": _study(
        "fig4c", "Figure 4c, depth: entropy of test features, four methods", Entropies(bins=(256,)), ("ld", "oe")
    ),
    "figA": _study("figA", "Figure A, depth: three estimates of entropy during training", Entropies(), ("ld", "oe")),
}
