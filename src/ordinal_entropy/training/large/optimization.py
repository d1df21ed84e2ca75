"""How weights are optimised: the optimizer, the learning rate of every step, the precision and layout of numbers."""

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from ordinal_entropy.recipes import lookup
from ordinal_entropy.recipes.groups import LargeTraining

NAMES = ("milestones", "poly", "one-cycle")
_POLY_POWER, _POLY_END = 0.9, 0.1  # of BTS and NeW-CRFs
_WARM, _START, _END = 0.3, 1 / 25, 1 / 2500  # of AdaBins: part of the steps that the rate rises in; parts of the rate
_FAST, _SLOW = 0.95, 0.85  # momentum where the rate is small, and where it is largest


_OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


PRECISIONS: dict[str, tuple[Literal["32-true", "bf16-mixed", "16-mixed", "64-true"], torch.dtype]] = {
    "float32": ("32-true", torch.float32),
    "bf16": ("bf16-mixed", torch.bfloat16),
    "fp16": ("16-mixed", torch.float16),
    "float64": ("64-true", torch.float64),
}


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


def optimizer(parameters: Sequence[nn.Parameter], settings: LargeTraining) -> torch.optim.Optimizer:
    """The optimizer of some parameters, which are stepped at once, not one by one."""
    options: dict[str, Any] = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay}
    if settings.optimizer == "sgd":
        options["momentum"] = settings.momentum
    scaled = settings.clip > 0 and settings.precision == "fp16"  # a fused one would clip gradients before their scale
    if all(parameter.device.type in ("cpu", "cuda") for parameter in parameters) and not scaled:
        options["fused"] = True
    made: torch.optim.Optimizer = _OPTIMIZERS[settings.optimizer](parameters, **options)
    return made


def least_rows(network: nn.Module) -> int:
    """Images that a batch to train on must have: a BatchNorm cannot be trained on one number a channel."""
    normed = any(isinstance(each, nn.modules.batchnorm._BatchNorm) for each in network.modules())
    return int(getattr(network, "least_images", 2 if normed else 1))


def dtype_of(settings: LargeTraining) -> torch.dtype:
    """Of weights and images: half precisions are mixed."""
    return torch.float64 if settings.precision == "float64" else torch.float32


def precision_on(device: torch.device, settings: LargeTraining) -> str:
    """A CPU has no mixed precision here."""
    return settings.precision if device.type == "cuda" or settings.precision == "float64" else "float32"


def in_precision(module: nn.Module, settings: LargeTraining) -> None:
    """Brings weights into double precision where the images are."""
    if settings.precision == "float64":
        module.double()


def lay_out(network: nn.Module, settings: LargeTraining) -> None:
    """Brings the weights into the precision and the memory layout of the images."""
    in_precision(network, settings)
    if settings.channels_last:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
