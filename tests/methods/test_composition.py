"""Parts joined by +, and the loss of a training step: against pieces written out by hand, and against mutations."""

import copy
import inspect
import math
import pickle
import re
import types

import pytest
import torch
from torch import nn

from ordinal_entropy import functional as oe
from ordinal_entropy import methods
from ordinal_entropy.balance import Balance
from ordinal_entropy.methods import Batch, Method, composition
from ordinal_entropy.methods.c_mixup import CMixup
from ordinal_entropy.methods.fds import FDS
from ordinal_entropy.methods.functional import density_weights
from ordinal_entropy.methods.hl_gauss import HLGauss
from ordinal_entropy.methods.huber import Huber
from ordinal_entropy.methods.lds import LDS
from ordinal_entropy.methods.rank_n_contrast import RankNContrast

N, D = 24, 5
INPUTS = torch.randn(N, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
TARGETS = torch.randint(8, (N, 1), generator=torch.Generator().manual_seed(1)).double()
EVERY = "hl-gauss+lds+c-mixup+fds+oe"


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def network(outputs=1):
    torch.manual_seed(0)
    return nn.Linear(4, D).double(), nn.Linear(D, outputs).double()


def task(outputs, targets, mask, weight):
    targets = targets if mask is None else torch.where(mask, targets, 0)
    return methods.weighted_mean((outputs - targets).square(), mask, weight)


def prepared(method):
    method.prepare(TARGETS, INPUTS, D)
    return method


def smoothing():
    """Of an epoch that was seen, so that it acts."""
    method = FDS(bins=4)
    method.prepare(TARGETS, None, D)
    encoder, _ = network()
    method.observe(encoder(INPUTS).detach(), TARGETS)
    method.end_epoch()
    return method


class Noted(Method):
    """A part of every kind that writes down what it was given, and doubles or adds so that it shows."""

    def __init__(self, kind, said):
        super().__init__()
        self.kind, self.said = kind, said

    def change(self, batch, generator=None):
        self.said.append((self.kind, batch))
        if self.kind == "mixing":
            return batch._replace(inputs=batch.inputs.flip(0) + batch.inputs, targets=batch.targets.flip(0) / 2)
        return batch._replace(weight=1 + batch.targets.square())

    def calibrate(self, features, batch):
        self.said.append(("calibrate", features))
        return features * 3 + 1

    def observe(self, features, targets):
        self.said.append((f"{self.kind} observes", (features, targets)))


class Pull(Method):
    """A term that says what features it was given."""

    kind = "term"

    def __init__(self, power=1):
        super().__init__()
        self.power, self.seen = power, []

    def term(self, step):
        self.seen.append(step)
        return step.features.abs().pow(self.power).mean()


class Doubled(Method):
    """A head of two numbers, whose difference is predicted."""

    kind = "head"

    def outputs(self, t):
        return 2 * t

    def decode(self, outputs):
        return outputs[:, :1] - outputs[:, 1:]

    def task_loss(self, step):
        own = step.batch
        return 2 * step.task(self.decode(step.outputs), own.targets, own.mask, own.weight)


# What must be true of the module, as functions of it, so that mutations of its source can be held against them.


def check_the_order_of_all_hooks(module):
    said = []
    parts = {kind: Noted(kind, said) for kind in ("weights", "mixing", "smoothing")}
    term = Pull()
    method = module.Composition({**parts, "pull": term})
    encoder, head = network()
    seen_by_head = []

    def noted_head(features):
        seen_by_head.append(features)
        return head(features)

    step = module.forward_step(method, encoder, noted_head, Batch(INPUTS, TARGETS), task)
    mixed = INPUTS.flip(0) + INPUTS
    assert [each for each, _ in said] == [
        "mixing", "weights", "calibrate", "weights observes", "mixing observes", "smoothing observes",
    ]  # fmt: skip
    assert torch.equal(said[0][1].targets, TARGETS)
    assert torch.equal(said[1][1].targets, TARGETS.flip(0) / 2)
    assert torch.equal(step.batch.weight, 1 + (TARGETS.flip(0) / 2).square())  # at the mixed target
    assert torch.equal(step.batch.inputs, mixed)
    assert torch.equal(step.features, encoder(mixed)) and step.features.requires_grad
    assert torch.equal(said[2][1], step.features)
    assert torch.equal(seen_by_head[0], step.features * 3 + 1)
    for _, (features, targets) in said[3:]:
        assert torch.equal(features, step.features) and not features.requires_grad
        assert torch.equal(targets, step.batch.targets)
    method.loss(step)
    assert term.seen == [step]


def check_a_joint_loss_by_hand(module):
    """Weighted task loss plus strengths times terms, value and gradients."""
    parts = {"lds": LDS(), "fds": smoothing(), "pull": Pull(), "rnc": RankNContrast()}
    method = module.Composition(parts, {"pull": 0.3, "rnc": 2.0})
    method.parts["lds"].prepare(TARGETS)
    encoder, head = network()
    mask = TARGETS != 3
    loss = module.training_loss(method, encoder, head, Batch(INPUTS, TARGETS, mask), task)
    found = torch.autograd.grad(loss, [*encoder.parameters(), *head.parameters()])

    features = encoder(INPUTS)
    outputs = head(smoothing().calibrate(features, Batch(None, TARGETS)))
    weight = density_weights(TARGETS[:, 0])[:, None]
    by_hand = (weight * (outputs - TARGETS).square())[mask].sum() / mask.sum()
    by_hand = by_hand + 0.3 * features.abs().mean()
    by_hand = by_hand + 2.0 * methods.functional.rank_n_contrast(features[mask[:, 0]], TARGETS[mask[:, 0]])
    expected = torch.autograd.grad(by_hand, [*encoder.parameters(), *head.parameters()])
    assert loss.item() == pytest.approx(by_hand.item(), rel=1e-10)
    for own, other in zip(found, expected, strict=True):
        assert torch.allclose(own, other, rtol=1e-9, atol=1e-12)


def check_a_head_by_hand(module):
    """Its loss once, its way back, and a weight that it passes on."""
    method = module.Composition({"pull": Pull(2), "doubled": Doubled(), "lds": LDS()}, {"pull": 0.5})
    method.parts["lds"].prepare(TARGETS)
    encoder, head = network(method.outputs(1))
    loss = module.training_loss(method, encoder, head, Batch(INPUTS, TARGETS), task)
    features = encoder(INPUTS)
    outputs = head(features)
    weight = density_weights(TARGETS[:, 0])[:, None]
    by_hand = 2 * (weight * (outputs[:, :1] - outputs[:, 1:] - TARGETS).square()).mean()
    assert loss.item() == pytest.approx((by_hand + 0.5 * features.square().mean()).item(), rel=1e-12)
    assert method.outputs(3) == 6 and torch.equal(method.decode(outputs), outputs[:, :1] - outputs[:, 1:])
    assert method.replaces_task_loss


def check_the_balance(module):
    """Strengths against the weighted task loss, both by the features before they are calibrated."""
    balance = Balance(0.2, warm_up=1, terms=1)
    parts = {"lds": LDS(), "fds": smoothing(), "pull": Pull(2)}
    method = module.Composition(parts, balances={"pull": balance})
    method.parts["lds"].prepare(TARGETS)
    encoder, head = network()
    loss = module.training_loss(method, encoder, head, Batch(INPUTS, TARGETS), task)
    features = encoder(INPUTS)
    outputs = head(smoothing().calibrate(features, Batch(None, TARGETS)))
    own = (density_weights(TARGETS[:, 0])[:, None] * (outputs - TARGETS).square()).mean()
    term = features.square().mean()
    (by_task,) = torch.autograd.grad(own, features, retain_graph=True)
    (by_term,) = torch.autograd.grad(term, features)
    strength = 0.2 * by_task.norm() / by_term.norm()
    assert float(balance.strengths) == pytest.approx(strength.item(), rel=1e-5)  # float32 buffers
    assert loss.item() == pytest.approx((own + strength * term).item(), rel=1e-5)


def check_stages(module):
    method = module.Composition({"rnc": RankNContrast(stages=2), "huber": Huber()}, {"rnc": 0.7})
    method.parts["huber"].prepare(TARGETS)
    encoder, head = network()
    batch = Batch(INPUTS, TARGETS)

    def never(features):
        raise AssertionError("the head ran in the first stage")

    first = module.training_loss(method, encoder, never, batch, task, stage="encoder")
    expected = 0.7 * methods.functional.rank_n_contrast(encoder(INPUTS), TARGETS)
    assert first.item() == pytest.approx(expected.item(), rel=1e-12)
    assert torch.autograd.grad(first, encoder.weight)[0].abs().max() > 0
    second = module.training_loss(method, encoder, head, batch, task, stage="head")
    turn = 0.25 * TARGETS.std(correction=0)
    off = (head(encoder(INPUTS)) - TARGETS).abs()
    by_hand = torch.where(off < turn, off.square() / 2 / turn, off - turn / 2).mean()
    assert second.item() == pytest.approx(by_hand.item(), rel=1e-12)  # and no term
    second.backward()
    assert encoder.weight.grad is None and head.weight.grad.abs().max() > 0


CHECKS = [
    check_the_order_of_all_hooks,
    check_a_joint_loss_by_hand,
    check_a_head_by_hand,
    check_the_balance,
    check_stages,
]

MUTATIONS = {
    "a term is dropped": ("for one in found[1:]:", "for one in found[2:]:"),
    "the strength is ignored": ("self.strengths[name] * self._checked(", "1.0 * self._checked("),
    "the weight is ignored": (
        "return Step(batch, features, outputs, task)",
        "return Step(batch._replace(weight=None), features, outputs, task)",
    ),
    "the mask is ignored": (
        "return Step(batch, features, outputs, task)",
        "return Step(batch._replace(mask=None), features, outputs, task)",
    ),
    "terms see features after they are calibrated": (
        "return Step(batch, features, outputs, task)",
        "return Step(batch, method.calibrate(features, batch), outputs, task)",
    ),
    "the head sees features before they are calibrated": (
        "head(method.calibrate(features, batch))",
        "head((method.calibrate(features, batch), features)[1])",
    ),
    "the balance has other features": (
        "            step.features,\n            task_loss,\n",
        "            2 * step.features,\n            task_loss,\n",
    ),
    "the balance has the loss without its weight": (
        "else task_loss + self.added(step, task_loss)",
        "else task_loss + self.added(step, self.task_loss(step._replace(batch=step.batch._replace(weight=None))))",
    ),
    "mixing comes after the weights": (
        "for name in (self._mixing, self._weighting):",
        "for name in (self._weighting, self._mixing):",
    ),
    "there is no mixing": ("for name in (self._mixing, self._weighting):", "for name in (self._weighting,):"),
    "the head's stage has a gradient of the encoder": ('and stage != "head"', "and True"),
    "the head's stage has the terms": (
        'return task_loss if stage == "head" or not self._terms else',
        "return task_loss if not self._terms else",
    ),
    "the encoder's stage has the task loss": (
        'if stage == "encoder":\n            return',
        "if False:\n            return",
    ),
    "the head runs in the encoder's stage": ('None if stage == "encoder" else head(', "head("),
    "parts are not told of the step": ("    method.observe(features.detach(), batch.targets)\n", ""),
    "parts are told of targets before mixing": (
        "    batch = method.change(batch, generator)\n",
        "    given, batch = batch, method.change(batch, generator)\n"
        "    method.observe = lambda z, _, tell=method.observe: tell(z, given.targets)\n",
    ),
    "another part decodes": (
        "found = self._part(self._predicting).decode(outputs)",
        "found = self._each()[0][1].decode(outputs)",
    ),
    "another part has the head": (
        "return t if self._predicting is None else self._part(self._predicting).outputs(t)",
        "return t if self._predicting is None else self._each()[0][1].outputs(t)",
    ),
    "the task's own loss in place of the head's": (
        "return self._checked(self._predicting, self._part(self._predicting).task_loss(step), step)",
        "return super().task_loss(step)",
    ),
    "the task loss counts twice": (
        "else task_loss + self.added(step, task_loss)",
        "else 2 * task_loss + self.added(step, task_loss)",
    ),
}


def mutated(old, new):
    """The module with one edit of its source."""
    source = inspect.getsource(composition)
    assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in composition.py"
    module = types.ModuleType("mutated_composition")
    exec(compile(source.replace(old, new), "mutated composition.py", "exec"), module.__dict__)
    return module


def failing(module):
    found = []
    for check in CHECKS:
        try:
            check(module)
        except Exception:
            found.append(check.__name__)
    return found


@pytest.mark.parametrize("check", CHECKS)
def test_the_module_holds(check):
    check(composition)


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_mutations_are_caught(mutation):
    assert failing(mutated(*MUTATIONS[mutation]))


def test_a_copy_without_a_mutation_passes():
    assert failing(mutated("import math\n", "import math\n")) == []


# Real methods, joined.


def every(strength=0.5):
    method = methods.create(
        EVERY, {"hl-gauss": {"bins": 20, "sigma": 1.0}, "oe": {"strength": strength}, "fds": {"bins": 4}}
    )
    return prepared(method)


def test_all_kinds_join_and_the_loss_is_their_pieces():
    method, (encoder, head) = every(), network(20)
    assert (method.outputs(1), method.mixes, method.smooths, method.has_terms) == (20, True, True, True)
    assert method.name == EVERY and set(method.requirements()) == {"head", "weights", "mixing", "smoothing", "term"}
    method.observe(encoder(INPUTS).detach(), TARGETS)
    method.end_epoch()
    pieces = {name: copy.deepcopy(part) for name, part in method.parts.items()}
    loss = methods.training_loss(method, encoder, head, Batch(INPUTS, TARGETS), task, seeded())

    mixed = pieces["c-mixup"].change(Batch(INPUTS, TARGETS), seeded())
    features = encoder(mixed.inputs)
    logits = head(pieces["fds"].calibrate(features, mixed)).log_softmax(-1)
    width = 7 / 14
    edges = -3 * width + width * torch.arange(21).double()
    likely = methods.functional.hl_gauss(mixed.targets[:, 0], edges, width)
    weight = density_weights(TARGETS[:, 0], mixed.targets[:, 0])
    by_hand = -(weight * (likely * logits).sum(-1)).mean()
    by_hand = by_hand + 0.5 * oe.ordinal_entropy(features, mixed.targets, grouping=1.0)
    assert loss.item() == pytest.approx(by_hand.item(), rel=1e-10)
    loss.backward()
    assert encoder.weight.grad.abs().max() > 0 and head.weight.grad.abs().max() > 0
    assert method.decode(head(encoder(INPUTS))).shape == (N, 1)


def test_the_order_of_the_names_does_not_matter():
    losses = []
    for name in (EVERY, "+".join(reversed(EVERY.split("+")))):
        method = prepared(methods.create(name, {"hl-gauss": {"bins": 20}, "fds": {"bins": 4}}))
        encoder, head = network(20)
        losses.append(methods.training_loss(method, encoder, head, Batch(INPUTS, TARGETS), task, seeded()).item())
    assert losses[0] == losses[1]


def test_mixing_makes_oe_group_by_bins_and_says_so():
    method = every()
    assert method.notes == ("oe: mixed targets are unique, so rows of one bin of width 1 share a center",)
    assert prepared(methods.create("hl-gauss+lds+oe")).notes == ()
    assert prepared(methods.create("c-mixup+rnc")).notes == ()


def test_a_batch_is_weighted_at_the_mixed_targets():
    method = prepared(methods.create("lds+c-mixup"))
    found = method.change(Batch(INPUTS, TARGETS), seeded())
    alone = prepared(CMixup()).change(Batch(INPUTS, TARGETS), seeded())
    assert torch.equal(found.targets, alone.targets)
    assert torch.allclose(found.weight[:, 0], density_weights(TARGETS[:, 0], alone.targets[:, 0]))


def test_a_resumed_run_ends_alike():
    def go_on(method, encoder, head, steps):
        optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], 0.05)
        for step in steps:
            rows = torch.arange(N).roll(step)[:12]
            batch = Batch(INPUTS[rows], TARGETS[rows])
            optimizer.zero_grad()
            methods.training_loss(method, encoder, head, batch, task, seeded(step)).backward()
            optimizer.step()
            if step % 3 == 2:
                method.end_epoch()

    def make():
        return prepared(methods.create("lds+c-mixup+fds+oe", {"fds": {"bins": 4}}))

    whole, nets = make(), network()
    go_on(whole, *nets, range(9))
    stopped, others = make(), network()
    go_on(stopped, *others, range(4))
    saved = pickle.loads(pickle.dumps([each.state_dict() for each in (stopped, *others)]))
    resumed = (make(), *network())
    for module, state in zip(resumed, saved, strict=True):
        module.load_state_dict(state)
    go_on(*resumed, range(4, 9))
    for one, other in zip((whole, *nets), resumed, strict=True):
        for name, value in one.state_dict().items():
            assert torch.equal(value, other.state_dict()[name]), name


