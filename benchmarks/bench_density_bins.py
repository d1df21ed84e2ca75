"""How wide the bins of density should be: how many cells of an image share a center, for each width.

    python benchmarks/bench_density_bins.py ShanghaiTech/part_A      # seconds; writes bench_density_bins.json

Of the training images at 512 pixels, with exact cells, as the preset `small` of `crowd` reads them.
"""

import argparse
from pathlib import Path
from statistics import mean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ordinal_entropy.recipes import override
from ordinal_entropy.tasks.crowd.recipe import PRESETS, crowds
from ordinal_entropy.tasks.crowd.views import Crowds

import record

WIDTHS = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1)
STRIDES = (4, 1)


def cells_of(split: Crowds, above: float, stride: int) -> list[Tensor]:
    """Heads in the cells of each image that the regularizer sees."""
    found, begins = [], split.cells.table[:, 0].tolist()
    for begin, (height, width) in zip(begins, split.cells.sizes, strict=True):
        grid = split.cells.values[begin : begin + height * width].view(height, width)
        seen = F.interpolate(grid[None, None], size=(height // stride, width // stride), mode="nearest").flatten()
        found.append(seen[seen > above].double())
    return [cells for cells in found if len(cells) > 1]


def shared(cells: Tensor, width: float) -> dict[str, float]:
    """Of one image: centers, the part of cells that are alone in theirs, and the spread within one."""
    keys = cells if width == 0 else torch.floor(cells / width)
    _, slot, counts = keys.unique(return_inverse=True, return_counts=True)
    means = torch.zeros(len(counts), dtype=cells.dtype).index_add(0, slot, cells) / counts
    squares = torch.zeros_like(means).index_add(0, slot, (cells - means[slot]).square()) / counts
    return {
        "cells": len(cells),
        "centers": len(counts),
        "alone": float(counts[slot].eq(1).double().mean()),
        "spread_in_a_bin": float(squares.sqrt().mean() / cells.std(correction=0)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", help="a part of ShanghaiTech")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    arguments = parser.parse_args()
    recipe = override(PRESETS["small"], [f"data={arguments.root}"])
    dataset = crowds(recipe)
    split = dataset.splits["train"]
    results: list[dict[str, Any]] = []
    for stride in STRIDES:
        images = cells_of(split, recipe.method.above, stride)
        for width in WIDTHS:
            found = [shared(cells, width) for cells in images]
            row = {name: round(mean(own[name] for own in found), 4) for name in found[0]}
            results.append({"stride": stride, "width": width, "images": len(images), **row})
            print(results[-1])
    heads = split.cells.values.double()
    whole = {"images": len(split), "standard_deviation_of_heads_in_a_cell": round(float(heads.std()), 4)}
    size = sum(each.values.nbytes for own in dataset.splits.values() for each in (own.images, own.cells))
    held = {"megabytes_of_all_splits": round(size / 1e6, 1)}
    record.write(arguments.out, {"training_images": whole, **held, "results": results})


if __name__ == "__main__":
    main()
