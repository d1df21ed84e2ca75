"""Why it works, in numbers: what docs/theory.md shows and tests/test_theory.py checks.

    python examples/theory.py                             # what training does to the entropy: a table
    python examples/theory.py --picture docs/theory.png   # and the picture of the page

The picture needs matplotlib: pip install 'ordinal-entropy[report]'.
"""

import argparse
import functools
import itertools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, elu, normalize, one_hot

import ordinal_entropy as oe
from ordinal_entropy.estimators import conditional_entropy, mean_nn_entropy

# --- Eq. 2: the cross-entropy, split ---------------------------------------------------------------------------------


class Split(NamedTuple):
    """A cross-entropy in two halves, and what Eq. 2 puts in the place of each."""

    loss: Tensor  # the cross-entropy: pull + push
    pull: Tensor  # of the features to the weights of their class, plus lambda / 2 |theta|^2
    push: Tensor  # the log of the softmax's denominator, minus lambda / 2 |theta|^2
    tightness: Tensor  # first term of Eq. 2: the least pull that any theta has
    diversity: Tensor  # second term, the norms squared: the push at the soft centers / lambda
    printed: Tensor  # second term as printed: norms not squared
    to_hard: Tensor  # |theta - hard centers / lambda|^2, where the pull is least
    to_soft: Tensor  # |theta - soft centers / lambda|^2, where Eq. 2 takes the push


def split(features: Tensor, classes: Tensor, theta: Tensor, lam: float) -> Split:
    """The cross-entropy of a linear classifier in the terms of Eq. 2.

    Args:
        features: ``(n, d)``.
        classes: ``(n,)``, from 0 to k - 1.
        theta: ``(k, d)``, the weights of each class.
        lam: the paper's lambda.
    """
    n, k = len(features), len(theta)

    def pull(theta: Tensor) -> Tensor:
        return lam / 2 * theta.square().sum() - (theta[classes] * features).sum() / n

    def push(theta: Tensor) -> Tensor:
        return (features @ theta.T).logsumexp(1).mean() - lam / 2 * theta.square().sum()

    hard = one_hot(classes, k).to(features).T @ features / n  # (k, d)
    soft = (features @ theta.T).softmax(1).T @ features / n  # (k, d)
    diversity = push(soft / lam)
    return Split(
        loss=cross_entropy(features @ theta.T, classes),
        pull=pull(theta),
        push=push(theta),
        tightness=pull(hard / lam),
        diversity=diversity,
        printed=diversity + (soft.square().sum() - soft.norm(dim=1).sum()) / (2 * lam),
        to_hard=(theta - hard / lam).square().sum(),
        to_soft=(theta - soft / lam).square().sum(),
    )


def two_points(size: float, slope: float, lam: float) -> Split:
    """Two features, ``size`` and ``-size``, each a class of its own, and the classifier ``theta = (slope, -slope)``."""
    features = torch.tensor([[size], [-size]], dtype=torch.float64)
    return split(features, torch.tensor([0, 1]), slope * features / size, lam)


# --- Lemma 1: bins ---------------------------------------------------------------------------------------------------


class Gap(NamedTuple):
    """The two sides of Lemma 1."""

    gap: float
    bound: float


def lemma1(predictions: Tensor, targets: Tensor, width: float) -> Gap:
    """How far the MSE moves when each target is replaced by the center of its bin, and what Lemma 1 allows."""
    centers = ((targets / width).floor() + 0.5) * width
    gap = (predictions - targets).square().mean() - (predictions - centers).square().mean()
    bound = width / 2 * (2 * predictions - centers - targets).abs().mean()
    return Gap(gap.abs().item(), bound.item())


def predicted() -> tuple[Tensor, Tensor]:
    """Targets between 0 and 1, and predictions that are off by about 0.1."""
    generator = torch.Generator().manual_seed(0)
    y = torch.rand(1000, generator=generator, dtype=torch.float64)
    return y + 0.1 * torch.randn(1000, generator=generator, dtype=torch.float64), y


# --- Theorem 1: a proxy ----------------------------------------------------------------------------------------------


