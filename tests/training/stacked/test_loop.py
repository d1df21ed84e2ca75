"""When a stack is evaluated and its checkpoint written, and interrupts that wait."""

import signal
import threading
import time

import pytest

from ordinal_entropy.training.stacked.loop import Loop, held, train


class Counted:
    """A stack that only counts."""

    def __init__(self):
        self.step, self.done = 0, []

    def advance(self, steps):
        self.step += steps
        self.done.append(("advance", steps))


def trained(loop, *, stop=None, stack=None):
    """What was done, in order."""
    stack = Counted() if stack is None else stack
    evaluated = [-1]

    def evaluate():
        evaluated.append(stack.step)
        stack.done.append(("evaluate", stack.step))
        return lambda: stack.done.append(("tell", stack.step))

    def progress(step, steps):
        if step == stop:
            raise KeyboardInterrupt

    train(
        stack,
        loop,
        evaluated=lambda: evaluated[-1],
        evaluate=evaluate,
        save=lambda: stack.done.append(("save", stack.step)),
        progress=progress,
    )
    return stack.done


def test_steps_stop_at_evaluations_and_at_the_end():
    done = trained(Loop(25, 10, at_once=4))
    assert [count for what, count in done if what == "advance"] == [4, 4, 2, 4, 4, 2, 4, 1]
    assert [step for what, step in done if what == "evaluate"] == [0, 10, 20, 25]
    assert [step for what, step in done if what == "tell"] == [0, 10, 20, 25]
    assert done[-1] == ("save", 25) and [what for what, _ in done].count("save") == 1


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        (Loop(12, 100, at_once=2, checkpoint_every=4), [4, 8, 12, 12]),
        (Loop(12, 100, at_once=2, checkpoint_seconds=-1.0, checkpoint_at=6), [6, 12, 12]),
        (Loop(12, 100, at_once=2), [12]),
    ],
)
def test_checkpoints(loop, expected):
    assert [step for what, step in trained(loop) if what == "save"] == expected


def test_an_interrupt_writes_a_checkpoint_first():
    stack = Counted()
    with pytest.raises(KeyboardInterrupt):
        trained(Loop(25, 10, at_once=5), stop=15, stack=stack)
    assert stack.done[-1] == ("save", 15)


def test_an_interrupt_waits_for_what_is_under_way():
    done = []
    with pytest.raises(KeyboardInterrupt), held():
        threading.Timer(0.01, signal.raise_signal, [signal.SIGINT]).start()
        time.sleep(0.1)
        done.append(True)
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
