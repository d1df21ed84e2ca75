"""The learning rate of every step: all of them depend on nothing but the number of the step."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from ordinal_entropy.recipes import lookup

NAMES = ("milestones", "poly", "one-cycle")
_POLY_POWER, _POLY_END = 0.9, 0.1  # of BTS and NeW-CRFs
_WARM, _START, _END = 0.3, 1 / 25, 1 / 2500  # of AdaBins: part of the steps that the rate rises in; parts of the rate
_FAST, _SLOW = 0.95, 0.85  # momentum where the rate is small, and where it is largest


class Rate(NamedTuple):
    """Of one step."""

    factor: float  # of the learning rate
    momentum: float | None = None  # in place of the optimizer's


def rate(name: str, step: int, steps: int, *, epochs: int, milestones: Sequence[float] = ()) -> Rate:
    """The learning rate of a step.

    Args:
        name: "milestones": a tenth after each of some epochs; "poly": falls to a tenth by a power of 0.9, as BTS and
            NeW-CRFs have it; "one-cycle": rises from 1/25 for three tenths of the steps, then falls to 1/2500, as
            AdaBins has it, the momentum going the other way between 0.95 and 0.85.
        step: from 0 on.
        steps: of the whole run.
        epochs: of the whole run.
        milestones: epochs.

    Example:
        >>> rate("milestones", step=20, steps=30, epochs=3, milestones=(2,)).factor
        0.1
        >>> round(rate("one-cycle", step=0, steps=30, epochs=3).factor, 3)
        0.04
    """
    lookup("schedule", name, dict.fromkeys(NAMES))
    if name == "milestones":
        epoch = step // (steps // epochs)
        return Rate(0.1 ** sum(epoch >= milestone for milestone in milestones))
    if name == "poly":
        return Rate(_POLY_END + (1 - _POLY_END) * (1 - step / steps) ** _POLY_POWER)
    top = _WARM * steps - 1  # the step of the largest rate, as torch.optim has it
    if step <= top:
        part = step / top if top > 0 else 1.0
        return Rate(_between(_START, 1.0, part), _between(_FAST, _SLOW, part))
    part = (step - top) / (steps - 1 - top)
    return Rate(_between(1.0, _END, part), _between(_SLOW, _FAST, part))


def _between(start: float, end: float, part: float) -> float:
    """From start to end along half a cosine."""
    return end + (start - end) * (1 + math.cos(math.pi * part)) / 2
