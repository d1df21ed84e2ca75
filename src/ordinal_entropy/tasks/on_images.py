"""The runs of a task on images: trained one after the other or side by side, resumed, scored again.

What a task has of its own is in an :class:`OnImages`; the training itself is in ``ordinal_entropy.vision.training``.
"""

import logging
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ordinal_entropy import methods, runs
from ordinal_entropy.models.heads import replace_head, width_of
from ordinal_entropy.recipes import cache_folder, defaults, described
from ordinal_entropy.tasks import Outcome, Plan, Progress, failed, method_of, run_names

if TYPE_CHECKING:  # Lightning takes seconds to import
    from torchmetrics import Metric

    from ordinal_entropy.vision.split import Seen
    from ordinal_entropy.vision.training import Checkpoint, Data, Network, Settings

_LOG = logging.getLogger(__name__)
_GENERATED_SEED = 0
_History = Sequence[Mapping[str, Mapping[str, float | None]]]  # scores of each epoch, by part; None as JSON has NaN


class Scores(NamedTuple):
    """The score of one epoch on each split."""

    train: float
    validation: float
    test: float


class Dataset(Protocol):
    """A dataset as read."""

    @property
    def left_out(self) -> int:
        """Files that cannot be used."""
        ...

    def to(self, device: str) -> "Dataset":
        """The same with what is held in memory on a device."""
        ...


class Prepared(NamedTuple):
    """All that one run is made of."""

    data: "Data"
    method: methods.Composition
    make_network: "Callable[[], Network]"  # with new weights, by torch's generator
    loss: methods.TaskLoss
    metric: "Metric"
    facts: Mapping[str, Any] = {}  # of the training data, which a later evaluation needs; plain numbers and lists
    train_metric: "Metric | None" = None  # of the batches trained on, where that should be another


class Views(NamedTuple):
    """How the training images of a recipe will be shown, before there are any: as ``vision.split.Shown`` has it."""

    uniform: bool = True
    augmented: bool = True
    maps: bool = False


def augmented_images(recipe: Any) -> Views:
    """Of a task whose images are of one size, augmented, and have one target each."""
    return Views()


class Pictured(NamedTuple):
    """A test image as a picture of it needs it."""

    image: NDArray[np.uint8]  # (h, w, 3)
    truth: NDArray[np.float32]  # (h', w'); NaN where there is none
    prediction: NDArray[np.float32]  # (h', w')
    counts: tuple[float, float] | None = None  # true and predicted, where that is what is scored


