"""Features out of any model, without touching it.

A hook on the layer writes into a small record, which the tap reads. The record knows nothing of the model,
so a tap keeps no model alive. The hooks do nothing but set attributes: ``torch.compile`` can trace that, and
repeats it with the real tensors on every call.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.utils.hooks import RemovableHandle

from ordinal_entropy import graph_edges

__all__ = ["Tap", "capture"]

_COMPILED = (
    "If the model is compiled, it may run code that was compiled without the hooks, in a call before them or"
    " for another model of the same structure: attach before compiling, or set"
    " torch._dynamo.config.skip_nnmodule_hook_guards = False and call torch._dynamo.reset()"
)


class Tap:
    """Where the features of the last forward pass are read; :func:`capture` makes it.

    It stays attached until :meth:`close`, the end of its ``with`` block, or until nothing refers to it.
    Its copy, made when an object that holds it is copied or pickled, is closed and empty.
    """

    def __init__(self, record: _Record, handles: Sequence[RemovableHandle] = ()) -> None:
        self._record = record
        self._handles = list(handles)

    @property
    def features(self) -> Tensor:
        """The tensor of the last forward pass, part of its graph.

        It stays readable after :meth:`close`, until :meth:`clear`.

        Raises:
            RuntimeError: nothing was captured.
            TypeError: what the layer takes or returns is no tensor.
        """
        record = self._record
        if record.layer is None:
            raise RuntimeError(self._why_empty())
        if not isinstance(record.value, Tensor):
            came = _description(record.value)
            raise TypeError(
                f"expected a tensor as the {record.side} of layer {record.layer!r}, got {came}; capture a"
                " layer inside it, or the layer that takes the tensor from it"
            )
        return record.value

    @property
    def layer(self) -> str | None:
        """The name of the layer that the features come from, or None while there are none."""
        return self._record.layer

    def clear(self) -> None:
        """Forgets the features, and with them the graph and the activations that they keep alive."""
        self._record.clear(ran=False)

    def close(self) -> None:
        """Removes every hook; a second call does nothing."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _why_empty(self) -> str:
        start = f"no features from {self._record.wanted}"
        if not self._handles:
            return f"{start}: the tap is closed and holds none"
        if self._record.ran:
            return f"{start}: it did not run in the last forward pass. {_COMPILED}"
        return f"{start}: the model has not run since the tap was attached or cleared. {_COMPILED}"

    def __enter__(self) -> Tap:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return Tap, (_Record(self._record.wanted, self._record.side),)


