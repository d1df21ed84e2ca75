"""The regularizer as a module that remembers its options."""

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from ordinal_entropy import functional
from ordinal_entropy.balance import Balance, rounding
from ordinal_entropy.kernels.weights import POWERS
from ordinal_entropy.memory import Memory
from ordinal_entropy.options import OfAll, Options, checked, spelled

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Terms(NamedTuple):
    """The two parts of the regularizer, both at least 0; the loss is tightness minus diversity, each weighted."""

    diversity: Tensor
    tightness: Tensor


class OrdinalEntropy(nn.Module):
    """What to add to the loss of a regression network: ``tightness_weight * tightness - diversity_weight * diversity``.

    Pushes the centers of the normalised features apart in proportion to the distance of their targets and pulls the
    features to their center. The loss falls below zero as the features spread: log ``terms``, which do not.

    Args:
        diversity_weight: strength of the push between centers; with a balance, its part of that.
        tightness_weight: strength of the pull towards them; likewise.
        balance: gradient-balanced strengths: the gradient of each term at the features is kept at this fraction of
            the task loss's gradient there. Each call in training then needs ``task_loss``. A
            :class:`~ordinal_entropy.balance.Balance` has further options. None: the weights are the strengths.
        memory: so many rows of earlier batches are partners for those of each batch in training, for batches too small
            to have enough of their own. A :class:`~ordinal_entropy.memory.Memory` has further options.
        options: of :class:`~ordinal_entropy.options.Options`, by name: ``weighting``, ``distance``, ``normalize``,
            ``rescale``, ``grouping``, ``centers``, ``tightness_over``, ``tightness_power``, ``max_samples``,
            ``num_pairs``, ``generator``, ``stride``, ``per``, ``gather``, ``check``.

    Attributes:
        options: the options, a frozen tuple of names.

    Example:
        >>> reg = OrdinalEntropy(tightness_weight=0.5)
        >>> features, targets = torch.eye(3, requires_grad=True), torch.tensor([0.0, 3.0, 3.0])
        >>> reg(features, targets)
        tensor(-0.9890, grad_fn=<AddBackward0>)
        >>> reg.terms(features.detach(), targets)
        Terms(diversity=tensor(1.2247), tightness=tensor(0.4714))
    """

    @spelled(Options._fields)
    def __init__(
        self,
        diversity_weight: float = 1.0,
        tightness_weight: float = 1.0,
        *,
        balance: float | Balance | None = None,
        memory: int | Memory | None = None,
        **options: "Unpack[OfAll]",
    ) -> None:
        super().__init__()
        self.diversity_weight = diversity_weight
        self.tightness_weight = tightness_weight
        self.options = checked(Options(**options))
        self.balance, self.memory = self._balance(balance), self._memory(memory)

    @classmethod
    def from_paper(
        cls, diversity_weight: float = 1.0, tightness_weight: float = 1.0, **options: Any
    ) -> "OrdinalEntropy":
        """The formulas of the paper to the letter: raw target distances as weights.

        Args:
            diversity_weight: the paper's lambda_d.
            tightness_weight: the paper's lambda_t.
            options: every option but ``rescale``, ``centers`` and ``tightness_over``.

        Example:
            >>> OrdinalEntropy.from_paper().terms(torch.eye(3), torch.tensor([0.0, 3.0, 3.0]))
            Terms(diversity=tensor(3.6742), tightness=tensor(0.4714))
        """
        return cls(
            diversity_weight,
            tightness_weight,
            rescale="none",
            centers="normalize-first",
            tightness_over="all",
            **options,
        )

    @classmethod
    def from_authors_code(
        cls, diversity_weight: float = 1.0, tightness_weight: float = 1.0, **options: Any
    ) -> "OrdinalEntropy":
        """What the authors' code computes, with 0 where it gives NaN or raises.

        Weights ``(w - min) / max`` over the pairs, centers normalised after averaging, tightness over the samples
        that are not their own center. ``docs/dialects.md`` lists the differences from the paper.

        Args:
            diversity_weight: 1 in the authors' code.
            tightness_weight: 1 in the authors' code.
            options: every option but ``rescale``, ``centers`` and ``tightness_over``; the authors' first upload had
                ``tightness_power=2``, their dense tasks ``stride=4, per="image"`` and ``mask=targets > 0.001``, their
                operators ``grouping="none", max_samples=10``.

        Example:
            >>> OrdinalEntropy.from_authors_code().terms(torch.eye(3), torch.tensor([0.0, 3.0, 3.0]))
            Terms(diversity=tensor(0.), tightness=tensor(0.7654))
        """
        return cls(
            diversity_weight,
            tightness_weight,
            rescale="authors",
            centers="average-first",
            tightness_over="shared",
            **options,
        )

    def forward(
        self,
        features: Tensor,
        targets: Tensor,
        mask: Tensor | None = None,
        task_loss: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """The loss to add to the task loss.

        Args:
            features: ``(n, d)``, ``(b, n, d)`` or ``(b, c, h, w)``.
            targets: of the same rows, one or several numbers each.
            mask: boolean, in the shape of the targets.
            task_loss: for a gradient-balanced strength: the loss of the same forward pass, a scalar, before any scale
                of mixed precision. Fixed strengths do not look at it.
            sample_weight: one a row; counts like repetition.
        """
        if self.balance is None and self.memory is None:
            weights = self.diversity_weight, self.tightness_weight
            return functional.loss(features, targets, mask, sample_weight, self.options, *weights)
        if self.balance is None:
            return self.fixed(features, targets, mask, sample_weight)
        data = features, targets, mask, sample_weight
        return self.balance.weighted(
            features,
            task_loss,
            lambda: self.separate(*data),
            (self.diversity_weight, self.tightness_weight),
            lambda: self.rounding(features[None], targets[None])[:, 0],
            gathered=self.options.gather,
        )

    def fixed(
        self, features: Tensor, targets: Tensor, mask: Tensor | None = None, sample_weight: Tensor | None = None
    ) -> Tensor:
        """The loss at the weights, whether there is a balance or not; arguments as in :meth:`forward`."""
        memory = self.memory if self.training else None
        data, weights = (features, targets, mask, sample_weight), (self.diversity_weight, self.tightness_weight)
        loss = functional.loss(*data, self.options, *weights, memory)
        if memory is not None:
            memory.keep()
        return loss

    def separate(
        self, features: Tensor, targets: Tensor, mask: Tensor | None = None, sample_weight: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Minus the diversity, and the tightness, as a balance needs them; one whose weight is 0 is not computed."""
        memory = self.memory if self.training else None
        data = features, targets, mask, sample_weight, self.options
        push, pull = (1.0 if weight != 0 else 0.0 for weight in (self.diversity_weight, self.tightness_weight))
        terms = functional.loss(*data, push, 0.0, memory), functional.loss(*data, 0.0, pull, memory)
        if memory is not None:
            memory.keep()
        return terms

    def terms(
        self,
        features: Tensor,
        targets: Tensor,
        mask: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Terms:
        """Diversity and tightness without their strengths, for logging or for a loss of one's own.

        Of these rows alone: a memory is neither used nor changed.
        """
        data = features, targets, mask, sample_weight, self.options
        return Terms(functional.loss(*data, -1.0, 0.0), functional.loss(*data, 0.0, 1.0))

    @property
    def strengths(self) -> Terms:
        """What the diversity and the tightness are multiplied by: the weights, or what the balance has come to.

        Example:
            >>> OrdinalEntropy(2.0, 0.5).strengths
            Terms(diversity=tensor(2.), tightness=tensor(0.5000))
        """
        weights = torch.tensor([self.diversity_weight, self.tightness_weight])
        if self.balance is not None:
            weights = weights.to(self.balance.squares.device) * self.balance.strengths
        return Terms(*weights)

    def rounding(self, features: Tensor, targets: Tensor) -> Tensor:
        """What the squared norm of each term's gradient may be by rounding alone ``(2, r)``, for a balance.

        Args:
            features: ``(r, ...)``, in any layout, of each of ``r`` runs.
            targets: ``(r, ...)``, likewise.
        """
        options = self.options
        if not (options.normalize or options.distance == "cosine"):  # raw distances: gradients of length 1
            return features.new_zeros(2, len(features), dtype=torch.float32)
        unit: Tensor | float = 1.0
        if options.rescale == "none" and options.weighting != "none":  # weights in the unit of the targets
            unit = 0.0  # not known
            if isinstance(options.weighting, str) and targets.numel():
                numbers = targets.flatten(1).float()
                unit = (numbers.amax(1) - numbers.amin(1)) ** POWERS[options.weighting]
        return torch.stack([rounding(features, unit), rounding(features)])

    def _balance(self, given: float | Balance | None) -> Balance | None:
        if given is None or isinstance(given, Balance):
            return given
        if isinstance(given, bool) or not isinstance(given, int | float):
            raise TypeError(f"expected balance to be a number, a Balance or None, got {type(given).__name__}")
        return Balance(given)

    def _memory(self, given: int | Memory | None) -> Memory | None:
        if given is None:
            return None
        if self.options.per == "image":
            raise ValueError("expected per='batch' with a memory, which joins rows of several batches, got per='image'")
        return given if isinstance(given, Memory) else Memory(given)

    def extra_repr(self) -> str:
        """The strengths, and every option that is not at its default."""
        options, defaults = self.options._asdict(), Options._field_defaults
        changed = {name: value for name, value in options.items() if value != defaults[name]}
        strengths = {"diversity_weight": self.diversity_weight, "tightness_weight": self.tightness_weight}
        return ", ".join(f"{name}={value!r}" for name, value in {**strengths, **changed}.items())
