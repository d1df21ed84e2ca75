"""Files written beside the training: a GPU does not wait for a disk."""

import copy
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

from torch import Tensor

from ordinal_entropy import runs

_UNWRITTEN = 5  # files that wait to be written, at most: those of an epoch


class Files:
    """Files that are written while the training goes on, one after the other.

    What goes wrong with one is raised at a later one, or at the end.
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._unwritten: deque[Future[None]] = deque()

    def write(self, path: Path, write: Callable[[BinaryIO], None]) -> None:
        """Has a file written that a stop at any moment leaves whole, the old one or the new.

        Args:
            path: of the file.
            write: is given a file to write to, in another thread: nothing that it uses may change any more.
        """

        def replace_file() -> None:
            with runs.replacing(path) as file:
                write(file)

        if self._pool is None:
            self._pool = ThreadPoolExecutor(1)
        while len(self._unwritten) >= _UNWRITTEN:
            self._unwritten.popleft().result()
        self._unwritten.append(self._pool.submit(replace_file))

    def close(self) -> None:
        """Waits until all are written."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()
        while self._unwritten:
            self._unwritten.popleft().result()


def on_host(content: Any) -> Any:
    """A copy that nothing changes any more, its tensors in the memory of the host."""
    if isinstance(content, Tensor):
        return content.detach().to("cpu", copy=True)
    if isinstance(content, Mapping):
        return {key: on_host(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return type(content)(map(on_host, content))
    return copy.deepcopy(content)
