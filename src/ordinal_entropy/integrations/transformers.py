"""Any method in Hugging Face's Trainer, around its ``compute_loss``.

For the time of a training the loss that ``compute_loss`` returns has the method's terms in it, from features that a tap
has kept. Model and evaluation are not touched; a checkpoint has one more file if the method has anything to remember.
"""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from torch import Tensor, nn

from ordinal_entropy.environment import import_torchvision
from ordinal_entropy.integrations.override import Override
from ordinal_entropy.integrations.tapped import AnyMethod, TappedMethod, Targets

if importlib.util.find_spec("torchvision") is not None:
    import_torchvision()  # which transformers would import

try:
    from safetensors.torch import load_file, save_file
    from transformers import TrainerCallback
    from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, get_last_checkpoint
except ModuleNotFoundError as error:
    if error.name not in ("transformers", "safetensors"):
        raise
    raise ModuleNotFoundError("this needs transformers: pip install 'ordinal-entropy[hf]'", name=error.name) from None


def add_method(
    trainer: Any,
    method: AnyMethod = "oe",
    layer: str | nn.Module | None = None,
    *,
    output: bool = False,
    targets: Targets = "labels",
    training_targets: Tensor | None = None,
    entropies: bool = True,
    name: str = "ordinal_entropy",
) -> "AddedMethod":
    """Adds a method to the loss of every training that a ``transformers.Trainer`` does from now on.

    Whenever the Trainer logs its loss, the same entry has ``ordinal_entropy/loss`` (the regularization of the last
    batch), for ordinal entropy and its relatives ``/diversity`` and ``/tightness``, and ``/entropy`` and
    ``/entropy_normalized`` of the features of that batch (MeanNN).

    The parameters of a method are trained with those of the optimizer's first group. What a method has learned, these
    and a gradient-balanced strength, is written into every checkpoint, as ``ordinal_entropy.safetensors``, and
    ``trainer.train(resume_from_checkpoint=...)`` goes on with it. Methods that do more than add to the loss are
    refused.

    Args:
        trainer: a ``transformers.Trainer`` or one derived from it, with its own ``compute_loss`` or without.
        method: a name of ``oe.methods.names()``, several joined by ``+``, a method of ``oe.methods.create`` or of your
            own, or an ``oe.OrdinalEntropy``. One that looks at predictions gets what the layer gives.
        layer: whose input is the features, one row ``(d,)`` a sample: a name as in ``named_modules()`` of the model, or
            a module of it, or None for the last linear layer or 1x1 convolution that ran, in most models the head.
        output: take what comes out of the layer, not what goes in.
        targets: where the inputs have their targets: a key; or a function from them to targets or ``(targets, mask)``.
        training_targets: of all training rows, ``(n,)`` or ``(n, t)``, for methods that look at them once, before the
            first step; None: these see the targets of the first batch.
        entropies: log them too.
        name: before the slash in the logs, and of the file in checkpoints: with several methods, give each its own.

    Returns:
        What was added: :meth:`AddedMethod.close`, or the end of its ``with`` block, takes it away.

    Raises:
        ValueError: the model has no such layer, or no linear layer at all; one process is to use several GPUs; or the
            method has to do more than add to the loss.

    Example:
        >>> trainer = transformers.Trainer(model, arguments, train_dataset=data)  # doctest: +SKIP
        >>> added = add_method(trainer, oe.methods.create("oe", strength=0.01))  # doctest: +SKIP
        >>> trainer.train()  # doctest: +SKIP
    """
    tapped = TappedMethod(method, layer, output, targets, training_targets, "the Trainer")
    return AddedMethod(trainer, tapped, entropies, name)


