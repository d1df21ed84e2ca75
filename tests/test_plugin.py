"""Methods of an installed package: found by name, and trained by every loop without an edit here.

The package is in ``tests/plugin``. The fast tests put it on the path with the entry points that its installation would
write; a slow one lets pip install it.
"""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from command_line import call
from ordinal_entropy import methods, runs
from ordinal_entropy.methods.testing import check_method

ROOT = Path(__file__).parent / "plugin"
POINTS = dict(re.findall(r'^(\w+) = "(regression_extras[^"]*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
NAMES = list(POINTS)
SMALL = {
    "tabular": ["--preset=quick", "--set=generated=120", "--set=epochs=2", "--set=hidden=8", "--set=feature_rows=0"],
    "linear": [
        "--preset=quick", "--set=rows=40", "--set=parts=2", "--set=test_rows=40", "--set=validation_rows=40",
        "--set=steps=4", "--set=evaluate_every=2", "--set=hidden=8",
    ],
    "age": [
        "--preset=quick", "--set=generated=100", "--set=epochs=2", "--set=batch_size=16", "--set=image_size=32",
        "--set=feature_rows=0", "--set=workers=0",
    ],
}  # fmt: skip


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """As after ``pip install``: the package on the path, and its entry points beside it."""
    about = tmp_path / "site" / "regression_extras-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: regression-extras\nVersion: 1.0\n")
    lines = [f"{name} = {place}" for name, place in POINTS.items()]
    (about / "entry_points.txt").write_text("\n".join(["[ordinal_entropy.methods]", *lines, ""]))
    monkeypatch.syspath_prepend(about.parent)
    monkeypatch.syspath_prepend(ROOT / "src")
    monkeypatch.setattr(methods.registry, "_REGISTRY", dict(methods.registry._REGISTRY))
    monkeypatch.setenv("ORDINAL_ENTROPY_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    importlib.invalidate_caches()


def test_each_is_one_short_file():
    for place in POINTS.values():
        file = ROOT / "src" / f"{place.partition(':')[0].replace('.', '/')}.py"
        assert len(file.read_text().splitlines()) <= 40, file.name


@pytest.mark.usefixtures("installed")
def test_they_are_listed_and_described():
    assert methods.names()[-5:] == sorted(NAMES) or set(methods.names()[-5:]) == set(NAMES)
    assert (
        methods.describe("softplus")
        == "Predicts the smallest training target and a positive number more, by two layers"
    )
    assert methods.options("size") == ("strength", "balance", "anneal", "begin")
    assert methods.options("tails") == ("power",)
    with pytest.raises(ValueError, match="expected a method like 'softplus', got 'softplos'"):
        methods.create("softplos")
    assert "neighbours" in call("methods").stdout


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", NAMES)
def test_each_holds_to_the_contract(name):
    (part,) = methods.create(name).parts.values()
    check_method(type(part))


@pytest.mark.usefixtures("installed", "without_page")
@pytest.mark.parametrize("task", ["tabular", "linear", pytest.param("age", marks=pytest.mark.slow)])
def test_recipes_and_stacks_train_all(task):
    rows = ["baseline", *NAMES, "softplus+tails+neighbours+oe"]
    out = f"runs-of-{task}"
    call("compare", task, f"--methods={','.join(rows)}", "--seeds=2", "--device=cpu", f"--out={out}", *SMALL[task])
    scores = {name: own["values"] for name, own in runs.read_json(Path(out) / "summary.json")["methods"].items()}
    assert list(scores) == rows
    assert all(np.isfinite(own).all() for own in scores.values())
    assert len({tuple(own) for own in scores.values()}) == len(rows)  # each does something


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", NAMES)
def test_the_regressor_trains_each(name):
    from ordinal_entropy.integrations.sklearn import OrdinalEntropyRegressor

    x = np.random.default_rng(0).normal(size=(80, 3))
    y = x[:, 0] + x[:, 1].round()
    fitted, plain = (
        OrdinalEntropyRegressor(8, method=method, strength=1.0, epochs=8, batch_size=20, random_state=0).fit(x, y)
        for method in (name, "baseline")
    )
    assert np.isfinite(fitted.predict(x)).all()
    assert not np.allclose(fitted.predict(x), plain.predict(x))


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", NAMES)
def test_a_plain_loop_trains_each(name):
    torch.manual_seed(0)
    x, y = torch.randn(40, 3), torch.randn(40, 1).round()
    method, encoder = methods.create(name), nn.Linear(3, 8)
    method.prepare(y, x, 8)
    head = method.head(8, 1)
    optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters(), *method.parameters()], lr=0.05)
    losses = []
    for epoch in range(60):
        stage = methods.stage_of(method, epoch, 60)
        generator = torch.Generator().manual_seed(epoch)
        loss = methods.training_loss(
            method, encoder, head, methods.Batch(x, y), methods.squared_error, generator, stage=stage
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        method.end_epoch()
        losses.append(loss.item())
    assert losses[20] < losses[0] and losses[-1] < losses[31]  # in both stages, where there are two
    if name == "size":
        assert method.parts["size"].size.item() != 1.0


class Net(nn.Module):
    """As a Trainer of Hugging Face wants it: a loss from the inputs and the labels."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = nn.Linear(3, 8), nn.Linear(8, 1)

    def forward(self, x, labels):
        predictions = self.head(self.body(x))
        return {"loss": nn.functional.mse_loss(predictions, labels), "logits": predictions}


ROWS = [
    {"x": x, "labels": x.sum(0, keepdim=True)} for x in torch.randn(16, 3, generator=torch.Generator().manual_seed(0))
]


def by_callback(method, folder):
    from ordinal_entropy.integrations.lightning import OrdinalEntropyCallback, lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def training_step(self, batch, batch_idx):
            return self.net(**batch)["loss"]

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    callback, module = OrdinalEntropyCallback(method), Module()
    trainer = lightning.Trainer(
        max_epochs=1, callbacks=[callback], accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(module, torch.utils.data.DataLoader(ROWS, batch_size=4))
    return module.net


def by_trainer(method, folder):
    pytest.importorskip("accelerate", reason="a Trainer needs accelerate, which is not installed")
    from ordinal_entropy.integrations.transformers import add_method

    from transformers import Trainer, TrainingArguments  # isort: skip  # after torchvision's guard

    settings = TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=4, num_train_epochs=1, use_cpu=True, report_to="none",
        disable_tqdm=True, save_strategy="no", optim="sgd", learning_rate=0.01, lr_scheduler_type="constant",
        max_grad_norm=0.0, dataloader_pin_memory=False,
    )  # fmt: skip
    trainer = Trainer(Net(), settings, train_dataset=ROWS)
    add_method(trainer, method)
    trainer.train()
    return trainer.model


@pytest.mark.usefixtures("installed")
@pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers")
@pytest.mark.filterwarnings("ignore:The number of training batches")
@pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated")  # Lightning's use of torch
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("loop", [by_callback, by_trainer])
def test_loops_with_a_loss_of_their_own_train_terms_and_refuse_the_rest(loop, name, tmp_path):
    if name == "size":
        method = methods.create(name)
        trained, plain = loop(method, tmp_path), loop("baseline", tmp_path)
        assert method.parts["size"].size.item() != 1.0
        assert not torch.equal(trained.body.weight, plain.body.weight)
        return
    with pytest.raises(
        ValueError, match=f"cannot train '{name}', which has to .*: it computes the task loss by itself"
    ):
        loop(name, tmp_path)


@pytest.mark.usefixtures("installed")
def test_one_that_cannot_be_loaded_is_told_by_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "regression_extras.size", None)
    with pytest.raises(ValueError, match="expected a method 'size' at regression_extras"):
        methods.create("size")


@pytest.mark.slow
def test_pip_installs_it(tmp_path):
    place = tmp_path / "site"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        place,
        ROOT,
    ]
    subprocess.run(pip, check=True)
    look = "import ordinal_entropy as oe; print(oe.methods.describe('size'), oe.methods.create('size+oe').name)"
    path = f"import sys; sys.path.insert(0, {str(place)!r}); "
    answer = subprocess.run([sys.executable, "-c", path + look], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "Keeps the features of one size, which is learned size+oe"
