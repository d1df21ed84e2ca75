"""The callback against a loop written by hand: weights, logs, what is left behind, what is refused."""

import copy
import math
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

import ordinal_entropy as oe
from ordinal_entropy.integrations.lightning import OrdinalEntropyCallback
from ordinal_entropy.integrations.override import Override
from ordinal_entropy.memory import Memory

from oracle import terms

import lightning.pytorch as lightning  # isort: skip  # after torchvision's guard

pytestmark = [
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated"),  # Lightning's use of torch
]

N, STEPS, RATE = 12, 4, 0.1
TERMS = [
    "baseline", "ld-unweighted", "ld", "ld-cosine", "ld-no-norm", "ld-squared", "ld-sqrt", "lt", "oe", "ld+lt",
]  # fmt: skip


def batches(n=N, steps=STEPS):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(steps, n, 3, generator=generator)
    return [(each, (each.sum(1, keepdim=True) * 2).round()) for each in x]  # targets that repeat


def fixed(name, **options):
    return oe.methods.create(name, strength=1.0, **options)


class Plain(lightning.LightningModule):
    """A user's module, which knows nothing of us."""

    def __init__(self, outputs=1):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, outputs))

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        return F.mse_loss(self(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=RATE)


class Validated(Plain):
    def __init__(self):
        super().__init__()
        self.seen = []  # losses

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.seen.append(float(F.mse_loss(self(x), y)))


class ReturnsDict(Plain):
    def training_step(self, batch, batch_idx):
        return {"loss": super().training_step(batch, batch_idx), "other": 1}


class WithoutIndex(Plain):
    def training_step(self, batch):
        return F.mse_loss(self.net(batch["x"]), batch["labels"])


def trainer(*callbacks, tmp_path=None, **options):
    settings = {
        "max_epochs": 1, "accelerator": "cpu", "logger": False, "enable_checkpointing": False,
        "enable_progress_bar": False, "enable_model_summary": False, "log_every_n_steps": 1, **options,
    }  # fmt: skip
    return lightning.Trainer(callbacks=list(callbacks), **settings)


def fit(module, callback, data=None, validation=None, **options):
    made = trainer(*([callback] if callback else []), **options)
    loader = DataLoader(batches() if data is None else data, batch_size=None)
    made.fit(module, loader, validation and DataLoader(validation, batch_size=None))
    return made


def by_hand(method, layer=None, data=None, accumulate=1, outputs=1):
    """The same training in plain PyTorch."""
    net = Plain(outputs).net
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    with oe.capture(net, layer) as tap:
        for number, (x, y) in enumerate(batches() if data is None else data):
            prediction = net(x)
            task_loss = F.mse_loss(prediction, y)
            getattr(method, "at", lambda *told: None)(number // accumulate, STEPS // accumulate)
            loss = task_loss + method(tap.features, y, predictions=prediction, task_loss=task_loss)
            (loss / accumulate).backward()
            if number % accumulate == accumulate - 1:
                optimizer.step()
                optimizer.zero_grad()
    return net


def assert_same_weights(module, expected):
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(module.net.state_dict()[name], value, rtol=0, atol=1e-6)


def assert_untouched(module):
    assert "training_step" not in vars(module)
    for each in module.modules():
        assert not each._forward_hooks and not each._forward_pre_hooks


# --- the same as a loop written by hand -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TERMS)
def test_every_method_trains_as_by_hand(name):
    module = Plain()
    fit(module, OrdinalEntropyCallback(name))
    assert_same_weights(module, by_hand(oe.methods.create(name)))
    assert_untouched(module)


def test_the_term_has_an_effect():
    plain, regularized = Plain(), Plain()
    fit(plain, None)
    fit(regularized, OrdinalEntropyCallback(fixed("oe")))
    assert (plain.net[2].weight - regularized.net[2].weight).abs().max() > 1e-3
    torch.testing.assert_close(plain.net[2].weight, by_hand(oe.methods.create("baseline"))[2].weight)


@pytest.mark.parametrize("kind", [Plain, ReturnsDict])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_layer_by_name_and_accumulated_batches(kind, accumulate):
    module, method = kind(), oe.methods.create("oe", strength=0.5)
    fit(module, OrdinalEntropyCallback(method, layer="net.2"), accumulate_grad_batches=accumulate)
    assert_same_weights(module, by_hand(method, "2", accumulate=accumulate))


def test_the_output_of_a_layer_is_the_input_of_the_next():
    module, method = Plain(), oe.OrdinalEntropy(0.3, 0.2)
    fit(module, OrdinalEntropyCallback(method, layer="net.3", output=True))
    assert_same_weights(module, by_hand(fixed("oe", diversity_weight=0.3, tightness_weight=0.2), "4"))


def test_a_step_without_a_number_and_a_batch_with_names():
    module = WithoutIndex()
    fit(module, OrdinalEntropyCallback("ld"), [{"x": x, "labels": y} for x, y in batches()])
    assert_same_weights(module, by_hand(oe.methods.create("ld")))


@pytest.mark.parametrize("targets", [lambda batch: batch[2], 2, -1])
def test_targets_from_elsewhere(targets):
    module = Plain()
    module.training_step = lambda batch, batch_idx: F.mse_loss(module(batch[0]), batch[2])
    fit(module, OrdinalEntropyCallback("ld", targets=targets), [(x, "name", y) for x, y in batches()])
    assert_same_weights(module, by_hand(oe.methods.create("ld")))


def test_a_mask_from_the_batch():
    mask = torch.arange(N) < 7
    module = Plain()
    fit(module, OrdinalEntropyCallback("oe", targets=lambda batch: (batch[1], mask)))
    method = oe.methods.create("oe")
    expected = by_hand(Masked(method, mask))
    assert_same_weights(module, expected)


class Masked:
    def __init__(self, method, mask):
        self.method, self.mask = method, mask

    def __call__(self, features, targets, mask=None, predictions=None, task_loss=None):
        return self.method(features, targets, self.mask, task_loss=task_loss)


def test_of_several_calls_the_last_counts():
    class Views(Plain):
        def training_step(self, batch, batch_idx):
            x, y = batch
            self(x[:5])
            return F.mse_loss(self(x), y)

    module = Views()
    fit(module, OrdinalEntropyCallback("oe"))
    assert_same_weights(module, by_hand(oe.methods.create("oe")))


@pytest.mark.filterwarnings("ignore:`training_step` returned `None`")
def test_a_step_that_returns_nothing_is_skipped():
    class Skips(Plain):
        def training_step(self, batch, batch_idx):
            return None if batch_idx == 1 else super().training_step(batch, batch_idx)

    module = Skips()
    fit(module, OrdinalEntropyCallback("oe"))
    assert_same_weights(module, by_hand(oe.methods.create("oe"), data=[b for i, b in enumerate(batches()) if i != 1]))


def test_two_callbacks():
    class Both:
        ld, lt = fixed("ld"), fixed("lt")

        def __call__(self, features, targets, mask=None, predictions=None, task_loss=None):
            return self.ld(features, targets) + self.lt(features, targets)

    module, found = (
        Plain(),
        trainer(OrdinalEntropyCallback(fixed("ld")), OrdinalEntropyCallback(fixed("lt"), name="second")),
    )
    found.fit(module, DataLoader(batches(), batch_size=None))
    assert_same_weights(module, by_hand(Both()))
    assert_untouched(module)
    assert found.callback_metrics["ordinal_entropy/loss"] < 0 < found.callback_metrics["second/loss"]


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true", "64-true"])
def test_the_term_is_never_in_half_precision(precision):
    seen = []

    class Watched(oe.OrdinalEntropy):
        def fixed(self, features, targets, mask=None, sample_weight=None):
            loss = super().fixed(features, targets, mask)
            seen.append((features.dtype, loss.dtype, torch.is_autocast_enabled("cpu")))
            return loss

    method = Watched()
    seen.clear()
    data = [(x.double(), y.double()) for x, y in batches()] if precision == "64-true" else None
    fit(Plain(), OrdinalEntropyCallback(method), data, precision=precision)
    inside = torch.float64 if precision == "64-true" else torch.bfloat16
    term = torch.float64 if precision == "64-true" else torch.float32
    assert set(seen) == {(inside, term, False)}


def test_distributed_strategies_call_the_step_through_the_wrapper():
    module = Plain()
    fit(module, OrdinalEntropyCallback("oe"), strategy="ddp", devices=1, use_distributed_sampler=False)
    assert_same_weights(module, by_hand(oe.methods.create("oe")))
    assert_untouched(module)


@pytest.mark.slow
def test_gathered_ranks_train_as_one_process_on_the_joined_batch(tmp_path):
    class Half(Plain):
        def training_step(self, batch, batch_idx):
            return super().training_step([each[self.global_rank :: 2] for each in batch], batch_idx)

        def on_train_end(self):
            if self.global_rank == 0:
                torch.save(self.net.state_dict(), tmp_path / "weights.pt")

    callback = OrdinalEntropyCallback(
        oe.methods.create("oe", gather=True), targets=lambda batch: batch[1][torch.distributed.get_rank() :: 2]
    )
    made = trainer(callback, strategy="ddp_fork", devices=2, use_distributed_sampler=False)
    made.fit(Half(), DataLoader(batches(), batch_size=None))
    expected = by_hand(oe.methods.create("oe"))
    for name, value in torch.load(tmp_path / "weights.pt").items():
        torch.testing.assert_close(value, expected.state_dict()[name], rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler
@pytest.mark.parametrize("elsewhere", [None, 0.1], ids=["alone", "with a gradient-balanced strength elsewhere"])
def test_a_compiled_module(elsewhere):
    other = elsewhere and oe.OrdinalEntropy(balance=elsewhere)  # graphs then end at the features
    torch._dynamo.reset()
    module = torch.compile(Plain(), backend="eager")
    fit(module, OrdinalEntropyCallback("oe"))
    expected = by_hand(oe.methods.create("oe"))
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(module._orig_mod.net.state_dict()[name], value, rtol=0, atol=1e-6)
    assert not isinstance(module._orig_mod.training_step, Override)
    torch._dynamo.reset()
    del other


# --- what is left behind ----------------------------------------------------------------------------------------------


class StopError(Exception):
    pass


@pytest.mark.parametrize("error", [StopError, KeyboardInterrupt])
def test_an_exception_leaves_the_module_as_it_was(error, monkeypatch):
    monkeypatch.setattr("signal.signal", lambda *arguments: None)  # Lightning would shut its ears to Ctrl-C

    class Breaks(Plain):
        def training_step(self, batch, batch_idx):
            if batch_idx == 2:
                raise error
            return super().training_step(batch, batch_idx)

    module = Breaks()
    with pytest.raises((StopError, SystemExit)):
        fit(module, OrdinalEntropyCallback("oe"))
    assert_untouched(module)


def test_a_step_that_the_user_had_replaced_is_put_back():
    module = Plain()
    own = module.training_step = lambda batch, batch_idx: F.mse_loss(module(batch[0]), batch[1])
    fit(module, OrdinalEntropyCallback("oe"))
    assert module.training_step is own


def test_the_same_callback_twice():
    callback, module = OrdinalEntropyCallback(fixed("oe")), Plain()
    fit(Plain(), callback)
    fit(module, callback)
    assert_same_weights(module, by_hand(fixed("oe")))


def test_a_copy_made_in_training_has_its_own_step():
    copies = []

    class Copies(lightning.Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            inner = pl_module.trainer
            pl_module.trainer = None
            copies.extend([copy.deepcopy(pl_module), pickle.loads(pickle.dumps(pl_module))])
            pl_module.trainer = inner

    module = Plain()
    trainer(OrdinalEntropyCallback("oe"), Copies()).fit(module, DataLoader(batches(), batch_size=None))
    x, y = batches()[0]
    for each in copies:
        assert each.training_step.__self__ is each
        torch.testing.assert_close(each.training_step((x, y), 0), F.mse_loss(each.net(x), y))


def test_checkpoints_know_nothing_of_it(tmp_path):
    for name, callback in (("plain", None), ("regularized", OrdinalEntropyCallback(fixed("oe")))):
        fit(Plain(), callback).save_checkpoint(tmp_path / name)
    plain, regularized = (torch.load(tmp_path / name, weights_only=False) for name in ("plain", "regularized"))
    assert plain.keys() == regularized.keys()
    assert plain["state_dict"].keys() == regularized["state_dict"].keys()
    assert regularized["callbacks"] == {}


def test_pickling():
    callback = pickle.loads(pickle.dumps(OrdinalEntropyCallback(oe.methods.create("oe", strength=0.5), layer="net.2")))
    module = Plain()
    fit(module, callback)
    assert_same_weights(module, by_hand(oe.methods.create("oe", strength=0.5), "2"))
    assert pickle.loads(pickle.dumps(callback)).log_every is None


def test_validation_is_not_touched():
    plain, regularized = Validated(), Validated()
    for module, callback in ((plain, None), (regularized, OrdinalEntropyCallback("baseline"))):
        found = fit(module, callback, validation=batches(5, 2), max_epochs=2)
        assert len(module.seen) == 2 + 4  # two batches to begin with, and two in each epoch
    assert plain.seen == regularized.seen
    assert not any("ordinal_entropy" in name and "val" in name for name in found.callback_metrics)


def test_validation_between_two_steps_leaves_nothing_for_the_next():
    module = Validated()
    fit(module, OrdinalEntropyCallback("oe"), validation=batches(5, 2), val_check_interval=1)
    assert_same_weights(module, by_hand(oe.methods.create("oe")))


# --- logs -------------------------------------------------------------------------------------------------------------


def test_logs_are_those_of_the_last_batch():
    module = Plain()
    logged = fit(module, OrdinalEntropyCallback(oe.methods.create("oe", strength=0.5))).callback_metrics
    features = (
        by_hand(oe.methods.create("oe", strength=0.5), data=batches()[:-1])[:4](batches()[-1][0]).detach().double()
    )
    expected = terms(features.numpy(), batches()[-1][1].double().numpy())
    assert float(logged["ordinal_entropy/diversity"]) == pytest.approx(expected[0], abs=1e-5)
    assert float(logged["ordinal_entropy/tightness"]) == pytest.approx(expected[1], abs=1e-5)
    assert float(logged["ordinal_entropy/loss"]) == pytest.approx(0.5 * (expected[1] - expected[0]), abs=1e-5)
    rows = features / features.norm(dim=1, keepdim=True)
    for name, z in (("entropy", features), ("entropy_normalized", rows)):
        logs = [math.log(float((a - b).norm())) for i, a in enumerate(z) for b in z[:i]]
        assert float(logged[f"ordinal_entropy/{name}"]) == pytest.approx(6 * sum(logs) / len(logs), abs=1e-3)


class Keeps(lightning.loggers.Logger):
    """A logger that keeps what it is given."""

    name, version, experiment = "kept", 0, None

    def __init__(self):
        super().__init__()
        self.kept = {}

    def log_metrics(self, metrics, step=None):
        self.kept.setdefault(step, {}).update(metrics)

    def log_hyperparams(self, *arguments, **named):
        pass


@pytest.mark.parametrize(
    ("every", "trainer_every", "accumulate", "expected"),
    [(None, 2, 1, [1, 3]), (None, 1, 2, [0, 1]), (4, 2, 1, [3]), (2, 2, 2, [1]), (0, 1, 1, []), (None, 0, 1, [])],
)
def test_steps_that_are_logged(every, trainer_every, accumulate, expected):
    logger = Keeps()
    callback = OrdinalEntropyCallback("oe", log_every=every, entropies=False)
    fit(Plain(), callback, logger=logger, log_every_n_steps=trainer_every, accumulate_grad_batches=accumulate)
    names = {"ordinal_entropy/loss", "ordinal_entropy/diversity", "ordinal_entropy/tightness"}
    assert [step for step, found in logger.kept.items() if names <= found.keys()] == expected
    assert not any("entropy/entropy" in name for found in logger.kept.values() for name in found)


def test_logging_does_not_disturb_draws():
    states = []
    for every in (0, 1):
        torch.manual_seed(3)
        module = Plain()
        method = oe.methods.create("oe", max_samples=6, generator=torch.Generator().manual_seed(5))
        fit(module, OrdinalEntropyCallback(method, log_every=every))
        torch.manual_seed(4)
        fit(module, OrdinalEntropyCallback(oe.methods.create("ld", num_pairs=5), log_every=every))
        states.append(module.net.state_dict())
    for name, value in states[0].items():
        assert torch.equal(value, states[1][name])


def test_a_method_without_terms_logs_its_loss():
    logged = fit(Plain(), OrdinalEntropyCallback("baseline")).callback_metrics
    assert set(logged) == {f"ordinal_entropy/{name}" for name in ("loss", "entropy", "entropy_normalized")}


def test_one_row_has_no_entropy():
    logged = fit(Plain(), OrdinalEntropyCallback(fixed("oe")), batches(1)).callback_metrics
    assert set(logged) == {f"ordinal_entropy/{name}" for name in ("loss", "diversity", "tightness")}


# --- maps -------------------------------------------------------------------------------------------------------------


def test_maps():
    class Dense(Plain):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 1, 1))

    x = torch.randn(2, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    y = x.round()
    module, method = Dense(), fixed("oe", stride=2, per="image")
    logged = fit(module, OrdinalEntropyCallback(method), [(x, y)]).callback_metrics
    net = Dense().net
    features = net[0](x)
    loss = F.mse_loss(net[1](features), y) + method(features, y)
    loss.backward()
    torch.testing.assert_close(module.net[0].weight, net[0].weight - RATE * net[0].weight.grad, rtol=0, atol=1e-6)
    assert torch.isfinite(logged["ordinal_entropy/entropy"])


# --- bad input --------------------------------------------------------------------------------------------------------


class Manual(Plain):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False


class Curve(Plain):
    """Without any linear layer."""

    def __init__(self):
        super().__init__()
        self.net = nn.Bilinear(3, 3, 1)

    def forward(self, x):
        return self.net(x, x)


class Recurrent(Plain):
    """A layer that returns a tuple, and one that returns a dictionary."""

    class Named(nn.Module):
        def forward(self, x):
            return {"rows": x}

    def __init__(self):
        super().__init__()
        self.rnn, self.named, self.head = nn.LSTM(3, 4), self.Named(), nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.named(self.rnn(x)[0])["rows"])


class Twice(Plain):
    def training_step(self, batch, batch_idx):
        x, y = batch
        return F.mse_loss(self(torch.cat([x, x])), torch.cat([y, y]))


class Unused(Plain):
    def __init__(self):
        super().__init__()
        self.unused = nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("module", "options", "error", "sentence"),
    [
        (Manual, {}, ValueError, "expected a LightningModule with automatic optimization, got Manual"),
        (Curve, {}, ValueError, "expected a linear layer or a 1x1 convolution in Curve, found none"),
        (Plain, {"layer": "net.9"}, ValueError, "expected the name of a layer of Plain, got 'net.9'; the nearest are"),
        (Recurrent, {"layer": "rnn", "output": True}, TypeError, "a tensor as the output of layer 'rnn', got tuple"),
        (Recurrent, {"layer": "named", "output": True}, TypeError, "of layer 'named', got dict with the keys 'rows'"),
        (Twice, {}, ValueError, r"size, but the input of layer 'net.4' is \(24, 6\) and the targets are \(12, 1\)"),
        (Unused, {"layer": "unused"}, RuntimeError, "no features from layer 'unused'"),
        (Plain, {"targets": "age"}, TypeError, r"a batch with targets at 'age', got list of \(Tensor, Tensor\)"),
        (Plain, {"targets": lambda batch: 3}, TypeError, "expected the targets as a tensor, got int"),
        (Plain, {"targets": lambda batch: batch[1][:, :, None]}, ValueError, r"'net.4' is \(12, 6\) and .*: expected"),
        (Plain, {"targets": lambda batch: batch[1] * math.nan}, ValueError, "layer 'net.4'.* expected finite targets"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence_and_leaves_the_module_as_it_was(module, options, error, sentence):
    module = module()
    with pytest.raises(error, match=sentence) as raised:
        fit(module, OrdinalEntropyCallback("oe", **options))
    assert "\n" not in str(raised.value)
    assert_untouched(module)


def test_a_batch_without_targets():
    class Own(Plain):
        def training_step(self, batch, batch_idx):
            return self(batch["x"]).mean()

    with pytest.raises(
        TypeError, match=r"the second item of the batch or under one of 'labels', .* keys 'x', 'age'; say"
    ):
        fit(Own(), OrdinalEntropyCallback("oe"), [{"x": x, "age": y} for x, y in batches()])


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"method": "oee"}, ValueError, "expected a method like 'oe'"),
        ({"method": 3}, TypeError, "expected a name, a method or an OrdinalEntropy, got int"),
        ({"targets": 1.5}, TypeError, "expected targets to be a key, a position or a function, got float"),
        ({"log_every": -1}, ValueError, "expected log_every to be a whole number of at least 0 or None, got -1"),
    ],
)
def test_bad_options(options, error, sentence):
    with pytest.raises(error, match=sentence):
        OrdinalEntropyCallback(**options)


