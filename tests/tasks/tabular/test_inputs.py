"""What a run sees of a table: its rows, and numbers that its training rows alone decide on."""

import json

import numpy as np
import pytest
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder, QuantileTransformer, StandardScaler

from ordinal_entropy.tasks.tabular.data import Table
from ordinal_entropy.tasks.tabular.inputs import Preparation, rows_of, seen

SHARES = {"test_share": 0.2, "validation_share": 0.2}
PLAIN = {"scaling": "standard", "max_categories": 32}


def a_table(n=100, *, numbers=None, categories=None, tests=()):
    random = np.random.default_rng(0)
    numbers = random.normal(5, 3, (n, 2)) if numbers is None else numbers
    categories = np.empty((n, 0), dtype=object) if categories is None else categories
    names = [tuple(f"{kind}{k}" for k in range(each.shape[1])) for kind, each in (("x", numbers), ("c", categories))]
    return Table(numbers, names[0], categories, names[1], random.normal(100, 20, n), tests)


def test_rows_are_split_by_the_seed():
    table = a_table()
    splits = [rows_of(table, seed, **SHARES) for seed in range(5)]
    for rows in splits:
        assert [len(part) for part in rows] == [64, 16, 20]
        assert sorted(np.concatenate(rows)) == list(range(100))
    assert len({tuple(rows.test) for rows in splits}) == 5
    assert all(np.array_equal(*pair) for pair in zip(splits[3], rows_of(table, 3, **SHARES), strict=True))


def test_seeds_take_published_splits_in_turn():
    table = a_table(tests=(np.array([7, 3]), np.arange(50)))
    first, second, third = (rows_of(table, seed, **SHARES) for seed in range(3))
    assert first.test.tolist() == third.test.tolist() == [3, 7] and second.test.tolist() == list(range(50))
    assert len(first.validation) == 20 and first.validation.tolist() != third.validation.tolist()
    assert not set(second.train) & set(range(50))


def test_two_rows_are_too_few():
    with pytest.raises(ValueError, match="expected rows to train on, to validate and to test on, got 2 rows"):
        rows_of(a_table(2), 0, **SHARES)


def test_training_rows_alone_decide():
    table = a_table(categories=np.array([["a"], ["b"]] * 50, dtype=object))
    table.numbers[::7, 0] = np.nan
    rows = rows_of(table, 0, **SHARES)
    before = Preparation.fitted(table, rows.train, **PLAIN)
    other = table._replace(
        numbers=table.numbers.copy(), categories=table.categories.copy(), targets=table.targets.copy()
    )
    for part in (rows.validation, rows.test):
        other.numbers[part], other.categories[part], other.targets[part] = 1e6, "z", -1e6
    after = Preparation.fitted(other, rows.train, **PLAIN)
    np.testing.assert_array_equal(before.part(table, rows.train).inputs, after.part(other, rows.train).inputs)
    assert (before.center, before.scale) == (after.center, after.scale)
    found = before.part(table, rows.train)
    assert found.inputs.shape == (64, 2 + 1 + 2)  # numbers, where the first is missing, two categories
    np.testing.assert_allclose(found.inputs[:, :2].mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(found.inputs[:, :2].std(0), 1, atol=1e-5)
    np.testing.assert_array_equal(found.inputs[:, 2], np.isnan(table.numbers[rows.train, 0]))
    assert before.center == pytest.approx(table.targets[rows.train].mean())


def test_missing_numbers_are_the_median():
    table = a_table(numbers=np.array([[1.0], [2.0], [9.0], [np.nan]] * 25))
    preparation = Preparation.fitted(table, np.arange(80), **PLAIN)
    inputs = preparation.part(table, np.arange(4)).inputs
    assert inputs[3].tolist() == [inputs[1, 0], 1] and inputs[1, 1] == 0


def test_unknown_rare_and_missing_categories():
    values = np.array(["a"] * 40 + ["b"] * 30 + ["c"] * 2 + ["d"] * 2 + [""] * 6 + ["new"] * 20, dtype=object)[:, None]
    table = a_table(categories=values)
    few = Preparation.fitted(table, np.arange(80), scaling="standard", max_categories=3)
    inputs = few.part(table, np.array([0, 40, 70, 72, 74, 80])).inputs[:, 2:]
    assert inputs.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1], [0, 0, 1], [0, 0, 1]]  # c, d, "" and new
    all_of_them = Preparation.fitted(table, np.arange(80), **PLAIN)
    assert all_of_them.part(table, np.array([74, 80])).inputs[:, 2:].sum(1).tolist() == [1, 0]  # missing is a category


