"""Training of a stack: each run as it would be alone, and as a loop of plain PyTorch has it; errors of runs."""

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn import metrics as theirs

from ordinal_entropy import methods
from ordinal_entropy.methods.ordinal_entropy import FIXED
from ordinal_entropy.models import embeddings
from ordinal_entropy.tasks.tabular.data import Table
from ordinal_entropy.tasks.tabular.inputs import Preparation, rows_of, seen
from ordinal_entropy.tasks.tabular.train import Job, Scored, Settings, errors
from ordinal_entropy.training.stacked import network
from ordinal_entropy.training.stacked.members import prepared
from ordinal_entropy.training.stacked.network import Shape

from of_every_kind import NAMES

SETTINGS = Settings(epochs=3, batch_size=22, feature_rows=0)
OPTIONS = {"strength": 0.5, "rescale": "max", "grouping": "unique"}
BALANCED = {"balance": 20.0}  # strong, to be seen


def a_table():
    """Three splits of different sizes; in the first the training rows lack a category and have no missing value."""
    random = np.random.default_rng(0)
    numbers = random.normal(size=(90, 3))
    numbers[:2, 1] = np.nan
    categories = random.choice(["a", "b", "c"], size=(90, 1)).astype(object)
    categories[4] = "rare"
    targets = np.round(100 + 10 * numbers[:, 0] + 5 * (categories[:, 0] == "a"))
    tests = np.array([0, 1, 4, *range(20, 27)]), np.arange(50, 61), np.arange(70, 79)
    return Table(numbers, ("x", "y", "z"), categories, ("c",), targets, tests)


def views(seeds=(0, 1, 2)):
    table, found = a_table(), {}
    for seed in seeds:
        rows = rows_of(table, seed, test_share=0.2, validation_share=0.2)
        found[seed] = seen(table, rows, Preparation.fitted(table, rows.train, scaling="standard", max_categories=8))
    return found


def job(method, seed, view, *, embedding="none", dtype=torch.float32, network=None, **options):
    """With terms of a fixed strength, or with a balance, if such is given, gradient-balanced."""
    own = {}
    for part in methods.split(method):
        known = methods.options(part)
        own[part] = {name: value for name, value in {**OPTIONS, "bins": 7, **options}.items() if name in known}
        if "balance" in own[part]:
            del own[part]["strength"]
    made = methods.create(method, own)
    shape = Shape(view.numbers, view.train.inputs.shape[1], made.outputs(1), 8, embedding=embedding, dtype=dtype)
    shape = replace(shape, embedding_size=4, waves=3, pieces=4, **(network or {}))
    return Job(seed, view, shape, made, learning_rate=1e-2, weight_decay=0.1)


def with_own_rates(jobs):
    """The same, each with a learning rate and a weight decay of its own."""
    return [
        replace(own, learning_rate=2e-2 / (1 + k), weight_decay=(0.1, 0.0, 0.5)[k % 3]) for k, own in enumerate(jobs)
    ]


def trained(jobs, epochs=3, states=None):
    scored = Scored(jobs, SETTINGS, device="cpu", states=states)
    return scored, [train_epoch(scored) for _ in range(epochs)]


def train_epoch(scored):
    scored.stack.advance(scored.stack.epoch_steps)
    return scored.record()


def parameters_of(scored, run):
    """Of one of the jobs, by name."""
    return scored.stack.network.parameters.of_run(scored.place[run])


