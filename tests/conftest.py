"""For tests of any part."""

import signal
import weakref

import pytest
from hypothesis import settings

from of_every_kind import of_every_kind  # noqa: F401  a fixture

settings.register_profile("any machine", deadline=None)  # a machine may be slow, or busy with something else
settings.load_profile("any machine")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # begun in the background: tests of Ctrl-C want to be heard
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def without_page(monkeypatch):
    """Commands end without their page, whose layouts take a while; tests/report has those."""
    monkeypatch.setattr("ordinal_entropy.report.missing", lambda: "nothing, but it takes a while")


@pytest.fixture(autouse=True)
def _graphs_end_for_this_test_only(monkeypatch):
    """Gradient-balanced strengths of earlier tests end no graph of this one, and have not changed what graphs save."""
    monkeypatch.setattr("ordinal_entropy.graph_edges._ASKING", weakref.WeakSet())
    import torch._functorch.config as settings

    before = getattr(settings, "donated_buffer", None)
    yield
    if before is not None:
        settings.donated_buffer = before
