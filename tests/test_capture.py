"""Features out of models: what is captured, when, and that nothing is left behind."""

import copy
import gc
import importlib.util
import io
import os
import pickle
import shutil
import subprocess
import sys
import textwrap
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from cases import every_pair
from ordinal_entropy import OrdinalEntropy
from ordinal_entropy.capture import Tap, capture
from ordinal_entropy.environment import import_torchvision


class Net(nn.Module):
    """A regression network with a head called ``fc``."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(3, 4)
        self.fc = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.tanh(self.body(x)))


def expected(net: Net, x: Tensor) -> Tensor:
    """What goes into ``fc``, worked out without calling a module."""
    return torch.tanh(x @ net.body.weight.T + net.body.bias)


def inputs(n: int = 5) -> Tensor:
    return torch.randn(n, 3)


def hooks(model: nn.Module) -> int:
    kinds = (
        "_forward_hooks",
        "_forward_hooks_with_kwargs",
        "_forward_pre_hooks",
        "_forward_pre_hooks_with_kwargs",
    )
    return sum(len(getattr(module, kind)) for module in model.modules() for kind in kinds)


# --- what is captured ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["name", "module", "automatic"])
def test_input_of_the_layer_by_name_by_module_and_automatically(how: str) -> None:
    net, x = Net(), inputs()
    with capture(net, {"name": "fc", "module": net.fc, "automatic": None}[how]) as tap:
        prediction = net(x)
    torch.testing.assert_close(tap.features, expected(net, x))
    torch.testing.assert_close(net.fc(tap.features), prediction)
    assert tap.layer == "fc"


def test_output_of_the_layer() -> None:
    net, x = Net(), inputs()
    with capture(net, "body", output=True) as tap:
        net(x)
    torch.testing.assert_close(tap.features.tanh(), expected(net, x))


def test_the_model_itself_is_a_layer() -> None:
    net, x = Net(), inputs()
    with capture(net, net) as before, capture(net, net, output=True) as after:
        prediction = net(x)
    assert before.features is x
    assert after.features is prediction
    head = nn.Linear(3, 1)
    with capture(head) as tap:
        head(x)
    assert tap.features is x


def test_gradient_through_the_features_reaches_the_layers_below_only() -> None:
    net, x = Net(), inputs()
    with capture(net, "fc") as tap:
        net(x)
        tap.features.square().sum().backward()
    got = net.body.weight.grad
    net.body.weight.grad = None
    expected(net, x).square().sum().backward()
    torch.testing.assert_close(got, net.body.weight.grad)
    assert net.fc.weight.grad is None


def test_without_grad_the_features_have_no_graph() -> None:
    net = Net()
    with capture(net, "fc") as tap, torch.no_grad():
        net(inputs())
    assert not tap.features.requires_grad


def test_features_follow_every_forward_pass_and_any_batch_size() -> None:
    net = Net()
    tap = capture(net)
    for n in (5, 2, 1):
        x = inputs(n)
        net(x)
        torch.testing.assert_close(tap.features, expected(net, x))
    tap.close()


def test_layer_given_its_input_by_name() -> None:
    class ByName(Net):
        def forward(self, x: Tensor) -> Tensor:
            return self.fc(input=torch.tanh(self.body(x)))

    net, x = ByName(), inputs()
    with capture(net, "fc") as tap:
        net(x)
    torch.testing.assert_close(tap.features, expected(net, x))


def test_first_tensor_among_the_inputs() -> None:
    class Mixed(nn.Module):
        def forward(self, flag: bool, x: Tensor, other: Tensor) -> Tensor:
            return x + other

    class Host(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mixed = Mixed()

        def forward(self, x: Tensor) -> Tensor:
            return self.mixed(True, other=torch.zeros(3), x=x)

    host, x = Host(), inputs()
    with capture(host, "mixed") as tap:
        host(x)
    assert torch.equal(tap.features, torch.zeros(3))  # in the order in which they were given


def test_layer_that_runs_twice_gives_the_last_time() -> None:
    class Twice(Net):
        def forward(self, x: Tensor) -> Tensor:
            hidden = torch.tanh(self.body(x))
            return self.fc(hidden) + self.fc(2 * hidden)

    net, x = Twice(), inputs()
    with capture(net, "fc") as tap:
        net(x)
    torch.testing.assert_close(tap.features, 2 * expected(net, x))


@pytest.mark.parametrize(("conv", "shape"), [(nn.Conv1d, (9,)), (nn.Conv2d, (5, 6)), (nn.Conv3d, (3, 4, 5))])
def test_automatic_takes_convolutions_of_size_one(conv: type[nn.Module], shape: tuple[int, ...]) -> None:
    net = nn.Sequential(conv(2, 4, 3, padding=1), conv(4, 1, 1), conv(1, 1, 3, padding=1))
    x = torch.randn(2, 2, *shape)
    with capture(net) as tap:
        net(x)
    assert tap.layer == "1"
    torch.testing.assert_close(tap.features, net[0](x))


def test_automatic_follows_the_order_of_running_and_forgets_the_pass_before() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.late = nn.Linear(3, 3)  # defined first, runs last
            self.early = nn.Linear(3, 3)

        def forward(self, x: Tensor, skip: bool = False) -> Tensor:
            x = self.early(x)
            return x if skip else self.late(x)

    net, x = Branches(), inputs()
    with capture(net) as tap, capture(net, "late") as named:
        net(x)
        assert tap.layer == named.layer == "late"
        net(x, skip=True)
        assert tap.layer == "early"
        assert tap.features is x
        with pytest.raises(RuntimeError, match=r"no features from layer 'late': it did not run in the last"):
            _ = named.features


def test_subclass_of_linear_counts() -> None:
    class Scaled(nn.Linear):
        pass

    net = nn.Sequential(nn.Linear(3, 3), Scaled(3, 1), nn.Softplus())
    with capture(net) as tap:
        net(inputs())
    assert tap.layer == "1"


def test_several_taps_on_one_model() -> None:
    net, x = Net(), inputs()
    with capture(net, "fc") as inner, capture(net, "body") as outer:
        net(x)
    assert outer.features is x
    torch.testing.assert_close(inner.features, expected(net, x))


def test_layer_that_is_shared_goes_by_all_its_names() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    net.append(net[0])
    x = inputs()
    with capture(net, "2") as tap:
        net(x)
    torch.testing.assert_close(tap.features, net[:2](x))


def test_half_precision_under_autocast() -> None:
    net = Net()
    with capture(net, "fc") as tap, torch.autocast("cpu", dtype=torch.bfloat16):
        net(inputs())
    assert tap.features.dtype == torch.bfloat16


def test_functional_call() -> None:
    net, x = Net(), inputs()
    weights = {name: torch.zeros_like(each) for name, each in net.named_parameters()}
    with capture(net, "fc") as tap:
        torch.func.functional_call(net, weights, (x,))
    assert torch.equal(tap.features, torch.zeros(5, 4))


def test_activation_checkpointing() -> None:
    class Checkpointed(Net):
        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(super().forward, x, use_reentrant=False)  # type: ignore[no-any-return]

    torch.manual_seed(0)
    net, x = Checkpointed(), inputs()
    plain = Net()
    plain.load_state_dict(net.state_dict())
    for model in (net, plain):
        with capture(model) as tap:
            prediction = model(x)
            torch.testing.assert_close(tap.features, expected(net, x))
            (prediction.square().sum() + tap.features.square().sum()).backward()
    torch.testing.assert_close(net.body.weight.grad, plain.body.weight.grad)


def test_reentrant_checkpointing_runs_the_layers_without_a_graph() -> None:
    class Checkpointed(Net):
        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(super().forward, x, use_reentrant=True)  # type: ignore[no-any-return]

    net = Checkpointed()
    with capture(net, "fc") as tap:
        net(inputs().requires_grad_())
    assert not tap.features.requires_grad


def test_output_before_an_in_place_layer_shows_the_values_after_it() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True))
    with capture(net, "0", output=True) as tap:
        prediction = net(inputs())
    assert tap.features is prediction


# --- nothing is left behind ---------------------------------------------------------------------------------


@pytest.mark.parametrize("layer", ["fc", None])
def test_no_hook_is_left(layer: str | None) -> None:
    net = Net()
    with capture(net, layer):
        assert hooks(net) > 0
        net(inputs())
    assert hooks(net) == 0
    with pytest.raises(ZeroDivisionError), capture(net, layer):
        _ = 1 / 0
    assert hooks(net) == 0


def test_lasting_attachment_and_closing_twice() -> None:
    net = Net()
    tap = capture(net, "fc")
    net(inputs())
    last = tap.features
    tap.close()
    tap.close()
    assert hooks(net) == 0
    net(inputs())
    assert tap.features is last


def test_closing_leaves_other_hooks() -> None:
    net = Net()
    calls = []
    net.fc.register_forward_hook(lambda *_: calls.append(1))
    with capture(net), capture(net, "fc"):
        pass
    net(inputs())
    assert calls == [1]


def test_a_dropped_tap_closes_itself() -> None:
    net = Net()
    tap = capture(net)
    net(inputs())
    del tap
    assert hooks(net) == 0


def test_a_tap_keeps_no_model_alive() -> None:
    net = Net()
    tap = capture(net)
    with torch.no_grad():
        net(inputs())
    alive = weakref.ref(net)
    gc.disable()  # no cycle: the count of references alone must free it
    try:
        del net
        assert alive() is None
    finally:
        gc.enable()
    tap.close()


def test_old_features_are_freed_by_the_next_pass_and_by_clear() -> None:
    net = Net()
    tap = capture(net)
    net(inputs())
    old = weakref.ref(tap.features)
    net(inputs())
    assert old() is None
    last = weakref.ref(tap.features)
    tap.clear()
    assert last() is None
    assert tap.layer is None
    tap.close()


@pytest.mark.parametrize("way", ["deepcopy", "pickle", "torch.save"])
def test_a_copy_of_a_tapped_model_works_and_does_not_reach_the_tap(way: str) -> None:
    net, x = Net(), inputs()
    tap = capture(net, "fc")
    net(x)
    if way == "deepcopy":
        other = copy.deepcopy(net)
    elif way == "pickle":
        other = pickle.loads(pickle.dumps(net))
    else:
        file = io.BytesIO()
        torch.save(net, file)
        file.seek(0)
        other = torch.load(file, weights_only=False)
    seen = tap.features
    torch.testing.assert_close(other(x), net.fc(seen.detach()))
    tap.clear()
    other(x)
    assert tap.layer is None
    with capture(other, "fc") as second:  # the copy can be tapped for itself
        other(x)
    torch.testing.assert_close(second.features, seen)
    tap.close()


def test_a_model_that_holds_its_tap_can_be_copied() -> None:
    net = Net()
    net.tap = capture(net, "fc")  # type: ignore[assignment]
    net(inputs())
    other = copy.deepcopy(net)
    other(inputs())
    assert isinstance(other.tap, Tap)
    with pytest.raises(RuntimeError, match=r"no features from layer 'fc': the tap is closed"):
        _ = other.tap.features


# --- mistakes -----------------------------------------------------------------------------------------------


def test_features_before_any_forward_pass() -> None:
    with (
        capture(Net(), "fc") as tap,
        pytest.raises(RuntimeError, match=r"no features from layer 'fc': .* has not run"),
    ):
        _ = tap.features
    with (
        capture(Net()) as tap,
        pytest.raises(RuntimeError, match=r"no features from any linear layer or 1x1"),
    ):
        _ = tap.features


def test_features_of_a_tap_that_was_closed_too_early() -> None:
    net = Net()
    with capture(net, "fc") as tap:
        pass
    net(inputs())
    with pytest.raises(RuntimeError, match=r"no features from layer 'fc': the tap is closed and holds none"):
        _ = tap.features


def test_wrong_name_lists_the_near_ones() -> None:
    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = Net()
            self.regressor = nn.Linear(1, 1)

    with pytest.raises(ValueError, match=r"name of a layer of Nested, got 'regresor'; the nearest are 'regressor'"):
        capture(Nested(), "regresor")
    with pytest.raises(ValueError, match=r"got 'fc'; the nearest are 'backbone.fc'$"):
        capture(Nested(), "fc")
    with pytest.raises(ValueError, match=r"got '@'; the last ones are 'backbone.body', 'backbone.fc', 'regressor'$"):
        capture(Nested(), "@")


def test_module_of_another_model() -> None:
    with pytest.raises(ValueError, match=r"expected a layer of Net, got a Linear that is not part of it"):
        capture(Net(), nn.Linear(4, 1))


def test_wrong_types() -> None:
    with pytest.raises(TypeError, match=r"expected layer to be a name, a torch.nn.Module or None, got int"):
        capture(Net(), -1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"expected model to be a torch.nn.Module, got function"):
        capture(lambda x: x)  # type: ignore[arg-type]


def test_automatic_without_any_candidate() -> None:
    with pytest.raises(ValueError, match=r"linear layer or a 1x1 convolution in Sequential, found none; .* '0', '1'$"):
        capture(nn.Sequential(nn.Conv2d(1, 1, 3), nn.ReLU()))
    with pytest.raises(ValueError, match=r"in ReLU, found none; it has no layers$"):
        capture(nn.ReLU())


def test_data_parallel_is_refused() -> None:
    with pytest.raises(ValueError, match=r"not in nn.DataParallel.*use DistributedDataParallel"):
        capture(nn.DataParallel(Net()))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ((torch.ones(1), None), r"tuple of \(Tensor, NoneType\)"),
        ([torch.ones(1)], r"list of \(Tensor\)"),
        ({"hidden": torch.ones(1)}, r"dict with the keys 'hidden'"),
        (None, r"NoneType"),
    ],
)
def test_output_that_is_no_tensor(value: object, words: str) -> None:
    class Other(nn.Module):
        def forward(self, x: Tensor) -> object:
            return value

    net = nn.Sequential(Other())
    with capture(net, "0", output=True) as tap:
        net(inputs())  # the model still runs
    with pytest.raises(TypeError, match=rf"expected a tensor as the output of layer '0', got {words};"):
        _ = tap.features


def test_input_that_is_no_tensor() -> None:
    class Table(nn.Module):
        def forward(self, row: int) -> Tensor:
            return torch.ones(1) * row

    net = nn.Sequential(Table())
    with capture(net, "0") as tap:
        net(3)
    with pytest.raises(TypeError, match=r"expected a tensor as the input of layer '0', got tuple of \(int\);"):
        _ = tap.features


# --- torch.compile ------------------------------------------------------------------------------------------

BACKENDS = ["eager", "aot_eager"]
needs_compiler = pytest.mark.skipif(
    sys.platform == "win32" or not (shutil.which("g++") or shutil.which("clang++")),
    reason="inductor needs a C++ compiler on a CPU",
)


@pytest.fixture
def dynamo() -> Iterator[None]:
    """Starts and leaves with no compiled code: it is cached per class, beyond one model and one test."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def sequential() -> nn.Sequential:
    """The same network of built-in modules alone, which the compiler treats differently at the top."""
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def check_steps(tap: Tap, called: nn.Module, net: Net) -> None:
    """New features on every call, of every batch size, with their gradient; none left from tracing."""
    for n in (5, 5, 7, 9, 5):
        x = inputs(n)
        prediction = called(x)
        assert type(tap.features) is Tensor
        torch.testing.assert_close(tap.features, expected(net, x))
        net.zero_grad()
        (prediction.sum() + tap.features.square().sum()).backward()
        got = net.body.weight.grad
        net.zero_grad()
        hidden = expected(net, x)
        ((hidden @ net.fc.weight.T).sum() + hidden.square().sum()).backward()
        torch.testing.assert_close(got, net.body.weight.grad)
    with torch.no_grad():
        called(inputs())
    assert not tap.features.requires_grad


