import signal
import threading
import time

import pytest

from ordinal_entropy.training import interrupts


def test_an_interrupt_waits_for_what_is_under_way():
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts.held():
        threading.Timer(0.01, signal.raise_signal, [signal.SIGINT]).start()
        time.sleep(0.1)
        done.append(True)
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
