"""What a study makes of the features that its runs saved: entropies, tables, pictures."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, NamedTuple

from ordinal_entropy import files, runs, tasks
from ordinal_entropy.results import tables
from ordinal_entropy.results.figures import Figure
from ordinal_entropy.results.tables import Row, Table
from ordinal_entropy.studies.claims import ESTIMATORS, PARTS, curves_of, judged
from ordinal_entropy.studies.grid import Variant
from ordinal_entropy.studies.study import Picture, draws
from ordinal_entropy.training.plans import Plan, places, run_names

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DIGITS = {"E1": 1, "E2": 1, "E3": 2}  # that are printed
ENTROPIES_REMEDY = "remove it and summary.json, and the same command measures the entropies again"
_LAID_OUT = {2: 4800, 3: 2400}  # rows of all methods in a t-SNE, by dimensions: some seconds to half a minute


class Subject(NamedTuple):
    """Whose features they are, in the words of tables and pictures."""

    task: str
    scale: float  # of the scores
    rows: str  # of which features are saved: "images"
    time: str  # after which: "epoch"
    part: str  # of the files that are laid out: "image", "test"
    points: str  # that these hold: "places of one test image"
    prediction: str  # with the unit
    unit: str  # of the targets; "": none


def further(
    subject: Subject, variants: Sequence[Variant], plans: Sequence[Plan], out: Path, device: str
) -> dict[str, Any]:
    """Entropies, claims and places of the features of finished runs: more of the summary.

    Args:
        subject: whose.
        variants: of the study.
        plans: their runs.
        out: folder of the study; entropies.json is written there.
        device: "cpu", "cuda", ...
    """
    path, count = out / "entropies.json", len(plans) // len(variants)
    names = [variants[place // count].name for place in range(len(plans))]
    folders = [out / "training" / name for name in run_names(plans)]
    times = [step for step in runs.read_json(out / "curves.json")["steps"] if step > 0]
    if not path.exists():
        runs.write_json(path, _measured(names, plans, folders, times, device), indent=None)
    content = runs.read_json(path, dict, remedy=ENTROPIES_REMEDY)
    with runs.reading(path, ENTROPIES_REMEDY):
        ends, claims = _ends(content), judged(content)
    saved: dict[str, list[dict[str, Any]]] = {}
    for name, plan, folder in zip(names, plans, folders, strict=True):
        saved.setdefault(name, []).append({"seed": plan.seed, **_files(subject, folder, times, out)})
    return {"entropies": ends, "claims": claims, "features": saved}


def report(subject: Subject, summary: Mapping[str, Any]) -> list[Table]:
    """Scores, entropies beside the paper's claims, where the features lie."""
    scores = tables.scores(summary, subject.scale, tasks.load(summary["task"]).paper_at)
    return [scores, _entropies_table(subject, summary), _files_table(subject, summary)]


def draw_layout(figure: str, dimensions: int, subject: Subject, summary: Mapping[str, Any], path: Path) -> None:
    """Draws what was saved of the first run of each variant by its features, coloured by the prediction."""
    from ordinal_entropy.figures import embedding

    saved = _read(summary, path.parent, subject.part)
    most = _LAID_OUT[dimensions] // max(len(saved), 1)
    rows = {name: embedding.drawn(len(own["features"]), most) for name, own in saved.items()}
    features = {name: own["features"][rows[name]] for name, own in saved.items()}
    count = max((len(own["features"]) for own in saved.values()), default=0)
    of = f"{min(count, most):,} of {count:,}" if count > most else f"{count:,}"
    embedding.draw(
        embedding.layout(features, dimensions=dimensions) if features else {},
        {name: own["predictions"][rows[name]] for name, own in saved.items()},
        path,
        names=called(summary),
        label=subject.prediction,
        title=f"{figure}, {of} {subject.points} in one t-SNE, one run each",
    )


def draws_ordinality(subject: Subject) -> Picture:
    """A picture of feature distances against target distances, of the first run of each variant."""

    def figure(summary: dict[str, Any], folder: Path) -> Figure:
        from ordinal_entropy.results.distances import ordinality

        saved = _read(summary, folder, "test")
        features, targets = ({name: own[what] for name, own in saved.items()} for what in ("features", "targets"))
        return ordinality(features, targets, names=called(summary), unit=subject.unit)

    points = "places in test images" if subject.part == "image" else subject.points
    return draws(f"Distances of features against targets, {points}, one run each", figure)


_NAMES = {
    "baseline": "regression",
    "ld-unweighted": "regression + $L$\u2032$_d$",  # the prime of formulas is a zero in an SVG
    "ld": "regression + $L_d$",
    "oe": "regression + $L_d$ + $L_t$",
}


def called(summary: Mapping[str, Any]) -> dict[str, str]:
    """The variants, each with what pictures call it."""
    return {
        name: _NAMES.get(own["method"]) or f"classification, {own['bins']} bins"
        for name, own in summary["variants"].items()
    }