@pytest.mark.parametrize("scaling", ["standard", "quantile"])
@pytest.mark.parametrize("max_categories", [1, 3, 32])
def test_inputs_are_those_of_scikit_learns_transformers_also_when_read_back(scaling, max_categories):
    random = np.random.default_rng(3)
    numbers = np.round(random.standard_t(2, (1500, 5)) * [1, 1e-3, 1e6, 0, 1], 2)
    numbers[random.random(numbers.shape) < 0.1] = np.nan
    numbers[:1200, 4], numbers[:1200, 1] = np.nan, 1.5  # without a number, and without a missing one
    names = np.array(["", "a", "B", "c, d", "ü", "z"], dtype=object)
    categories = names[random.choice(6, (1500, 2), p=[0.4, 0.3, 0.2, 0.07, 0.02, 0.01])]
    categories[1200:1210] = "unseen"
    table, train = a_table(1500, numbers=numbers, categories=categories), np.arange(1200)
    own = Preparation.fitted(table, train, scaling=scaling, max_categories=max_categories)

    imputer = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
    scaler = StandardScaler()
    if scaling == "quantile":
        scaler = QuantileTransformer(n_quantiles=1000, output_distribution="normal", subsample=None)
    encoder = OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=max_categories, sparse_output=False, dtype=np.float32
    )
    filled = [imputer.fit_transform(numbers[train]), imputer.transform(numbers)][1]
    scaler.fit(filled[train, :5])
    wanted = [scaler.transform(filled[:, :5]).astype(np.float32), filled[:, 5:].astype(np.float32)]
    wanted.append(encoder.fit(categories[train]).transform(categories))
    part = own.part(table, np.arange(1500))
    np.testing.assert_array_equal(part.inputs, np.concatenate(wanted, axis=1))
    assert part.inputs.shape[1] == own.width and own.unknown(table)["c0"] == ["unseen"]
    again = Preparation.restored(json.loads(json.dumps(own.described())))
    assert again == own
    np.testing.assert_array_equal(again.part(table, np.arange(1500)).inputs, part.inputs)


def test_a_preparation_that_is_damaged_is_refused():
    content = Preparation.fitted(a_table(), np.arange(80), **PLAIN).described()
    for wrong in ({"medians": (1.0,)}, {"kept": "a"}, {"scale": None}):
        with pytest.raises(ValueError, match=f"expected .*{next(iter(wrong))}"):
            Preparation.restored({**content, **wrong})


def test_quantiles_make_any_numbers_normal():
    table = a_table(400, numbers=np.exp(np.random.default_rng(1).normal(0, 3, (400, 1))))
    found = Preparation.fitted(table, np.arange(400), scaling="quantile", max_categories=32).part(table, np.arange(400))
    assert abs(np.median(found.inputs)) < 0.05 and np.abs(found.inputs).max() < 6
    assert np.quantile(found.inputs, 0.841) == pytest.approx(1, abs=0.1)


def test_columns_without_a_number_or_with_one_do_no_harm():
    numbers = np.stack([np.full(100, np.nan), np.full(100, 3.0)], axis=1)
    for scaling in ("standard", "quantile"):
        table = a_table(numbers=numbers)
        found = Preparation.fitted(table, np.arange(80), scaling=scaling, max_categories=32).part(table, np.arange(100))
        assert np.isfinite(found.inputs).all()


def test_a_table_of_categories_alone():
    table = a_table(numbers=np.empty((100, 0)), categories=np.array([["a"], ["b"]] * 50, dtype=object))
    rows = rows_of(table, 0, **SHARES)
    found = seen(table, rows, Preparation.fitted(table, rows.train, **PLAIN))
    assert found.train.inputs.shape == (64, 2) and found.numbers == 0


def test_what_no_scale_can_be_found_for():
    table = a_table()
    flat = table._replace(targets=np.where(np.arange(100) < 80, 1.0, 2.0))
    with pytest.raises(ValueError, match="expected training targets that differ, got 1 in all 80 rows"):
        Preparation.fitted(flat, np.arange(80), **PLAIN)
    huge = table._replace(targets=table.targets * 1e200)
    with pytest.raises(ValueError, match="expected targets whose variance is a number"):
        Preparation.fitted(huge, np.arange(80), **PLAIN)
    wide = table._replace(numbers=table.numbers * np.array([1, 1e300]))
    with pytest.raises(ValueError, match="larger ones in column 'x1'"):
        Preparation.fitted(wide, np.arange(80), **PLAIN).part(wide, np.arange(3))