# --- gradient-balanced strengths ------------------------------------------------------------------------------------


def balanced():
    return oe.methods.create("oe", memory=Memory(8, saved=True))


def test_a_resumed_run_goes_on_with_the_strengths_that_it_had(tmp_path):
    def strengths(callback):
        return [float(each) for each in callback._tapped.method.balances["oe"].strengths]

    whole = OrdinalEntropyCallback(balanced()), Plain()
    fit(whole[1], whole[0], data=batches() * 2)
    first = OrdinalEntropyCallback(balanced())
    fit(Plain(), first).save_checkpoint(tmp_path / "first.ckpt")
    seen = []

    class Watching(lightning.Callback):
        def on_train_start(self, trainer, pl_module):
            seen.append(strengths(second))

    second, module = OrdinalEntropyCallback(balanced()), Plain()
    made = trainer(second, Watching(), max_epochs=2)
    made.fit(module, DataLoader(batches(), batch_size=None), ckpt_path=tmp_path / "first.ckpt")
    assert seen == [strengths(first)] and seen[0][0] > 0
    assert strengths(second) == strengths(whole[0])
    assert_same_weights(module, whole[1].net)


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("options", [{"strength": 0.5}, {"balance": 0.3}])
def test_a_strength_that_falls_to_0(options, accumulate):
    def make():
        return oe.methods.create("oe", **options, anneal=1.0)

    module = Plain()
    fit(module, OrdinalEntropyCallback(make()), accumulate_grad_batches=accumulate)
    assert_same_weights(module, by_hand(make(), accumulate=accumulate))
    with pytest.raises(ValueError, match="expected a Trainer with max_epochs or max_steps beside 'oe', whose strength"):
        fit(Plain(), OrdinalEntropyCallback(make()), max_epochs=-1, max_time="00:00:00:01")