@pytest.mark.usefixtures("dynamo")
@pytest.mark.parametrize("layer", ["fc", pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_compile_after_capture(backend: str, fullgraph: bool, layer: str | None) -> None:
    net = Net()
    with capture(net, layer) as tap:
        check_steps(tap, torch.compile(net, backend=backend, fullgraph=fullgraph), net)
    assert hooks(net) == 0


@pytest.mark.usefixtures("dynamo")
@every_pair(backend=BACKENDS, fullgraph=[False, True], filters=["error", "always"])
def test_compile_where_a_strength_sets_itself_elsewhere(backend: str, fullgraph: bool, filters: str) -> None:
    """Graphs then end at the features. Torch's compiler fails there if a warning that it hides is an error."""
    elsewhere = OrdinalEntropy(balance=0.1)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter(filters)
        warnings.filterwarnings("ignore", category=DeprecationWarning)  # of its own
        net = Net()
        with capture(net, "fc") as tap:
            check_steps(tap, torch.compile(net, backend=backend, fullgraph=fullgraph), net)
        if filters == "always":
            with pytest.warns(UserWarning, match="is not a leaf"):  # a user's own is not hidden
                assert expected(net, inputs()).grad is None
    assert not [each for each in told if "Guards" not in str(each.message)]
    del elsewhere


@pytest.mark.usefixtures("dynamo")
@pytest.mark.parametrize("layer", ["fc", pytest.param("_orig_mod.fc", marks=pytest.mark.slow), None])
def test_capture_a_compiled_model_before_its_first_call(layer: str | None) -> None:
    net = Net()
    compiled = torch.compile(net, backend="aot_eager")
    with capture(compiled, layer) as tap:
        check_steps(tap, compiled, net)
    assert hooks(compiled) == 0


@pytest.mark.usefixtures("dynamo")
def test_compile_in_place() -> None:
    net = Net()
    net.compile(backend="aot_eager", fullgraph=True)
    with capture(net) as tap:
        check_steps(tap, net, net)


@pytest.mark.slow
@pytest.mark.usefixtures("dynamo")
@needs_compiler
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # from torch's own compiler
def test_inductor() -> None:
    net = Net()
    compiled = torch.compile(net)
    with capture(compiled) as tap:
        check_steps(tap, compiled, net)


ADVICE = r"If the model is compiled.* another model of the same structure: attach before compiling, or set torch"


@pytest.mark.usefixtures("dynamo")
@pytest.mark.parametrize("make", [Net, sequential])
def test_capture_after_the_first_compiled_call_raises_until_reset(make: type[nn.Module]) -> None:
    compiled = torch.compile(make(), backend="eager")
    compiled(inputs())
    with capture(compiled) as tap:
        compiled(inputs())
        with pytest.raises(RuntimeError, match=ADVICE):
            _ = tap.features
        torch._dynamo.reset()
        compiled(inputs(7))
        assert tap.features.shape == (7, 4)


@pytest.mark.usefixtures("dynamo")
def test_capture_after_the_first_call_of_a_model_compiled_in_place() -> None:
    net = Net()
    net.compile(backend="eager")
    net(inputs())
    with capture(net) as tap:
        net(inputs())
        with pytest.raises(RuntimeError, match=ADVICE):
            _ = tap.features


@pytest.mark.usefixtures("dynamo")
@pytest.mark.parametrize("make", [Net, sequential])
def test_the_second_of_two_identical_models_once_the_first_has_run(make: type[nn.Module]) -> None:
    first, second = (torch.compile(make(), backend="eager") for _ in range(2))
    first(inputs())
    with capture(second) as tap:
        second(inputs())
        with pytest.raises(RuntimeError, match=ADVICE):
            _ = tap.features
        torch._dynamo.reset()
        second(inputs(7))
        assert tap.features.shape == (7, 4)


@pytest.mark.usefixtures("dynamo")
@pytest.mark.parametrize("backend", BACKENDS)
def test_two_identical_compiled_models_with_a_tap_each_do_not_mix(backend: str) -> None:
    nets = [Net(), Net()]
    compiled = [torch.compile(net, backend=backend) for net in nets]
    taps = [capture(net, "fc") for net in compiled]
    for _ in range(3):
        batches = [inputs(), inputs()]
        for net, x in zip(compiled, batches, strict=True):
            net(x)
        for tap, net, x in zip(taps, nets, batches, strict=True):
            torch.testing.assert_close(tap.features, expected(net, x))


@pytest.mark.usefixtures("dynamo")
def test_an_identical_model_without_a_tap_takes_the_hooks_away_unless_they_are_guarded() -> None:
    net, twin = Net(), Net()
    compiled, other = (torch.compile(each, backend="eager") for each in (net, twin))
    with capture(compiled, "fc") as tap:
        x = inputs()
        compiled(x)
        other(inputs())
        torch.testing.assert_close(tap.features, expected(net, x))  # not those of the other
        compiled(x)
        with pytest.raises(RuntimeError, match=ADVICE):
            _ = tap.features
        with torch._dynamo.config.patch(skip_nnmodule_hook_guards=False):  # the way out that the message names
            torch._dynamo.reset()
            for _ in range(3):
                x = inputs()
                compiled(x)
                other(inputs())
                torch.testing.assert_close(tap.features, expected(net, x))


@pytest.mark.usefixtures("dynamo")
def test_guarded_hooks_may_come_and_go() -> None:
    net = Net()
    compiled = torch.compile(net, backend="eager")
    with torch._dynamo.config.patch(skip_nnmodule_hook_guards=False):
        for _ in range(3):
            compiled(inputs())
            x = inputs()
            with capture(compiled) as tap:
                compiled(x)
            torch.testing.assert_close(tap.features, expected(net, x))


@pytest.mark.usefixtures("dynamo")
@pytest.mark.parametrize("layer", ["fc", None])
def test_a_with_block_per_step_of_a_compiled_model(layer: str | None) -> None:
    net = Net()
    compiled = torch.compile(net, backend="eager")
    for _ in range(12):  # more than the compiler's limit of recompilations
        x = inputs()
        with capture(compiled, layer) as tap:
            compiled(x)
        torch.testing.assert_close(tap.features, expected(net, x))


@pytest.mark.usefixtures("dynamo")
def test_nothing_old_from_a_compiled_graph_without_the_hook() -> None:
    net = sequential()
    compiled = torch.compile(net, backend="eager")
    with torch.no_grad():
        compiled(inputs())
    with capture(compiled) as tap:
        compiled(inputs())
        assert tap.features.shape == (5, 4)
        with torch.no_grad():
            compiled(inputs())  # reuses what was compiled before the capture
        with pytest.raises(RuntimeError, match=r"did not run in the last forward pass"):
            _ = tap.features


@pytest.mark.usefixtures("dynamo")
@pytest.mark.parametrize("layer", ["backbone.fc", "backbone", "backbone._orig_mod.fc"])
def test_a_compiled_part_of_a_model(layer: str) -> None:
    class Host(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = torch.compile(Net(), backend="eager")

        def forward(self, x: Tensor) -> Tensor:
            return self.backbone(x)  # type: ignore[no-any-return]

    host, x = Host(), inputs()
    with capture(host, layer) as tap:
        for _ in range(2):
            host(x)
    torch.testing.assert_close(tap.features, x if layer == "backbone" else expected(host.backbone._orig_mod, x))
    with pytest.raises(ValueError, match=r"got 'fcc'; the nearest are 'backbone.fc'$"):
        capture(host, "fcc")
    assert hooks(host) == 0


# --- DistributedDataParallel --------------------------------------------------------------------------------

DDP = """
    import sys
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from ordinal_entropy.capture import capture

    store = torch.distributed.FileStore(sys.argv[1], 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)

    def wrappings(net):
        yield lambda: DistributedDataParallel(net)
        yield lambda: torch.compile(DistributedDataParallel(net), backend="aot_eager")
        yield lambda: DistributedDataParallel(torch.compile(net, backend="aot_eager"))

    def network():
        return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    for kind in range(3):
        for layer in ("2", None, "module.2", "module"):
            if layer in ("module.2", "module") and kind > 0:
                continue
            torch._dynamo.reset()
            net = network()
            model = list(wrappings(net))[kind]()
            with capture(model, layer) as tap:
                for n in (5, 5, 7):
                    x = torch.randn(n, 3)
                    model.zero_grad()
                    prediction = model(x)
                    hidden = torch.tanh(x @ net[0].weight.T + net[0].bias)
                    torch.testing.assert_close(tap.features, x if layer == "module" else hidden)
                    (prediction.sum() + tap.features.square().sum()).backward()
                    assert net[0].weight.grad.abs().sum() > 0
            assert not any(each._forward_hooks or each._forward_pre_hooks for each in model.modules())
    torch.distributed.destroy_process_group()
    print("done")
"""


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch was built without torch.distributed")
def test_distributed_data_parallel_with_and_without_compile(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(DDP), str(tmp_path / "store")],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "done"


# --- timm and Hugging Face ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def torchvision() -> None:
    """Both libraries import torchvision where it is installed, which needs a hand beside a CPU-only torch."""
    if importlib.util.find_spec("torchvision"):
        import_torchvision()


@pytest.mark.usefixtures("torchvision")
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("resnet18", {}),
        ("vit_tiny_patch16_224", {"img_size": 32}),
        ("test_convnext", {}),
        ("mobilenetv3_small_050", {}),
    ],
)
def test_timm(name: str, options: dict[str, int]) -> None:
    timm = pytest.importorskip("timm", reason="timm is not installed")
    model = timm.create_model(name, num_classes=1, **options).eval()
    x = torch.randn(2, 3, 32, 32)
    with capture(model) as tap:
        prediction = model(x)
        features = tap.features
        pooled = model.forward_head(model.forward_features(x), pre_logits=True)
    assert prediction.shape == (2, 1)
    torch.testing.assert_close(features, pooled)
    assert hooks(model) == 0


@pytest.fixture
def bert() -> nn.Module:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.BertConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=37,
        vocab_size=50,
        num_labels=1,
    )
    model: nn.Module = transformers.BertForSequenceClassification(config).eval()
    return model


