"""Table 7: what is measured, and what stands beside it."""

import json

import pytest
import torch

from command_line import call
from ordinal_entropy import methods, studies
from ordinal_entropy.studies import table7
from ordinal_entropy.studies.cost import Measured
from ordinal_entropy.studies.grid import Variant
from ordinal_entropy.studies.table7 import DepthStep, Table7

pytestmark = pytest.mark.usefixtures("elsewhere")
TINY = ["encoder=test_resnet", "channels=8", "height=64", "width=96", "batch_size=2", "samples=5,96"]
SHORT = ["rounds=2", "timed_steps=1", "warm_up=1"]


@pytest.fixture
def measured(monkeypatch):
    """What the study would have measured."""
    asked = []

    def measure(variant, images, depths, keys, chosen):
        asked.append((variant.name, tuple(images.shape)))
        return Measured(0.5 + 0.1 * (variant.method != "baseline"), 100.0 + len(asked))

    monkeypatch.setattr(table7, "_measured", measure)
    monkeypatch.setattr(table7, "_batch", lambda chosen, device: (torch.empty(16, 3, 416, 544), None))
    return asked


def test_the_rows_are_those_of_the_paper(measured, tmp_path):
    summary = studies.run("table7-cost", tmp_path)
    names = ["baseline", "ld samples=100", "ld samples=1000", "ld samples=3536", "oe samples=3536"]
    assert [name for name, _ in measured] == 3 * names  # in turn
    assert summary["paper"] == {
        "baseline": {"seconds": 1836, "megabytes": 12363},
        "ld samples=100": {"seconds": 1877, "megabytes": 12379},
        "ld samples=1000": {"seconds": 1999, "megabytes": 12395},
        "ld samples=3536": {"seconds": 2342, "megabytes": 12405},
        "oe samples=3536": {"seconds": 2344, "megabytes": 12405},
    }
    assert summary["methods"]["baseline"]["mean"] == pytest.approx(0.5 * 24_231 / 16)
    assert summary["paired"]["oe samples=3536"]["difference"] == pytest.approx(0.1 * 24_231 / 16)
    assert summary["memory_mb"]["baseline"] == 111.0  # of the last round
    assert summary["metric"] == "seconds for 24,231 images" and summary["task"] == "depth"
    assert (tmp_path / "table7-cost.png").read_bytes().startswith(b"\x89PNG")


def test_an_image_of_the_papers_size_has_3536_places():
    assert DepthStep().places == 3536 == table7.PRESETS["quick"].places
    assert DepthStep(height=65, width=97, stride=1).places == 33 * 49


def test_depths_are_whole_millimetres_that_a_camera_sees():
    images, depths = table7._batch(DepthStep(height=64, width=96, batch_size=2), torch.device("cpu"))
    assert images.shape == (2, 3, 64, 96) and depths.shape == (2, 1, 64, 96)
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert depths.min() > 0.3 and depths.max() < 10 and len(depths.unique()) > 1000
    torch.testing.assert_close((1000 * depths).round(), 1000 * depths)


def test_a_step_is_regularized_at_so_many_places(monkeypatch):
    """The method is given the features of the head, all depths, and M."""
    made, seen = [], []

    def create(name, **options):
        method = original(name, **options)
        made.append((name, options))
        method.register_forward_pre_hook(lambda module, args: seen.append([tuple(arg.shape) for arg in args]))
        return method

    original = methods.create
    monkeypatch.setattr(methods, "create", create)
    chosen = DepthStep(encoder="test_resnet", channels=8, height=64, width=96, batch_size=2)
    batch = table7._batch(chosen, torch.device("cpu"))
    keys = Table7(samples=(5,), timed_steps=1, warm_up=1)
    for variant in (Variant("baseline"), Variant("oe", (("samples", 5),))):
        found = table7._measured(variant, *batch, keys, chosen)
        assert found.seconds > 0
    options = {"strength": 1.0, "rescale": "authors", "stride": 4, "per": "image", "max_samples": 5}
    assert made == [("baseline", {}), ("oe", options)]
    assert seen == [[(2, 8, 32, 48), (2, 1, 64, 96)]] * 2  # of the regularizer alone


def test_it_runs_and_is_read_back_without_any_data(tmp_path):
    command = ["reproduce", "table7-cost", *(f"--set={s}" for s in [*TINY, *SHORT]), "--device=cpu", "--out=there"]
    said = call(*command)
    assert "8 measurements on cpu, in there" in said.stderr
    assert "Seconds for 24,231 images" in said.stdout and "12,363" in said.stdout and "Drawn in" in said.stdout
    summary = json.loads((tmp_path / "there" / "summary.json").read_text())
    assert list(summary["methods"]) == ["baseline", "ld samples=5", "ld samples=96", "oe samples=96"]
    assert set(summary["paper"]) == {"baseline"}
    assert all(value > 0 for own in summary["methods"].values() for value in own["values"])
    assert summary["recipe"]["encoder"] == "test_resnet"
    assert "Read back from" in call(*command).stdout


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["samples=100,4000"], "expected samples from 2 to the 3,536 places of an image of 544 x 416, got 4,000"),
        (["samples=1"], "expected samples to be at least 2, got 1"),
        (["samples=5,5"], "expected different samples, got 5, 5"),
        (["rounds=1"], "expected rounds to be at least 2, got 1"),
        (["batch_size=0"], "expected batch_size to be at least 1, got 0"),
        (["encoderr=resnet18"], "expected a key like 'encoder'"),
    ],
)
def test_a_mistake_is_found_before_anything_is_written(settings, sentence, measured, tmp_path):
    with pytest.raises(ValueError) as error:
        studies.run("table7-cost", tmp_path / "out", settings)
    assert sentence in str(error.value) and not (tmp_path / "out").exists() and not measured


def test_the_command_tells_its_presets_and_keys(tmp_path):
    said = call("reproduce", "table7-cost", "--preset=quik", status=2).stderr
    assert "expected a preset of table7-cost like 'quick', got 'quik'; there are paper, quick" in said
    keys = call("reproduce", "table7-cost", "--keys").stdout
    assert "resnet50" in keys and "batch_size" in keys
    assert list(tmp_path.iterdir()) == []


def test_a_device_that_is_too_small_is_told_in_a_sentence(monkeypatch):
    def steps(*args, **kwargs):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(table7.cost, "measured", steps)
    chosen = DepthStep(encoder="test_resnet", channels=8, height=64, width=96, batch_size=1)
    batch = table7._batch(chosen, torch.device("cpu"))
    with pytest.raises(ValueError, match=r"room for batch_size=1 images of 96 x 64, got too little"):
        table7._measured(Variant("baseline"), *batch, Table7(samples=(5,)), chosen)


@pytest.mark.gpu
def test_it_measures_a_gpu(tmp_path):
    settings = ["batch_size=2", "precision=bf16", *SHORT]
    summary = studies.run("table7-cost", tmp_path, settings, device="cuda")
    assert all(500 < megabytes < 20_000 for megabytes in summary["memory_mb"].values())
    assert summary["memory_is"] == "peak of tensors on the GPU"