def test_callbacks_have_a_state_each(tmp_path):
    pair = [OrdinalEntropyCallback(balanced(), name=name) for name in ("first", "second")]
    made = trainer(*pair)
    made.fit(Plain(), DataLoader(batches(), batch_size=None))
    made.save_checkpoint(tmp_path / "both.ckpt")
    states = torch.load(tmp_path / "both.ckpt", weights_only=True)["callbacks"]
    assert len(states) == 2 and all(state["balances.oe.steps"] == STEPS for state in states.values())
    with pytest.raises(ValueError, match="expected a checkpoint of a run with the same method, whose state is nothing"):
        OrdinalEntropyCallback(fixed("oe")).load_state_dict(next(iter(states.values())))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_a_compiled_module_with_a_strength_that_sets_itself(backend):
    torch._dynamo.reset()
    callback = OrdinalEntropyCallback("oe")
    module = torch.compile(Plain(), backend=backend)
    fit(module, callback)
    method = oe.methods.create("oe")
    expected = by_hand(method)
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(module._orig_mod.net.state_dict()[name], value, rtol=0, atol=1e-6)
    torch.testing.assert_close(callback._tapped.method.state_dict(), method.state_dict())
    torch._dynamo.reset()


# --- terms of any kind ------------------------------------------------------------------------------------------------


