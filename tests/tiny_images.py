"""A tiny dataset of images, a network and a metric, for tests of training on images."""

import csv
from pathlib import Path

import torch
from torch import Tensor, nn

from ordinal_entropy.models.backbones import Network
from ordinal_entropy.recipes.groups import LargeTraining
from ordinal_entropy.vision.sets import Images
from ordinal_entropy.vision.split import Data, Labelled

from torchmetrics import Metric  # isort: skip  # after torchvision's guard

SIZE = 16
SETTINGS = LargeTraining(
    epochs=3, batch_size=16, learning_rate=1e-2, milestones=(2,), feature_rows=8, checkpoint_seconds=0
)


class Errors(Metric):
    """Mean absolute error in float64."""

    full_state_update = False

    def __init__(self) -> None:
        super().__init__()
        self.add_state("error", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("number", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, predictions: Tensor, targets: Tensor) -> None:
        self.error = self.error + (predictions.double() - targets.double()).abs().sum()
        self.number = self.number + len(targets)

    def compute(self) -> dict[str, Tensor]:
        return {"mae": self.error / self.number}


def a_split(count: int, seed: int) -> Labelled:
    draw = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (count, SIZE, SIZE, 3), generator=draw, dtype=torch.uint8).permute(0, 3, 1, 2)
    ages = torch.randint(0, 9, (count, 1), generator=draw).float()
    paths = tuple(Path(f"{place}.jpg") for place in range(count))
    return Labelled(Images(paths, SIZE, pixels), ages, padding=2)


def some_data() -> Data:
    return Data(a_split(60, 0), a_split(20, 1), a_split(21, 2))


def a_network(outputs: int = 1) -> Network:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        backbone = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
        return Network(backbone.append(nn.Dropout(0.1)), 8, outputs)


def l1(outputs: Tensor, targets: Tensor, mask: Tensor | None, weight: Tensor | None) -> Tensor:
    losses = (outputs - targets).abs()
    return (losses if weight is None else losses * weight).mean()


def logged(folder: Path) -> list[dict[str, str]]:
    with (folder / "csv" / "version_0" / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))
