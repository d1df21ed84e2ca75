"""What the commands are tested with: a folder of their own, and a trainer that takes no time."""

import pytest

from fake_trainer import Trainer, rows


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """Generated rows, which the tests share."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, cache, monkeypatch):
    """Nothing is written to the folder that tests are started from."""
    monkeypatch.setenv("ORDINAL_ENTROPY_CACHE", str(cache))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def trainer(monkeypatch):
    """In place of the real one."""
    from ordinal_entropy.tasks.operators import recipe as operators

    fake = Trainer()
    monkeypatch.setattr(operators.train, "train", fake)
    monkeypatch.setattr(operators, "split", rows)
    return fake
