"""For the goldens: what is generated for them is generated once."""

import pytest


@pytest.fixture(scope="session")
def generated(tmp_path_factory):
    return tmp_path_factory.mktemp("generated")


@pytest.fixture(autouse=True)
def _generated_once(generated, monkeypatch):
    monkeypatch.setenv("ORDINAL_ENTROPY_CACHE", str(generated))
