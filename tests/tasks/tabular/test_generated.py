"""The generated houses: the same for the same seed, and as a csv like any other."""

import pytest

from ordinal_entropy.tasks.tabular import data, generated


def test_houses_have_categories_missing_values_and_a_price(tmp_path):
    told = []
    generated.make(tmp_path / "a", seed=3, count=200, progress=lambda done, total: told.append((done, total)))
    table = data.read(tmp_path / "a", "price")
    assert data.check(tmp_path / "a") == [] and told == [(200, 200)]
    assert table.number_names == ("area", "rooms", "year", "distance", "garden")
    assert table.category_names == ("district", "heating") and len(table.targets) == 200
    missing = {name: (table.numbers[:, k] != table.numbers[:, k]).mean() for k, name in enumerate(table.number_names)}
    assert missing["area"] == 0 and 0.02 < missing["year"] < 0.2 and (table.categories == "").any()
    assert table.targets.min() > 0 and table.targets.std() > 50
    generated.make(tmp_path / "b", seed=3, count=200)
    generated.make(tmp_path / "c", seed=4, count=200)
    again, other = (data.read(tmp_path / name, "price") for name in "bc")
    assert again.digest() == table.digest() != other.digest()


def test_mistakes(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    with pytest.raises(ValueError, match=r"expected an empty folder, or none yet, got .*, which is not empty"):
        generated.make(tmp_path / "full")
    with pytest.raises(ValueError, match="which is a file"):
        generated.make(tmp_path / "full" / "notes.txt")
    with pytest.raises(ValueError, match="expected a count of at least 50 rows, got 3"):
        generated.make(tmp_path / "few", count=3)
    with pytest.raises(ValueError, match="expected a seed of at least 0"):
        generated.make(tmp_path / "few", seed=-1)
