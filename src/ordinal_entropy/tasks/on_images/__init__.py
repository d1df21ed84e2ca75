"""Tasks on images: what they have in common, made of what each says of its own."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ordinal_entropy.tasks import Task
from ordinal_entropy.tasks.on_images.description import OnImages
from ordinal_entropy.tasks.on_images.evaluation import evaluate
from ordinal_entropy.tasks.on_images.pictures import pictured
from ordinal_entropy.tasks.on_images.training import check_method, train_run
from ordinal_entropy.training.runner import Trainable

_OF_FEATURES = {
    "entropy": "entropy",
    "conditional\nentropy": "conditional_entropy",
    "diversity": "diversity",
    "ordinality": "ordinality",
    "effective\nrank": "effective_rank",
}
_FEATURE_TABLES = {
    "Features of test images": _OF_FEATURES,
    "Features of training images": {heading: f"train_{name}" for heading, name in _OF_FEATURES.items()},
}


def task(
    own: OnImages,
    *,
    about: str,
    presets: Mapping[str, Any],
    check: Callable[[Any], None],
    details: Mapping[str, Mapping[str, str]],
    paper_at: str = "best_test",
) -> Task:
    """The task that the command line and the studies know; arguments as of :class:`ordinal_entropy.tasks.Task`."""
    return Task(
        Trainable(
            own.name,
            own.metric,
            read=partial(_read, own),
            data_key=partial(_data_key, own),
            train_group=partial(train_run, own),
            processes=_processes,
        ),
        about,
        presets,
        fixed=(),
        evaluate=partial(evaluate, own),
        check_method=partial(check_method, own),
        check=check,
        details={**details, **_FEATURE_TABLES},
        paper_at=paper_at,
        pictured=None if own.truth is None else partial(pictured, own),
    )


def _read(own: OnImages, recipe: Any, device: str) -> Any:
    return own.read(recipe).to(device)


def _data_key(own: OnImages, recipe: Any) -> tuple[Any, ...]:
    return tuple(getattr(recipe.data, name) for name in own.read_keys)


def _processes(recipe: Any) -> int:
    count: int = recipe.training.processes
    return count
