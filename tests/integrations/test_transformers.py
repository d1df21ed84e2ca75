"""The Trainer with a method against a loop written by hand, on a tiny BERT built from a configuration."""

import copy
import pickle
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ordinal_entropy as oe
from ordinal_entropy.integrations.override import Override
from ordinal_entropy.integrations.transformers import add_method
from ordinal_entropy.memory import Memory

from oracle import terms

from transformers import (  # isort: skip  # after torchvision's guard
    AutoModelForSequenceClassification,
    BertConfig,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

ROWS, SIZE, STEPS, RATE = 24, 8, 3, 0.1
TERMS = [
    "baseline", "ld-unweighted", "ld", "ld-cosine", "ld-no-norm", "ld-squared", "ld-sqrt", "lt", "oe", "ld+lt",
]  # fmt: skip


def fixed(name, **options):
    return oe.methods.create(name, strength=1.0, **options)


def tiny():
    """A model for regression, its weights always the same; no dropout, so that a loop can repeat it."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=8, num_labels=1, problem_type="regression", hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return AutoModelForSequenceClassification.from_config(config)


def rows():
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 20, (ROWS, 5), generator=generator)
    return [{"input_ids": each, "labels": (each.float().mean() / 4).round()} for each in tokens]


def batches(data=None):
    data = rows() if data is None else data
    parts = [data[i : i + SIZE] for i in range(0, len(data), SIZE)]
    return [{key: torch.stack([row[key] for row in part]) for key in part[0]} for part in parts]


class InOrder(Trainer):
    """The rows in their order."""

    def _get_train_sampler(self, *arguments):
        return torch.utils.data.SequentialSampler(self.train_dataset)


def made(tmp_path, model=None, kind=InOrder, data=None, options=(), **arguments):
    pytest.importorskip("accelerate", reason="a Trainer needs accelerate, which is not installed")
    settings = TrainingArguments(
        output_dir=str(tmp_path),
        **{
            "per_device_train_batch_size": SIZE, "num_train_epochs": 1, "logging_steps": 1, "use_cpu": True,
            "report_to": "none", "disable_tqdm": True, "save_strategy": "no", "optim": "sgd", "learning_rate": RATE,
            "lr_scheduler_type": "constant", "max_grad_norm": 0.0, "dataloader_pin_memory": False, **arguments,
        },
    )  # fmt: skip
    data = rows() if data is None else data
    if model is None and "model_init" not in dict(options):
        model = tiny()
    return kind(model, settings, train_dataset=data, eval_dataset=data, **dict(options))


class Bare:
    """As much of a Trainer as is used, for where accelerate is not installed."""

    compute_loss_func = None

    def __init__(self):
        self.args = SimpleNamespace(n_gpu=0, gradient_accumulation_steps=1)
        self.model, self.callbacks, self.logged = tiny(), [], []

    def add_callback(self, callback):
        self.callbacks.append(callback)

    def pop_callback(self, callback):
        self.callbacks.remove(callback)

    def train(self):
        for callback in self.callbacks:
            callback.on_train_begin(self.args, None, None, model=self.model)
        optimizer = torch.optim.SGD(self.model.train().parameters(), lr=RATE)
        for batch in batches():
            self.compute_loss(self.model, batch).backward()
            optimizer.step()
            optimizer.zero_grad()
            self.log({"loss": 1.0})
        for callback in self.callbacks:
            callback.on_train_end(self.args, None, None)

    def compute_loss(self, model, inputs):
        return model(**inputs).loss

    def log(self, logs):
        self.logged.append(logs)


def by_hand(method, layer=None, accumulate=1, task=1.0, term=1.0, data=None):
    """The same training in plain PyTorch; each accumulated batch counts ``task`` and ``term`` times."""
    model = tiny().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    found = []
    with oe.capture(model, layer) as tap:
        for number, batch in enumerate(batches() if data is None else data, start=1):
            prediction = model(batch["input_ids"]).logits[:, 0]
            method.at((number - 1) // accumulate, STEPS // accumulate)
            loss = F.mse_loss(prediction, batch["labels"])
            added = method(tap.features, batch["labels"], task_loss=loss)
            found.append((tap.features.detach().double(), batch["labels"].double()))
            (task * loss + term * added).backward()
            if number % accumulate == 0 or number * SIZE == ROWS:
                optimizer.step()
                optimizer.zero_grad()
    return model, found


def assert_same_weights(model, expected):
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=0, atol=1e-6)


def assert_untouched(trainer):
    assert not {"compute_loss", "log"} & vars(trainer).keys()
    for each in trainer.model.modules():
        assert not each._forward_hooks and not each._forward_pre_hooks


@pytest.mark.parametrize("name", TERMS)
def test_every_method_trains_as_by_hand(tmp_path, name):
    trainer = made(tmp_path)
    add_method(trainer, name)
    trainer.train()
    assert_same_weights(trainer.model, by_hand(oe.methods.create(name))[0])
    assert_untouched(trainer)


def test_around_the_loss_of_anything_like_a_trainer():
    trainer = Bare()
    with add_method(trainer, fixed("oe")):
        trainer.train()
    assert_same_weights(trainer.model, by_hand(fixed("oe"))[0])
    assert_untouched(trainer)
    assert "train" not in vars(trainer) and not trainer.callbacks
    names = ("loss", "diversity", "tightness", "entropy", "entropy_normalized")
    assert [set(logs) for logs in trainer.logged] == [{"loss", *(f"ordinal_entropy/{name}" for name in names)}] * STEPS


def test_the_term_has_an_effect():
    plain, regularized = by_hand(oe.methods.create("baseline"))[0], by_hand(fixed("oe"))[0]
    assert (plain.bert.pooler.dense.weight - regularized.bert.pooler.dense.weight).abs().max() > 1e-4


def test_a_layer_by_name_and_a_regularizer_as_a_module(tmp_path):
    trainer = made(tmp_path)
    add_method(trainer, oe.OrdinalEntropy(0.3, 0.2), layer="classifier")
    trainer.train()
    method = fixed("oe", diversity_weight=0.3, tightness_weight=0.2)
    assert_same_weights(trainer.model, by_hand(method)[0])


def test_targets_by_a_function(tmp_path):
    trainer = made(tmp_path)
    add_method(trainer, "oe", targets=lambda inputs: inputs["labels"][:, None] * 2)  # a scale that is divided out
    trainer.train()
    assert_same_weights(trainer.model, by_hand(oe.methods.create("oe"))[0])


def test_logs_are_those_of_the_last_batch(tmp_path):
    trainer = made(tmp_path)
    method = oe.methods.create("oe", strength=0.5)
    add_method(trainer, method)
    trainer.train()
    logs = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(logs) == STEPS
    for entry, (features, targets) in zip(logs, by_hand(method)[1], strict=True):
        expected = terms(features.numpy(), targets[:, None].numpy())
        assert entry["ordinal_entropy/diversity"] == pytest.approx(expected[0], abs=1e-5)
        assert entry["ordinal_entropy/tightness"] == pytest.approx(expected[1], abs=1e-5)
        assert entry["ordinal_entropy/loss"] == pytest.approx(0.5 * (expected[1] - expected[0]), abs=1e-5)
        distances = torch.pdist(features / features.norm(dim=1, keepdim=True))
        entropy = 16 * distances.log().mean()
        assert entry["ordinal_entropy/entropy_normalized"] == pytest.approx(float(entropy), abs=1e-3)
        assert "ordinal_entropy/entropy" in entry


def test_logs_of_epochs_without_entropies(tmp_path):
    trainer = made(tmp_path, logging_strategy="epoch", num_train_epochs=2)
    add_method(trainer, "ld", entropies=False, name="own")
    trainer.train()
    entries = [entry for entry in trainer.state.log_history if "own/loss" in entry]
    assert [entry["step"] for entry in entries] == [STEPS, 2 * STEPS]
    assert all("loss" in entry and "own/entropy" not in entry for entry in entries)


# --- accumulated batches ----------------------------------------------------------------------------------------------


def mean_of_all(outputs, labels, num_items_in_batch=None):
    return F.mse_loss(outputs.logits[:, 0], labels, reduction="sum") / num_items_in_batch


@pytest.mark.parametrize("accumulate", [1, 2, 3])
def test_a_loss_function_over_all_accumulated_batches(tmp_path, accumulate):
    data = rows()[:16] if accumulate == 2 else rows()
    trainer = made(
        tmp_path, gradient_accumulation_steps=accumulate, options={"compute_loss_func": mean_of_all}, data=data
    )
    add_method(trainer, "oe")
    trainer.train()
    method = oe.methods.create("oe")
    expected, _ = by_hand(method, None, accumulate, 1 / accumulate, 1 / accumulate, batches(data))
    assert_same_weights(trainer.model, expected)


def test_a_mean_is_accumulated_as_the_trainer_does(tmp_path):
    trainer = made(tmp_path, gradient_accumulation_steps=3)
    alone = made(tmp_path, gradient_accumulation_steps=3)
    alone.train()
    scale = min(
        (1.0, 1 / 3), key=lambda each: distance(alone.model, by_hand(oe.methods.create("baseline"), None, 3, each)[0])
    )
    add_method(trainer, "oe")
    trainer.train()
    assert_same_weights(trainer.model, by_hand(oe.methods.create("oe"), None, 3, scale, scale)[0])


def distance(model, other):
    return max(float((a - b).detach().abs().max()) for a, b in zip(model.parameters(), other.parameters(), strict=True))


@pytest.mark.skipif(not hasattr(Trainer, "loss_is_scaled_for_ga"), reason="unknown to this version of transformers")
@pytest.mark.parametrize(("scaled", "task", "term"), [(True, 1.0, 1 / 3), (False, 1 / 3, 1 / 3)])
def test_what_the_user_says_of_the_loss(tmp_path, scaled, task, term):
    trainer = made(tmp_path, gradient_accumulation_steps=3)
    trainer.loss_is_scaled_for_ga = scaled
    add_method(trainer, fixed("oe"))
    trainer.train()
    assert_same_weights(trainer.model, by_hand(fixed("oe"), None, 3, task, term)[0])


# --- a Trainer of the user's ------------------------------------------------------------------------------------------


class Own(InOrder):
    """A loss of its own, and outputs beside it."""

    def compute_loss(self, model, inputs, return_outputs=False, **others):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = F.mse_loss(outputs.logits[:, 0], labels)
        return (loss, outputs) if return_outputs else loss


def test_a_derived_trainer(tmp_path):
    trainer = made(tmp_path, kind=Own)
    add_method(trainer, "oe")
    trainer.train()
    assert_same_weights(trainer.model, by_hand(oe.methods.create("oe"))[0])


def test_a_model_that_is_made_anew(tmp_path):
    trainer = made(tmp_path, options={"model_init": tiny})
    add_method(trainer, fixed("oe"))
    for _ in range(2):
        trainer.train()
        assert_same_weights(trainer.model, by_hand(fixed("oe"))[0])
        assert_untouched(trainer)


def test_mixed_precision(tmp_path):
    seen = []

    class Watched(oe.OrdinalEntropy):
        def fixed(self, features, targets, mask=None, sample_weight=None):
            loss = super().fixed(features, targets, mask)
            seen.append((loss.dtype, torch.is_autocast_enabled("cpu")))
            return loss

    trainer = made(tmp_path, bf16=True)
    method = Watched()
    seen.clear()
    add_method(trainer, method)
    trainer.train()
    assert set(seen) == {(torch.float32, False)}


# --- what is left behind ----------------------------------------------------------------------------------------------


def test_evaluation_is_not_touched(tmp_path):
    trainer = made(tmp_path, eval_strategy="steps", eval_steps=1)
    add_method(trainer, "oe")
    trainer.train()
    assert_same_weights(trainer.model, by_hand(oe.methods.create("oe"))[0])
    model = trainer.model.eval()
    with torch.no_grad():
        plain = [float(model(**batch).loss) for batch in batches()]
    last = [entry for entry in trainer.state.log_history if "eval_loss" in entry][-1]
    assert last["eval_loss"] == pytest.approx(sum(plain) / len(plain), abs=1e-5)
    assert not any("ordinal_entropy" in key for key in last)


def test_an_exception_leaves_model_and_trainer_as_they_were(tmp_path):
    class Breaks(TrainerCallback):
        def on_step_end(self, args, state, control, **others):
            raise KeyboardInterrupt

    trainer = made(tmp_path)
    add_method(trainer, fixed("oe"))
    trainer.add_callback(Breaks())
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert_untouched(trainer)
    trainer.pop_callback(Breaks)
    trainer.model.load_state_dict(tiny().state_dict())
    trainer.train()
    assert_same_weights(trainer.model, by_hand(fixed("oe"))[0])


def test_it_can_be_taken_away(tmp_path):
    trainer = made(tmp_path)
    with add_method(trainer, "oe") as added:
        assert isinstance(trainer.train, Override)
    added.close()
    assert "train" not in vars(trainer)
    assert added not in trainer.callback_handler.callbacks
    trainer.train()
    assert_same_weights(trainer.model, by_hand(oe.methods.create("baseline"))[0])


def test_two_methods_taken_away_in_any_order(tmp_path):
    trainer = made(tmp_path)
    first, second = add_method(trainer, fixed("ld")), add_method(trainer, fixed("lt"), name="second")
    trainer.train()
    assert_same_weights(trainer.model, by_hand(fixed("oe"))[0])
    assert {"ordinal_entropy/loss", "second/loss"} <= trainer.state.log_history[0].keys()
    first.close()
    second.close()
    assert "train" not in vars(trainer)
    assert_untouched(trainer)


def test_saved_models_know_nothing_of_it(tmp_path):
    trainer = made(tmp_path, save_strategy="epoch")
    add_method(trainer, "oe")
    trainer.train()
    (folder,) = tmp_path.glob("checkpoint-*")
    loaded = AutoModelForSequenceClassification.from_pretrained(folder)
    assert loaded.state_dict().keys() == tiny().state_dict().keys()
    assert_same_weights(loaded, trainer.model)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_what_was_added_to_a_copy_works_there(copied):
    trainer = Bare()
    add_method(trainer, "oe")
    other = copied(trainer)
    other.train()
    expected = by_hand(oe.methods.create("oe"))[0]
    assert_same_weights(other.model, expected)
    assert_same_weights(trainer.model, tiny())
    assert_untouched(other)
    other.callbacks[0].close()
    assert not other.callbacks and trainer.callbacks


# --- bad input --------------------------------------------------------------------------------------------------------


class Curve(nn.Module):
    """Without any linear layer."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 1)

    def forward(self, input_ids, labels=None):
        return {"loss": self.table(input_ids).mean()}


@pytest.mark.parametrize(
    ("model", "options", "sentence"),
    [
        (Curve, {}, "expected a linear layer or a 1x1 convolution in Curve, found none"),
        (
            tiny,
            {"layer": "classifer"},
            "expected the name of a layer of .*, got 'classifer'; the nearest are 'classifier'",
        ),
    ],
)
def test_a_model_without_the_layer_is_found_at_once(tmp_path, model, options, sentence):
    trainer = made(tmp_path, model=model())
    with pytest.raises(ValueError, match=sentence):
        add_method(trainer, "oe", **options)
    assert "train" not in vars(trainer)
    assert_untouched(trainer)


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        (
            {"layer": "bert.encoder.layer.0.output.dense"},  # tokens
            ValueError,
            r"the input of layer 'bert.encoder.*' is \(8, 5, 16\) and the targets are \(8,\): expected targets",
        ),
        ({"layer": "bert", "output": True}, TypeError, "expected a tensor as the output of layer 'bert', got"),
        ({"targets": "age"}, TypeError, "targets at 'age', got dict with the keys 'input_ids', 'labels'"),
        (
            {"targets": lambda inputs: inputs["labels"][:5]},
            ValueError,
            r"one batch size, but the input of layer 'classifier' is \(8, 16\) and the targets are \(5,\)",
        ),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(tmp_path, options, error, sentence):
    trainer = made(tmp_path)
    add_method(trainer, "oe", **options)
    with pytest.raises(error, match=sentence) as raised:
        trainer.train()
    assert "\n" not in str(raised.value)
    assert_untouched(trainer)


def test_several_devices_in_one_process_are_refused(tmp_path):
    trainer = made(tmp_path)
    trainer.args._n_gpu = 2
    with pytest.raises(ValueError, match="expected one GPU a process, got 2"):
        add_method(trainer, "oe")


# --- gradient-balanced strengths ------------------------------------------------------------------------------------


def balanced():
    return oe.methods.create("oe", memory=Memory(8, saved=True))


@pytest.mark.parametrize("options", [{"strength": 1.0}, {"balance": 0.3}])
def test_a_strength_that_falls_to_0(tmp_path, options):
    trainer = made(tmp_path)
    add_method(trainer, oe.methods.create("oe", **options, anneal=1.0))
    trainer.train()
    found = by_hand(oe.methods.create("oe", **options, anneal=1.0))[0]
    assert_same_weights(trainer.model, found)
    assert distance(found, by_hand(oe.methods.create("oe", **options))[0]) > 1e-5


@pytest.mark.parametrize("resume", [True, "path"])
def test_a_resumed_run_goes_on_with_the_strengths_that_it_had(tmp_path, resume):
    def strengths(method):
        return [float(each) for each in method.balances["oe"].strengths]

    whole = made(tmp_path / "whole", num_train_epochs=2), balanced()
    add_method(*whole)
    whole[0].train()
    first = balanced()
    trainer = made(tmp_path / "run", save_strategy="epoch")
    add_method(trainer, first)
    trainer.train()
    (folder,) = (tmp_path / "run").glob("checkpoint-*")
    assert (folder / "ordinal_entropy.safetensors").is_file()
    seen, second = [], balanced()

    class Watching(TrainerCallback):
        def on_train_begin(self, *arguments, **options):
            seen.append(strengths(second))

    trainer = made(tmp_path / "run", num_train_epochs=2, options={"callbacks": [Watching()]})
    add_method(trainer, second)
    trainer.train(resume_from_checkpoint=resume if resume is True else str(folder))
    assert seen == [strengths(first)] and seen[0][0] > 0
    assert strengths(second) == strengths(whole[1])
    assert_same_weights(trainer.model, whole[0].model)


def test_a_checkpoint_of_a_method_without_state_has_no_further_file(tmp_path):
    trainer = made(tmp_path, save_strategy="epoch")
    add_method(trainer, fixed("oe"))
    trainer.train()
    (folder,) = tmp_path.glob("checkpoint-*")
    assert not (folder / "ordinal_entropy.safetensors").exists()


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


def test_parameters_of_a_term_are_trained_and_resumed(tmp_path):
    options = {"optim": "adamw_torch", "lr_scheduler_type": "linear", "max_steps": 2 * STEPS, "learning_rate": 0.01}
    pull = Pull()
    whole = made(tmp_path / "whole", **options)
    add_method(whole, pull)
    whole.train()
    assert (
        pull.center != 0.5 and (pull.center - 0.5).abs() < 2 * STEPS * 0.01
    )  # by Adam, from gradients that are cleared
    assert pull.told == {"observe": 2 * STEPS, "end_epoch": 2, "after_step": 2 * STEPS, "prepare": 1}
    assert any("ordinal_entropy/center" in entry for entry in whole.state.log_history)
    first = made(tmp_path / "run", save_strategy="steps", save_steps=STEPS, **options)
    add_method(first, Pull())
    first.train()
    (folder,) = (tmp_path / "run").glob(f"checkpoint-{STEPS}")
    second = Pull()
    resumed = made(tmp_path / "run", **options)
    add_method(resumed, second)
    resumed.train(resume_from_checkpoint=str(folder))
    torch.testing.assert_close(second.state_dict(), pull.state_dict())
    assert_same_weights(resumed.model, whole.model)
    assert second.told["prepare"] == 0 and "create_optimizer" not in vars(resumed)


def test_a_parameter_moves_as_by_hand(tmp_path):
    pull, expected = Pull(), oe.methods.compose(Pull())
    trainer = made(tmp_path)
    add_method(trainer, pull, training_targets=torch.tensor([3.0, 4.0]))
    trainer.train()
    expected.prepare(torch.tensor([[3.0], [4.0]]), None, 16)
    model = tiny().train()
    optimizer = torch.optim.SGD([*model.parameters(), *expected.parameters()], lr=RATE)
    with oe.capture(model) as tap:
        for batch in batches():
            loss = F.mse_loss(model(batch["input_ids"]).logits[:, 0], batch["labels"])
            (loss + expected(tap.features, batch["labels"])).backward()
            optimizer.step()
            optimizer.zero_grad()
    torch.testing.assert_close(pull.state_dict(), expected.parts["pull"].state_dict())
    assert_same_weights(trainer.model, model)


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
        f"the Trainer cannot train '{part}', which has to {need}: it computes the task loss by itself, so that methods "
        "can only add to it"
    )
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        add_method(Bare(), method)
