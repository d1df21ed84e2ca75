"""Tables out of files: what is read, and one sentence for each that cannot be."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from command_line import call
from ordinal_entropy.tasks.tabular import data

HOUSES = "area,town,price\n50,Bonn,200\n,Jena,300\n70.5,,250\n"


def csv(folder: Path, text: str | bytes, name: str = "houses.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def npz(folder: Path, name: str = "table.npz", **arrays) -> Path:
    arrays = {"X": np.arange(12.0).reshape(6, 2), "y": np.arange(6.0), **arrays}
    np.savez(folder / name, **arrays)
    return folder / name


def test_a_csv_has_numbers_categories_and_missing_values(tmp_path):
    table = data.read(csv(tmp_path, HOUSES), "price")
    np.testing.assert_array_equal(table.numbers, [[50], [np.nan], [70.5]])
    assert table.number_names == ("area",) and table.category_names == ("town",)
    assert table.categories.tolist() == [["Bonn"], ["Jena"], [""]]
    assert table.targets.tolist() == [200, 300, 250] and table.tests == () and table.left_out == 0


@pytest.mark.parametrize(
    "text",
    [
        HOUSES.replace(",", ";"),
        HOUSES.replace(",", "\t"),
        HOUSES.replace("\n", "\r\n"),
        "\ufeff" + HOUSES,
        HOUSES.replace("Bonn", '"Bonn"').replace(",Jena", "NA,Jena").replace("70.5,", "70.5,?"),
        HOUSES.replace("\n50,", "\n\n 50 ,"),
    ],
)
def test_ways_to_write_the_same_csv(tmp_path, text):
    found, plain = data.read(csv(tmp_path, text), "price"), data.read(csv(tmp_path, HOUSES, "plain.csv"), "price")
    assert found.digest() == plain.digest()
    assert data.read(csv(tmp_path, HOUSES.replace("Bonn", "Ulm")), "price").digest() != plain.digest()


def test_fields_in_quotes_may_hold_anything(tmp_path):
    table = data.read(csv(tmp_path, 'a,"b, c",y\n1,"x\ny",2\n2,"say ""no""",3\n'), "y")
    assert table.category_names == ("b, c",) and table.categories.ravel().tolist() == ["x\ny", 'say "no"']


def test_columns_are_left_out_or_taken_as_categories(tmp_path):
    path = csv(tmp_path, "id,zip,x,y\n1,53111,1,1\n2,,2,2\n3,10115,3,3\n")
    table = data.read(path, "y", ignore=("id",), categories=("zip",))
    assert table.number_names == ("x",) and table.categories.ravel().tolist() == ["53111", "", "10115"]


def test_a_column_without_a_name_has_a_number(tmp_path):
    path = csv(tmp_path, ",x,y\n0,1,1\n1,2,2\n")
    assert data.read(path, "y").number_names == ("column 1", "x")
    assert data.read(path, "y", ignore=["column 1"]).number_names == ("x",)
    assert data.check(path) == [("houses.csv", "column 1 has no name")]


def test_numbers_as_python_writes_them_are_text(tmp_path):
    table = data.read(csv(tmp_path, "x,y\n1_0,1\n20,2\n"), "y")
    assert table.category_names == ("x",)


@pytest.mark.parametrize(
    ("text", "target", "sentence"),
    [
        ("", "y", "names of the columns in the first line of .*, got an empty file"),
        ("x,y\n", "y", "expected rows below the names of the columns in .*, got none"),
        (HOUSES, "", "expected --target COLUMN, or the setting target=COLUMN, one of area, town, price, got none"),
        (HOUSES, "prize", "expected a column like 'price', got 'prize'; there are area, town, price"),
        (HOUSES, "town", "numbers in the target 'town', got text in 2 of 3 rows, the first 'Bonn' in line 2"),
        (HOUSES, "area", "target in every row, got none in 1 of 3 rows of 'area', the first in line 3; skip_bad=true"),
        ("x,y\n1,5\n2,5\n", "y", "expected targets that differ, got 5 in all 2 rows of 'y'"),
        ("x,y\n1,5\n", "y", "expected targets that differ, got 5 in the only row of 'y'"),
        ("x,y\ninf,1\n-inf,2\n1,3\n", "y", "got 2 infinite ones, the first in column 'x' .line 2."),
        ("x,y\n1,1\n2,inf\n", "y", "got an infinite one in column 'y' .line 3."),
        ("y\n1\n2\n", "y", "expected a column beside the target 'y' to predict it from, got none"),
        ("x,x,y\n1,2,3\n", "y", "expected columns of different names, got 'x' twice"),
        ("x,y\n1,2\n1\n1,2,3\n", "y", "expected 2 fields in line 3 of .*, got 1, one of 2 such lines"),
        ('x,y\n1,"2\n', "y", "expected a csv, got .*, of which line 2 is none"),
        (b"x,y\n1,\xff\n", "y", "expected text in UTF-8 in .*, got something else: byte 6 is 0xff"),
        ("x,y\n,\n,\n", "y", "got none in 2 of 2 rows"),
    ],
)
def test_a_sentence_for_each_table_that_cannot_be_used(tmp_path, text, target, sentence):
    with pytest.raises(ValueError, match=sentence):
        data.read(csv(tmp_path, text), target)