class AddedMethod(TrainerCallback):
    """A method in a Trainer; :func:`add_method` makes it."""

    def __init__(self, trainer: Any, tapped: TappedMethod, entropies: bool, name: str) -> None:
        if trainer.args.n_gpu > 1:
            raise ValueError(
                f"expected one GPU a process, got {trainer.args.n_gpu}, which would overwrite each other's features: "
                "start the script with torchrun, or let it see one GPU"
            )
        tapped.attach(trainer.model)  # a layer that does not exist is found now, not in the first step
        tapped.close()
        self._trainer = trainer
        self._tapped = tapped
        self._entropies = entropies
        self._name = name
        self._overrides: list[Override] = []  # while training
        self._train: Override | None = Override(trainer, "train", self._trained)
        trainer.add_callback(self)

    def close(self) -> None:
        """Takes the method out of the Trainer; a second call does nothing."""
        self._leave()
        if self._train is not None:
            self._train.close()
        self._trainer.pop_callback(self)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Taps the model that is trained, which may be a new one, and lies around the loss and the logs."""
        self._leave()
        self._tapped.attach(self._trainer.model)
        self._overrides = [
            Override(self._trainer, "compute_loss", self._compute_loss),
            Override(self._trainer, "log", self._log),
        ]

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Ranks average the gradients of the method's parameters, as they do those of the model's."""
        self._tapped.before_step()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Tells the method of a step, and clears its gradients: the Trainer clears those of the model."""
        self._tapped.method.after_step(self._trainer.model)
        self._tapped.method.zero_grad()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Tells the method that all rows were seen once more."""
        self._tapped.method.end_epoch()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Leaves model and Trainer as they were."""
        self._leave()

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """What the method has learned, beside the weights."""
        folder = Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
        learned = self._tapped.state()
        if learned and args.should_save and folder.is_dir():
            save_file(learned, folder / self._file)

    def __enter__(self) -> "AddedMethod":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _file(self) -> str:
        return f"{self._name.replace('/', '_')}.safetensors"

    def _leave(self) -> None:
        self._tapped.close()
        for override in self._overrides:
            override.close()
        self._overrides = []

    def _trained(self, train: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A training that goes on with what the method had learned, and leaves nothing behind, however it ends."""
        begin = args[0] if args else kwargs.get("resume_from_checkpoint")
        if begin is True:
            begin = get_last_checkpoint(self._trainer.args.output_dir)
        if begin and (file := Path(begin) / self._file).is_file():
            self._tapped.restore(load_file(file))
        own: list[Override] = []
        if next(self._tapped.method.parameters(), None) is not None:
            own.append(Override(self._trainer, "create_optimizer", self._create_optimizer))
        try:
            return train(*args, **kwargs)
        finally:
            self._leave()
            for override in own:
                override.close()

    def _create_optimizer(self, create_optimizer: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The Trainer's optimizer, with the method's parameters before a checkpoint is loaded into it."""
        found = create_optimizer(*args, **kwargs)
        self._tapped.join(self._trainer.optimizer)
        return found

    def _compute_loss(
        self, compute_loss: Callable[..., Any], model: nn.Module, inputs: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """What the Trainer computes, with the term in the loss; in evaluation as it is."""
        if not model.training:
            return compute_loss(model, inputs, *args, **kwargs)
        if self._tapped.method.anneals:
            state = self._trainer.state
            self._tapped.method.at(state.global_step, state.max_steps)
        self._tapped.begin()
        batch = dict(inputs)  # the Trainer may take the labels out
        found = compute_loss(model, inputs, *args, **kwargs)
        if isinstance(found, tuple):
            return self._tapped.loss(found[0], batch, self._share()), *found[1:]
        return self._tapped.loss(found, batch, self._share())

    def _share(self) -> float:
        """What of the term belongs to this one of several accumulated batches.

        A loss function of the user's is meant to divide by the items of all accumulated batches, and the Trainer adds
        such losses up: then the term is divided by their number. Any other loss is the mean of its batch, and the term
        is treated as it is, divided by the Trainer or not.
        """
        trainer = self._trainer
        whole = getattr(trainer, "loss_is_scaled_for_ga", None)  # said by the user; unknown to early versions
        if whole is None:
            whole = getattr(trainer, "compute_loss_func", None) is not None
        steps = getattr(trainer, "current_gradient_accumulation_steps", trainer.args.gradient_accumulation_steps)
        return 1 / steps if whole else 1.0

    def _log(self, log: Callable[..., None], logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Logs of the training with what was measured of its last batch."""
        if "loss" in logs:
            found = self._tapped.report(self._entropies)
            logs = {**logs, **{f"{self._name}/{key}": float(value) for key, value in found.items()}}
        log(logs, *args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_overrides": [], "_train": None}  # a copy's training is its own
