"""Files written beside the training."""

import threading
from collections import OrderedDict
from pathlib import Path

import pytest
import torch

from ordinal_entropy.training.large.files import Files, on_host


def test_files_are_written_in_their_order_while_the_caller_goes_on(tmp_path):
    files, gate, order = Files(), threading.Event(), []

    def writing(name, wait=False):
        def write(file):
            assert not wait or gate.wait(10)
            order.append(name)
            file.write(name.encode())

        return write

    files.write(tmp_path / "a", writing("first", wait=True))
    files.write(tmp_path / "new" / "b", writing("second"))
    files.write(tmp_path / "a", writing("third"))
    assert not order and not (tmp_path / "a").exists()
    gate.set()
    files.close()
    assert order == ["first", "second", "third"]
    assert (tmp_path / "a").read_text() == "third" and (tmp_path / "new" / "b").read_text() == "second"
    assert {path.name for path in tmp_path.iterdir()} == {"a", "new"}
    files.write(tmp_path / "c", writing("later"))
    files.close()
    assert (tmp_path / "c").read_text() == "later"


def test_a_file_that_cannot_be_written_is_told_of(tmp_path):
    def broken(file):
        file.write(b"half")
        raise ValueError("no more")

    files = Files()
    (tmp_path / "a").write_text("old")
    files.write(tmp_path / "a", broken)
    with pytest.raises(ValueError, match="no more"):
        files.close()
    assert (tmp_path / "a").read_text() == "old" and len(list(tmp_path.iterdir())) == 1
    files.close()  # told once

    files.write(tmp_path / "a" / "b", lambda file: None)
    with pytest.raises(OSError, match="expected to be able to write"):
        for _ in range(9):
            files.write(tmp_path / "c", lambda file: None)
    files.close()


def test_a_copy_does_not_change():
    content = OrderedDict(
        weights={"w": torch.zeros(2, requires_grad=True)},
        groups=[{"lr": 1.0, "params": [0]}],
        pair=(1, None),
        where=Path(),
    )
    copied = on_host(content)
    with torch.no_grad():
        content["weights"]["w"].add_(1)
    content["groups"][0]["lr"] = 2.0
    content["groups"].append({})
    assert torch.equal(copied["weights"]["w"], torch.zeros(2)) and not copied["weights"]["w"].requires_grad
    assert (
        copied["groups"] == [{"lr": 1.0, "params": [0]}] and copied["pair"] == (1, None) and copied["where"] == Path()
    )