def capture(model: nn.Module, layer: str | nn.Module | None = None, *, output: bool = False) -> Tap:
    """A tap on what goes into a layer of a model, attached at once; the model itself is not changed.

    Hand over the object that you call: the one wrapped in ``DistributedDataParallel`` or ``torch.compile``,
    if you wrap it. A compiled model must be tapped before its first call. If the layer runs several times in
    one forward pass, the last time counts. A tap is not safe to share between threads.

    Args:
        model: any module but ``nn.DataParallel``, whose replicas would overwrite each other's features.
        layer: a name as in ``named_modules()`` of the model inside all wrappers; or a module of the model; or
            None for the last linear layer or convolution of kernel size 1 that ran in the last forward pass,
            in most networks the regression head.
        output: take what comes out of the layer instead of what goes in.

    Returns:
        A :class:`Tap`. ``tap.features`` is the first tensor that the layer was given, by position or by name,
        in the last forward pass, with its graph; any shape and dtype. ``tap.layer`` is the layer's name.
        While there are none, because the model or the layer did not run, ``tap.features`` raises a
        ``RuntimeError``.

    Raises:
        ValueError: the model has no such layer; the message lists the names near to it.

    Example:
        >>> import torch
        >>> model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
        >>> with capture(model) as tap:
        ...     prediction = model(torch.ones(5, 3))
        >>> tap.layer, tap.features.shape
        ('2', torch.Size([5, 8]))
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"expected model to be a torch.nn.Module, got {type(model).__name__}")
    calls = _wrapping(model)  # outermost first; each may be what is called
    layers = _layers(model, calls[-1], layer)

    wanted = "any linear layer or 1x1 convolution" if layer is None else f"layer {next(iter(layers))!r}"
    record = _Record(wanted, side="output" if output else "input")
    handles = [module.register_forward_pre_hook(_Start(record)) for module in calls]
    for name, module in layers.items():
        handles.append(module.register_forward_hook(_Keep(record, name), with_kwargs=True))
    last = list(layers.values())[-1]  # of all linear layers most likely the head
    end = last.register_forward_hook if output else last.register_forward_pre_hook
    handles.append(end(_Edge()))
    return Tap(record, handles)


class _Record:
    """What the hooks of one capture have seen in the last forward pass."""

    def __init__(self, wanted: str, side: str) -> None:
        self.wanted = wanted  # in words, for messages
        self.side = side  # "input" or "output"
        self.clear(ran=False)

    def clear(self, ran: bool) -> None:
        self.ran = ran  # whether the model has started a forward pass since
        self.layer: str | None = None  # None: nothing came
        self.value: object = None  # as it came; whether it is a tensor is checked when it is read


class _Start:
    """Hook before the model: forgets the pass before, so that a layer which is skipped leaves nothing old."""

    def __init__(self, record: _Record) -> None:
        self.record = record

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self.record.clear(ran=True)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Idle, ()


class _Keep:
    """Hook after a layer: keeps what went in or came out."""

    def __init__(self, record: _Record, layer: str) -> None:
        self.record = record
        self.layer = layer

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        value: object = output
        if self.record.side == "input":
            inputs = (*args, *kwargs.values())
            tensors = [each for each in inputs if isinstance(each, Tensor)]
            value = tensors[0] if tensors else inputs
        self.record.value = value
        self.record.layer = self.layer

    def __reduce__(self) -> tuple[Any, ...]:
        return _Idle, ()


class _Edge:
    """Hook where the features are: a graph that is being compiled ends there, where a strength is gradient-balanced."""

    def __call__(self, *args: Any) -> None:
        graph_edges.end_here()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Idle, ()


class _Idle:
    """What a hook becomes in a copied or pickled model: the tap follows the original."""

    def __call__(self, *args: Any) -> None:
        pass


def _wrapping(model: nn.Module) -> list[nn.Module]:
    """The model and those it wraps, outermost first; the last one is the model itself."""
    chain = [model]
    while True:
        outer = chain[-1]
        if isinstance(outer, DataParallel):
            raise ValueError(
                "expected a model that is not in nn.DataParallel, whose replicas would overwrite each other's"
                " features; use DistributedDataParallel"
            )
        # A compiled model is known by its one child: its class would load the compiler.
        inner = outer.module if isinstance(outer, DistributedDataParallel) else outer._modules.get("_orig_mod")
        if not isinstance(inner, nn.Module):
            return chain
        chain.append(inner)


def _layers(model: nn.Module, root: nn.Module, layer: str | nn.Module | None) -> dict[str, nn.Module]:
    """The layers to hook, by name."""
    kind = type(root).__name__
    if layer is None:
        heads = {_plain(name): module for name, module in root.named_modules() if _is_head(module)}
        if not heads:
            there = f"name a layer, the last ones are {_last_names(root)}" if root._modules else "it has no layers"
            raise ValueError(f"expected a linear layer or a 1x1 convolution in {kind}, found none; {there}")
        return heads
    names = _names(model, root)
    if isinstance(layer, nn.Module):
        for name, module in names.items():
            if module is layer:
                return {name: module}
        raise ValueError(f"expected a layer of {kind}, got a {type(layer).__name__} that is not part of it")
    if not isinstance(layer, str):
        raise TypeError(f"expected layer to be a name, a torch.nn.Module or None, got {type(layer).__name__}")
    if layer not in names:
        near = _near_names(root, layer)
        hint = f"the nearest are {near}" if near else f"the last ones are {_last_names(root)}"
        raise ValueError(f"expected the name of a layer of {kind}, got {layer!r}; {hint}")
    return {layer: names[layer]}


def _is_head(module: nn.Module) -> bool:
    """Whether a module is the kind of layer that regression heads are made of."""
    if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        return all(size == 1 for size in module.kernel_size)
    return isinstance(module, nn.Linear)


def _plain(name: str) -> str:
    """A name without the parts that compiled modules add."""
    return ".".join(part for part in name.split(".") if part != "_orig_mod")


def _names(model: nn.Module, root: nn.Module) -> dict[str, nn.Module]:
    """Every name that a layer can be asked for by, the plainest first."""
    inside = list(root.named_modules(remove_duplicate=False))
    names: dict[str, nn.Module] = {}
    for name, module in [(_plain(name), module) for name, module in inside] + inside:
        names.setdefault(name, module)
    for name, module in model.named_modules(remove_duplicate=False):
        names.setdefault(name, module)
    return names


def _near_names(root: nn.Module, wanted: str) -> str:
    """The names most like the wanted one, as a whole or in their last part."""

    def likeness(name: str) -> float:
        ends = name.rpartition(".")[2], wanted.rpartition(".")[2]
        return max(difflib.SequenceMatcher(None, *pair).ratio() for pair in [(name, wanted), ends])

    names = [_plain(name) for name, _ in root.named_modules(remove_duplicate=False) if name]
    near = [name for name in dict.fromkeys(names) if likeness(name) >= 0.6]
    return ", ".join(map(repr, sorted(near, key=likeness, reverse=True)[:5]))


def _last_names(root: nn.Module) -> str:
    """The names of the last few layers that have no layers inside."""
    leaves = [_plain(name) for name, module in root.named_modules() if not module._modules]
    return ", ".join(map(repr, leaves[-5:]))


def _description(value: object) -> str:
    """The type of a value and of what is inside it, in words."""
    kind = type(value).__name__
    if isinstance(value, Mapping):
        return f"{kind} with the keys {', '.join(map(repr, value))}"
    if isinstance(value, (tuple, list)):
        return f"{kind} of ({', '.join(type(each).__name__ for each in value)})"
    return kind
