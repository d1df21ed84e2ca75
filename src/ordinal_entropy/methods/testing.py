"""What every method must hold to, as one call for tests of methods, built in or from outside.

In the tests of a method::

    def test_mine():
        check_method(Mine)
"""

import copy
import pickle
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from ordinal_entropy.methods.composition import Composition, forward_step
from ordinal_entropy.methods.contract import KINDS, Batch, Method, Step, overrides, squared_error

__all__ = ["check_method"]

_HOOKS = {  # of which a part of a kind must have one
    "head": ("head", "outputs", "decode", "task_loss"),
    "loss": ("task_loss",),
    "weights": ("change",),
    "mixing": ("change",),
    "smoothing": ("calibrate",),
    "term": ("term",),
    "averaging": ("share",),
}
_WIDTH, _ROWS = 5, 12
_TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 0.1, torch.float16: 0.05}  # relative to float64


def check_method(make: Callable[[], Method], *, t: int = 1) -> None:
    """Puts a method through the contract; the first thing that does not hold is an AssertionError that says which.

    Its kind and hooks; draws that come from the generator alone, and batches that are left as they were; copies,
    pickles and checkpoints; batches of few rows, of one target, of features that coincide or are zero; finite
    gradients, equal to numerical ones in float64 unless they are a surrogate (``exact_gradient``); lower precisions;
    masks, where it honours them; predictions of the shape of the targets.

    Args:
        make: gives a new one at each call: a subclass of :class:`Method`, or a function.
        t: numbers of a target.

    Example:
        >>> from ordinal_entropy.methods.huber import Huber
        >>> check_method(Huber)
        >>> check_method(Method)
        Traceback (most recent call last):
        AssertionError: Method: expected kind to be one of head, loss, ..., term, averaging, got 'baseline'
    """
    name = type(make()).__name__
    for what, check in (
        ("", _kind_and_hooks),
        ("the generator", _generator),
        ("a copy", _copies),
        ("degenerate batches", _degenerate),
        ("the gradient", _gradient),
        ("lower precision", _precision),
        ("the mask", _mask),
        ("predictions", _predictions),
    ):
        try:
            check(make, t)
        except Exception as error:
            raise AssertionError(f"{name}: {f'{what}: ' if what else ''}{error}") from error


class _Loop:
    """A prepared method between an encoder and a head of its own, in float64."""

    def __init__(self, make: Callable[[], Method], t: int) -> None:
        torch.manual_seed(0)
        self.t = t
        self.method = Composition({"it": make()}).double()
        self.method.prepare(_targets(200, t), torch.randn(200, 3, dtype=torch.float64), _WIDTH)
        self.head = self.method.head(_WIDTH, t).double()
        for _ in range(2):  # what it learns of an epoch
            self.step(_batch(_ROWS, t))
            self.method.end_epoch()

    def step(self, batch: Batch, seed: int = 0) -> tuple[Tensor, Step]:
        """Loss and step; the inputs of the batch are its features."""
        generator = torch.Generator().manual_seed(seed)
        step = forward_step(self.method, nn.Identity(), self.head, batch, squared_error, generator)
        return self.method.loss(step), step


def _targets(n: int, t: int) -> Tensor:
    return torch.randint(0, 9, (n, t), generator=torch.Generator().manual_seed(1)).double() * 2.5 - 3


