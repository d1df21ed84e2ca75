"""Any method in any LightningModule, as a callback.

In automatic optimization Lightning back-propagates what ``training_step`` returns. For the time of a fit the callback
lies around that one method of that one module: it lets the step run, reads the features that a tap has kept, and adds
the method's terms to the loss. Accumulation, precision, scaling and strategies then treat the sum as they treat a loss.
"""

import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from ordinal_entropy.environment import import_torchvision
from ordinal_entropy.integrations.override import Override
from ordinal_entropy.integrations.tapped import AnyMethod, TappedMethod, Targets

if importlib.util.find_spec("torchvision") is not None:
    import_torchvision()  # which Lightning would import

try:
    import lightning.pytorch as lightning
except ModuleNotFoundError as error:
    if error.name != "lightning":
        raise
    raise ModuleNotFoundError("this needs Lightning: pip install 'ordinal-entropy[train]'", name=error.name) from None


class OrdinalEntropyCallback(lightning.Callback):
    """Adds a method to the training loss of a LightningModule, which needs no change and is left as it was.

    It logs, as steps do, ``ordinal_entropy/loss`` (the regularization), for ordinal entropy and its relatives
    ``ordinal_entropy/diversity`` and ``/tightness``, and ``/entropy`` and ``/entropy_normalized`` of the features of
    the batch (MeanNN). Validation and test are not touched. The optimizer trains the parameters of a method with those
    of its first group; checkpoints hold these and all else that a method has learned, as a gradient-balanced strength.
    Methods that do more than add to the loss are refused, and so is manual optimization.

    If the layer runs several times in a step, the last time counts. A step that returns None is skipped. Under DDP each
    rank spreads its own batch, unless the method has ``gather=True``.

    Args:
        method: a name of ``oe.methods.names()``, several joined by ``+``, a method of ``oe.methods.create`` or of your
            own, or an ``oe.OrdinalEntropy``. One that looks at predictions gets what the layer gives.
        layer: whose input is the features: a name as in ``named_modules()`` of the LightningModule, or a module of it,
            or None for the last linear layer or 1x1 convolution that ran in the step.
        output: take what comes out of the layer, not what goes in.
        targets: where a batch has its targets: a key or a position; or a function from the batch to targets or to
            ``(targets, mask)``; or None for the second item, or for "labels", "label", "targets", "target" or "y".
        training_targets: of all training rows, ``(n,)`` or ``(n, t)``, for methods that look at them once, before the
            first step; None: these see the targets of the first batch.
        log_every: steps from one log to the next; None: as the trainer logs; 0: never. A trainer that logs more often
            repeats the last numbers.
        entropies: log them too.
        name: before the slash in the logs, and in checkpoints: with several callbacks, give each its own.

    Example:
        >>> import ordinal_entropy as oe
        >>> callback = OrdinalEntropyCallback(oe.methods.create("oe", strength=0.01), layer="head")
        >>> trainer = lightning.Trainer(callbacks=[callback], accelerator="cpu", logger=False)
    """

    def __init__(
        self,
        method: AnyMethod = "oe",
        layer: str | nn.Module | None = None,
        *,
        output: bool = False,
        targets: Targets | None = None,
        training_targets: Tensor | None = None,
        log_every: int | None = None,
        entropies: bool = True,
        name: str = "ordinal_entropy",
    ) -> None:
        if log_every is not None and not (isinstance(log_every, int) and log_every >= 0):
            raise ValueError(f"expected log_every to be a whole number of at least 0 or None, got {log_every!r}")
        self.log_every = log_every
        self.entropies = entropies
        self.name = name
        self._tapped = TappedMethod(method, layer, output, targets, training_targets, type(self).__name__)
        self._override: Override | None = None
        self._steps = 0  # of the optimizer, before this batch
        self._total = 0  # in all, where a strength is annealed

    @property
    def state_key(self) -> str:
        """What the state of this callback is called in a checkpoint."""
        return self._generate_state_key(name=self.name)

    def state_dict(self) -> dict[str, Any]:
        """What the method has learned, for a checkpoint."""
        return self._tapped.state()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on with it."""
        self._tapped.restore(state_dict)

    def on_fit_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Taps the layer and lies around the training step: before the first batch, so that compilers see the tap.

        The optimizer gets the method's parameters now, before its state is loaded from a checkpoint.
        """
        if not pl_module.automatic_optimization:
            raise ValueError(
                f"expected a LightningModule with automatic optimization, got {type(pl_module).__name__} with its own: "
                "add the method to the loss in its training_step"
            )
        self._total = _steps_of(trainer, self._tapped)
        self._tapped.attach(pl_module)
        self._tapped.join(next(iter(trainer.optimizers), None))
        self._override = Override(pl_module, "training_step", self._step)

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Counts from where the run begins or goes on."""
        self._steps = trainer.global_step

    def on_before_optimizer_step(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, optimizer: Any
    ) -> None:
        """Ranks average the gradients of the method's parameters, as they do those of the module's."""
        self._tapped.before_step()

    def on_train_batch_end(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Tells the method of a step, and logs, if it is the turn of the optimizer's step that the batch is part of."""
        every = trainer.log_every_n_steps if self.log_every is None else self.log_every  # type: ignore[attr-defined]
        if trainer.global_step > self._steps:
            self._tapped.method.after_step(pl_module)
        step, self._steps = self._steps + 1, trainer.global_step
        if not every or step % every:
            return
        for name, value in self._tapped.report(self.entropies).items():
            pl_module.log(f"{self.name}/{name}", value, on_step=True, on_epoch=False, batch_size=1)

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Tells the method that all rows were seen once more."""
        self._tapped.method.end_epoch()

    def on_exception(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, exception: BaseException
    ) -> None:
        """Leaves the module as it was."""
        self._leave()

    def teardown(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, stage: str) -> None:
        """Leaves the module as it was."""
        self._leave()

    def _leave(self) -> None:
        self._tapped.close()
        if self._override is not None:
            self._override.close()
        self._override = None

    def _step(self, training_step: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What the training step returns, with the term in its loss."""
        self._tapped.method.at(self._steps, self._total)
        self._tapped.begin()
        found = training_step(*args, **kwargs)
        batch = args[0] if args else next(iter(kwargs.values()))
        if isinstance(found, Tensor):
            return self._tapped.loss(found, batch)
        if isinstance(found, Mapping) and isinstance(found.get("loss"), Tensor):
            return {**found, "loss": self._tapped.loss(found["loss"], batch)}
        return found  # None: the batch is skipped; anything else is Lightning's to refuse

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_override": None}


def _steps_of(trainer: lightning.Trainer, tapped: TappedMethod) -> int:
    """The optimizer's steps of a fit, for a method that has to know; 0 for others."""
    if "progress" not in tapped.method.requirements():
        return 0
    total = trainer.estimated_stepping_batches
    if total == float("inf"):
        raise ValueError(
            f"expected a Trainer with max_epochs or max_steps beside {tapped.method.name!r}, whose strength falls to 0 "
            "at the end of the training, got one without an end"
        )
    return int(total)
