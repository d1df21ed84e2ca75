"""For tests of any part."""

import gc
import multiprocessing
import signal
import sys
import weakref

import pytest
from hypothesis import settings

from processes import SERVER

from of_every_kind import of_every_kind  # noqa: F401  a fixture

settings.register_profile("any machine", deadline=None)  # a machine may be slow, or busy with something else
settings.load_profile("any machine")

SETTLED = pytest.StashKey[int]()  # modules that had been imported when the garbage collector last saw them

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # begun in the background: tests of Ctrl-C want to be heard
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="module")
def _modules_are_no_garbage(request):
    """Searches for garbage, of which some libraries make one a run, pass over what has been imported: it stays."""
    if len(sys.modules) > request.session.stash.get(SETTLED, 0) + 100:
        gc.collect()
        gc.freeze()
        request.session.stash[SETTLED] = len(sys.modules)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """A page whose examples train for a while is slow; tests/test_theory.py has what it says."""
    for item in items:
        if item.nodeid.startswith("docs/theory.md"):
            item.add_marker("slow")


def pytest_sessionfinish():
    gc.unfreeze()


@pytest.fixture
def without_page(monkeypatch):
    """Commands end without their page, whose layouts take a while; tests/report has those."""
    monkeypatch.setattr("ordinal_entropy.report.missing", lambda: "nothing, but it takes a while")


@pytest.fixture
def quick_processes(monkeypatch):
    """Processes that would import everything anew begin as copies of one that has imported PyTorch."""
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: SERVER)


@pytest.fixture(autouse=True)
def _graphs_end_for_this_test_only(monkeypatch):
    """Gradient-balanced strengths of earlier tests end no graph of this one, and have not changed what graphs save."""
    monkeypatch.setattr("ordinal_entropy.graph_edges._ASKING", weakref.WeakSet())
    import torch._functorch.config as settings

    before = getattr(settings, "donated_buffer", None)
    yield
    if before is not None:
        settings.donated_buffer = before