class Pull(oe.methods.Method):
    """A term with a parameter of its own, which looks at the training targets and is told of every step."""

    kind = "term"

    def __init__(self):
        super().__init__()
        self.center = nn.Parameter(torch.full((), 0.5))
        self.register_buffer("scale", torch.zeros(1))
        self.told = {"observe": 0, "end_epoch": 0, "after_step": 0, "prepare": 0}

    def prepare(self, targets, inputs=None, width=0):
        self.scale = targets.abs().amax(0).to(self.scale) + width
        self.told["prepare"] += 1

    def term(self, step):
        return (step.features - self.center).square().mean() * self.scale.mean() / 10

    def observe(self, features, targets):
        assert not features.requires_grad
        self.told["observe"] += 1

    def end_epoch(self):
        self.told["end_epoch"] += 1

    def after_step(self, model):
        assert isinstance(model, nn.Module)
        self.told["after_step"] += 1

    def scalars(self):
        return {"center": self.center.detach().clone()}


class Adaptive(Plain):
    """With moments and a schedule."""

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=RATE)
        return [optimizer], [torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)]


def both_by_hand(method, epochs):
    """The network and the method's parameters in one optimizer with a schedule."""
    net = Plain().net
    optimizer = torch.optim.AdamW([*net.parameters(), *method.parameters()], lr=RATE)
    for epoch in range(epochs):
        optimizer.param_groups[0]["lr"] = RATE * 0.5**epoch
        for x, y in batches():
            features = net[:4](x)
            loss = F.mse_loss(net[4](features), y)
            loss = loss + method(features, y, task_loss=loss)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return net