def test_a_composition_can_be_copied_and_pickled():
    method, (encoder, head) = every(), network(20)
    losses = {
        methods.training_loss(each, encoder, head, Batch(INPUTS, TARGETS), task, seeded()).item()
        for each in (copy.deepcopy(method), pickle.loads(pickle.dumps(method)), method)
    }
    assert len(losses) == 1


@pytest.mark.parametrize(("rows", "mask"), [(0, None), (1, None), (2, None), (4, False)])
@pytest.mark.parametrize("name", [EVERY, "huber+lds+c-mixup+fds+rnc", "oe+lds"])
def test_degenerate_batches(name, rows, mask):
    method = prepared(methods.create(name, {part: {"bins": 20} for part in name.split("+") if part == "hl-gauss"}))
    encoder, head = network(method.outputs(1))
    targets = TARGETS[:rows] if mask is None else torch.full((rows, 1), math.nan).double()
    mask = None if mask is None else torch.zeros(rows, 1, dtype=torch.bool)
    loss = methods.training_loss(method, encoder, head, Batch(INPUTS[:rows], targets, mask), task, seeded())
    loss.backward()
    assert loss.isfinite() and (loss == 0) == (rows == 0 or mask is not None)
    assert all(each.grad.isfinite().all() for each in [*encoder.parameters(), *head.parameters()])


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 5e-2)])
@pytest.mark.parametrize("name", ["hl-gauss+lds+fds+oe", "huber+lds+rnc"])
def test_lower_precisions(name, dtype, tolerance):
    values = []
    for each in (torch.float64, dtype):
        method = prepared(methods.create(name))
        encoder, head = (part.to(each) for part in network(method.outputs(1)))
        batch = Batch(INPUTS.to(each), TARGETS.to(each))
        values.append(methods.training_loss(method, encoder, head, batch, task).double().item())
    assert values[1] == pytest.approx(values[0], rel=tolerance)


