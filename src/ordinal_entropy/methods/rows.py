"""Steps of any layout as rows: outputs beside targets for heads and losses, features beside targets for terms."""

from typing import NamedTuple

import torch
from torch import Tensor

from ordinal_entropy import distributed
from ordinal_entropy.layouts import Rows, rows
from ordinal_entropy.methods.contract import Step


class OutputRows(NamedTuple):
    """Outputs and targets side by side, in groups: one of a batch, one for each of several maps."""

    outputs: Tensor  # (g, n, o)
    targets: Tensor  # (g, n, t)
    inside: Tensor | None  # (g, n), 1 for rows inside the mask and 0 for others; None: all are
    weight: Tensor | None  # (g, n), factor of a row's loss, 0 outside the mask

    @property
    def mask(self) -> Tensor | None:
        """``(g, n)``, which rows are inside."""
        return None if self.inside is None else self.inside > 0

    def mean(self, losses: Tensor) -> Tensor:
        """The mean of weight times loss ``(g, n)`` over the rows inside; without any, a zero with a graph."""
        factor = self.inside if self.weight is None else self.weight
        total = losses.sum() if factor is None else (losses * factor).sum()
        if self.inside is None:
            return total / max(losses.numel(), 1)
        return total / self.inside.sum().clamp(min=1)


def output_rows(step: Step, width: int, t: int = 1, *, gather: bool = False) -> OutputRows:
    """Outputs of a step as rows. Maps of targets at another resolution are read at the nearest places.

    Args:
        step: with outputs ``(n, width)``, ``(b, n, width)`` or ``(b, width, h, w)``, and targets of the same rows.
        width: numbers a row that the head gives.
        t: numbers of a target.
        gather: join rows ``(n, width)`` of all ranks, for losses that compare rows.

    Example:
        >>> import torch
        >>> from ordinal_entropy.methods import Batch
        >>> batch = Batch(None, torch.tensor([1.0, 2.0]), mask=torch.tensor([True, False]))
        >>> found = output_rows(Step(batch, torch.eye(2), torch.ones(2, 5), None), width=5)
        >>> found.outputs.shape, found.mean(torch.tensor([[3.0, 4.0]]))
        (torch.Size([1, 2, 5]), tensor(3.))
    """
    outputs, batch = step.outputs, step.batch
    if not isinstance(outputs, Tensor):
        came = None if outputs is None else type(outputs).__name__
        raise ValueError(f"expected predictions with {width} numbers a row, got {came}")
    if outputs.dim() not in (2, 3, 4) or outputs.shape[1 if outputs.dim() == 4 else -1] != width:
        raise ValueError(f"expected predictions with {width} numbers a row, got {tuple(outputs.shape)}")
    if gather and outputs.dim() == 2:
        return _of_all_ranks(step, t)
    found, targets, amount, _ = rows(outputs, batch.targets, batch.mask, per="image")
    if targets.shape[-1] != t:
        raise ValueError(f"expected targets of {_numbers(t)} a row, got {tuple(batch.targets.shape)}")
    weight = None
    if batch.weight is not None:
        weight = rows(outputs.detach(), batch.targets, batch.mask, batch.weight, per="image").amount
    return OutputRows(found, targets, None if batch.mask is None else amount, weight)


def _of_all_ranks(step: Step, t: int) -> OutputRows:
    """Rows of the joined batch; weights travel as one more number of the targets."""
    outputs, (_, targets, mask, weight, _) = step.outputs, step.batch

    def own() -> Rows:
        columns = targets[:, None] if targets.dim() == 1 else targets
        if columns.shape[-1] != t:
            raise ValueError(f"expected targets of {_numbers(t)} a row, got {tuple(targets.shape)}")
        inside = mask if mask is None or mask.dim() == 1 else mask.all(1)
        if weight is not None:
            factor = rows(outputs.detach(), targets, inside, weight).amount
            assert factor is not None
            columns = torch.cat([columns.to(factor.dtype), factor.T], 1)
        return rows(outputs, columns, inside)

    data, _ = distributed.join(own, device=outputs.device)
    every = None if weight is None else data.targets[..., t]
    return OutputRows(data.features, data.targets[..., :t], data.amount, every)


def prediction_rows(step: Step, *, gather: bool = False) -> OutputRows:
    """Predictions of a step as rows, as many numbers as a target has; :func:`output_rows` has the rest."""
    outputs = step.outputs
    if not isinstance(outputs, Tensor):
        raise ValueError(f"expected predictions, got {None if outputs is None else type(outputs).__name__}")
    targets = step.batch.targets
    along = 1 if outputs.dim() == 4 else -1
    t = targets.shape[along] if targets.dim() == outputs.dim() else 1
    return output_rows(step, t, t, gather=gather)


