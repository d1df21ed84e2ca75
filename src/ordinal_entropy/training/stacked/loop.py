"""The training loop of a stack: steps, evaluations, checkpoints, and interrupts that wait for a safe moment."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple

from ordinal_entropy.training.plans import Progress
from ordinal_entropy.training.stacked.stack import Stack


class Loop(NamedTuple):
    """When what happens."""

    steps: int  # in all
    evaluate_every: int  # steps; also after the last one
    at_once: int = 1  # steps between two looks at the clock, at most
    checkpoint_every: int | None = None  # steps
    checkpoint_seconds: float = 30.0  # whichever comes first, but
    checkpoint_at: int = 1  # at multiples of so many steps only


def train(
    stack: Stack,
    loop: Loop,
    *,
    evaluated: Callable[[], int],
    evaluate: Callable[[], Callable[[], None]],
    save: Callable[[], None],
    progress: Progress | None,
) -> None:
    """Trains a stack from wherever it is to the last step.

    Args:
        stack: the runs.
        loop: when what happens.
        evaluated: the step that was evaluated last.
        evaluate: scores the runs and notes the scores, whole or not at all; gives what is to be called after that.
        save: writes the checkpoint; also at the end and after an interrupt (Ctrl-C).
        progress: told the steps done and the steps in all, from time to time.
    """
    saved_at, saved_step = time.monotonic(), stack.step
    try:
        while True:
            due = stack.step % loop.evaluate_every == 0 or stack.step == loop.steps
            if due and evaluated() != stack.step:
                with held():
                    tell = evaluate()
                tell()
            often = loop.checkpoint_every or loop.steps + 1
            late = stack.step // often > saved_step // often or time.monotonic() - saved_at > loop.checkpoint_seconds
            if late and stack.step > saved_step and stack.step % loop.checkpoint_at == 0:
                save()
                saved_at, saved_step = time.monotonic(), stack.step
            if stack.step == loop.steps:
                break
            rest = loop.evaluate_every - stack.step % loop.evaluate_every
            with held():
                stack.advance(min(loop.at_once, rest, loop.steps - stack.step))
            if progress is not None:
                progress(stack.step, loop.steps)
    except KeyboardInterrupt:
        save()
        raise
    save()


@contextmanager
def held() -> Iterator[None]:
    """An interrupt (SIGINT) inside the ``with`` takes effect at its end. Outside the main thread there are none."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield
        return
    came = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        signal.raise_signal(signal.SIGINT)
