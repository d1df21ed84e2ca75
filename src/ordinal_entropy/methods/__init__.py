"""What can be compared: the baseline, ordinal entropy and its ablations, classification; the one registry of names.

To add a method: a file here with a class of the shape of :class:`Method`, and its name in ``_REGISTRY``.
"""

import difflib
import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from ordinal_entropy.methods import ablations
from ordinal_entropy.methods.baseline import Baseline
from ordinal_entropy.methods.classification import Classification

__all__ = ["Method", "create", "describe", "names", "options"]


class Method(Protocol):
    """What a training loop may ask of a method. All of them are modules."""

    replaces_task_loss: bool  # then the task loss is not added

    def __call__(
        self,
        features: Tensor,
        targets: Tensor,
        mask: Tensor | None = None,
        predictions: Tensor | None = None,
        task_loss: Tensor | None = None,
    ) -> Tensor:
        """Scalar that is added to the task loss, strength included; a strength that sets itself looks at that loss."""
        ...

    def outputs(self, t: int) -> int:
        """How many outputs the model needs for targets of ``t`` numbers."""
        ...

    def decode(self, outputs: Tensor) -> Tensor:
        """Predictions from the outputs of the model."""
        ...


class _Entry(NamedTuple):
    make: Callable[..., Method]
    options: tuple[str, ...]
    required: tuple[str, ...]
    description: str


_REGISTRY = {
    "baseline": _Entry(Baseline, (), (), "the task loss alone"),
    **{
        name: _Entry(functools.partial(ablations.Regularizer, name), ablations.free_options(name), (), description)
        for name, description in ablations.DESCRIPTIONS.items()
    },
    "classification": _Entry(
        Classification,
        tuple(inspect.signature(Classification).parameters),
        ("bins", "low", "high"),
        "cross-entropy on uniform bins of the target, in place of the task loss",
    ),
}


def names() -> list[str]:
    """Every name that :func:`create` knows.

    Example:
        >>> names()[:3]
        ['baseline', 'ld-unweighted', 'ld']
    """
    return list(_REGISTRY)


def describe(name: str) -> str:
    """What the method does, in one line.

    Example:
        >>> describe("baseline")
        'the task loss alone'
    """
    return _entry(name).description


def options(name: str) -> tuple[str, ...]:
    """The options that :func:`create` takes for this name.

    Example:
        >>> options("baseline"), options("classification")
        ((), ('bins', 'low', 'high', 'decode'))
    """
    return _entry(name).options


def create(name: str, **options: Any) -> Method:
    """The method of that name: a module, without state but for a balance or a memory.

    Args:
        name: one of :func:`names`.
        options: those that :func:`options` lists; all have defaults but the ``bins``, ``low`` and ``high`` of
            "classification". ``strength`` multiplies everything that a regularizer adds.

    Example:
        >>> import torch
        >>> method = create("ld", strength=0.5)
        >>> method(torch.eye(3), torch.tensor([0.0, 3.0, 3.0]))  # the diversity is 1.2247
        tensor(-0.6124)
        >>> create("ldd")
        Traceback (most recent call last):
        ValueError: expected a method like 'ld', got 'ldd'; there are baseline, ld-unweighted, ld, ...
    """
    entry = _entry(name)
    unknown = [option for option in options if option not in entry.options]
    if unknown:
        takes = f"one of {', '.join(entry.options)}" if entry.options else "none"
        raise ValueError(f"expected options of {name!r}: {takes}; got {', '.join(unknown)}")
    missing = [option for option in entry.required if option not in options]
    if missing:
        raise ValueError(f"expected {name!r} with {', '.join(entry.required)}, got none for {', '.join(missing)}")
    return entry.make(**options)


def _entry(name: str) -> _Entry:
    if name in _REGISTRY:
        return _REGISTRY[name]
    near = difflib.get_close_matches(str(name).lower(), _REGISTRY, n=3)
    like = f"a method like {' or '.join(map(repr, near))}" if near else "the name of a method"
    raise ValueError(f"expected {like}, got {name!r}; there are {', '.join(_REGISTRY)}")
