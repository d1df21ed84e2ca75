"""MATLAB files: what SciPy writes is read as SciPy reads it; damaged ones are refused, and never crash."""

import io
import struct

import numpy as np
import pytest

pytest.importorskip("scipy", reason="MATLAB files are written with SciPy")
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import loadmat, savemat

from ordinal_entropy.tasks import matlab
from ordinal_entropy.tasks.matlab import MatlabError

LIMIT = 1_000_000


def written(compressed=False, **variables):
    file = io.BytesIO()
    savemat(file, variables, do_compression=compressed)
    return file.getvalue()


def read(content):
    return matlab.variables(content, max_bytes=LIMIT)


def cell(*values):
    found = np.empty((1, len(values)), dtype=object)
    found[0, :] = values
    return found


numbers = st.one_of(
    st.floats(allow_nan=False, width=32),
    st.integers(-(2**31), 2**31 - 1),
    st.lists(st.lists(st.floats(-9, 9), min_size=2, max_size=2), min_size=1, max_size=5).map(np.array),
    st.sampled_from([np.zeros((0, 2)), np.arange(24, dtype=np.int16).reshape(2, 3, 4), np.uint8([[1, 2, 3]])]),
)
names = st.text("abcdefgh", min_size=1, max_size=12)
anything = st.recursive(
    numbers,
    lambda inside: st.one_of(
        st.lists(inside, min_size=1, max_size=3).map(lambda values: ("cell", values)),
        st.dictionaries(names, inside, min_size=1, max_size=3),
    ),
    max_leaves=6,
)


def for_scipy(value):
    if isinstance(value, tuple):
        return cell(*map(for_scipy, value[1]))
    return {name: for_scipy(each) for name, each in value.items()} if isinstance(value, dict) else value


def assert_as_scipy(found, read):
    """A cell is a list, a struct a list of dictionaries; numbers are what SciPy has."""
    if read.dtype.names:
        assert [set(each) for each in found] == [set(read.dtype.names)] * read.size
        for each, wanted in zip(found, read.ravel("F"), strict=True):
            for name in read.dtype.names:
                assert_as_scipy(each[name], wanted[name])
    elif read.dtype == object:
        assert len(found) == read.size
        for each, wanted in zip(found, read.ravel("F"), strict=True):
            assert_as_scipy(each, wanted)
    else:
        assert found.dtype == np.float64
        assert np.array_equal(found, read.astype(np.float64))


@given(variables=st.dictionaries(names, anything, max_size=3), compressed=st.booleans())
def test_what_scipy_writes(variables, compressed):
    content = written(compressed, **{name: for_scipy(value) for name, value in variables.items()})
    found, wanted = read(content), loadmat(io.BytesIO(content))
    assert found.keys() == variables.keys()
    for name, value in found.items():
        assert_as_scipy(value, wanted[name])


def test_an_array_of_structs():
    several = np.array([(1.0, 2.0), (3.0, 4.0)], dtype=[("a", "f8"), ("b", "f8")])
    found = read(written(s=several))["s"]
    assert [{name: value.item() for name, value in each.items()} for each in found] == [
        {"a": 1, "b": 2},
        {"a": 3, "b": 4},
    ]


@pytest.mark.parametrize("value", ["text", np.array([[1j]]), np.array([["some", "text"]])])
def test_what_is_no_number_is_none(value):
    assert read(written(a=value, b=7.0)) == {"a": None, "b": np.array([[7.0]])}


def element(order, kind, data):
    return struct.pack(f"{order}II", kind, len(data)) + data + bytes(-len(data) % 8)


def small(order, kind, data):
    return struct.pack(f"{order}I", len(data) << 16 | kind) + data.ljust(4, b"\0")


@pytest.mark.parametrize("order", ["<", ">"])
def test_either_order_of_bytes(order):
    parts = [
        element(order, 6, struct.pack(f"{order}II", 6, 0)),
        element(order, 5, struct.pack(f"{order}ii", 1, 2)),
        small(order, 1, b"ab"),
        small(order, 3, struct.pack(f"{order}hh", -5, 300)),  # doubles that fit 16 bits are stored in them
    ]
    end = struct.pack(f"{order}H", 0x0100) + (b"IM" if order == "<" else b"MI")
    content = b"MATLAB 5.0".ljust(124) + end + element(order, 14, b"".join(parts))
    assert np.array_equal(read(content)["ab"], [[-5, 300]])
    assert np.array_equal(loadmat(io.BytesIO(content))["ab"], [[-5, 300]])


def test_no_variables():
    assert read(written()) == {}


def test_unpacking_ends_at_the_limit():
    content = written(True, a=np.zeros(10_000))
    assert len(matlab.variables(content, max_bytes=90_000)["a"]) == 1
    with pytest.raises(MatlabError, match="larger than 80,000 bytes when unpacked"):
        matlab.variables(content, max_bytes=80_000)
    twice = content + content[128:]
    with pytest.raises(MatlabError, match="larger than 90,000 bytes when unpacked"):
        matlab.variables(twice, max_bytes=90_000)


@pytest.mark.parametrize("kind", [0, 8, 14, 15, 99])
def test_numbers_of_a_kind_that_is_none(kind):
    """15 in place of a kind of numbers ends the process in SciPy 1.17."""
    content = bytearray(written(a=np.array([[1.0, 2.0, 3.0]])))
    place = content.index(struct.pack("<II", 9, 24))
    content[place] = kind
    with pytest.raises(MatlabError, match=f"damaged: numbers of kind {kind}"):
        read(bytes(content))


def test_a_shape_of_another_size():
    content = written(a=np.array([[1.0, 2.0, 3.0]]))
    shape = struct.pack("<ii", 1, 3)
    for other in ((2**31 - 1, 2**31 - 1), (1, 2), (0, 3)):
        with pytest.raises(MatlabError, match="damaged: 3 numbers for a shape of"):
            read(content.replace(shape, struct.pack("<ii", *other)))
    with pytest.raises(MatlabError, match="without a shape"):
        read(content.replace(shape, struct.pack("<ii", 1, -3)))
    many = written(c=cell(1.0, 2.0)).replace(struct.pack("<ii", 1, 2), struct.pack("<ii", 1, 2**31 - 1))
    with pytest.raises(MatlabError, match="damaged: 2 values for a shape of 2,147,483,647"):
        read(many)


@settings(max_examples=300)
@given(
    changes=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4),
    cut=st.integers(0, 10**6) | st.none(),
    compressed=st.booleans(),
)
def test_whatever_the_bytes_there_is_an_answer(changes, cut, compressed):
    content = bytearray(written(compressed, a=cell({"b": np.eye(3), "c": 3.0}, cell("text")), d=np.arange(5)))
    for place, value in changes:
        content[place % len(content)] = value
    try:
        found = read(bytes(content[: None if cut is None else cut % len(content)]))
    except MatlabError as error:
        assert str(error).isprintable() and len(str(error)) < 100
    else:
        assert isinstance(found, dict)