@pytest.mark.usefixtures("torchvision")
def test_hugging_face(bert: nn.Module) -> None:
    tokens = torch.randint(0, 50, (2, 7))
    with capture(bert) as tap, capture(bert, "bert.pooler", output=True) as pooler:
        prediction = bert(input_ids=tokens)
    assert tap.layer == "classifier"
    torch.testing.assert_close(tap.features, pooler.features)  # no dropout in evaluation
    torch.testing.assert_close(bert.classifier(tap.features), prediction.logits)
    assert hooks(bert) == 0


@pytest.mark.usefixtures("torchvision")
def test_hugging_face_output_object_is_named(bert: nn.Module) -> None:
    with capture(bert, "bert", output=True) as tap:
        bert(input_ids=torch.randint(0, 50, (2, 7)))
    with pytest.raises(TypeError, match=r"output of layer 'bert', got BaseModelOutput\w* with the keys 'last_hidden"):
        _ = tap.features


@pytest.mark.usefixtures("torchvision", "dynamo")
def test_hugging_face_compiled(bert: nn.Module) -> None:
    compiled = torch.compile(bert, backend="eager")
    tokens = torch.randint(0, 50, (2, 7))
    with capture(compiled) as tap:
        for _ in range(2):
            prediction = compiled(input_ids=tokens)
    torch.testing.assert_close(bert.classifier(tap.features), prediction.logits)