def clusters(noise: float) -> tuple[Tensor, Tensor]:
    """Features ``(3000, 3)`` around ten points of a line, with Gaussian noise; the targets tell the point."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(3000, dtype=torch.float64) % 10 / 9
    along = torch.tensor([1.0, 2.0, 2.0], dtype=torch.float64)
    return y[:, None] * along + noise * torch.randn(3000, 3, generator=generator, dtype=torch.float64), y


def readout_error(z: Tensor, y: Tensor) -> float:
    """MSE of the best linear readout of the targets ``(n,)`` from the features ``(n, d)``."""
    inputs = torch.cat([z, torch.ones_like(z[:, :1])], dim=1)
    weights = torch.linalg.lstsq(inputs, y[:, None]).solution
    return float((inputs @ weights - y[:, None]).square().mean())


# --- What training does to H(Z) --------------------------------------------------------------------------------------

SEEDS = 10
T_95 = 2.262  # Student's t for ten seeds: the 0.975 quantile at 9 degrees of freedom
ROWS, WIDTHS, CLASSES = 80, (8, 32, 8), 10  # inputs, hidden units, features; bins of equal counts
LOSSES = ("mse", "classification", "mse + L_d")


@dataclass(frozen=True)
class Setting:
    """What decides where the entropy goes, apart from the loss."""

    start: float = 1.0  # factor on the first weights of the encoder; 1: variance 1 / inputs
    curved: bool = True  # the target: a sine and a product of inputs; False: a sum of inputs
    decay: float = 0.0  # AdamW's


SETTINGS = {
    "small start": Setting(start=0.1),
    "usual start": Setting(),
    "large start": Setting(start=4.0),
    "straight target": Setting(curved=False),
    "straight, decay": Setting(curved=False, decay=0.3),
}


class Course(NamedTuple):
    """Entropies of the features in nats (up to a constant) during training, ``(steps, seeds)`` each."""

    steps: list[int]
    raw: Tensor  # H(Z)
    unit: Tensor  # H(Z) of the features brought to length 1
    fit: float  # at the last step: MSE over the variance of the targets, or the share of wrong classes


@functools.cache
def trained(loss: str, setting: Setting, steps: int = 300) -> Course:
    """Trains ten perceptrons, one a seed, each on rows of its own, and follows the entropy of what enters the head.

    The seeds are stacked in the first dimension: every loss is a sum over them, so they do not see each other.
    """
    if loss not in LOSSES:
        raise ValueError(f"expected a loss out of {LOSSES}, got {loss!r}")
    generator = torch.Generator().manual_seed(0)
    normal = functools.partial(torch.randn, generator=generator, dtype=torch.float64)
    x = normal(SEEDS, ROWS, WIDTHS[0])
    y = torch.sin(2 * x[..., :1]) + x[..., 1:2] * x[..., 2:3] if setting.curved else x[..., :4].sum(-1, keepdim=True)
    y = y / y.std()
    classes = y.argsort(1).argsort(1)[..., 0] * CLASSES // ROWS  # (seeds, rows)
    ends = (*WIDTHS, CLASSES if loss == "classification" else 1)
    weights = [normal(SEEDS, a, b) / math.sqrt(a) for a, b in itertools.pairwise(ends)]
    weights = [w * setting.start for w in weights[:-1]] + weights[-1:]
    biases = [torch.zeros(SEEDS, 1, b, dtype=torch.float64) for b in ends[1:]]
    optimizer = torch.optim.AdamW(
        [p.requires_grad_() for p in weights + biases], lr=0.01, weight_decay=setting.decay, foreach=True
    )
    diversity = oe.OrdinalEntropy(1.0, 0.0, grouping="none", per="image")  # "image": within a seed

    at = sorted({0, steps, *(round(steps ** (k / 12)) for k in range(13))})
    raw, unit = [], []
    for step in range(steps + 1):
        z = elu(torch.baddbmm(biases[0], x, weights[0]))
        z = elu(torch.baddbmm(biases[1], z, weights[1]))  # (seeds, rows, features)
        out = torch.baddbmm(biases[2], z, weights[2])
        if step in at:
            raw.append(torch.stack([mean_nn_entropy(features, scale="entropy") for features in z.detach()]))
            unit.append(torch.stack([mean_nn_entropy(features, True, scale="entropy") for features in z.detach()]))
        if loss == "classification":
            objective = SEEDS * cross_entropy(out.flatten(0, 1), classes.flatten())
        else:
            objective = SEEDS * (out - y).square().mean()
        if loss == "mse + L_d":
            objective = objective + SEEDS * diversity(z, y)
        optimizer.zero_grad()
        objective.backward()
        optimizer.step()
    wrong = out.argmax(2) != classes if loss == "classification" else (out - y).detach().square()
    return Course(at, torch.stack(raw), torch.stack(unit), wrong.double().mean().item())


class Interval(NamedTuple):
    """A mean over seeds, half of its 95% interval, and in how many of the seeds the value is above 0."""

    mean: float
    half: float
    above: int

    def __str__(self) -> str:
        return f"{self.mean:+5.1f} ± {self.half:3.1f} ({self.above:2} up)"


def interval(values: Tensor) -> Interval:
    """Of one value a seed ``(10,)``, by Student's t."""
    half = T_95 * values.std() / math.sqrt(len(values))
    return Interval(values.mean().item(), half.item(), int((values > 0).sum()))


def change(entropies: Tensor) -> Interval:
    """How far the entropy ``(steps, seeds)`` went from the first step to the last."""
    return interval(entropies[-1] - entropies[0])


def spread_out(weighting: str, start: str) -> tuple[Tensor, Tensor]:
    """Features that are free to go where the diversity is largest: at the first step and at the last, ``(60, 4)``.

    Args:
        weighting: "l2" for L_d, "none" for L'_d.
        start: "random", directions drawn at random, or "collapsed", nearly one direction.
    """
    generator = torch.Generator().manual_seed(0)
    y = torch.linspace(0, 1, 60, dtype=torch.float64)
    first = torch.randn(60, 4, generator=generator, dtype=torch.float64)
    if start == "collapsed":
        first = 0.05 * first + torch.eye(4, dtype=torch.float64)[0]
    features = first.clone().requires_grad_()
    optimizer = torch.optim.Adam([features], lr=0.1)
    diversity = oe.OrdinalEntropy(1.0, 0.0, weighting=weighting)
    for _ in range(500):
        optimizer.zero_grad()
        diversity(features, y).backward()
        optimizer.step()
    return normalize(first, dim=1), normalize(features.detach(), dim=1)