def test_parameters_of_a_term_are_trained_and_resumed(tmp_path):
    expected = oe.methods.compose([Pull(), oe.methods.create("ld").parts["ld"]])
    expected.prepare(batches()[0][1], None, 6)
    net = both_by_hand(expected, 2)

    def callback():
        return OrdinalEntropyCallback([Pull(), oe.methods.create("ld").parts["ld"]])

    whole, module = callback(), Adaptive()
    logged = fit(module, whole, max_epochs=2).callback_metrics
    pull = whole._tapped.method.parts["pull"]
    assert pull.center != 0.5
    assert_same_weights(module, net)
    torch.testing.assert_close(whole._tapped.method.state_dict(), expected.state_dict())
    assert logged["ordinal_entropy/pull/center"] == pull.center and "ordinal_entropy/regularizer/diversity" in logged
    assert pull.told == {"observe": 2 * STEPS, "end_epoch": 2, "after_step": 2 * STEPS, "prepare": 1}

    fit(Adaptive(), callback()).save_checkpoint(tmp_path / "first.ckpt")
    second, module = callback(), Adaptive()
    made = trainer(second, max_epochs=2)
    made.fit(module, DataLoader(batches(), batch_size=None), ckpt_path=tmp_path / "first.ckpt")
    assert_same_weights(module, net)
    torch.testing.assert_close(second._tapped.method.state_dict(), expected.state_dict())
    assert second._tapped.method.parts["pull"].told["prepare"] == 0  # the checkpoint knows