def _batch(n: int, t: int) -> Batch:
    features = torch.randn(n, _WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    return Batch(features.requires_grad_(), _targets(n, t))


def _kind_and_hooks(make: Callable[[], Method], t: int) -> None:
    method = make()
    if method.kind not in KINDS:
        raise AssertionError(f"expected kind to be one of {', '.join(KINDS)}, got {method.kind!r}")
    hooks = _HOOKS[method.kind]
    if not any(overrides(method, hook) for hook in hooks):
        raise AssertionError(f"expected a {method.kind} to override {' or '.join(hooks)}, got none of these")
    foreign = {hook for kind, own in _HOOKS.items() for hook in own if kind != method.kind} - set(hooks)
    strange = sorted(hook for hook in foreign if overrides(method, hook))
    if strange:
        raise AssertionError(f"expected a {method.kind} to leave {', '.join(strange)} to other parts")


def _copies(make: Callable[[], Method], t: int) -> None:
    loop = _Loop(make, t)
    loop.method.eval()  # nothing that steps change
    batch = _batch(_ROWS, t)
    expected = loop.step(batch)[0]
    fresh = Composition({"it": make()}).double()
    fresh.load_state_dict(loop.method.state_dict())
    for what, twin in (
        ("a deep copy", copy.deepcopy(loop.method)),
        ("a pickle", pickle.loads(pickle.dumps(loop.method))),
        ("a checkpoint in a new one", fresh),
    ):
        other = copy.copy(loop)
        other.method = twin.eval()
        found = other.step(batch)[0]
        if not torch.allclose(found, expected, rtol=1e-12):
            raise AssertionError(f"expected the loss {expected.item()} of {what}, got {found.item()}")


def _degenerate_batches(t: int) -> Iterator[tuple[str, Batch]]:
    for n in (0, 1, 2):
        yield f"n={n} rows", _batch(n, t)
    plain = _batch(_ROWS, t)
    yield "one distinct target", plain._replace(targets=torch.full((_ROWS, t), 2.0, dtype=torch.float64))
    for what, value in (("coincident features", 1.5), ("features of zero", 0.0)):
        yield what, plain._replace(inputs=torch.full((_ROWS, _WIDTH), value, dtype=torch.float64).requires_grad_())
    outside = torch.full((_ROWS, t), torch.nan, dtype=torch.float64)
    nothing = torch.zeros(_ROWS, t, dtype=torch.bool)
    yield "nothing inside the mask", plain._replace(mask=nothing, targets=outside)


def _degenerate(make: Callable[[], Method], t: int) -> None:
    for what, batch in _degenerate_batches(t):
        loop = _Loop(make, t)
        if batch.mask is not None and not loop.method.takes_maps("it"):
            continue
        loss, _ = loop.step(batch)
        if loss.dim() != 0 or not bool(loss.isfinite()):
            raise AssertionError(f"expected a finite scalar for {what}, got {loss}")
        (gradient,) = torch.autograd.grad(loss, batch.inputs, allow_unused=True)
        if gradient is not None and not bool(gradient.isfinite().all()):
            raise AssertionError(
                f"expected a finite gradient for {what}, got {int((~gradient.isfinite()).sum())} others"
            )


def _gradient(make: Callable[[], Method], t: int) -> None:
    if not make().exact_gradient:
        return
    loop, batch = _Loop(make, t), _batch(6, t)
    before = loop.method

    def loss(inputs: Tensor) -> Tensor:
        loop.method = copy.deepcopy(before)  # what a step teaches it does not count
        return loop.step(batch._replace(inputs=inputs))[0]

    torch.autograd.gradcheck(loss, batch.inputs)


def _precision(make: Callable[[], Method], t: int) -> None:
    loop, batch = _Loop(make, t), _batch(_ROWS, t)
    _, step = loop.step(batch)
    with torch.no_grad():
        expected = loop.method.loss(step)
        for dtype, tolerance in _TOLERANCES.items():
            outputs = step.outputs.to(dtype).float() if isinstance(step.outputs, Tensor) else step.outputs
            targets = step.batch.targets.float()
            weight = None if step.batch.weight is None else step.batch.weight.float()
            low = step._replace(
                features=step.features.to(dtype),
                outputs=outputs,
                batch=step.batch._replace(targets=targets, weight=weight),
            )
            found = copy.deepcopy(loop.method).float().loss(low)
            if found.dtype not in (torch.float32, torch.float64):
                raise AssertionError(f"expected a loss in float32 for features in {dtype}, got {found.dtype}")
            if not abs(found.item() - expected.item()) <= tolerance * max(abs(expected.item()), 1.0):
                raise AssertionError(
                    f"expected about {expected.item():g} for features in {dtype}, got {found.item():g}"
                )


def _generator(make: Callable[[], Method], t: int) -> None:
    loop, batch = _Loop(make, t), _batch(_ROWS, t)
    before = [None if each is None else each.detach().clone() for each in batch]
    state = torch.random.get_rng_state()
    one, two = (loop.method.change(batch, torch.Generator().manual_seed(3)) for _ in range(2))
    if not torch.equal(state, torch.random.get_rng_state()):
        raise AssertionError("expected draws from the generator alone, got some of torch's global one")
    for name, first, second in zip(Batch._fields, one, two, strict=True):
        if isinstance(first, Tensor) and not torch.equal(first, second):
            raise AssertionError(f"expected the same {name} by generators of one seed, got others")
    for name, each, was in zip(Batch._fields, batch, before, strict=True):
        if was is not None and not torch.equal(each.detach(), was):
            raise AssertionError(f"expected {name} of the batch left as they were, got others in place")


def _mask(make: Callable[[], Method], t: int) -> None:
    loop = _Loop(make, t)
    if loop.method.kind_of("it") not in ("head", "loss", "term") or not loop.method.takes_maps("it"):
        return
    full, inside = _batch(_ROWS, t), torch.arange(_ROWS) % 3 != 0
    _, step = loop.step(full)
    outputs = step.outputs[inside] if isinstance(step.outputs, Tensor) else step.outputs
    part = step._replace(features=step.features[inside], outputs=outputs, batch=Batch(None, full.targets[inside]))
    targets = torch.where(inside[:, None], full.targets, torch.nan)
    whole = step._replace(batch=Batch(None, targets, inside[:, None].expand_as(targets)))
    expected, found = loop.method.loss(part), loop.method.loss(whole)
    if not torch.allclose(found, expected, rtol=1e-9):
        raise AssertionError(f"expected {expected.item():g}, as of the rows inside alone, got {found.item():g}")


def _predictions(make: Callable[[], Method], t: int) -> None:
    loop = _Loop(make, t)
    with torch.no_grad():
        found = loop.method.decode(loop.head(torch.randn(_ROWS, _WIDTH, dtype=torch.float64)))
    if found.shape != (_ROWS, t) or not bool(found.isfinite().all()):
        raise AssertionError(f"expected finite predictions of shape {(_ROWS, t)}, got {tuple(found.shape)}")
