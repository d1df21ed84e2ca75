"""Work shared out among processes."""

import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest

from ordinal_entropy.training.side_by_side import kept_processes, side_by_side


def write_names(share, progress, folder):
    """A file for each item, in its process."""
    for number, item in enumerate(share):
        (folder / item).write_text(str(os.getpid()))
        progress(number + 1, len(share))


def refuse(share, progress):
    progress(1, 2)
    if "b" in share:
        raise ValueError("expected anything but b, got b")
    time.sleep(600)


def die(share, progress):
    os.kill(os.getpid(), signal.SIGKILL)


def wait_for_the_interrupt(share, progress, folder):
    (folder / f"begun-{share[0]}").touch()
    try:
        time.sleep(600)
    except KeyboardInterrupt:
        (folder / f"saved-{share[0]}").touch()
        raise


@pytest.mark.usefixtures("quick_processes")
def test_every_item_is_done_in_one_of_so_many_processes(tmp_path):
    told = []
    side_by_side(partial(write_names, folder=tmp_path), list("abcde"), 2, lambda *both: told.append(both))
    processes = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert set(processes) == set("abcde")
    assert len(set(processes.values())) == 2
    assert str(os.getpid()) not in processes.values()
    assert all(done <= total == 5 for done, total in told)


@pytest.mark.usefixtures("quick_processes")
def test_more_jobs_than_items_are_not_started(tmp_path):
    side_by_side(partial(write_names, folder=tmp_path), ["a"], 8)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


class Reading:
    """Work that reads something once."""

    def __init__(self, folder):
        self.folder, self.read = folder, None

    def __call__(self, share, progress):
        self.read = self.read or time.monotonic()
        (self.folder / share[0]).write_text(f"{os.getpid()} {self.read}")


@pytest.mark.usefixtures("quick_processes")
def test_kept_processes_keep_what_they_have_read(tmp_path):
    with kept_processes():
        for names in ("ab", "cd", "e"):
            side_by_side(Reading(tmp_path), list(names), 2)
        kept = {path.name: path.read_text() for path in tmp_path.iterdir()}
        assert set(kept) == set("abcde") and len(set(kept.values())) == 2
        numbers = [int(text.split()[0]) for text in set(kept.values())]
        with pytest.raises(ValueError, match="expected anything but b, got b"):
            side_by_side(refuse, ["b", "c"], 2)
        side_by_side(Reading(tmp_path), ["f"], 2)  # by new ones
        assert int((tmp_path / "f").read_text().split()[0]) not in numbers
        numbers.append(int((tmp_path / "f").read_text().split()[0]))
    assert not any(map(alive, numbers))


@pytest.mark.usefixtures("quick_processes")
def test_who_is_done_takes_what_is_left(tmp_path):
    side_by_side(partial(slow_at_first, folder=tmp_path), list("abcd"), 2)
    processes = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert len({processes[name] for name in "bcd"}) == 1 and processes["a"] != processes["b"]


def slow_at_first(share, progress, folder):
    """The first item ends when all others have."""
    (folder / share[0]).write_text(str(os.getpid()))
    if share == ["a"]:
        wait_until(lambda: len(list(folder.iterdir())) == 4)


@pytest.mark.usefixtures("quick_processes")
def test_the_first_error_stops_all_and_is_raised():
    start = time.monotonic()
    with pytest.raises(ValueError, match="expected anything but b, got b"):
        side_by_side(refuse, ["a", "b"], 2)
    assert time.monotonic() - start < 120


@pytest.mark.usefixtures("quick_processes")
def test_a_process_that_dies_is_an_error():
    with pytest.raises(RuntimeError, match="status -9"):
        side_by_side(die, ["a"], 1)


def test_an_interrupt_reaches_all_and_waits_for_them(tmp_path):
    script = (
        "import sys; from functools import partial; from pathlib import Path\n"
        f"sys.path.insert(0, {os.path.dirname(__file__)!r})\n"
        "from test_side_by_side import side_by_side, wait_for_the_interrupt\n"
        f"side_by_side(partial(wait_for_the_interrupt, folder=Path({str(tmp_path)!r})), ['a', 'b'], 2)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    begun = [tmp_path / "begun-a", tmp_path / "begun-b"]
    deadline = time.monotonic() + 100
    while not all(path.exists() for path in begun) and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal sends it
    _, errors = process.communicate(timeout=600)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in errors
    assert (tmp_path / "saved-a").exists()
    assert (tmp_path / "saved-b").exists()


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="asks /proc who is alive")
def test_processes_end_with_the_one_that_started_them(tmp_path):
    script = (
        "import sys; from functools import partial; from pathlib import Path\n"
        "from ordinal_entropy.training.side_by_side import side_by_side; import test_side_by_side as own\n"
        "work = partial(own.write_and_wait, folder=Path(sys.argv[1]))\n"
        "if __name__ == '__main__': side_by_side(work, list('ab'), 2)\n"
    )
    (tmp_path / "script.py").write_text(script)
    paths = os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path)]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": paths})
    wait_until(lambda: len(list(tmp_path.glob("begun-*"))) == 2)
    process.kill()
    process.wait()
    numbers = [int(path.read_text()) for path in tmp_path.glob("begun-*")]
    wait_until(lambda: not any(alive(number) for number in numbers))


def write_and_wait(share, progress, folder):
    unfinished = folder / f"unfinished-{share[0]}"
    unfinished.write_text(str(os.getpid()))
    unfinished.rename(folder / f"begun-{share[0]}")
    time.sleep(600)


def wait_until(done):
    start = time.monotonic()
    while not done():
        assert time.monotonic() - start < 60
        time.sleep(0.05)


def alive(number):
    try:
        with open(f"/proc/{number}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
