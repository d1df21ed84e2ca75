"""A tiny method of each kind, trained on images: against a plain loop, resumed, and scored again."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from ordinal_entropy import methods
from ordinal_entropy.methods import Batch, Method, Step
from ordinal_entropy.methods.contract import weighted_mean
from ordinal_entropy.models.heads import replace_head
from ordinal_entropy.recipes import changed
from ordinal_entropy.tasks.age import generated
from ordinal_entropy.tasks.age.recipe import AGE, Age
from ordinal_entropy.training.checkpoints import load_images
from ordinal_entropy.training.large.fitting import fit
from ordinal_entropy.training.large.module import Training
from ordinal_entropy.training.plans import Plan
from tiny_images import SETTINGS, Errors, a_network, l1, logged, some_data

EPOCHS = 2


class Pull(Method):
    """Pulls the features to a learned point; tells of every hook that it was asked."""

    kind = "term"

    def __init__(self, width: int = 0) -> None:
        super().__init__()
        self.point = nn.Parameter(torch.ones(1))
        self.register_buffer("seen", torch.zeros(3))  # rows, epochs, steps

    def term(self, step: Step) -> Tensor:
        return (step.features.float() - self.point.float()).square().mean().to(step.features)

    def observe(self, features: Tensor, targets: Tensor) -> None:
        assert not features.requires_grad
        self.seen[0] += len(features)

    def end_epoch(self) -> None:
        self.seen[1] += 1

    def after_step(self, model: nn.Module) -> None:
        self.seen[2] += 1

    def scalars(self) -> dict[str, Tensor]:
        return {"point": self.point[0]}


class Binned(Method):
    """Cross-entropy of bins, whose edges are found in the training targets."""

    kind = "head"

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("values", torch.zeros(0))

    def prepare(self, targets, inputs=None, width=0):
        self.values = torch.linspace(float(targets.min()), float(targets.max()), 5)

    def outputs(self, t):
        return 5

    def head(self, width, t):
        return nn.Sequential(nn.Linear(width, 4), nn.Tanh(), nn.Linear(4, 5))

    def decode(self, outputs):
        return outputs.softmax(1) @ self.values[:, None].to(outputs)

    def task_loss(self, step):
        index = (step.batch.targets - self.values.to(step.batch.targets)).abs().argmin(1)
        losses = nn.functional.cross_entropy(step.outputs, index, reduction="none")[:, None]
        return weighted_mean(losses, step.batch.mask, step.batch.weight)


class Rare(Method):
    """Weights rows by their target."""

    kind = "weights"

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))

    def prepare(self, targets, inputs=None, width=0):
        self.mean = targets.mean()

    def change(self, batch, generator=None):
        own = 0.5 + (batch.targets - self.mean).abs()
        return batch._replace(weight=own if batch.weight is None else batch.weight * own)


class Mixed(Method):
    """Mixes every row with another one."""

    kind = "mixing"

    def change(self, batch, generator=None):
        share = torch.rand((), generator=generator, device=generator.device)
        order = torch.randperm(len(batch.targets), generator=generator, device=generator.device)
        inputs = share * batch.inputs + (1 - share) * batch.inputs[order]
        return batch._replace(inputs=inputs, targets=share * batch.targets + (1 - share) * batch.targets[order])


class Smooth(Method):
    """Moves features half the way to the mean of those seen so far."""

    kind = "smoothing"

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(0))

    def prepare(self, targets, inputs=None, width=0):
        self.mean = torch.zeros(width)

    def calibrate(self, features, batch):
        return (features + self.mean.to(features)) / 2

    def observe(self, features, targets):
        self.mean = 0.9 * self.mean + 0.1 * features.mean(0).to(self.mean)


class Staged(Method):
    """Brings the two views of a row together, then trains the head."""

    kind = "term"
    stages = ("encoder", "head")
    views = 2

    def term(self, step):
        first, second = step.features.chunk(2)
        assert step.outputs is None and torch.equal(*step.batch.targets.chunk(2))
        return (first - second).square().mean() - first.var(0).mean()


MADE = {"pull": Pull, "binned": Binned, "rare": Rare, "mixed": Mixed, "smooth": Smooth, "staged": Staged}


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    from ordinal_entropy.methods import registry

    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    for name, made in MADE.items():
        methods.register(name, made)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faces") / "set"
    generated.make(folder, count=100)
    return folder


def plan_of(drawn, method: str, **settings) -> Plan:
    own = {
        "epochs": EPOCHS,
        "batch_size": 16,
        "milestones": (),
        "learning_rate": 5e-3,
        "feature_rows": 8,
        "checkpoint_seconds": 0.0,
        **settings,
    }
    return Plan(
        method,
        3,
        changed(Age(), {"data": str(drawn), "backbone": "test_resnet", "image_size": 32, "padding": 2, **own}),
    )


@pytest.mark.parametrize(
    "method",
    [
        *(pytest.param(name, marks=() if name == "staged" else pytest.mark.slow) for name in MADE),
        "binned+rare+mixed+smooth+pull",
        "swa",
    ],
)
def test_a_run_of_each_kind_is_resumed_and_scored_again(drawn, tmp_path, method, monkeypatch):
    plan = plan_of(drawn, method)
    (whole,) = AGE.train([plan], device="cpu", folder=tmp_path / "whole")
    found = AGE.evaluate(plan, device="cpu", folder=tmp_path / "whole")
    assert found["test"] == pytest.approx(whole.last, rel=1e-6)
    assert found["test, best on validation"] == pytest.approx(whole.best_validation, rel=1e-6)

    class StopError(Exception):
        pass

    with monkeypatch.context() as patched:
        patched.setattr(Training, "on_validation_epoch_end", dies_in_the_second(StopError))
        with pytest.raises(StopError):
            AGE.train([plan], device="cpu", folder=tmp_path / "stopped")
    assert load_images(tmp_path / "stopped" / f"{method}-seed3" / "last.ckpt").epoch == 1
    (resumed,) = AGE.train([plan], device="cpu", folder=tmp_path / "stopped")
    assert resumed == whole
    left, right = (load_images(tmp_path / name / f"{method}-seed3" / "last.ckpt") for name in ("whole", "stopped"))
    for one, other in ((left.weights, right.weights), (left.method, right.method)):
        assert one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def dies_in_the_second(error):
    real = Training.on_validation_epoch_end

    def hook(self):
        real(self)
        if self.epoch == 1:
            self.files.close()
            raise error

    return hook


def run(method, folder, settings=None, data=None) -> Training:
    own = methods.create(method)
    own.prepare((data or some_data()).train.target_rows(), None, 8)
    network = a_network(own.outputs(1))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        replace_head(network, "head", own)
    module = Training(network, own, l1, Errors(), data or some_data(), settings or replace(SETTINGS, epochs=2), seed=5,
                      folder=folder)  # fmt: skip
    fit(module, device="cpu", folder=folder, monitor="mae")
    return module


@pytest.mark.parametrize("method", [*MADE, "binned+rare+mixed+smooth+pull", "oe"])
def test_the_loss_of_a_step_is_that_of_the_contract(tmp_path, method, monkeypatch):
    """In float64, with the same encoder, head, batch and draws: of the first step of every epoch."""
    found, expected = [], []
    real = Training._step

    def compared(self, picked, draws, generator=None):
        state = {name: value.clone() for name, value in self.method.state_dict().items()}
        again = None
        if generator is not None:
            again = torch.Generator().set_state(generator.get_state())
        chance = torch.get_rng_state()
        made = real(self, picked, draws, generator)
        after = {name: value.clone() for name, value in self.method.state_dict().items()}
        self.method.load_state_dict(state)
        torch.set_rng_state(chance)
        views = [self.data.train.seen(picked, own) for own in draws]
        targets, images = (torch.cat([getattr(view, name) for view in views]) for name in ("targets", "images"))
        weight = torch.cat([view.weights for view in views]).double()[:, None]
        batch = Batch(images.double(), targets.double(), None, weight)

        def encoder(inputs):
            return self.network.backbone((inputs - 127.5) / 127.5)

        loss = methods.training_loss(
            self.method, encoder, self.network.head, batch, self.task_loss, again, stage=self._stage
        )
        found.append(made.loss.item())
        expected.append(loss.item())
        self.method.load_state_dict(after)
        return made

    monkeypatch.setattr(Training, "_step", compared)
    data = some_data()
    data = data._replace(train=replace(data.train, weights=torch.linspace(0.5, 1.5, 60)))
    settings = replace(SETTINGS, epochs=2, precision="float64", feature_rows=0, milestones=())
    module = run(method, tmp_path, settings, data)
    assert len(found) == 8 and found == pytest.approx(expected, rel=1e-12)
    assert module.method.steps >= 8


def test_parameters_of_a_method_are_trained_and_its_numbers_are_logged(tmp_path):
    module = run("pull", tmp_path)
    own = module.method.parts["pull"]
    assert own.point.item() != 1.0 and own.seen.tolist() == [120, 2, 8]
    assert float(logged(tmp_path)[-1]["method/point"]) == pytest.approx(own.point.item())
    assert load_images(tmp_path / "last.ckpt").method["parts.pull.point"].item() == own.point.item()


def test_features_are_smoothed_in_training_alone(tmp_path):
    module, plain = run("smooth", tmp_path / "a"), run("baseline", tmp_path / "b")
    assert module.history != plain.history
    assert not module.network.head._forward_pre_hooks


def test_the_encoder_comes_first_and_then_the_head_alone(tmp_path):
    settings = replace(SETTINGS, epochs=4, learning_rate=0.1, optimizer="sgd", schedule="one-cycle", feature_rows=0)
    states, rates = [], []

    class Watched(Training):
        def on_train_batch_end(self, outputs, batch, batch_idx):
            rates.append(self.trainer.optimizers[0].param_groups[0]["lr"])

        def on_train_epoch_end(self):
            super().on_train_epoch_end()
            states.append({name: value.clone() for name, value in self.network.state_dict().items()})

    own = methods.create("staged")
    module = Watched(a_network(), own, l1, Errors(), some_data(), settings, seed=5, folder=tmp_path)
    begun = {name: value.clone() for name, value in module.network.state_dict().items()}
    history = fit(module, device="cpu", folder=tmp_path, monitor="mae")
    for name, value in begun.items():
        head = name.startswith("head")
        assert torch.equal(states[1][name], value) == head, name  # BatchNorm's numbers too
        assert torch.equal(states[3][name], states[1][name]) != head, name
    assert rates[:8] == rates[8:] and len(set(rates)) > 4
    assert all(each.requires_grad for each in module.network.parameters())
    best = 2 + min(range(2), key=lambda epoch: history[2 + epoch]["validation"]["mae"])
    assert load_images(tmp_path / "best.ckpt").epoch == best + 1
    with pytest.raises(ValueError, match="expected at least 2 epochs for two stages, got 1"):
        Training(a_network(), own, l1, Errors(), some_data(), replace(SETTINGS, epochs=1), seed=5)


def test_what_cannot_be_honoured_is_refused_in_a_sentence():
    data, several = some_data(), replace(SETTINGS, devices=2)

    class Same(type(data.train)):
        augmented = uniform = False

    same = data._replace(train=Same(data.train.images, data.train.targets))
    for method, own, settings, said in [
        ("staged", same, SETTINGS, "cannot train 'staged', which has to see several augmented views of each row"),
        ("mixed", same, SETTINGS, "cannot train 'mixed', which has to change the batch before .*: they differ in size"),
        ("staged", data, several, "on several devices cannot train 'staged', which has to train the encoder first"),
    ]:
        with pytest.raises(ValueError, match=said):
            Training(a_network(), methods.create(method), l1, Errors(), own, settings, seed=5)


def test_steps_are_a_graph_only_where_the_device_does_all_of_it():
    made = {}
    for method in [*MADE, "oe", "classification", "baseline", "rare+oe"]:
        options = {"low": 0.0, "high": 9.0} if method == "classification" else {}
        own = methods.create(method, **options)
        made[method] = Training(a_network(own.outputs(1)), own, l1, Errors(), some_data(), SETTINGS, seed=5)._capturable
    assert [name for name, there in made.items() if not there] == ["pull", "mixed", "smooth", "staged"]


def test_a_run_folder_without_the_state_of_a_method_is_still_scored(drawn, tmp_path):
    plan = plan_of(drawn, "oe", epochs=1)
    (outcome,) = AGE.train([plan], device="cpu", folder=tmp_path)
    path = tmp_path / "oe-seed3"
    for name in ("last.ckpt", "best.ckpt"):
        content = torch.load(path / name, weights_only=True)
        state = content["state_dict"]
        old = {key: value for key, value in state.items() if not key.startswith("method.")}
        torch.save(
            {**content, "state_dict": {**old, "method.regularizer.balance.strengths": torch.ones(2)}}, path / name
        )
    assert AGE.evaluate(plan, device="cpu", folder=tmp_path)["test"] == pytest.approx(outcome.last)
