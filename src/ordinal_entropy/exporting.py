"""A trained run for serving: its network in the form of another program, and beside it how its inputs are made."""

import importlib.util
import io
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ordinal_entropy import runs
from ordinal_entropy.environment import environment
from ordinal_entropy.recipes import described
from ordinal_entropy.tasks.using import Exportable
from ordinal_entropy.trained import TrainedRun

PREPROCESSING = "preprocessing.json"
TOLERANCE = 1e-4  # relative to the largest prediction
_ROWS = 5  # of the inputs that an export is held against the run on
_STRIDE = 8  # sides of images of any size are multiples of so many pixels


def export(run: TrainedRun, to: str, folder: str | os.PathLike[str]) -> list[Path]:
    """Writes the network of a run, whose predictions are in the unit of the targets, for any number of rows.

    "onnx" is for onnxruntime and others, "torch-export" a program that ``torch.export.load`` reads, "safetensors" the
    weights with ``config.json``. A program is run before it is handed out, where that can be done here: other numbers
    than those of the run are an error.

    Args:
        run: of :func:`ordinal_entropy.load`.
        to: one of ``FORMATS``.
        folder: where; made if it is missing.

    Returns:
        The files: the network, :data:`PREPROCESSING`, and the configuration of weights.
    """
    if to not in FORMATS:
        raise ValueError(f"expected --to to be one of {', '.join(FORMATS)}, got {to!r}")
    own, place = run.exportable(), Path(folder)
    name, write = FORMATS[to]
    place.mkdir(parents=True, exist_ok=True)
    write(own, place / name)
    about = {
        "task": run.task,
        "method": run.method,
        "seed": run.seed,
        "at": run.at,
        "epoch": run.epoch,
        "ordinal_entropy": environment()["ordinal_entropy"],
    }
    runs.write_json(place / PREPROCESSING, {"run": about, "dtype": str(own.example.dtype), **own.preprocessing})
    if to != "safetensors":
        return [place / name, place / PREPROCESSING]
    runs.write_json(place / "config.json", {**about, "recipe": described(run.recipe)})
    return [place / name, place / PREPROCESSING, place / "config.json"]


def _onnx(own: Exportable, path: Path) -> None:
    if importlib.util.find_spec("onnx") is None:
        raise ImportError("export --to onnx needs onnx: pip install onnx onnxruntime")
    of_inputs, of_predictions = {0: "n"}, {0: "n"}
    if _any_size(own):
        of_inputs |= {2: "height", 3: "width"}
        of_predictions |= {2: "cells down", 3: "cells across"}
    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the exporter by tracing is the older one, and of what it traces
        torch.onnx.export(
            own.module,
            (own.example,),
            content,  # type: ignore[arg-type,unused-ignore]
            dynamo=False,  # which would need onnxscript
            input_names=["inputs"],
            output_names=["predictions"],
            dynamic_axes={"inputs": of_inputs, "predictions": of_predictions},
        )
    if importlib.util.find_spec("onnxruntime") is not None:
        import onnxruntime  # type: ignore[import-not-found,unused-ignore]

        session: Any = onnxruntime.InferenceSession(content.getvalue(), providers=["CPUExecutionProvider"])
        _require_same(own, lambda rows: torch.as_tensor(session.run(None, {"inputs": rows.numpy()})[0]))
    with runs.replacing(path) as file:
        file.write(content.getvalue())


def _torch_export(own: Exportable, path: Path) -> None:
    from torch._export.serde.serialize import SerializeError  # torch.export does not name it

    dim = torch.export.Dim
    shapes: dict[int, Any] = {0: dim("n", min=1)}
    if _any_size(own):
        shapes |= {2: _STRIDE * dim("height"), 3: _STRIDE * dim("width")}
    program = torch.export.export(own.module, (own.example,), dynamic_shapes=(shapes,))
    _require_same(own, program.module())
    content = io.BytesIO()
    try:
        torch.export.save(program, content)
    except SerializeError as error:
        raise ValueError(
            "expected a network whose padding does not follow from the size of images, for torch.export cannot write "
            f"that; --to onnx can: {error.__cause__ or error}"
        ) from error
    with runs.replacing(path) as file:
        file.write(content.getvalue())


def _safetensors(own: Exportable, path: Path) -> None:
    from safetensors.torch import save

    state = {name: each.detach().cpu().clone().contiguous() for name, each in own.module.state_dict().items()}
    with runs.replacing(path) as file:
        file.write(save(state))


FORMATS: dict[str, tuple[str, Callable[[Exportable, Path], None]]] = {
    "onnx": ("model.onnx", _onnx),
    "torch-export": ("model.pt2", _torch_export),
    "safetensors": ("model.safetensors", _safetensors),
}


def _any_size(own: Exportable) -> bool:
    """Whether images may have several sizes."""
    return own.preprocessing["kind"] == "images" and own.preprocessing["height"] is None


def _require_same(own: Exportable, exported: Callable[[Tensor], Tensor]) -> None:
    """An error where a program gives other numbers than the module, for another number of rows than its example."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn((_ROWS, *own.example.shape[1:]), generator=generator, dtype=own.example.dtype)
    with torch.no_grad():
        wanted, found = own.module(rows), exported(rows)
    if found.shape != wanted.shape or not float((found - wanted).abs().max()) <= TOLERANCE * float(wanted.abs().max()):
        raise RuntimeError(f"expected an export that predicts {tuple(wanted.shape)} as the run does, got other numbers")