def test_a_sentence_for_each_file_that_is_no_table(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"expected a table in .*none\.csv, got no such file"):
        data.read(tmp_path / "none.csv", "y")
    with pytest.raises(ValueError, match=r"expected a table that ends in .csv"):
        data.read(csv(tmp_path, "", "table.xlsx"), "y")
    with pytest.raises(ValueError, match=r"expected one table .* in the folder .*, got none"):
        data.read(tmp_path, "y")
    with pytest.raises(ValueError, match="expected a column like 'area', got 'aera'"):
        data.read(csv(tmp_path, HOUSES), "price", ignore=("aera",))
    with pytest.raises(ValueError, match="expected a target that is not ignored, got 'price'"):
        data.read(csv(tmp_path, HOUSES), "price", ignore=("price",))
    with pytest.raises(ValueError, match="expected a target of numbers, got 'price' among the categories"):
        data.read(csv(tmp_path, HOUSES), "price", categories=("price",))
    assert data.read(tmp_path, "price").targets.tolist() == [200, 300, 250]  # the only one in the folder


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied")

    path = csv(tmp_path, HOUSES)
    monkeypatch.setattr(Path, "read_bytes", refuse)  # root may read anything
    with pytest.raises(OSError, match=r"expected to be able to read .*: Permission denied"):
        data.read(path, "price")


def test_bad_rows_are_left_out_and_counted(tmp_path, caplog):
    path = csv(tmp_path, "x,y\n1,1\n2,\n3,3\ninf,4\n5,inf\n6,6\n")
    table = data.read(path, "y", skip_bad=True)
    assert table.targets.tolist() == [1, 3, 6] and table.left_out == 3
    assert "3 rows of" in caplog.text and "left out" in caplog.text
    y = np.array([0, np.nan, 2, 3, 4, 5])
    table = data.read(npz(tmp_path, y=y, test_0=np.array([1, 2, 5]), test_1=np.array([0])), skip_bad=True)
    assert [rows.tolist() for rows in table.tests] == [[1, 4], [0]]  # the same rows under their new numbers
    assert table.targets[table.tests[0]].tolist() == [2, 5]


def test_text_among_numbers_is_told(tmp_path, caplog):
    rows = "".join(f"{k},{k}\n" for k in range(30))
    path = csv(tmp_path, f"x,y\n{rows}n.a.,31\n")
    sentence = "column 'x' has numbers in all but 1 of 31 rows, the first 'n.a.' in line 32"
    assert data.check(path) == [("houses.csv", sentence)]
    assert data.read(path, "y").category_names == ("x",)
    assert sentence in caplog.text


def test_check_names_every_line(tmp_path):
    told = []
    path = csv(tmp_path, "x,y\n1,2\n1\ninf,2\n1,2,3\n")
    problems = data.check(path, progress=lambda done, total: told.append((done, total)))
    assert [reason for _, reason in problems] == [
        "line 3: expected 2 fields, as the first line has, got 1",
        "line 5: expected 2 fields, as the first line has, got 3",
        "column 'x' has 1 infinite numbers",
    ]
    assert told == [(1, 1)] and data.check(csv(tmp_path, HOUSES)) == []
    assert "different names" in data.check(csv(tmp_path, "x,x\n1,2\n"))[0].reason
    assert "every row" in data.check(npz(tmp_path, y=np.array([0, 1, np.nan, 3, 4, 5])))[0].reason