def test_steps_are_those_of_the_optimizer():
    callback = OrdinalEntropyCallback(Pull())
    fit(Plain(), callback, accumulate_grad_batches=2)
    assert callback._tapped.method.parts["pull"].told["after_step"] == STEPS // 2


def test_targets_to_prepare_with():
    every = torch.arange(50.0)
    for given, scale in ((None, batches()[0][1].abs().max() + 6), (every, 55.0), (every[:, None], 55.0)):
        callback = OrdinalEntropyCallback(Pull(), training_targets=given)
        fit(Plain(), callback)
        assert callback._tapped.method.parts["pull"].scale == scale
    data = batches(steps=1)
    mask = data[0][1].abs() <= 2
    callback = OrdinalEntropyCallback(Pull(), targets=lambda batch: (batch[1], mask))
    fit(Plain(), callback, data)
    assert callback._tapped.method.parts["pull"].scale == 2 + 6
    with pytest.raises(TypeError, match="expected training_targets to be a tensor, got list"):
        OrdinalEntropyCallback(Pull(), training_targets=[1.0])


def test_a_term_with_parameters_in_double_precision():
    module, callback = Plain(), OrdinalEntropyCallback(Pull())
    fit(module, callback, [(x.double(), y.double()) for x, y in batches()], precision="64-true")
    assert callback._tapped.method.parts["pull"].center.dtype == torch.float64


