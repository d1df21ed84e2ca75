"""Exports of trained runs: the same numbers, for any number of rows, by what other programs read."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import onnx_in_torch
import ordinal_entropy as oe
from ordinal_entropy import tasks
from ordinal_entropy.exporting import TOLERANCE, export
from ordinal_entropy.tasks.tabular import generated
from ordinal_entropy.training.plans import Plan

TABLE = ["epochs=2", "hidden=8", "pieces=4", "embedding_size=2", "batch_size=32", "bins=20", "feature_rows=0"]
IMAGES = {
    "age": "backbone=test_resnet image_size=32 padding=2 epochs=1 batch_size=16 milestones=1 feature_rows=0 bins=20",
    "crowd": "front=resnet18 widths=16 crop=64 epochs=1 batch_size=4 feature_rows=0 repeats=1 bins=20",
    "depth": "backbone=test_resnet channels=8 height=48 width=64 epochs=1 batch_size=4 feature_rows=0 flip=true",
}
LEAST = {"age": 100, "crowd": 18, "depth": 40}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def a_run_of_a_table(method="oe", *settings):
    generated.make("made", count=200)
    given = [*TABLE, "data=made/houses.csv", "target=price", *settings]
    plan = Plan(method, 0, tasks.recipe("tabular", "small", given))
    tasks.load("tabular").train([plan], device="cpu", folder=Path("runs"))
    return oe.load(f"runs/{method}-seed0")


def a_run_on_images(task, *settings):
    more = {"size": (60, 80)} if task == "depth" else {}
    tasks.load_data(task).make(Path(task), seed=0, count=LEAST[task], **more)
    plan = Plan("oe", 0, tasks.recipe(task, "quick", [f"data={task}", *IMAGES[task].split(), *settings]))
    tasks.load(task).train([plan], device="cpu", folder=Path("runs"))
    return oe.load("runs/oe-seed0")


def inputs_of(description, source):
    """The inputs of a table by what preprocessing.json says, in loops."""
    import csv

    found = []
    for row in csv.DictReader(Path(source).read_text().splitlines()):
        numbers, missing = [], []
        for place, name in enumerate(description["number_names"]):
            cell = row[name]
            own = float(cell) if cell else description["medians"][place]
            numbers.append((own - description["centers"][place]) / description["scales"][place])
            if place in description["indicated"]:
                missing.append(float(not cell))
        encoded = []
        for place, name in enumerate(description["category_names"]):
            encoded += [float(row[name] == each) for each in description["kept"][place]]
            if description["rare"][place]:
                encoded.append(float(row[name] in description["rare"][place]))
        found.append([*numbers, *missing, *encoded])
    return torch.tensor(found)


def require_close(found, wanted):
    assert np.abs(np.asarray(found) - wanted).max() <= TOLERANCE * np.abs(wanted).max()


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("oe", []),
        ("hl-gauss", ["embedding=periodic"]),
        ("coral", []),
        ("ema", ["network=tabm", "members=3", "max_categories=3"]),
        ("corn", []),
        ("quantile", ["dtype=float64"]),
    ],
)
def test_a_table_as_a_program_of_torch(method, settings):
    run = a_run_of_a_table(method, *settings)
    files = export(run, "torch-export", "served")
    assert files == [Path("served/model.pt2"), Path("served/preprocessing.json")]
    described = json.loads(files[1].read_text())
    assert described["run"]["method"] == method and described["target"] == "price"
    inputs = inputs_of(described, "made/houses.csv")
    assert len(described["inputs"]) == inputs.shape[1]
    program = torch.export.load(files[0]).module()
    with torch.no_grad():
        found = program(inputs.to(getattr(torch, described["dtype"].removeprefix("torch."))))[:, 0]
        one = program(inputs[:1].to(getattr(torch, described["dtype"].removeprefix("torch."))))[:, 0]
    require_close(found, run.predict("made/houses.csv"))
    require_close(one, run.predict("made/houses.csv")[:1])


@pytest.mark.parametrize("task", ["depth", *(pytest.param(task, marks=pytest.mark.slow) for task in ("age", "crowd"))])
def test_images_as_a_program_of_torch(task):
    run = a_run_on_images(task)
    program, preprocessing = export(run, "torch-export", "served")
    described = json.loads(preprocessing.read_text())
    files = sorted(Path(task).rglob("*.jpg"))[:3]
    if described["width"] is not None:
        size = described["width"], described["height"]
        own = [np.array(Image.open(file).convert("RGB").resize(size, Image.Resampling.BILINEAR)) for file in files]
        wanted = run.predict(files)
    else:  # of any size, here of multiples of a cell
        own = [np.random.default_rng(seed).integers(0, 256, (128, 256, 3), dtype=np.uint8) for seed in range(3)]
        wanted = np.stack(list(run.map_of_each(np.stack(own))))
    pixels = torch.from_numpy(np.stack(own)).permute(0, 3, 1, 2)
    mean, std = (torch.tensor(described[name])[:, None, None] for name in ("mean", "std"))
    with torch.no_grad():
        found = torch.export.load(program).module()((pixels / 255 - mean) / std)
    require_close(found[:, 0], wanted)


@pytest.mark.slow
def test_padding_that_follows_from_the_size_of_images_is_for_onnx():
    run = a_run_on_images("crowd", "front=test_resnet")
    with pytest.raises(ValueError, match="expected a network whose padding does not follow from the size of images"):
        export(run, "torch-export", "served")
    own = run.exportable()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(own.module, own.example, check_trace=False)  # as the exporter to ONNX does
    other = torch.randn(3, 3, 64, 160, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(traced(other), own.module(other), rtol=TOLERANCE, atol=1e-6)


def test_weights_with_their_configuration():
    run = a_run_of_a_table("hl-gauss")
    weights, _, config = export(run, "safetensors", "served")
    content = json.loads(config.read_text())
    assert content["recipe"]["model"]["hidden"] == 8 and content["method"] == "hl-gauss"
    module = run.exportable().module
    state = {name: torch.zeros_like(each) for name, each in module.state_dict().items()}
    wanted = module(torch.ones(2, len(run.exportable().preprocessing["inputs"])))
    module.load_state_dict(state)
    module.load_state_dict(load_file(weights))
    assert torch.equal(module(torch.ones(2, len(run.exportable().preprocessing["inputs"]))), wanted)


@pytest.mark.parametrize("method", ["oe", "hl-gauss", "coral", "or-cnn", "quantile", "mean-variance"])
def test_a_table_in_onnxruntime(method):
    pytest.importorskip("onnx", reason="the exporter writes by onnx")
    onnxruntime = pytest.importorskip("onnxruntime", reason="what runs the export")
    run = a_run_of_a_table(method)
    network, preprocessing = export(run, "onnx", "served")
    inputs = inputs_of(json.loads(preprocessing.read_text()), "made/houses.csv")
    session = onnxruntime.InferenceSession(str(network), providers=["CPUExecutionProvider"])
    for rows in (inputs, inputs[:1]):
        (found,) = session.run(None, {"inputs": rows.numpy()})
        require_close(found[:, 0], run.predict("made/houses.csv")[: len(rows)])


@pytest.mark.parametrize("task", ["age", "crowd", "depth"])
def test_images_in_onnxruntime(task):
    pytest.importorskip("onnx", reason="the exporter writes by onnx")
    onnxruntime = pytest.importorskip("onnxruntime", reason="what runs the export")
    run = a_run_on_images(task)
    network, _ = export(run, "onnx", "served")
    own = run.exportable()
    session = onnxruntime.InferenceSession(str(network), providers=["CPUExecutionProvider"])
    sizes = [own.example.shape[2:], *([(64, 160)] if task == "crowd" else [])]
    for height, width in sizes:
        rows = torch.randn(3, 3, height, width, generator=torch.Generator().manual_seed(0))
        (found,) = session.run(None, {"inputs": rows.numpy()})
        with torch.no_grad():
            require_close(found, own.module(rows).numpy())


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("oe", ["network=tabm", "members=3"]),
        ("hl-gauss", ["embedding=periodic"]),
        *((name, []) for name in ("coral", "corn", "or-cnn", "quantile", "mean-variance", "dldl")),
    ],
)
def test_a_table_in_onnx_without_its_packages(method, settings, monkeypatch):
    """The graph by a reader of our own; what onnx itself adds to a file, the check of it, is left out."""
    where = "torch.onnx._internal.torchscript_exporter.onnx_proto_utils"
    ours = pytest.importorskip(where, reason="this version of torch has it elsewhere")
    monkeypatch.setattr(ours, "_add_onnxscript_fn", lambda content, functions: content)
    run = a_run_of_a_table(method, *settings)
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: True if name == "onnx" else None)
    network, preprocessing = export(run, "onnx", "served")
    inputs = inputs_of(json.loads(preprocessing.read_text()), "made/houses.csv")
    for rows in (inputs, inputs[:1]):
        found = onnx_in_torch.run(network.read_bytes(), rows)
        require_close(found[:, 0], run.predict("made/houses.csv")[: len(rows)])


def test_mistakes(monkeypatch):
    run = a_run_of_a_table()
    with pytest.raises(ValueError, match="expected --to to be one of onnx, torch-export, safetensors, got 'tflite'"):
        export(run, "tflite", "served")
    assert not Path("served").exists()
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None)
    with pytest.raises(ImportError, match="needs onnx: pip install onnx"):
        export(run, "onnx", "served")
