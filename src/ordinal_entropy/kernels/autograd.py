"""A kernel that finishes its gradient in the forward pass, as a differentiable function of torch.

A kernel takes points ``(g, m, d)``, other inputs that get no gradient, and ``with_gradient``; it returns one number a
group ``(g,)`` and their gradient ``(g, m, d)`` (without, nothing in it), at least in float32. One that returns a
scalar for one group may be called with points ``(m, d)``: a view less for the gradient to go back through. Torch has
three ways to call such a thing, and no one of them works everywhere: under ``torch.compile`` an operator; under the
transforms of ``torch.func`` a function that says how it is batched; otherwise the plain function that costs least.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Call = Callable[..., Tensor]


def differentiable(
    name: str,
    schema: str,
    kernel: Callable[..., tuple[Tensor, Tensor]],
    plain: Call,
    *,
    tensors: int,
    scalar: bool = False,
) -> tuple[Any, Call]:
    """The operator of torch made of a kernel, and the function to call it by.

    Args:
        name: of the operator, behind "ordinal_entropy::".
        schema: its inputs and outputs as ``torch.library`` writes them.
        kernel: from the inputs to the numbers and their gradient.
        plain: the same numbers by differentiable operations, for second derivatives.
        tensors: how many of the inputs are tensors, or None in their place; they come first.
        scalar: the kernel returns a scalar for one group, which saves the caller a view.

    Returns:
        The operator, and a function of all inputs but ``with_gradient`` to the numbers ``(g,)``.
    """

    def scaled(gradient: Tensor, by_value: Tensor, dtype: torch.dtype) -> Tensor:
        answer = gradient * (by_value if by_value.numel() == 1 else by_value[:, None, None])
        return answer if answer.dtype == dtype else answer.to(dtype)

    def save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.set_materialize_grads(False)
        ctx.options = inputs[tensors:-1]
        ctx.save_for_backward(*inputs[:tensors], output[1])

    def backward(ctx: Any, by_value: Tensor | None, by_gradient: Tensor | None) -> tuple[Tensor | None, ...]:
        points, *constants, gradient = ctx.saved_tensors
        answer = None
        if by_value is not None:
            answer = scaled(gradient, by_value, points.dtype)
        if by_gradient is not None:  # a second derivative: rare, so it may take the m x m matrices
            with torch.enable_grad():
                x = points.detach().requires_grad_()
                first = torch.autograd.grad(plain(x, *constants, *ctx.options).sum(), x, create_graph=True)
                second = torch.autograd.grad(first, x, by_gradient)[0]
            answer = second if answer is None else answer + second
        return answer, *([None] * (tensors + len(ctx.options)))

    class Plain(torch.autograd.Function):
        """Takes all that is no tensor as one argument and returns the numbers alone: each more costs the host time."""

        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Tensor:
            ctx.options = inputs[-1][:-1]
            value, gradient = kernel(*inputs[:-1], *inputs[-1])
            ctx.save_for_backward(*inputs[:-1], gradient)
            return value

        @staticmethod
        def backward(ctx: Any, *by_outputs: Tensor) -> tuple[Tensor | None, ...]:
            points, *constants, gradient = ctx.saved_tensors
            if torch.is_grad_enabled():  # a second derivative is to come: rare, so it may take the m x m matrices
                numbers = plain(points, *constants, *ctx.options)
                answer = torch.autograd.grad(numbers, points, by_outputs[0].reshape(-1), create_graph=True)[0]
            else:
                answer = scaled(gradient, by_outputs[0], points.dtype)
            return answer, *([None] * tensors)

    class Transformed(torch.autograd.Function):
        forward = staticmethod(kernel)
        setup_context = staticmethod(save)

        @staticmethod
        def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, Tensor], Any]:
            """A batch of groups is more groups."""
            size = info.batch_size
            joined = [
                (x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)).flatten(0, 1)
                if isinstance(x, Tensor)
                else x
                for x, dim in zip(inputs, in_dims, strict=True)
            ]
            value, gradient = Transformed.apply(*joined)
            groups = gradient.shape[0] // size
            value = value.reshape(size) if scalar and groups == 1 else value.reshape(size, groups)
            return (value, gradient.unflatten(0, (size, -1))), (0, 0)

    Transformed.backward = staticmethod(backward)  # type: ignore[method-assign]
    operator = torch.library.custom_op(f"ordinal_entropy::{name}", kernel, mutates_args=(), schema=schema)
    operator.register_autograd(backward, setup_context=save)

    @operator.register_fake
    def shapes(points: Tensor, *inputs: Any) -> tuple[Tensor, Tensor]:
        dtype = torch.promote_types(points.dtype, torch.float32)
        gradient = points.shape if inputs[-1] else (0,)
        value = () if scalar and points.shape[0] == 1 else (points.shape[0],)
        return points.new_empty(value, dtype=dtype), points.new_empty(gradient, dtype=dtype)

    def call(points: Tensor, *inputs: Any) -> Tensor:
        compiling = torch.compiler.is_compiling()
        transformed = not compiling and torch._C._functorch.peek_interpreter_stack() is not None
        with_gradient = transformed or (torch.is_grad_enabled() and points.requires_grad)
        value: Tensor
        if points.dim() == 2 and (transformed or compiling):
            points = points.unsqueeze(0)
        if transformed:
            value, _ = Transformed.apply(points, *inputs, with_gradient)
        elif compiling or type(points) is not Tensor:  # a fake tensor, say
            value, _ = operator(points, *inputs, with_gradient)
        else:
            constants = tensors - 1  # behind the points
            apply = super(torch.autograd.Function, Plain).apply  # its own would look for transforms once more
            value = apply(points, *inputs[:constants], (*inputs[constants:], with_gradient))
        return value

    return operator, call
