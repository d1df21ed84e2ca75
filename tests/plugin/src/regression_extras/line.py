"""A method of two stages."""

import torch
from torch import Tensor

from ordinal_entropy.methods import Method, Step


class Line(Method):
    """Trains the encoder alone to put the mean of the features on a line with the targets, then the head."""

    kind = "term"
    stages = ("encoder", "head")

    def __init__(self, share: float = 0.5) -> None:
        super().__init__()
        self.first_stage = share

    def term(self, step: Step) -> Tensor:
        """One minus the correlation of both; 0 where one of them does not vary."""
        features = step.features.to(torch.promote_types(step.features.dtype, torch.float32))
        pair = features.mean(1), step.batch.targets[:, 0].to(features)
        a, b = (each - each.sum() / max(len(each), 1) for each in pair)
        size = (a.square().sum() * b.square().sum() + 1e-12).sqrt()
        return 1 - (a * b).sum() / size