def alone(job):
    """The scores of the last epoch on validation and test rows, by a network and an optimizer of its own.

    Of several members each has a copy of the method and a head; the loss is the mean of theirs, as is the prediction.
    """
    first, k = network.initial(job.shape, job.seed), job.shape.members
    names, parameters = list(first), [tensor.clone().requires_grad_() for tensor in first.values()]
    pieces = None
    if job.shape.embedding == "piecewise":
        pieces = embeddings.pieces_of(job.seen.train.inputs[:, : job.seen.numbers], job.shape.pieces)
        pieces = embeddings.Pieces(*(part[None].to(job.shape.dtype) for part in pieces))
    y = torch.from_numpy(job.seen.standardized()).to(job.shape.dtype)[:, None]
    member, inputs = job.member(), torch.from_numpy(job.seen.train.inputs).to(y)
    each = prepared(member, inputs, y, job.shape.hidden, k)
    method = each[0].method
    parameters += [tensor for own in each for tensor in own.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=job.learning_rate, weight_decay=job.weight_decay)

    def encoder(inputs, seed=None):
        """Features of each member."""
        own = dict(zip(names, parameters, strict=False))
        z = inputs.to(job.shape.dtype)
        if job.shape.encoded:
            numbers = z[None, :, : job.shape.numbers].mT
            one = {name: tensor[None] for name, tensor in own.items()}
            z = torch.cat([embeddings.embedded(one, numbers, pieces)[0], z[:, job.shape.numbers :]], dim=1)
        z = z.expand(k, *z.shape)
        random = None if seed is None else torch.Generator().manual_seed(seed)
        for layer in range(job.shape.layers):
            r, s = (own[f"{layer}.{name}"][:, None] if f"{layer}.{name}" in own else 1 for name in "rs")
            z = ((z * r) @ own[f"{layer}.weight"] * s + own[f"{layer}.bias"][:, None]).relu()
            if random is not None:
                kept = torch.empty(z.shape if k > 1 else z.shape[1:], dtype=z.dtype)
                z = z * kept.bernoulli_(1 - job.shape.dropout, generator=random) / (1 - job.shape.dropout)
        return z

    def head(features, place):
        own = dict(zip(names, parameters, strict=False))
        weight, bias = (own[f"head.{kind}"] if k == 1 else own[f"head.{kind}"][place] for kind in ("weight", "bias"))
        return each[place].head(features) if method.own_head else features @ weight + bias

    n = len(y)
    steps = math.ceil(n / SETTINGS.batch_size)
    inputs = torch.from_numpy(job.seen.train.inputs)
    for epoch in range(3):
        order = np.random.default_rng([job.seed, 2, epoch]).permutation(n)
        for step in range(steps):
            rows = order[step * (n // steps) : (step + 1) * (n // steps)]
            drawn, dropped = (np.random.default_rng([job.seed, k, epoch, step]).integers(2**62) for k in (3, 4))
            batch = methods.Batch(inputs[rows], y[rows])
            stage = methods.stage_of(method, epoch, 3)
            batch = method.change(batch, torch.Generator().manual_seed(int(drawn)))
            with torch.set_grad_enabled(stage != "head"):
                features = encoder(batch.inputs, int(dropped) if job.shape.dropout else None)
            losses = []
            for place, (own, z) in enumerate(zip(each, features, strict=True)):
                own.method.at(epoch * steps + step, 3 * steps)
                own_head = partial(head, place=place)
                found = methods.step_from(z, own.method, own_head, batch, methods.squared_error, stage=stage)
                losses.append(own.method.loss(found, stage))
            optimizer.zero_grad()
            torch.stack(losses).mean().backward()
            optimizer.step()
        for own in each:
            own.method.end_epoch()
    found = []
    for part in (job.seen.validation, job.seen.test):
        features = encoder(torch.from_numpy(part.inputs)).detach()
        guesses = [own.method.decode(head(z, place)) for place, (own, z) in enumerate(zip(each, features, strict=True))]
        guess = torch.stack(guesses).mean(0).detach().double().numpy()[:, 0]
        found.append(np.sqrt(np.mean((guess * job.seen.scale + job.seen.center - part.targets) ** 2)))
    return found


EVERY = ["baseline", *FIXED]


@pytest.mark.parametrize(("dtype", "rel"), [(torch.float32, 2e-3), (torch.float64, 1e-9)])
@pytest.mark.parametrize("embedding", embeddings.EMBEDDINGS)
@pytest.mark.parametrize("own_rates", [False, True])
def test_a_stack_is_a_loop_of_plain_pytorch(own_rates, embedding, dtype, rel):
    seen_by = views((0, 1))
    jobs = [job(method, seed, seen_by[seed], embedding=embedding, dtype=dtype) for method in EVERY for seed in (0, 1)]
    jobs = with_own_rates(jobs) if own_rates else jobs
    scored, history = trained(jobs)
    for own, scores in zip(jobs, history[-1], strict=True):
        expected = alone(own)
        assert [scores["validation"]["rmse"], scores["test"]["rmse"]] == pytest.approx(expected, rel=rel), (
            own.method.name
        )
    weights = torch.stack([parameters_of(scored, run)["0.weight"] for run in range(len(jobs))])
    apart = (weights[2:] - weights[:2].repeat(len(EVERY) - 1, 1, 1)).abs().amax((1, 2))  # from the baseline's
    assert apart.min() > 0.01


@pytest.mark.parametrize("own_rates", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_method_of_any_kind_is_a_loop_of_plain_pytorch(name, own_rates, of_every_kind):
    seen_by = views((0, 1))
    given = BALANCED if name == "deep+oe" else {}
    jobs = [job(name, seed, seen_by[seed], dtype=torch.float64, **given) for seed in (0, 1)]
    jobs = with_own_rates(jobs) if own_rates else jobs
    _, history = trained(jobs)
    for own, scores in zip(jobs, history[-1], strict=True):
        assert [scores["validation"]["rmse"], scores["test"]["rmse"]] == pytest.approx(alone(own), rel=1e-8)
    if "classification" not in name:
        _, (*_, plain) = trained([job("baseline", seed, seen_by[seed], dtype=torch.float64) for seed in (0, 1)])
        assert all(one["test"] != two["test"] for one, two in zip(history[-1], plain, strict=True))


TABM = {"network": "tabm", "members": 3}


@pytest.mark.parametrize("own_rates", [False, True])
@pytest.mark.parametrize("network", [{**TABM, "dropout": 0.3}, {**TABM, "network": "tabm-mini"}, {"dropout": 0.3}])
def test_tabm_and_dropout_are_a_loop_of_plain_pytorch(network, own_rates):
    """A stack of what is computed together and run by run, with balances of each member."""
    view = views((0,))[0]
    given = {"dtype": torch.float64, "embedding": "piecewise", "network": network, "grouping": 0.5}
    names = ("baseline", "ld", "huber", "c-mixup")
    terms = [("oe", BALANCED), ("oe", {"anneal": 0.5}), ("oe", {**BALANCED, "anneal": 1.0}), ("koleo", {"anneal": 1.0})]
    jobs = [job(name, 0, view, **given) for name in names]
    jobs += [job(name, 0, view, **given, **options) for name, options in terms]
    jobs = with_own_rates(jobs) if own_rates else jobs
    _, history = trained(jobs)
    for own, scores in zip(jobs, history[-1], strict=True):
        found = [scores["validation"]["rmse"], scores["test"]["rmse"]]
        assert found == pytest.approx(alone(own), rel=1e-8), own.method.name
    assert len({scores["test"]["rmse"] for scores in history[-1]}) == len(jobs)


@pytest.mark.parametrize("name", [*NAMES, "classification"])
def test_with_members_a_method_of_any_kind_is_a_loop_and_goes_on_from_its_state(name, of_every_kind):
    view = views((0,))[0]
    given = BALANCED if name == "deep+oe" else {}
    jobs = [job(name, 0, view, dtype=torch.float64, network={**TABM, "dropout": 0.2}, **given)]
    whole, history = trained(jobs)
    scores = history[-1][0]
    assert [scores["validation"]["rmse"], scores["test"]["rmse"]] == pytest.approx(alone(jobs[0]), rel=1e-8)
    half, _ = trained(jobs, epochs=2)
    again, rest = trained(jobs, epochs=1, states=[(Path(), half.state(0))])
    assert rest[-1][0]["test"] == pytest.approx(scores["test"], rel=1e-9)
    assert again.scores(best=True)[0]["test"] == pytest.approx(whole.scores(best=True)[0]["test"], rel=1e-9)
    assert again.scalars()[0] == pytest.approx(whole.scalars()[0], rel=1e-6)


def test_members_of_runs_of_other_inputs_and_rows_are_as_alone():
    seen_by = views()
    jobs = [job(name, seed, seen_by[seed], network=TABM) for name in ("baseline", "oe", "huber") for seed in seen_by]
    assert len({own.shape.inputs for own in jobs}) > 1
    _, beside = trained(jobs)
    for run, own in enumerate(jobs):
        _, (*_, (scores,)) = trained([own])
        for part in scores:
            assert beside[-1][run][part] == pytest.approx(scores[part], rel=1e-3)


def test_each_member_has_its_own_loss_and_the_prediction_is_the_mean_of_theirs():
    """The gradient at a head is that of its own errors, by a third."""
    view = views((0,))[0]
    own = job("baseline", 0, view, dtype=torch.float64, network=TABM)
    scored = Scored([own], SETTINGS, device="cpu")
    scored.stack.advance(1)
    y = torch.from_numpy(view.standardized())[np.random.default_rng([0, 2, 0]).permutation(len(view.train.targets))]
    net, n = scored.stack.network, scored.stack.step_rows
    for member in range(3):
        offset = net.outputs[0][member] - y[:n, None]
        gradient = 2 * (net.features[member] * offset).mean(0) / 3
        torch.testing.assert_close(net.gradient.head_of(member)[0][:, 0], gradient)
    _, outputs = net.predict(scored.parts["test"].inputs)
    found = scored.predictions(scored.parts["test"].inputs)[1][0]
    torch.testing.assert_close(found, outputs[0].mean(0)[:, 0] * view.scale + view.center)


def test_networks_do_not_share_a_stack():
    view = views((0,))[0]
    shapes = ({}, TABM, {**TABM, "network": "tabm-mini"}, {**TABM, "members": 2}, {"dropout": 0.1})
    keys = {job("baseline", 0, view, network=network).key(SETTINGS) for network in shapes}
    assert len(keys) == len(shapes)


def test_stages_train_the_encoder_first_and_then_the_head(of_every_kind):
    view = views((0,))[0]
    scored = Scored([job("first", seed, view) for seed in (0, 1)], SETTINGS._replace(epochs=4), device="cpu")
    before = {name: tensor.clone() for name, tensor in parameters_of(scored, 0).items()}
    for epoch in range(4):
        scores, _ = train_epoch(scored)
        now = {name: tensor.clone() for name, tensor in parameters_of(scored, 0).items()}
        moved = {name for name in now if not torch.equal(now[name], before[name])}
        assert moved == ({"0.weight", "0.bias", "1.weight", "1.bias"} if epoch < 2 else {"head.weight", "head.bias"})
        assert math.isnan(scores["test"]["rmse"]) is (epoch < 2)
        assert math.isinf(scored.state(0)["best_score"]) is (epoch < 2)
        before = now


@pytest.mark.parametrize("name", NAMES)
def test_a_method_of_any_kind_goes_on_from_its_state(name, of_every_kind):
    view = views((0,))[0]
    jobs = [job(name, 0, view, dtype=torch.float64)]
    _, history = trained(jobs)
    half, _ = trained(jobs, epochs=2)
    again, rest = trained(jobs, epochs=1, states=[(Path(), half.state(0))])
    assert rest[-1][0]["test"] == pytest.approx(history[-1][0]["test"], rel=1e-9)
    assert again.scores(best=True)[0]["test"]["rmse"] > 0


class Offset(methods.Method):
    """Squared error of the outputs with a number that is trained, and that the first of two stages does not see."""

    kind = "loss"

    def __init__(self):
        super().__init__()
        self.offset = torch.nn.Parameter(torch.tensor(0.5, dtype=torch.float64))

    def task_loss(self, step):
        return (step.outputs + self.offset - step.batch.targets).square().mean()


def test_a_parameter_of_the_second_stage_goes_on_with_its_own_steps(of_every_kind):
    methods.register("offset", Offset)
    view = views((0,))[0]
    jobs, settings = [job("offset+first", 0, view, dtype=torch.float64)], SETTINGS._replace(epochs=6)
    whole = Scored(jobs, settings, device="cpu")
    for _ in range(4):  # three of the first stage
        train_epoch(whole)
    again = Scored(jobs, settings, device="cpu", states=[(Path(), whole.state(0))])
    for scored in (whole, again):
        train_epoch(scored)
    found = [scored.stack.own[0].method.parts["offset"].offset.item() for scored in (whole, again)]
    assert found[1] == pytest.approx(found[0], rel=1e-12) and found[0] != 0.5


def test_classification_is_a_loop_of_plain_pytorch():
    seen_by = views((0, 1))
    jobs = [job("classification", seed, seen_by[seed]) for seed in (0, 1)]
    _, history = trained(jobs)
    for own, scores in zip(jobs, history[-1], strict=True):
        assert [scores["validation"]["rmse"], scores["test"]["rmse"]] == pytest.approx(alone(own), rel=2e-3)


def test_runs_do_not_depend_on_what_trains_beside():
    """Of different inputs and rows, padded; strengths of their own, fixed and gradient-balanced."""
    seen_by = views()
    jobs = [job("baseline", seed, seen_by[seed]) for seed in seen_by]
    jobs += [job("oe", seed, seen_by[seed], strength=strength) for strength in (0.1, 10.0) for seed in seen_by]
    jobs += [job("oe", seed, seen_by[seed], balance=balance) for balance in (0.1, 1.0) for seed in seen_by]
    assert len({own.shape.inputs for own in jobs}) > 1
    assert len({len(view.train.targets) for view in seen_by.values()}) == 3
    _, beside = trained(jobs)
    for run, own in enumerate(jobs):
        _, (*_, (scores,)) = trained([own])
        for part in scores:
            assert beside[-1][run][part] == pytest.approx(scores[part], rel=1e-3)


def test_rows_without_a_pair_count_for_no_diversity_of_others():
    """A batch with one target has no pair; its run must not change the strength of another."""
    seen_by = views((0, 1))
    flat = seen_by[1]
    targets = np.where(np.arange(len(flat.train.targets)) < 3, 1.0, 0.0)
    flat = flat._replace(train=flat.train._replace(targets=targets), center=targets.mean(), scale=targets.std())
    jobs = [job(method, seed, view) for method in ("ld", "oe") for seed, view in ((0, seen_by[0]), (1, flat))]
    _, history = trained(jobs)
    for own, scores in zip(jobs, history[-1], strict=True):
        assert scores["test"]["rmse"] == pytest.approx(alone(own)[1], rel=2e-3)


def test_a_run_of_one_bin_counts_for_no_diversity_of_others():
    seen_by = views((0, 1))
    one_bin = seen_by[1]._replace(center=seen_by[1].center - 4 * seen_by[1].scale)  # 1 to 7, in the bin from 0 to 8
    jobs = [
        job(method, seed, view, grouping=8.0)
        for method in ("ld", "oe")
        for seed, view in ((0, seen_by[0]), (1, one_bin))
    ]
    _, history = trained(jobs)
    for own, scores in zip(jobs, history[-1], strict=True):
        assert scores["test"]["rmse"] == pytest.approx(alone(own)[1], rel=2e-3)


def test_bins_of_targets_share_a_center():
    view = views((0,))[0]
    wide, unique = (job("oe", 0, view, grouping=grouping, strength=5.0) for grouping in (0.7, "unique"))
    _, (*_, (scores,)) = trained([wide])
    _, (*_, (others,)) = trained([unique])
    assert scores["test"]["rmse"] == pytest.approx(alone(wide)[1], rel=2e-3)
    assert scores["test"]["rmse"] != pytest.approx(others["test"]["rmse"], rel=1e-3)


def test_runs_of_a_seed_begin_alike_and_methods_differ():
    view = views((0,))[0]
    scored = Scored([job(name, 0, view) for name in ("baseline", "ld")], SETTINGS, device="cpu")
    assert all(torch.equal(own, parameters_of(scored, 1)[name]) for name, own in parameters_of(scored, 0).items())
    train_epoch(scored)
    assert not torch.equal(*(parameters_of(scored, run)["0.weight"] for run in range(2)))
    _, (*_, (none, base)) = trained([job("ld", 0, view, strength=0.0), job("baseline", 0, view)])
    assert none == base


def test_a_run_that_diverges_does_not_disturb_the_others():
    view = views((0,))[0]
    jobs = [job("oe", 0, view, balance=balance) for balance in (0.1, 0.2)]
    scored = Scored(jobs, SETTINGS, device="cpu")
    parameters_of(scored, 1)["0.weight"][0, 0] = math.nan
    history = [train_epoch(scored) for _ in range(3)]
    assert math.isnan(history[-1][1]["test"]["rmse"]) and scored.state(1)["best_score"] == math.inf
    _, (*_, (scores,)) = trained(jobs[:1])
    assert history[-1][0]["test"] == pytest.approx(scores["test"], rel=1e-3)


def test_going_on_ends_in_the_same_numbers():
    """From copies of the states, in stacks of other runs than before."""
    seen_by = views()
    kinds = (("baseline", {}), ("oe", {**BALANCED, "anneal": 1.0}))
    jobs = [job(method, seed, seen_by[seed], **options) for method, options in kinds for seed in seen_by]
    whole, history = trained(jobs, epochs=4)
    half, _ = trained(jobs, epochs=2)
    states = [(Path(), half.state(run)) for run in range(len(jobs))]
    train_epoch(half)  # does not touch the states
    for own in ([0], [5, 3], [1, 2, 4]):
        again, rest = trained([jobs[run] for run in own], epochs=2, states=[states[run] for run in own])
        assert again.stack.epoch == 4
        for place, run in enumerate(own):
            assert rest[-1][place]["test"] == pytest.approx(history[-1][run]["test"], rel=1e-4)
            assert again.state(place)["best_score"] == pytest.approx(whole.state(run)["best_score"], rel=1e-4)


@pytest.mark.parametrize("network", [None, {**TABM, "dropout": 0.2}], ids=["perceptron", "tabm"])
@pytest.mark.parametrize(
    "names",
    [("baseline", "oe", "ld", "huber", "classification", "coral", "balanced-mse", "c-mixup", "ema"), ("rnc",)],
    ids=["one stage", "two stages"],
)
def test_runs_of_several_rates_are_as_alone_and_go_on_in_other_stacks(names, network):
    """Every step of a run is by its own learning rate and weight decay, whatever is stopped or stacked when."""
    seen_by = views((0, 1))
    jobs = with_own_rates(
        [
            job(name, seed, seen_by[seed], dtype=torch.float64, embedding="periodic", network=network, **given)
            for name, given in ((name, BALANCED if name == "ld" else {}) for name in names)
            for seed in seen_by
            for _ in range(2)
        ]
    )
    settings = SETTINGS._replace(epochs=4)
    together, before = Scored(jobs, settings, device="cpu"), Scored(jobs, settings, device="cpu")
    for _ in range(4):
        last = train_epoch(together)
    for _ in range(3):  # one beyond the first of two stages
        train_epoch(before)
    states = [(Path(), before.state(run)) for run in range(len(jobs))]
    turned = [*range(1, len(jobs), 2), *range(0, len(jobs), 2)]
    again = Scored([jobs[run] for run in turned], settings, device="cpu", states=[states[run] for run in turned])
    resumed = train_epoch(again)
    for run, own in enumerate(jobs):
        alone = Scored([own], settings, device="cpu")
        for _ in range(4):
            (scores,) = train_epoch(alone)
        place = turned.index(run)
        assert last[run]["test"] == pytest.approx(scores["test"], rel=1e-10), own.method.name
        assert resumed[place]["test"] == pytest.approx(scores["test"], rel=1e-10), own.method.name
        expected = alone.state(0)
        for found in (together.state(run), again.state(place)):
            for part in ("parameters", "mean", "square", "best", "own", "own_best", "own_mean", "own_square"):
                assert found[part].keys() == expected[part].keys()
                for name, tensor in expected[part].items():
                    torch.testing.assert_close(found[part][name], tensor, rtol=1e-10, atol=1e-10)
    if "baseline" in names:
        assert last[0]["test"] != last[1]["test"]  # but for their rates the same


def test_the_best_parameters_are_those_of_the_best_epoch():
    jobs = [replace(job("baseline", seed, view), learning_rate=0.3) for seed, view in views((0, 1)).items()]
    scored = Scored(jobs, SETTINGS, device="cpu")  # a rate so large that the last is not the best
    epochs = [train_epoch(scored)[0] for _ in range(8)]
    (best, _), scores = scored.scores(best=True), [epoch["validation"]["rmse"] for epoch in epochs]
    assert scores.index(min(scores)) < 7
    assert best["validation"]["rmse"] == pytest.approx(min(scores))
    assert best["test"] == pytest.approx(epochs[scores.index(min(scores))]["test"])


def test_balanced_strengths_are_in_the_log():
    """The same in one call for all runs and run by run."""
    view = views((0,))[0]
    kinds = (("oe", BALANCED), ("huber+oe", BALANCED), ("oe", {}))
    jobs = [job(name, 0, view, dtype=torch.float64, **options) for name, options in kinds]
    jobs[1].method.parts["huber"].delta = 1e6  # squared everywhere: half the squared error by its scale
    scored, _ = trained(jobs)
    one, two, fixed = scored.scalars()
    assert fixed == {} and list(one) == ["diversity_strength", "tightness_strength"]
    assert list(two) == ["oe/diversity_strength", "oe/tightness_strength"]
    assert min(*one.values(), *two.values()) > 0


def test_runs_of_several_shapes_are_no_stack():
    view = views((0,))[0]
    with pytest.raises(ValueError, match="expected runs of one shape in a stack, got several"):
        Scored([job("baseline", 0, view), job("baseline", 0, view, network={"hidden": 9})], SETTINGS, device="cpu")


def test_errors_are_scikit_learns():
    random = np.random.default_rng(0)
    targets, predictions = random.normal(50, 10, (3, 20)), random.normal(50, 10, (3, 20))
    mask = np.ones((3, 20), dtype=bool)
    mask[0, 12:] = False
    predictions[0, 15] = np.nan  # does no harm outside
    found = errors(*map(torch.from_numpy, (predictions, targets, mask)))
    for run in range(3):
        y, guess = targets[run][mask[run]], predictions[run][mask[run]]
        np.testing.assert_allclose(found.rmse[run], theirs.root_mean_squared_error(y, guess))
        np.testing.assert_allclose(found.mae[run], theirs.mean_absolute_error(y, guess))
        np.testing.assert_allclose(found.r2[run], theirs.r2_score(y, guess))


def test_equal_targets_have_no_r2_and_a_run_that_diverged_no_error():
    y = torch.tensor([[1.0, 1.0], [1.0, 2.0]])
    found = errors(torch.tensor([[1.0, 2.0], [math.nan, 1.0]]), y, torch.ones(2, 2, dtype=torch.bool))
    assert math.isnan(found.r2[0]) and found.rmse[0] == 0.5**0.5
    assert all(math.isnan(own[1]) for own in found)