def test_an_npz_has_names_and_published_splits(tmp_path):
    tests = {"test_0": np.array([3, 1]), "test_1": np.array([0], dtype=np.int32), "n_splits": np.array(2)}
    table = data.read(npz(tmp_path, columns=np.array(["a", "b"]), **tests))
    assert table.number_names == ("a", "b") and [rows.tolist() for rows in table.tests] == [[3, 1], [0]]
    assert data.read(npz(tmp_path, y=np.arange(6.0)[:, None]), "y").number_names == ("0", "1")
    text = data.read(npz(tmp_path, X=np.array([["1", "a"], ["", "b"], ["3", ""]]), y=np.arange(3)))
    assert text.number_names == ("0",) and text.categories.ravel().tolist() == ["a", "b", ""]


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"X": np.array([[1], ["a"]], dtype=object), "y": np.arange(2.0)}, "objects, which are never unpickled"),
        ({"X": np.zeros(6)}, r"expected X \(n, p\) and y \(n,\)"),
        ({"X": np.zeros((5, 2))}, r"got \(5, 2\) and \(6,\)"),
        ({"X": np.zeros((6, 2), dtype=complex)}, "expected X of real numbers"),
        ({"y": np.array(list("abcdef"))}, "expected y of real numbers"),
        ({"columns": np.array(["a"])}, "expected columns with the 2 names of X in .*, got 1"),
        ({"columns": np.array(["a", "a"])}, "different names, got 'a' twice"),
        ({"test_0": np.array([6])}, "row numbers from 0 to 5 in test_0"),
        ({"test_0": np.arange(6)}, "some but not all"),
        ({"test_0": np.array([0.5])}, "expected row numbers"),
        ({"test_0": np.array([1, 1])}, "different row numbers in test_0 of .*, got some twice"),
        ({"test_1": np.array([1])}, "without a gap in .*, got no test_0"),
        ({"test_0": np.array([1]), "n_splits": np.array(20)}, "as n_splits says, 20, got 1"),
        ({"X": np.array([[0, np.inf]] * 6)}, "got 6 infinite ones, the first in column '1' .row 1."),
    ],
)
def test_a_sentence_for_each_npz_that_cannot_be_used(tmp_path, arrays, sentence):
    with pytest.raises(ValueError, match=sentence):
        data.read(npz(tmp_path, **arrays))


def test_an_npz_that_is_damaged_or_lacks_arrays(tmp_path):
    path = npz(tmp_path)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ValueError, match="which is damaged"):
        data.read(path)
    np.savez(tmp_path / "other.npz", inputs=np.zeros(3))
    with pytest.raises(ValueError, match=r"expected X and y in .*, got no X and no y: there is inputs"):
        data.read(tmp_path / "other.npz")
    with pytest.raises(ValueError, match=r"expected no target for .*, whose y it is, got 'price'"):
        data.read(npz(tmp_path), "price")


def test_parquet_keeps_its_types(tmp_path):
    pandas = pytest.importorskip("pandas", reason="Parquet is read by pandas")
    pytest.importorskip("pyarrow", reason="and pyarrow")
    frame = pandas.DataFrame(
        {
            "area": pandas.array([50, None, 70], dtype="Int64"),
            "zip": ["01067", None, "53111"],
            "new": [True, False, True],
            "price": [1.0, 2.0, 3.0],
        }
    )
    frame.to_parquet(tmp_path / "houses.parquet")
    table = data.read(tmp_path / "houses.parquet", "price")
    np.testing.assert_array_equal(table.numbers, [[50], [np.nan], [70]])
    assert table.category_names == ("zip", "new")
    assert table.categories.tolist() == [["01067", "True"], ["", "False"], ["53111", "True"]]


def test_parquet_says_what_it_needs(tmp_path, monkeypatch):
    pytest.importorskip("pandas", reason="Parquet is read by pandas")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match="needs pandas and pyarrow: pip install pandas pyarrow"):
        data.read(csv(tmp_path, "", "houses.parquet"), "price")


def test_without_a_library_for_parquet_the_command_ends_in_one_sentence(tmp_path, monkeypatch):
    pytest.importorskip("pandas", reason="Parquet is read by pandas")
    for library in ("pyarrow", "fastparquet"):
        monkeypatch.setitem(sys.modules, library, None)  # as if it were not installed
    file = csv(tmp_path, "PAR1", "houses.parquet")
    for command in (["compare", "tabular"], ["train", "tabular"]):
        answer = call(*command, f"--set=data={file}", "--set=target=price", status=2)
        assert answer.stderr.endswith(f"reading {file} needs pandas and pyarrow: pip install pandas pyarrow\n")
    assert list(tmp_path.iterdir()) == [file]