def paired(predictions: Tensor, targets: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Predictions and targets as ``(..., n, t)`` in one type, at least float32; zero outside the mask.

    Args:
        predictions: ``(n,)`` or ``(..., n, t)``.
        targets: of the same shape: nothing is broadcast.
        mask: boolean ``(..., n)``, rows that count.

    Example:
        >>> [each.shape for each in paired(torch.zeros(3), torch.zeros(3))]
        [torch.Size([3, 1]), torch.Size([3, 1])]
    """
    if predictions.shape != targets.shape or predictions.dim() == 0:
        came = f"{tuple(predictions.shape)} and {tuple(targets.shape)}"
        raise ValueError(f"expected predictions and targets of one shape, (n,) or (n, t), got {came}")
    if predictions.dim() == 1:
        predictions, targets = predictions[:, None], targets[:, None]
    dtype = torch.promote_types(predictions.dtype, torch.float32)
    predictions, targets = predictions.to(dtype), targets.to(dtype)
    if mask is not None:
        predictions, targets = (torch.where(mask[..., None], each, 0) for each in (predictions, targets))
    return predictions, targets


def feature_rows(
    step: Step, *, gather: bool = False, predictions: bool = False
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Features and targets of a step as rows, for terms that compare rows.

    Args:
        step: with features ``(n, d)``, ``(b, n, d)`` or maps ``(b, d, h, w)``, each place of which is a row.
        gather: join the rows of all ranks, so that loss and gradient are those of one process.
        predictions: put the outputs ``(n, o)`` behind the targets, without their gradient; those that are no numbers,
            as of a run that diverges, as 0.

    Returns:
        Features ``(n, d)`` and targets ``(n, t)``, of at least float32, and which rows count ``(n,)``, None for all.
        Rows that do not count are zero.

    Example:
        >>> from ordinal_entropy.methods import Batch
        >>> batch = Batch(None, torch.tensor([1.0, 2.0]), mask=torch.tensor([True, False]))
        >>> feature_rows(Step(batch, torch.ones(2, 2), None, None))
        (tensor([[1., 1.],
                [0., 0.]]), tensor([[1.],
                [0.]]), tensor([ True, False]))
    """
    targets, mask = step.batch.targets, step.batch.mask
    if predictions:
        targets = targets[:, None] if targets.dim() == 1 else targets
        mask = mask if mask is None or mask.dim() == 1 else mask.all(1)
        outputs = step.outputs.detach()
        dtype = torch.promote_types(torch.promote_types(targets.dtype, outputs.dtype), torch.float32)
        targets = torch.cat([targets.to(dtype), outputs.to(dtype).nan_to_num()], 1)
    data, _ = (
        distributed.join(lambda: rows(step.features, targets, mask), device=step.features.device)
        if gather
        else (rows(step.features, targets, mask), None)
    )
    return data.features[0], data.targets[0], None if data.amount is None else data.amount[0] > 0


def feature_groups(step: Step, name: str, *, gather: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Features and targets of a step as groups of rows, for terms that compare the rows of a group, and are its mean.

    Args:
        step: with features ``(n, d)``, one group, or ``(g, n, d)``.
        name: of the method, for the message where there are others.
        gather: join the rows of all ranks, as in :func:`feature_rows`.

    Returns:
        Features ``(g, n, d)`` and targets ``(g, n, t)``, of at least float32, and which rows count ``(g, n)``.

    Example:
        >>> import torch
        >>> from ordinal_entropy.methods import Batch
        >>> feature_groups(Step(Batch(None, torch.tensor([1.0, 2.0])), torch.ones(2, 3), None, None), "mine")[1].shape
        torch.Size([1, 2, 1])
    """
    if step.features.dim() not in (2, 3):
        raise ValueError(
            f"expected features (n, d) for {name}, which compares all pairs of rows, got "
            f"{tuple(step.features.shape)}: average maps over their places first"
        )

    def own() -> Rows:
        return rows(step.features, step.batch.targets, step.batch.mask, per="image")

    data, _ = distributed.join(own, device=step.features.device) if gather else (own(), None)
    shape = data.features.shape[:2]
    return data.features, data.targets, data.features.new_ones(shape) > 0 if data.amount is None else data.amount > 0


def _numbers(t: int) -> str:
    return "one number" if t == 1 else f"{t} numbers"
