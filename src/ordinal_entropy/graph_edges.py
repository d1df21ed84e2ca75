"""Where compiled graphs end: a gradient-balanced strength differentiates by the features, which must be at an edge.

What comes out of one graph of ``torch.compile`` knows no gradient by anything else that does. So where a strength is
gradient-balanced, a tapped model is compiled up to the layer and from there on, and a compiled function that calls the
regularizer is left to Python, with the modules that it calls compiled one by one.

A compiled graph may overwrite what it has saved for its gradient, and then has one gradient only. That of the head is
asked for several times, so from the first gradient-balanced strength on graphs keep what they have saved.
"""

import re
import warnings
import weakref
from typing import Any

import torch

_ASKING: "weakref.WeakSet[Any]" = weakref.WeakSet()  # those who differentiate by features
_NO_LEAF = "The .grad attribute of a Tensor that is not a leaf"


def needed_by(balance: object) -> None:
    """From now on graphs end at the features, as long as the object lives, and have gradients more than once."""
    import torch._functorch.config as settings  # not loaded with torch

    _ASKING.add(balance)
    if hasattr(settings, "donated_buffer"):  # from torch 2.6 on
        settings.donated_buffer = False


def end_here() -> None:
    """Ends a graph that is being compiled, if anyone differentiates by features and it need not be one graph."""
    if torch.compiler.is_compiling() and _is_needed():
        torch._dynamo.graph_break()


def leave_to_python() -> None:
    """Has the function that is being compiled run as it is; where torch cannot do that, ends its graph."""
    if torch.compiler.is_compiling():
        _give_up()


def _is_needed() -> bool:
    compiling = torch._dynamo.symbolic_convert.InstructionTranslator.current_tx()
    needed = len(_ASKING) > 0 and not compiling.one_graph
    if needed:
        _hide_as_torch_does()
    return needed


def _give_up() -> None:
    _hide_as_torch_does()
    raise torch._dynamo.exc.SkipFrame("a gradient-balanced strength needs the gradient by its features")


def _hide_as_torch_does() -> None:
    """Has a warning ignored that is an error here.

    Torch's compiler asks what enters a graph for its ``grad`` and hides the warning that this gives of what is no leaf,
    as features at an edge are; but where warnings are errors, it fails.
    """
    with warnings.catch_warnings(record=True):
        try:
            warnings.warn(f"{_NO_LEAF} Tensor", UserWarning, stacklevel=1)
        except UserWarning:
            is_error = True
        else:
            is_error = False
    if is_error:
        warnings.filterwarnings("ignore", re.escape(_NO_LEAF))


# What `torch.compiler.assume_constant_result` does, which would import the compiler: both are called while it traces.
_is_needed._dynamo_marked_constant = True  # type: ignore[attr-defined]
_give_up._dynamo_marked_constant = True  # type: ignore[attr-defined]