@dataclass(frozen=True)
class OnImages:
    """A task on images: its name, and what its runs have of their own."""

    name: str
    metric: str  # the score that decides; lower is better
    read: Callable[[Any], Dataset]  # the dataset of a recipe
    read_keys: tuple[str, ...]  # keys of the recipe that it depends on
    prepare: Callable[[Plan, Any, Mapping[str, Any] | None], Prepared]  # plan, dataset, facts of a run to be scored
    shown: Mapping[str, str] = field(
        default_factory=dict
    )  # further lines of an evaluation: what is said -> score on the test images
    facts: Mapping[str, Any] = field(default_factory=dict)  # form of those that `prepare` returns
    truth: "Callable[[Seen], Tensor] | None" = None  # maps (b, 1, h, w) of a batch, NaN where there is none
    views: Callable[[Any], Views] = augmented_images  # of a recipe; a function with a name, as other processes need it

    def check_method(self, plan: Plan) -> None:
        """Refuses a method that this training cannot honour; no image is read."""
        from ordinal_entropy.vision.training import require_trainable

        require_trainable(method_of(plan), self.views(plan.recipe), settings(plan.recipe))

    def train(
        self,
        plans: Sequence[Plan],
        *,
        device: str,
        folder: Path | None = None,
        progress: Progress | None = None,
        on_metrics: Callable[..., None] | None = None,
        jobs: int = 1,
        go_on: bool = False,
    ) -> list[Outcome]:
        """Trains runs one after the other or side by side, each in a folder of its own inside the given one.

        A run that is finished there is not trained again, one that was stopped goes on.

        Args:
            plans: the runs; methods, seeds and all keys may differ.
            device: "cpu", "cuda", ...
            folder: of all the runs together; needed.
            progress: is told how many batches are done, and how many there are in all runs that were not finished.
            on_metrics: is told the epochs done and the scores of one run, as a list of one; with one job only.
            jobs: so many processes train side by side on the device. On a CPU the numbers are the same with any.
            go_on: a run that raises an exception says so in its folder and in its outcome, and the others go on; on
                one device only, and not where the dataset cannot be read. Else the exception is raised here.

        Returns:
            Outcomes in the order of the plans; their steps are epochs.
        """
        if not plans:
            raise ValueError("expected at least one run, got none")
        if folder is None:
            raise ValueError("expected a folder for the checkpoints of the runs, got none")
        if jobs < 1:
            raise ValueError(f"expected at least one job, got {jobs}")
        all_runs = [(plan, folder / name) for plan, name in zip(plans, run_names(plans), strict=True)]
        to_train = [(plan, place) for plan, place in all_runs if self._result(self._run(plan, place)) is None]
        if jobs > 1 and len(to_train) > 1:
            from ordinal_entropy.vision.side_by_side import side_by_side

            side_by_side(partial(self._train_share, device=device, go_on=go_on), to_train, jobs, progress)
        else:
            self._train_share(to_train, progress, device=device, on_metrics=on_metrics, go_on=go_on)
        found = []
        for plan, place in all_runs:
            run = self._run(plan, place)
            result = self._result(run)
            failure = run.failure() if result is None else None
            scores = result or {}
            with runs.reading(place / "result.json", runs.RESULT_REMEDY):
                found.append(
                    failed(failure)
                    if failure
                    else self.outcome(scores["history"], scores["features"], scores.get("first_stage", 0))
                )
        return found

    def evaluate(self, plan: Plan, *, device: str, folder: Path) -> dict[str, float]:
        """Scores of one run, computed anew from its last checkpoint, on the dataset that the recipe names now.

        Returns:
            "step" (epochs done), the score on the images of each split, the further ones of the task, and the score on
            the test images by the checkpoint that is best on validation.
        """
        from ordinal_entropy.vision import training

        place = _run_folder(folder, plan)
        last, best = (training.read_checkpoint(place / name) for name in (training.LAST, training.BEST))
        made, network = self._restored(plan, last)
        scores: dict[str, float] = {"step": last.epoch}

        def scored(part: str) -> dict[str, float]:
            split = getattr(made.data, part)
            with _threads_of(plan.recipe, device):
                return training.scored(network, made.method, made.metric, split, settings(plan.recipe), device=device)

        for part in training.PARTS:
            found = scored(part)
            scores[part] = found[self.metric]
        scores |= {f"test, {what}": found[name] for what, name in self.shown.items()}
        best.restore_method(made.method)
        with best.reading():
            network.load_state_dict(best.weights)
        scores["test, best on validation"] = scored("test")[self.metric]
        return scores

    def pictured(self, plan: Plan, count: int, *, device: str, folder: Path) -> list[Pictured]:
        """Some test images with their maps, predicted by the checkpoint of a run that is best on validation.

        Args:
            plan: of the run.
            count: of images, at most; the same in every run on a dataset, and the same first ones whatever the count.
            device: "cpu", "cuda", ...
            folder: of the run, or of all runs.

        Returns:
            Maps in the unit of the targets; smaller predictions are enlarged bilinearly to the size of the truth.
        """
        from ordinal_entropy.vision import training

        if self.truth is None:
            raise ValueError(f"expected a task whose predictions are maps, got {self.name}")
        if count < 1:
            raise ValueError(f"expected at least one image, got {count}")
        best = training.read_checkpoint(_run_folder(folder, plan) / training.BEST)
        made, network = self._restored(plan, best)
        found = []
        for row in training.fixed_rows(len(made.data.test), count).split(1):  # one by one: sizes may differ
            split = made.data.test.take(row)
            (pair,) = training.predicted(network, made.method, split, settings(plan.recipe), device=device)
            predictions, seen = pair
            truth = self.truth(seen)
            maps = F.interpolate(predictions, size=truth.shape[2:], mode="bilinear", align_corners=False)
            ours, theirs = split.scored(predictions, seen)
            frame = seen.images.shape[2:]
            own = split.extent(0) or frame  # what lies beyond is not of the image
            image, theirs_map, our_map = (
                each[0, ..., : own[0] * each.shape[2] // frame[0], : own[1] * each.shape[3] // frame[1]]
                for each in (seen.images, truth, maps)
            )
            found.append(
                Pictured(
                    image.permute(1, 2, 0).to("cpu", torch.uint8).numpy(),
                    theirs_map[0].float().cpu().numpy(),
                    our_map[0].float().cpu().numpy(),
                    (float(theirs), float(ours)) if ours.dim() == 1 else None,
                )
            )
        return found

    def outcome(
        self, history: _History, features: Mapping[str, Mapping[str, float | None]], first_stage: int = 0
    ) -> Outcome:
        """Of a finished run; the epochs of a first stage are never the best, for their head is not trained."""
        train, validation, test = (
            [_or_nan(epoch[part][self.metric]) for epoch in history] for part in ("train", "validation", "test")
        )
        places = self._places(history, first_stage)
        details = {
            at: {name: _or_nan(score) for name, score in [*history[place]["test"].items(), *features[at].items()]}
            for at, place in places.items()
        }
        return Outcome(
            steps=list(range(1, len(test) + 1)),
            train=train,
            validation=validation,
            test=test,
            last=test[-1],
            best_validation=test[places["best_validation"]],
            best_test=min(test[first_stage:], key=_or_infinite),
            details=details,
        )

    def _train_share(
        self,
        share: Sequence[tuple[Plan, Path]],
        progress: Progress | None,
        *,
        device: str,
        on_metrics: Callable[..., None] | None = None,
        go_on: bool = False,
    ) -> None:
        """Trains runs one after the other, each in its folder."""
        found: dict[tuple[Any, ...], Dataset] = {}
        for number, (plan, place) in enumerate(share):
            run, key = self._run(plan, place), tuple(getattr(plan.recipe, name) for name in self.read_keys)
            if key not in found:
                found.clear()  # one at a time in memory
                found[key] = self.read(plan.recipe).to(device)

            def in_all(done: int, total: int, number: int = number) -> None:
                if progress is not None:  # runs of equal length, the usual case
                    progress(number * total + done, len(share) * total)

            told = in_all if progress is not None else None
            try:
                with _threads_of(plan.recipe, device):
                    scores = self._trained(plan, found[key], run, device, told, on_metrics)
            except Exception as error:
                alone = plan.recipe.devices * plan.recipe.nodes == 1  # else other processes wait for this one
                if not (go_on and alone) or runs.concerns_all(error):
                    raise
                run.fail(error)
            else:
                run.finish({**scores, "left_out": found[key].left_out})

    def _run(self, plan: Plan, place: Path) -> runs.Run:
        recipe = {"task": self.name, **described(plan.recipe)}
        return runs.create(place, recipe, plan.method, plan.seed, defaults=defaults(plan.recipe))

    def _result(self, run: runs.Run) -> dict[str, Any] | None:
        scores: runs.Form = {str: runs.NUMBER}
        epoch = {part: {**scores, self.metric: runs.NUMBER} for part in ("train", "validation", "test")}
        found = run.result({"history": [epoch], "features": {"last": scores, "best_validation": scores}})
        if found is not None:
            with runs.reading(run.path / "result.json", runs.RESULT_REMEDY):
                first = found.get("first_stage", 0)  # there was one stage before there were two
                if not isinstance(first, int) or not 0 <= first < len(found["history"]):
                    raise ValueError(f"expected first_stage as a number of epochs, got {first!r}")
        return found

    def _restored(self, plan: Plan, checkpoint: "Checkpoint") -> tuple[Prepared, Any]:
        """A run that is trained, on the dataset that the recipe names now, and its network as in the checkpoint."""
        from ordinal_entropy.vision import training

        with checkpoint.reading():
            runs.require_form(checkpoint.facts, {"mean": [float], "std": [float], **self.facts}, "facts")
            if not len(checkpoint.facts["mean"]) == len(checkpoint.facts["std"]) == 3:
                raise ValueError("expected a mean and a standard deviation of three channels")
        made = self.prepare(plan, self.read(plan.recipe), checkpoint.facts)
        training.in_precision(made.method, settings(plan.recipe))
        checkpoint.restore_method(made.method)
        with torch.random.fork_rng(devices=[]):
            network: Any = made.make_network()
            replace_head(network, network.feature_layer, made.method)
        network.mean, network.std = checkpoint.facts["mean"], checkpoint.facts["std"]
        training.lay_out(network, settings(plan.recipe))
        with checkpoint.reading():
            network.load_state_dict(checkpoint.weights)
        return made, network

    def _places(self, history: _History, first_stage: int) -> dict[str, int]:
        """The last epoch and the one that is best on validation after the first stage, counted from 0."""
        scores = [_or_infinite(_or_nan(epoch["validation"][self.metric])) for epoch in history[first_stage:]]
        return {"last": len(history) - 1, "best_validation": first_stage + scores.index(min(scores))}

    def _trained(
        self,
        plan: Plan,
        dataset: Dataset,
        run: runs.Run,
        device: str,
        progress: Progress | None,
        on_metrics: Callable[..., None] | None,
    ) -> dict[str, Any]:
        """The scores of every epoch of one run, what its features say, and what its method had to note."""
        from ordinal_entropy.vision import training

        made = self.prepare(plan, dataset, None)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(plan.seed)  # the same first weights whatever the method
            network: Any = made.make_network()
            _prepare_method(made, network, settings(plan.recipe))
        logged = {line["step"] for line in run.metrics()}

        def on_epoch(epoch: int, scores: Any) -> None:
            if epoch not in logged:
                run.log(
                    step=epoch, **{f"{part}_{name}": scores[part][name] for part in scores for name in scores[part]}
                )
            if on_metrics is not None:
                on_metrics(epoch, [Scores(*(scores[part][self.metric] for part in training.PARTS))])

        module = training.Training(
            network,
            made.method,
            made.loss,
            made.metric,
            made.data,
            settings(plan.recipe),
            seed=plan.seed,
            train_metric=made.train_metric,
            folder=run.path,
            facts={**made.facts, "mean": network.mean, "std": network.std},
            callbacks=training.Callbacks(on_epoch, progress),
        )
        history = training.fit(module, device=device, folder=run.path, monitor=self.metric)
        found: dict[str, Any] = {"history": history}
        first = methods.first_epochs(made.method, plan.recipe.epochs)
        if first:
            found["first_stage"] = first
        if made.method.notes:
            found["notes"] = made.method.notes
        return {**found, "features": self._feature_scores(run.path, self._places(history, first), device)}

    def _feature_scores(self, folder: Path, places: Mapping[str, int], device: str) -> dict[str, dict[str, float]]:
        """Of the test images, and as "train_..." of the training images, whose features the run kept."""
        from ordinal_entropy.vision.features import kept_scores

        found = {}
        for place in set(places.values()):
            test, train = (kept_scores(folder, part, place + 1, device) for part in ("test", "train"))
            found[place] = {**test, **{f"train_{name}": score for name, score in train.items()}}
        return {at: found[place] for at, place in places.items()}


def _prepare_method(made: Prepared, network: Any, own: "Settings") -> None:
    """Shows a method the targets to train on, and gives the network its head; a checkpoint then has the last word."""
    from ordinal_entropy.vision import training

    training.in_precision(made.method, own)
    width = width_of(network.get_submodule(network.feature_layer))
    made.method.prepare(made.data.train.target_rows(), None, width)
    for note in made.method.notes:
        _LOG.warning("%s", note)
    replace_head(network, network.feature_layer, made.method)


def _run_folder(folder: Path, plan: Plan) -> Path:
    """The folder itself if it is that of a trained run, else that of the plan's run inside it."""
    from ordinal_entropy.vision.training import LAST

    return folder if (folder / LAST).exists() else folder / run_names([plan])[0]


@contextmanager
def _threads_of(recipe: Any, device: str) -> Iterator[None]:
    """The threads of a run, where a CPU computes it: the order of its sums, and so its rounding, follows from them."""
    before = torch.get_num_threads()
    if torch.device(device).type == "cpu":
        torch.set_num_threads(recipe.threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def settings(recipe: Any) -> "Settings":
    """What the training asks for, of a recipe with keys of the same names."""
    from ordinal_entropy.vision.training import Settings

    own = {each.name for each in fields(recipe)}
    return Settings(**{each.name: getattr(recipe, each.name) for each in fields(Settings) if each.name in own})


class Source(NamedTuple):
    """Where the images of a task come from: the dataset that a recipe names, or one that is generated for it."""

    what: str  # as in "expected --set data=ROOT, a dataset of faces"
    makes: str  # what the preset quick does, as in "draws its own"
    data: Any  # the module that reads it: `require` and `WHERE_TO_GET_IT`
    make: Callable[[Path, int, int], None]  # writes a generated one: folder, seed, count
    folder: str  # a name for it in the cache
    whole: str  # a file that is there when all of it is

    def check(self, recipe: Any) -> None:
        """Refuses a recipe without a dataset; nothing is read or made."""
        if recipe.data:
            self.data.require(Path(recipe.data).expanduser())
        elif not recipe.generated:
            raise ValueError(
                f"expected --set data=ROOT, {self.what}, or --preset quick, which {self.makes}, got neither. "
                f"{self.data.WHERE_TO_GET_IT}"
            )

    def root(self, recipe: Any) -> Path:
        """The dataset of a recipe; a generated one is made if it is not there yet."""
        self.check(recipe)
        if recipe.data:
            return Path(recipe.data).expanduser()
        folder = cache_folder() / f"{self.folder}-{recipe.generated}-seed{_GENERATED_SEED}"
        if not (folder / self.whole).exists():
            with runs.lock(folder.with_name(f".{folder.name}.lock"), wait=True):
                for left in folder.parent.glob(f".{folder.name}.*.tmp"):  # by a process that was killed
                    shutil.rmtree(left)
                if not (folder / self.whole).exists():  # nobody made it while we waited
                    beside = folder.with_name(f".{folder.name}.{os.urandom(4).hex()}.tmp")
                    self.make(beside, _GENERATED_SEED, recipe.generated)
                    beside.rename(folder)
        return folder


def drawn_rows(plan: Plan, count: int, *, trained: bool = False) -> Tensor | None:
    """The rows out of so many that the seed of a run draws to train on, in ascending order; None: all of them.

    Args:
        plan: whose recipe says how many, ``train_rows``.
        count: of training images.
        trained: the run is scored again, perhaps on a dataset that has fewer.

    Example:
        >>> from ordinal_entropy.tasks.age.recipe import Age
        >>> drawn_rows(Plan("oe", 0, Age(train_rows=3)), 5)
        tensor([0, 1, 4])
    """
    wanted = plan.recipe.train_rows
    if wanted > count and not trained:
        raise ValueError(f"expected train_rows of at most {count:,}, got {wanted:,}")
    if not 0 < wanted < count:
        return None
    rows: Tensor = torch.randperm(count, generator=torch.Generator().manual_seed(plan.seed))[:wanted].sort().values
    return rows


def _or_nan(score: float | None) -> float:
    return math.nan if score is None else score


def _or_infinite(score: float) -> float:
    return math.inf if math.isnan(score) else score


_OF_FEATURES = {
    "entropy": "entropy",
    "conditional\nentropy": "conditional_entropy",
    "diversity": "diversity",
    "ordinality": "ordinality",
    "effective\nrank": "effective_rank",
}
FEATURE_TABLES = {  # of a task's details
    "Features of test images": _OF_FEATURES,
    "Features of training images": {heading: f"train_{name}" for heading, name in _OF_FEATURES.items()},
}
