"""Several processes on one device: networks that are small for a large GPU train beside each other."""

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

Item = TypeVar("Item")
Progress = Callable[[int, int], None]
_POLL = 0.2  # seconds
_PATIENCE = 60.0  # seconds that a process has to stop in, after an interrupt


def side_by_side(
    work: Callable[[Sequence[Item], Progress], None],
    items: Sequence[Item],
    jobs: int,
    progress: Progress | None = None,
) -> None:
    """Shares items out among new processes, each of which calls ``work`` once with its share.

    The first error of any process is raised here and stops the others; so does an interrupt.

    Args:
        work: a function of a module (or a ``partial`` of one): takes its share, and a function that it tells how much
            of it is done, and how much there is.
        items: that can be pickled.
        jobs: processes at most.
        progress: told the same of all processes together, from time to time.
    """
    context = multiprocessing.get_context("spawn")  # a CUDA context does not outlive a fork
    shares = [items[k::jobs] for k in range(min(jobs, len(items)))]
    done, total = context.Array("q", len(shares)), context.Array("q", len(shares))
    errors = context.SimpleQueue()
    threads = max(1, torch.get_num_threads() // max(1, len(shares)))  # a run on a CPU sets its own
    processes = [
        context.Process(target=_child, args=(work, share, k, done, total, errors, threads))
        for k, share in enumerate(shares)
    ]
    try:
        for process in processes:
            process.start()
        while any(process.is_alive() for process in processes) and errors.empty():
            if progress is not None and all(total[:]):  # all have begun
                progress(sum(done[:]), sum(total[:]))
            time.sleep(_POLL)
        if not errors.empty():
            raise errors.get()
        for process in processes:
            if process.exitcode:
                raise RuntimeError(f"a process that trained runs ended with status {process.exitcode}")
    except KeyboardInterrupt:  # the processes had it too, and write down where they are
        for process in processes:
            process.join(_PATIENCE)
        raise
    finally:
        for process in processes:
            if process.is_alive():
                process.terminate()
        for process in processes:
            if process.pid is not None:
                process.join()


def _child(
    work: Callable[[Sequence[Any], Progress], None],
    share: Sequence[Any],
    place: int,
    done: Any,
    total: Any,
    errors: Any,
    threads: int,
) -> None:
    torch.set_num_threads(threads)
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def progress(count: int, of: int) -> None:
        done[place], total[place] = count, of

    try:
        work(share, progress)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        errors.put(error)
        sys.exit(1)


def _end_with_parent() -> None:
    """A command that is killed leaves no process behind that writes to its folder."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