def test_a_parquet_file_that_was_written_by_a_library(tmp_path):
    pandas = pytest.importorskip("pandas", reason="Parquet is read by pandas")
    pytest.importorskip("pyarrow", reason="Parquet is written with pyarrow")
    frame = pandas.DataFrame({"area": [50, None, 70], "town": ["Bonn", None, "Jena"], "price": [1.0, 2.0, 3.0]})
    frame.to_parquet(tmp_path / "houses.parquet")
    table = data.read(tmp_path / "houses.parquet", "price")
    np.testing.assert_array_equal(table.numbers, [[50], [np.nan], [70]])
    assert table.categories.tolist() == [["Bonn"], [""], ["Jena"]] and table.targets.tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match=r"expected a Parquet file, got .*, which cannot be read"):
        data.read(csv(tmp_path, "no Parquet", "other.parquet"), "price")


def test_another_table_in_the_order_of_the_first(tmp_path):
    first = data.read(csv(tmp_path, "a,b,town,y\n1,2,x,1\n3,4,z,2\n"), "y")
    other = data.read(csv(tmp_path, "town,more,b,a,y\nx,7,20,10,5\nz,7,40,30,6\n"), "y")
    found = data.aligned(other, first)
    assert found.numbers.tolist() == [[10, 20], [30, 40]] and found.number_names == ("a", "b")
    with pytest.raises(ValueError, match="expected a column like 'bb', got 'b'"):
        data.aligned(data.read(csv(tmp_path, "a,bb,town,y\n1,2,x,1\n3,4,z,2\n"), "y"), first)
    with pytest.raises(ValueError, match="expected numbers in column 'b' as in training, got something else"):
        data.aligned(data.read(csv(tmp_path, "a,b,town,y\n1,u,x,1\n3,v,z,2\n"), "y"), first)


@pytest.mark.skipif("ORDINAL_ENTROPY_DATA" not in os.environ, reason="needs real tables")
@pytest.mark.parametrize(
    ("name", "rows", "columns", "splits"),
    [
        ("concrete", 1030, 8, 20),
        ("energy", 768, 8, 20),
        ("kin8nm", 8192, 8, 20),
        ("wine-quality-red", 1599, 11, 20),
        ("yacht", 308, 6, 20),
        ("california-housing", 20640, 13, 1),
    ],
)
def test_published_tables(name, rows, columns, splits):
    table = data.read(Path(os.environ["ORDINAL_ENTROPY_DATA"]) / "uci" / f"{name}.npz")
    assert table.numbers.shape == (rows, columns) and len(table.tests) == splits
    assert np.isnan(table.numbers).any() == (name == "california-housing")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("ending", data.ENDINGS)
def test_pipes_are_not_waited_for_and_devices_not_read(tmp_path, ending):
    for folder, make, kind in (
        ("pipe", os.mkfifo, "a pipe"),
        ("zero", lambda p: p.symlink_to("/dev/zero"), "a device"),
    ):
        path = tmp_path / folder / f"houses{ending}"
        path.parent.mkdir()
        make(path)
        for root in (path, path.parent):
            with pytest.raises(OSError, match=rf"expected a table in .*houses{ending}, got {kind}"):
                data.read(root, "price")


def test_what_is_wrong_with_a_table_names_its_file(tmp_path):
    (tmp_path / "houses.csv").write_text("area,price\n50,200\n60,200\n")
    for target in ("price", "prize"):
        with pytest.raises(ValueError, match=r"; the table is .*houses\.csv$"):
            data.read(tmp_path / "houses.csv", target)


def test_equal_rows_of_a_parquet_file_that_would_fill_the_memory(tmp_path, monkeypatch):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    monkeypatch.setattr("ordinal_entropy.files.MODEST", 1_000_000)
    pandas.DataFrame({"area": [1.0] * 200_000, "price": [2.0] * 200_000}).to_parquet(tmp_path / "houses.parquet")
    with pytest.raises(ValueError, match=r"at most 1,000,000 bytes to be unpacked from .*houses.parquet"):
        data.read(tmp_path / "houses.parquet", "price")


def test_a_damaged_parquet_file_is_named(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    path = tmp_path / "houses.parquet"
    pandas.DataFrame({"area": [50.0, 60.0], "price": [200.0, 300.0]}).to_parquet(path)
    whole = path.read_bytes()
    for content in (
        whole[:-200] + bytes(192) + whole[-8:],
        whole[: len(whole) // 2],
        b"",
    ):
        path.write_bytes(content)
        with pytest.raises(
            ValueError, match=r"expected a Parquet file, got .*houses.parquet, which cannot be read: \S"
        ):
            data.read(path, "price")