@pytest.mark.filterwarnings("ignore:`LightningModule.configure_optimizers` returned `None`")
def test_parameters_need_an_optimizer():
    class Without(Plain):
        def configure_optimizers(self):
            return None

    with pytest.raises(ValueError, match=r"expected an optimizer that trains the parameters of 'pull' .*, got none"):
        fit(Without(), OrdinalEntropyCallback(Pull()))


@pytest.mark.slow
def test_ranks_have_the_same_parameters(tmp_path):
    class Half(Plain):
        def training_step(self, batch, batch_idx):
            return super().training_step([each[self.global_rank :: 2] for each in batch], batch_idx)

        def on_train_end(self):
            torch.save([self.net.state_dict(), callback.state_dict()], tmp_path / f"{self.global_rank}.pt")

    callback = OrdinalEntropyCallback(Pull(), targets=lambda batch: batch[1][torch.distributed.get_rank() :: 2])
    made = trainer(callback, strategy="ddp_fork", devices=2, use_distributed_sampler=False)
    made.fit(Half(), DataLoader(batches(), batch_size=None))
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    module, alone = Plain(), OrdinalEntropyCallback(Pull())  # means over rows: as one process on the joined batch
    fit(module, alone)
    torch.testing.assert_close(first, [module.net.state_dict(), alone.state_dict()], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("method", "part", "need"),
    [
        ("classification", "classification", "replace the head and the task loss"),
        ("huber+oe", "huber", "replace the task loss"),
        (("kind", "weights"), "changing", "weight the task loss row by row"),
        (("kind", "mixing"), "changing", "change the batch before the network sees it"),
        (("kind", "smoothing"), "changing", "change the features on their way to the head"),
        (("views", 2), "changing", "see several augmented views of each row"),
        (("stages", ("encoder", "head")), "changing", "train the encoder first and the head after it"),
    ],
)
def test_what_is_no_term_is_refused_in_one_sentence(method, part, need):
    if isinstance(method, tuple):
        method = type("Changing", (oe.methods.Method,), {"kind": "term", method[0]: method[1]})()
    sentence = (
        f"OrdinalEntropyCallback cannot train '{part}', which has to {need}: it computes the task loss by itself, so "
        "that methods can only add to it"
    )
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        OrdinalEntropyCallback(method)