def _measured(
    names: Sequence[str], plans: Sequence[Plan], folders: Sequence[Path], times: Sequence[int], device: str
) -> dict[str, Any]:
    """The content of entropies.json; a step of runs that take all rows in each is an epoch."""
    from ordinal_entropy.training.saved_features import saved_entropies

    where = device if device.startswith("cuda") else "cpu"  # in float64, which others may not have
    found = []
    for name, plan, folder in zip(names, plans, folders, strict=True):
        run: dict[str, Any] = {"variant": name, "seed": plan.seed}
        for part in PARTS:
            each = [saved_entropies(folder, part, time, where) for time in times]
            run[part] = {estimator: [own[estimator] for own in each] for estimator in ESTIMATORS}
        found.append(run)
    return {"epochs": list(times), "runs": found}


def _files(subject: Subject, folder: Path, times: Sequence[int], out: Path) -> dict[str, str]:
    """Where the features lie that are laid out, after the last epoch or step and the best one on validation."""
    from ordinal_entropy.training.saved_features import feature_file

    metric = tasks.load(subject.task).metric
    result = runs.open(folder).result() or {}
    each = zip(result.get("steps", times), result["history"], strict=True)
    history = [scores for step, scores in each if step in times]
    at = {point: times[place] for point, place in places(history, metric, result.get("first_stage", 0)).items()}
    return {
        "folder": feature_file(folder, subject.part, times[-1]).parent.relative_to(out).as_posix(),
        **{point: feature_file(folder, subject.part, time).name for point, time in at.items()},
    }


def _ends(content: Mapping[str, Any]) -> dict[str, Any]:
    """The first and the last of each run, one entropy a seed: by variant, part and estimator."""
    found: dict[str, Any] = {}
    for part in PARTS:
        for estimator in ESTIMATORS:
            for name, each in curves_of(content, part, estimator).items():
                ends = {"first": [own[0] for own in each], "last": [own[-1] for own in each]}
                found.setdefault(name, {}).setdefault(part, {})[estimator] = ends
    return found


def _entropies_table(subject: Subject, summary: Mapping[str, Any]) -> Table:
    """For test and training features: a row a variant, then a row a claim."""
    rows = []
    for part, title in (("test", f"test {subject.rows}"), ("train", f"training {subject.rows}")):
        rows.append(Row(title, [""] * len(ESTIMATORS)))
        for name, ends in summary["entropies"].items():
            rows.append(Row(f"  {name}", [_last_and_change(ends[part][each], _DIGITS[each]) for each in ESTIMATORS]))
        rows += [Row(f"  paper: {text}", cells, paper=True) for text, cells in _verdicts(summary["claims"], part)]
    count = len(summary["methods"][summary["baseline"]]["values"])
    of_runs = f"mean ± standard deviation of {count} runs" if count > 1 else "one run"
    headings = ["E1, nats", "E2, nats", f"E3, {subject.unit}" if subject.unit else "E3"]
    note = f"After the last {subject.time}, {of_runs}; behind the comma the change since the first."
    return Table("Entropies, and what the paper says of them", headings, rows, note)


def _verdicts(claims: Sequence[Mapping[str, Any]], part: str) -> Iterator[tuple[str, list[str]]]:
    own = [claim for claim in claims if claim["part"] == part]
    for text in dict.fromkeys(claim["claim"] for claim in own):
        by_estimator = {claim["estimator"]: claim for claim in own if claim["claim"] == text}
        yield text, [tables.held(by_estimator[each]) for each in ESTIMATORS]


def _last_and_change(ends: Mapping[str, list[float | None]], digits: int) -> str:
    """Mean and standard deviation over the seeds with a number, and the mean change."""
    pairs = [(a, b) for a, b in zip(ends["first"], ends["last"], strict=True) if a is not None and b is not None]
    if not pairs:
        return "no number"
    last, change = [b for _, b in pairs], fmean(b - a for a, b in pairs)
    spread = f" ± {stdev(last):.{digits}f}" if len(last) > 1 else ""
    lost = f" ({len(ends['last']) - len(pairs)} lost)" if len(pairs) < len(ends["last"]) else ""
    return f"{fmean(last):.{digits}f}{spread}{lost}, {change:+.{digits}f}"


def _files_table(subject: Subject, summary: Mapping[str, Any]) -> Table:
    rows = []
    for name, saved in summary["features"].items():
        own = saved[0]
        stems = [Path(own[at]).stem for at in ("last", "best_validation")]
        rows.append(Row(name, [str(Path(own["folder"]).parent), *stems]))
    file = f"{subject.part}-{subject.time.upper()}.safetensors"
    headings = ["run", f"last {subject.time}", "best on validation"]
    return Table(
        f"Features of {subject.points}", headings, rows, f"In features/{file} of a run; those of seed 0.", True
    )


def _read(summary: Mapping[str, Any], out: Path, part: str) -> "dict[str, dict[str, NDArray[Any]]]":
    """Of the first run of each variant, at its end: what its file of that part holds, if all are numbers."""
    import numpy as np
    from safetensors.numpy import load_file

    found = {}
    for name, (own, *_) in summary["features"].items():
        _, number = own["last"].rsplit("-", 1)
        path = out / own["folder"] / f"{part}-{number}"
        with runs.reading(path, "remove the folder of that run and summary.json, and the same command trains it again"):
            files.size(path)  # a pipe would be waited for
            content = load_file(path)
            if len(content["features"]) > 1 and all(np.isfinite(values).all() for values in content.values()):
                found[name] = content
    return found
