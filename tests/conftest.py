"""For tests of any part."""

import pytest


@pytest.fixture
def without_page(monkeypatch):
    """Commands end without their page, whose layouts take a while; tests/report has those."""
    monkeypatch.setattr("ordinal_entropy.report.missing", lambda: "nothing, but it takes a while")