# --- The picture -----------------------------------------------------------------------------------------------------

BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"  # told apart by the colour-blind; each has a dash of its own
LOOKS = dict(zip(LOSSES, ((BLUE, "-"), (ORANGE, "--"), (GREEN, "-.")), strict=True))
STARTS = ("small start", "usual start", "large start")


def draw(path: Path) -> None:
    """The picture of the page: Eq. 2, Lemma 1 and Theorem 1 above, the entropy during training below."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 9.5), layout="constrained", dpi=110)
    FigureCanvasAgg(figure)
    grid = figure.subplots(3, 3)
    _draw_split(grid[0, 0])
    _draw_lemma(grid[0, 1])
    _draw_proxy(grid[0, 2])
    for column, name in enumerate(STARTS):
        for row, (which, label) in enumerate({"raw": "H(Z)", "unit": "H(Z), length 1"}.items(), start=1):
            axes = grid[row, column]
            axes.sharey(grid[row, 0])
            for loss, (colour, dash) in LOOKS.items():
                course = trained(loss, SETTINGS[name])
                entropies: Tensor = getattr(course, which)
                axes.fill_between(
                    course.steps, entropies.amin(1), entropies.amax(1), color=colour, alpha=0.18, linewidth=0
                )
                axes.plot(course.steps, entropies.mean(1), color=colour, linestyle=dash, label=loss)
            axes.set_xscale("symlog", linthresh=1)
            axes.set_xticks([0, 1, 10, 100], ["0", "1", "10", "100"])
            axes.set_xlim(0, max(course.steps))
            axes.set(title=f"{'de'[row - 1]}{column + 1}  {label}: {name}", xlabel="step")
        grid[1, column].tick_params(labelbottom=True)
    grid[1, 0].set_ylabel("nats, up to a constant")
    grid[2, 0].set_ylabel("nats, up to a constant")
    grid[1, 0].legend(loc="lower right")
    for axes in grid.flat:
        axes.grid(alpha=0.3)
        axes.title.set_size(11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _draw_split(axes: Any) -> None:
    slopes = torch.linspace(0, 2.5, 51).tolist()
    found = [two_points(1.0, slope, 1.0) for slope in slopes]
    axes.plot(slopes, [s.loss for s in found], color=BLUE, label="cross-entropy")
    axes.plot(slopes, [s.tightness + s.diversity for s in found], color=ORANGE, linestyle="--", label="Eq. 2, squared")
    axes.plot(slopes, [s.tightness + s.printed for s in found], color=GREEN, linestyle="-.", label="Eq. 2, as printed")
    axes.set(title="a  Eq. 2 is no lower bound", xlabel="slope of the classifier", ylabel="loss")
    axes.legend()


def _draw_lemma(axes: Any) -> None:
    widths = torch.logspace(-2, 0, 41).tolist()
    found = [lemma1(*predicted(), width) for width in widths]
    axes.plot(widths, [g.bound for g in found], color=ORANGE, linestyle="--", label="Lemma 1's bound")
    axes.plot(widths, [g.gap for g in found], color=BLUE, marker="o", markersize=3, label="gap of the two MSEs")
    axes.plot(widths, [w**2 / 12 for w in widths], color="black", linestyle=":", linewidth=1, label="width² / 12")
    axes.set(title="b  Lemma 1 holds", xlabel="bin width", xscale="log", yscale="log")
    axes.legend()


def _draw_proxy(axes: Any) -> None:
    noises = torch.logspace(-1.3, 0.3, 9).tolist()
    found = [clusters(noise) for noise in noises]
    errors = [readout_error(z, y) for z, y in found]
    for factor, name, colour, marker in ((1, "features", BLUE, "o-"), (3, "the same, times 3", ORANGE, "s--")):
        entropies = [conditional_entropy(factor * z, y, bins="unique") for z, y in found]
        axes.plot(entropies, errors, marker, color=colour, markersize=4, label=name)
    axes.set(title="c  Theorem 1: a proxy, up to scale", xlabel="H(Z | Y), nats", ylabel="MSE", yscale="log")
    axes.legend()


def main() -> None:
    """Prints what training did to the entropy, and draws the picture where one is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", type=Path, metavar="PATH", help="where to draw it; the ending tells the format")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # so small a network is faster on one core
    for name, setting in SETTINGS.items():
        for loss in LOSSES:
            course = trained(loss, setting)
            print(f"{name:16}{loss:15} H(Z) {change(course.raw)}   length 1 {change(course.unit)}")
    if arguments.picture:
        draw(arguments.picture)


if __name__ == "__main__":
    main()
