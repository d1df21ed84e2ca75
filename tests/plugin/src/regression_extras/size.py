"""A term with a parameter of its own."""

import torch
from torch import Tensor

from ordinal_entropy.methods import Method, Step


class Size(Method):
    """Keeps the features of one size, which is learned."""

    kind = "term"

    def __init__(self, begin: float = 1.0) -> None:
        super().__init__()
        self.size = torch.nn.Parameter(torch.tensor(begin))

    def term(self, step: Step) -> Tensor:
        """The mean squared difference of each row's mean square from the size."""
        squares = step.features.to(torch.promote_types(step.features.dtype, torch.float32)).square().mean(1)
        return (squares - self.size).square().sum() / max(len(squares), 1)