# What cannot be joined, and what methods may do wrong.


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hl-gauss+classification", "at most one head or prediction loss, got 'hl-gauss' and 'classification': each"),
        ("hl-gauss+huber", "'hl-gauss' and 'huber': each would replace the task loss"),
        ("oe+lds+oe", "each part once, got 'oe' twice in 'oe+lds+oe'"),
        ("oe+hl-gaus", "expected a method like 'hl-gauss', got 'hl-gaus'; there are baseline"),
        ("oe+", "the name of a method, got ''"),
    ],
)
def test_what_cannot_be_joined_is_refused_with_the_reason(name, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        methods.create(name)


def test_strengths_are_numbers_of_terms():
    parts = {"pull": Pull(), "lds": LDS()}
    for strength in (math.nan, math.inf, -1.0):
        with pytest.raises(ValueError, match=f"strength of 'pull' to be a number from 0 on, got {strength}"):
            methods.Composition(parts, {"pull": strength})
        with pytest.raises(ValueError, match="strength of 'oe' to be a number from 0 on"):
            methods.create("oe", strength=strength)
    with pytest.raises(TypeError, match="strength of 'oe' to be a number, got a str"):
        methods.create("oe", strength="5")
    with pytest.raises(ValueError, match=r"expected strengths of terms \(pull\), got 'lds'"):
        methods.Composition(parts, {"lds": 1.0})
    with pytest.raises(ValueError, match=r"expected strengths of terms \(pull\), got 'pul'"):
        methods.Composition(parts, balances={"pul": Balance(0.1)})
    with pytest.raises(ValueError, match=r"expected a Balance\(..., terms=1\) for 'rnc', got one of terms=2"):
        methods.create("rnc", balance=Balance(0.1))


def test_there_is_a_part_and_its_stages_are_known():
    with pytest.raises(ValueError, match="expected at least one part, got none"):
        methods.compose([])
    own = type("Own", (Method,), {"kind": "term", "stages": ("head", "encoder")})
    with pytest.raises(
        ValueError, match=r"stages of 'own' to be one of .*'encoder', 'head'.*, got \('head', 'encoder'"
    ):
        methods.compose(own())


def test_two_of_a_kind_are_refused():
    for first, second, message in [
        (LDS(), LDS(), "at most one weighting, got 'lds' and 'lds1': each would weight the task loss row by row"),
        (CMixup(), CMixup(), "at most one mixing, got 'cmixup' and 'cmixup1'"),
        (FDS(), FDS(), "at most one smoothing, got 'fds' and 'fds1'"),
        (HLGauss(), Huber(), "got 'hlgauss' and 'huber'"),
    ]:
        with pytest.raises(ValueError, match=message):
            methods.compose([first, second])
    staged = RankNContrast(stages=2)
    with pytest.raises(ValueError, match="at most one method of two stages, got 'rankncontrast' and 'rankncontrast1'"):
        methods.compose([staged, RankNContrast(stages=2)])
    with pytest.raises(
        ValueError, match=r"fixed strengths beside 'rnc', whose first stage has no task loss.*balance for 'ld'"
    ):
        methods.create("rnc+ld", {"rnc": {"stages": 2}, "ld": {"balance": 0.1}})
    assert methods.create("rnc+ld", {"rnc": {"stages": 2}}).stages == ("encoder", "head")
    strange = Pull()
    strange.kind = "wheel"
    with pytest.raises(ValueError, match=r"kind of 'pull' to be one of head, loss.*got 'wheel'"):
        methods.compose(strange)


@pytest.mark.parametrize(
    ("hook", "kind", "kinds"),
    [
        ("change", "term", "weights or mixing"),
        ("calibrate", "mixing", "smoothing"),
        ("task_loss", "weights", "head or loss"),
        ("decode", "term", "head or loss"),
    ],
)
def test_a_hook_that_nobody_would_ask_for_is_refused(hook, kind, kinds):
    part = type("Own", (Method,), {"kind": kind, hook: lambda self, *given: given[0]})()
    with pytest.raises(ValueError, match=f"{hook} in parts of the kind {kinds} alone.*in 'own', of the kind '{kind}'"):
        methods.compose(part)


def test_a_loop_that_does_not_show_the_model_after_a_step_refuses_who_wants_to_see_it():
    part = type("Own", (Method,), {"kind": "term", "after_step": lambda self, model: None})()
    with pytest.raises(ValueError, match="a loop cannot train 'own', which has to see the model after each step: none"):
        methods.require(methods.compose(part), {"term"}, "a loop", "none")
    methods.require(methods.compose(part), {"term", "after_step"}, "a loop", "none")


def test_bins_that_mixing_brings_are_those_of_the_rows_prepared_with_last():
    method = methods.create("c-mixup+oe")
    for unit in (1.0, 10.0):
        method.prepare(unit * torch.tensor([[0.0], [0.0], [1.0], [2.0]]))
        assert method.parts["oe"].regularizer.options.grouping == unit and len(method.notes) == 1
    method.prepare(torch.tensor([[0.0], [1.0], [2.5]]))  # no target repeats
    assert method.parts["oe"].regularizer.options.grouping == "unique" and not method.notes


def test_options_of_parts():
    with pytest.raises(ValueError, match="expected a part like 'lds', got 'ldss'; there are oe, lds"):
        methods.create("oe+lds", {"ldss": {}})
    with pytest.raises(ValueError, match="options of 'lds': one of bandwidth, power, clip; got strength"):
        methods.create("oe+lds", {"lds": {"strength": 1.0}})
    with pytest.raises(ValueError, match=r"options by part, as .*'oe'.*got power of 'oe.lds'"):
        methods.create("oe+lds", power=1.0)
    with pytest.raises(ValueError, match="a strength or a balance of 'rnc', got both"):
        methods.create("rnc", strength=1.0, balance=0.1)
    assert methods.create("oe+rnc", {"rnc": {"strength": 3}}).strengths["rnc"] == 3.0
    for name in ("hl-gauss", "lds", "c-mixup", "fds", "huber", "rnc"):
        assert prepared(methods.create(name)).name == name and methods.describe(name)


class Broken(Method):
    """A part that gives what it is told to."""

    def __init__(self, kind, give):
        super().__init__()
        self.kind, self.give = kind, give

    def term(self, step):
        return self.give(step)

    def task_loss(self, step):
        return self.give(step)


class BrokenLoss(Broken):
    """The same without a term."""

    term = Method.term


@pytest.mark.parametrize("kind", ["term", "loss"])
@pytest.mark.parametrize(
    ("give", "message"),
    [
        (lambda step: step.features.sum() * math.nan, "expected a finite number {}, got nan of finite features"),
        (lambda step: step.features.sum() / 0, "expected a finite number {}, got -?inf of finite features"),
        (lambda step: step.features.sum(1), r"expected a scalar {}, got the shape \(24,\)"),
        (lambda step: 1.0, "expected a scalar {}, got a float"),
        (lambda step: step.features.detach().sum(), "expected a value with a gradient {}, got one without"),
    ],
)
def test_errors_name_the_part_and_the_step(kind, give, message):
    broken = (Broken if kind == "term" else BrokenLoss)(kind, lambda step: step.features.sum())
    method = methods.Composition({"lds": prepared(LDS()), "broken": broken})
    encoder, head = network()
    batch = Batch(INPUTS, TARGETS)
    for _ in range(2):
        methods.training_loss(method, encoder, head, batch, task)
    broken.give = give
    with pytest.raises(ValueError, match=message.format("from the method 'broken' in step 3")):
        methods.training_loss(method, encoder, head, batch, task)


def test_a_loss_without_a_gradient_is_named_in_the_stage_of_the_head_too():
    broken = BrokenLoss("loss", lambda step: step.outputs.detach().sum())
    method = methods.Composition({"broken": broken, "rnc": RankNContrast(stages=2)})
    encoder, head = network()
    with pytest.raises(ValueError, match="a value with a gradient from the method 'broken' in step 1"):
        methods.training_loss(method, encoder, head, Batch(INPUTS, TARGETS), task, stage="head")


class Given(Method):
    """A part whose hooks give what they are told to, and before that the right thing."""

    def __init__(self, kind, give):
        super().__init__()
        self.kind, self.give = kind, lambda value: value
        self.later = give

    def change(self, batch, generator=None):
        return self.give(batch)

    def calibrate(self, features, batch):
        return self.give(features)

    def decode(self, outputs):
        return self.give(outputs)


HOOKS = {"weights": "change", "mixing": "change", "smoothing": "calibrate", "head": "decode"}


@pytest.mark.parametrize(
    ("kind", "give", "message"),
    [
        ("mixing", lambda batch: None, "expected a Batch {}, got a NoneType"),
        (
            "mixing",
            lambda batch: batch._replace(targets=batch.targets[:3]),
            r"expected targets \(24, 1\) {}, got the shape \(3, 1\)",
        ),
        (
            "mixing",
            lambda batch: batch._replace(inputs=batch.inputs[:3]),
            r"expected inputs of n=24 rows {}, got the shape \(3, 4\)",
        ),
        (
            "weights",
            lambda batch: batch._replace(weight=torch.ones(24)),
            r"expected weights that fit targets \(24, 1\) {}, got the shape \(24,\)",
        ),
        (
            "weights",
            lambda batch: batch._replace(weight=torch.where(batch.targets < 1, math.nan, 1.0)),
            "expected finite weights of at least 0 {}, got 3 others",
        ),
        ("weights", lambda batch: batch._replace(weight=-batch.targets), "expected finite weights .* {}, got"),
        (
            "smoothing",
            lambda features: features[:, :2],
            r"expected features \(24, 5\) {}, got the shape \(24, 2\)",
        ),
        ("smoothing", lambda features: features / 0, "expected finite features {}, got NaN or infinite ones"),
        ("head", lambda outputs: outputs[:, 0], r"expected predictions \(24, 1\) {}, got the shape \(24,\)"),
    ],
)
def test_hooks_that_give_something_else_are_named_with_the_step(kind, give, message):
    part = Given(kind, give)
    own = type("Own", (Method,), {"kind": kind, HOOKS[kind]: lambda self, *given: getattr(part, HOOKS[kind])(*given)})()
    method = prepared(methods.Composition({"own": own, "oe": methods.create("oe").parts["oe"]}))
    encoder, head = network()

    def step():
        methods.training_loss(method, encoder, head, Batch(INPUTS, TARGETS), task).backward()
        return method.decode(head(encoder(INPUTS)))

    assert step().shape == step().shape == (N, 1)
    part.give = part.later
    with pytest.raises(ValueError, match=message.format("from the method 'own' in step 3")):
        step()


def test_weights_outside_the_mask_may_be_anything():
    method = methods.compose(type("Own", (Method,), {"kind": "weights", "change": lambda self, batch, _: batch})())
    mask, weight = TARGETS > 0, torch.where(TARGETS > 0, 1.0, math.nan)
    assert method.change(Batch(INPUTS, TARGETS, mask, weight)).weight is weight


def test_numbers_for_the_log_may_be_plain_ones():
    own = type("Own", (Method,), {"kind": "term", "scalars": lambda self: {"size": 3.0}})
    assert methods.compose(own()).scalars() == {"size": torch.tensor(3.0)}


def test_features_that_are_no_numbers_are_not_the_fault_of_a_part():
    method = prepared(methods.create("ld"))
    encoder, head = network()
    with torch.no_grad():
        encoder.weight.fill_(math.nan)
    assert methods.training_loss(method, encoder, head, Batch(INPUTS, TARGETS), task).isnan()


def test_a_loop_refuses_in_one_sentence_what_it_cannot_do():
    can = {"term", "head", "loss"}
    methods.require(methods.create("hl-gauss+oe"), can, "the loop", "it is opaque")
    for name, options, message in [
        ("oe+lds", {}, "the loop cannot train 'lds', which has to weight the task loss row by row: it is opaque"),
        ("c-mixup", {}, "'c-mixup', which has to change the batch before the network sees it"),
        ("fds", {}, "'fds', which has to change the features on their way to the head"),
        ("rnc", {"rnc": {"views": 2}}, "'rnc', which has to see several augmented views of each row"),
        ("rnc", {"rnc": {"stages": 2}}, "'rnc', which has to train the encoder first and the head after it"),
    ]:
        with pytest.raises(ValueError, match=message):
            methods.require(methods.create(name, options), can, "the loop", "it is opaque")
