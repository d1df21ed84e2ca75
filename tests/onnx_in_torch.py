"""Runs the .onnx file of a small network by torch, where there is no onnxruntime: its wire format, and few operators.

Written from the format of protobuf and onnx.proto alone, so that it knows nothing of how the file was made.
"""

import struct

import numpy as np
import torch

_TYPES = {1: np.float32, 6: np.int32, 7: np.int64, 9: np.bool_, 11: np.float64}  # TensorProto.DataType


def run(content, inputs):
    """What the graph in the bytes of a file gives for its one input."""
    (graph,) = (value for field, _, value in _fields(content) if field == 7)
    nodes, values, named = [], {"": None}, {11: [], 12: []}
    for field, _, value in _fields(graph):
        if field == 1:
            nodes.append(_node(value))
        elif field == 5:
            name, tensor = _tensor(value)
            values[name] = tensor
        elif field in named:  # inputs and outputs
            named[field].append(next(each.decode() for own, _, each in _fields(value) if own == 1))
    (given,), (wanted,) = ([name for name in names if name not in values] for names in named.values())
    values[given] = inputs
    for kind, names, outputs, attributes in nodes:
        found = _OPERATORS[kind](attributes, *(values[name] for name in names))
        values.update(zip(outputs, found if isinstance(found, tuple) else (found,), strict=True))
    return values[wanted]


def _same(operator):
    """Of two tensors, which ONNX wants to be of one type."""

    def checked(attributes, a, b):
        assert a.dtype == b.dtype, (operator, a.dtype, b.dtype)
        return operator(a, b)

    return checked


def _divided(a, b):
    return a / b if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


def _gathered(attributes, x, index):
    axis = attributes.get("axis", 0)
    found = x.index_select(axis, index.reshape(-1) % x.shape[axis])
    return found.reshape((*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]))


def _reshaped(attributes, x, sizes):
    sizes = sizes.tolist()
    if not attributes.get("allowzero"):
        sizes = [x.shape[place] if size == 0 else size for place, size in enumerate(sizes)]
    return x.reshape(sizes)


def _sliced(attributes, x, starts, ends, axes=None, steps=None):
    axes = torch.arange(len(starts)) if axes is None else axes
    for place, (start, end, axis) in enumerate(zip(starts.tolist(), ends.tolist(), axes.tolist(), strict=True)):
        step = 1 if steps is None else int(steps[place])
        rows = range(x.shape[axis])[start : None if step < 0 and end < -x.shape[axis] else end : step]
        x = x.index_select(axis, torch.tensor(list(rows), dtype=torch.int64))
    return x


def _unsqueezed(attributes, x, axes):
    most = x.dim() + len(axes)
    for axis in sorted(axis % most for axis in axes.tolist()):
        x = x.unsqueeze(axis)
    return x


def _reduced(operator):
    def reduce(attributes, x, axes=None):
        own = attributes["axes"] if axes is None else axes.tolist()
        return operator(x, own, keepdim=bool(attributes.get("keepdims", 1)))

    return reduce


_OF_TWO = {
    "Add": torch.add,
    "Sub": torch.sub,
    "Mul": torch.mul,
    "Div": _divided,
    "Max": torch.maximum,
    "Min": torch.minimum,
    "MatMul": torch.matmul,
}
_OF_ONE = {name: getattr(torch, name.lower()) for name in ("Relu", "Sin", "Cos", "Exp", "Log", "Sigmoid")}
_OPERATORS = {
    **{name: _same(own) for name, own in _OF_TWO.items()},
    **{name: lambda a, x, own=own: own(x) for name, own in _OF_ONE.items()},
    "Mod": lambda a, x, y: (torch.fmod if a.get("fmod") else torch.remainder)(x, y),
    "Softmax": lambda a, x: x.softmax(a.get("axis", -1)),
    "CumSum": lambda a, x, axis: x.cumsum(int(axis)),
    "TopK": lambda a, x, k: tuple(torch.topk(x, int(k), a.get("axis", -1), bool(a.get("largest", 1)))),
    "ReduceMean": _reduced(torch.mean),
    "ReduceSum": _reduced(torch.sum),
    "Constant": lambda a: a["value"],
    "Cast": lambda a, x: x.to(torch.from_numpy(np.zeros(1, _TYPES[a["to"]])).dtype),
    "Shape": lambda a, x: torch.tensor(x.shape),
    "Range": lambda a, start, end, step: torch.arange(start.item(), end.item(), step.item(), dtype=start.dtype),
    "Concat": lambda a, *parts: torch.cat(parts, a["axis"]),
    "Gather": _gathered,
    "Reshape": _reshaped,
    "Slice": _sliced,
    "Transpose": lambda a, x: x.permute(a["perm"]),
    "Unsqueeze": _unsqueezed,
}


def _node(content):
    """Its operator, inputs, outputs and attributes."""
    kind, inputs, outputs, attributes = "", [], [], {}
    for field, _, value in _fields(content):
        if field in (1, 2):
            (inputs if field == 1 else outputs).append(value.decode())
        elif field == 4:
            kind = value.decode()
        elif field == 5:
            name, own = _attribute(value)
            attributes[name] = own
    return kind, inputs, outputs, attributes


def _attribute(content):
    name, found, many = "", None, []
    for field, wire, value in _fields(content):
        if field == 1:
            name = value.decode()
        elif field == 2:
            found = struct.unpack("<f", value)[0]
        elif field == 3:
            found = _signed(value)
        elif field == 5:
            found = _tensor(value)[1]
        elif field == 8:
            many += _whole(wire, value)
    return name, many or found


def _tensor(content):
    name, sizes, kind, raw = "", [], 0, b""
    for field, wire, value in _fields(content):
        if field == 1:
            sizes += _whole(wire, value)
        elif field == 2:
            kind = value
        elif field == 8:
            name = value.decode()
        elif field == 9:
            raw = value
    return name, torch.from_numpy(np.frombuffer(raw, _TYPES[kind]).reshape(sizes).copy())


def _whole(wire, value):
    """Whole numbers, one or packed."""
    if wire == 0:
        return [_signed(value)]
    found, place = [], 0
    while place < len(value):
        number, place = _varint(value, place)
        found.append(_signed(number))
    return found


def _signed(number):
    return number - 2**64 if number >= 2**63 else number


def _varint(content, place):
    number = shift = 0
    while True:
        byte = content[place]
        place, number, shift = place + 1, number | (byte & 127) << shift, shift + 7
        if byte < 128:
            return number, place


def _fields(content):
    """Number, wire type and value of each field of a message."""
    place = 0
    while place < len(content):
        key, place = _varint(content, place)
        wire = key & 7
        if wire == 0:
            value, place = _varint(content, place)
        else:
            length, place = _varint(content, place) if wire == 2 else ({1: 8, 5: 4}[wire], place)
            value, place = content[place : place + length], place + length
        yield key >> 3, wire, value
