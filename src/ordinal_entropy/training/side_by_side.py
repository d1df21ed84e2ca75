"""Several processes on one device: networks that are small for a large GPU train beside each other."""

import contextlib
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from typing import Any, TypeVar

import torch

Item = TypeVar("Item")
Progress = Callable[[int, int], None]
_POLL = 0.2  # seconds
_PATIENCE = 60.0  # seconds that a process has to stop in, after an interrupt


class _Workers:
    """Processes that wait for work, and keep what they have read for it as long as it is the same."""

    def __init__(self, count: int) -> None:
        context = multiprocessing.get_context("spawn")  # a CUDA context does not outlive a fork
        threads = max(1, torch.get_num_threads() // count)  # a run on a CPU sets its own
        self.count, self.processes = count, dict[Connection, Any]()
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_worker, args=(theirs, threads))
            process.start()
            theirs.close()
            self.processes[ours] = process

    def share(self, work: Callable[..., None], items: Sequence[Any], progress: Progress | None) -> None:
        """Gives each process an item whenever it has none; the first error of any is raised."""
        called, waiting = bytes(ForkingPickler.dumps(work)), list(enumerate(items))
        busy: dict[Connection, int] = {}
        done: dict[int, tuple[int, int]] = {}  # of items that have begun: how much is done, of how much
        while waiting or busy:
            for ours in self.processes:
                if waiting and ours not in busy:
                    busy[ours], item = waiting.pop(0)
                    ours.send_bytes(called)
                    ours.send(item)
            for ready in wait(list(busy), _POLL):
                assert isinstance(ready, Connection)
                self._hear(ready, busy, done)
            if progress is not None and len(done) >= min(self.count, len(items)):  # all processes have begun
                of = sum(total for _, total in done.values())
                progress(sum(each for each, _ in done.values()), of * len(items) // len(done))

    def _hear(self, ours: Connection, busy: dict[Connection, int], done: dict[int, tuple[int, int]]) -> None:
        try:
            told = ours.recv()
        except EOFError:
            process = self.processes[ours]
            process.join()
            raise RuntimeError(f"a process that trained runs ended with status {process.exitcode}") from None
        if isinstance(told, Exception):
            raise told
        if told is None:
            place = busy.pop(ours)
            done[place] = (done[place][1], done[place][1]) if place in done else (1, 1)
        else:
            done[busy[ours]] = told

    def end(self, patience: float = 0.0) -> None:
        """Stops the processes; those that stop by themselves have so many seconds."""
        deadline = time.monotonic() + patience
        for process in self.processes.values():
            process.join(max(deadline - time.monotonic(), 0.0))
        for ours, process in self.processes.items():
            if process.is_alive():
                process.terminate()
            process.join()
            ours.close()


_KEPT: list[_Workers | None] = []  # of the innermost `kept_processes`, once there are any


@contextlib.contextmanager
def kept_processes() -> Iterator[None]:
    """Inside the ``with``, calls of :func:`side_by_side` share their processes, and what these have read."""
    _KEPT.append(None)
    try:
        yield
    finally:
        workers = _KEPT.pop()
        if workers is not None:
            workers.end()


def side_by_side(
    work: Callable[[Sequence[Item], Progress], None],
    items: Sequence[Item],
    jobs: int,
    progress: Progress | None = None,
) -> None:
    """Shares items out among processes, each of which calls ``work`` with one after the other.

    The first error of any process is raised here and stops the others; so does an interrupt.

    Args:
        work: a function of a module (or a ``partial`` of one): takes a list of one item, and a function that it tells
            how much of it is done, and how much there is. A process that has it already keeps it, with what it holds.
        items: that can be pickled.
        jobs: processes at most.
        progress: told the same of all processes together, from time to time.
    """
    if not items:
        return
    count, kept = min(jobs, len(items)), _KEPT[-1] if _KEPT else None
    if kept is not None and kept.count < count:
        kept.end()
        kept = None
    workers = kept or _Workers(count)
    if _KEPT:
        _KEPT[-1] = workers
    try:
        workers.share(work, items, progress)
    except BaseException as error:
        if _KEPT:
            _KEPT[-1] = None
        workers.end(_PATIENCE if isinstance(error, KeyboardInterrupt) else 0.0)  # they had it too, and save
        raise
    if not _KEPT:
        workers.end()


def _worker(theirs: Connection, threads: int) -> None:
    torch.set_num_threads(threads)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    known, work = b"", None
    with contextlib.suppress(EOFError, KeyboardInterrupt):  # the other end is closed; an interrupt finds it waiting
        while True:
            called = theirs.recv_bytes()
            if called != known:
                known, work = called, ForkingPickler.loads(called)
            item = theirs.recv()
            assert work is not None
            try:
                work([item], lambda *both: theirs.send(both))
            except KeyboardInterrupt:
                sys.exit(130)
            except Exception as error:
                theirs.send(error)
                return
            theirs.send(None)


def _end_with_parent() -> None:
    """A command that is killed leaves no process behind that writes to its folder."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
