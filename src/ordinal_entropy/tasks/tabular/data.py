"""Tables out of files: which columns are numbers, which are categories, and which is the target.

A csv names its columns in the first line; a Parquet file has names and types of its own; an .npz holds ``X (n, p)``,
``y (n,)`` and, where a split is published, ``test_0``, ``test_1``, ...: row numbers to test on, the rest being there to
train on. Nothing is ever unpickled.
"""

import csv
import difflib
import hashlib
import io
import logging
import math
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ordinal_entropy import arrays, files
from ordinal_entropy.files import Problem, shown
from ordinal_entropy.recipes import unknown

Array = NDArray[Any]

ENDINGS = (".csv", ".tsv", ".parquet", ".npz")
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})  # cells of a csv, in any case
_DELIMITERS = ",;\t|"  # the one that the first line has most of, in this order
_MOSTLY = 0.9  # of the cells are numbers: the others look like mistakes
_LOG = logging.getLogger(__name__)


class Table(NamedTuple):
    """Rows as a file has them, nothing scaled or filled in."""

    numbers: Array  # (n, p) float64, NaN where a value is missing
    number_names: tuple[str, ...]
    categories: Array  # (n, q) text, "" where a value is missing
    category_names: tuple[str, ...]
    targets: Array  # (n,) float64, finite
    tests: tuple[Array, ...] = ()  # row numbers of the published splits
    left_out: int = 0  # rows that cannot be used

    def digest(self) -> str:
        """The same for the same rows in the same order."""
        found = hashlib.sha256(repr((self.number_names, self.category_names, self.numbers.shape)).encode())
        for array in (self.numbers, self.targets, *self.tests):
            found.update(np.ascontiguousarray(array).tobytes())
        found.update("\x1f".join(self.categories.ravel()).encode())
        return found.hexdigest()


class _Raw(NamedTuple):
    """Columns of a file before one of them is the target."""

    file: str
    columns: dict[str, Array]  # float64, or text with "" where a value is missing
    lines: Sequence[int] | None = None  # of the rows in a csv
    targets: Array | None = None  # where the file says which these are
    tests: tuple[Array, ...] = ()

    def where(self, row: int) -> str:
        return f"row {row + 1}" if self.lines is None else f"line {self.lines[row]}"


def read(
    path: str | os.PathLike[str],
    target: str = "",
    *,
    ignore: Sequence[str] = (),
    categories: Sequence[str] = (),
    skip_bad: bool = False,
) -> Table:
    r"""The table in a file.

    Args:
        path: of a .csv, .tsv, .parquet or .npz file, or of a folder with one such file.
        target: name of the column to predict; an .npz file has ``y`` and needs none.
        ignore: names of columns that are left out.
        categories: names of columns of numbers that stand for categories, like post codes.
        skip_bad: rows without a target or with an infinite number are left out and counted, instead of refused.

    Raises:
        OSError: there is no such file, or it cannot be read.
        ValueError: it holds no table that can be learned from; the message says why, with the line or column.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "houses.csv").write_text("area,town,price\n50,Bonn,200\n,Jena,300\n")
        ...     table = read(f"{folder}/houses.csv", "price")
        >>> table.number_names, table.category_names, table.targets
        (('area',), ('town',), array([200., 300.]))
    """
    file = file_of(Path(path))
    with naming(file):
        return _table(_raw(file), target, ignore, categories, skip_bad)


def rows_like(
    source: Any,
    numbers: Sequence[str],
    categories: Sequence[str],
    *,
    of_numbers: Sequence[str] = (),
    target: str = "",
    id_column: str = "",
) -> tuple[Table, Array | None]:
    """Rows of a file, or of columns in memory, to be predicted: they need no target.

    Args:
        source: a path as in :func:`read`, a pandas DataFrame, a mapping from names to columns, or an array ``(n, p)``
            whose columns are called "0", "1", ...
        numbers: names of the columns of numbers, in their order.
        categories: names of the columns of categories, likewise.
        of_numbers: those of them that are numbers which stand for categories.
        target: a column that is read as the target too; "": none is.
        id_column: a column that tells rows apart; "": there is none.

    Returns:
        The rows, whose targets are NaN where there is no ``target``, and the cells of ``id_column`` as text.

    Raises:
        ValueError: a column is missing, has text in place of numbers, or infinite ones.

    Example:
        >>> table, _ = rows_like({"town": ["Bonn", None], "area": [50, 70]}, ["area"], ["town"])
        >>> table.numbers.tolist(), table.categories.tolist()
        ([[50.0], [70.0]], [['Bonn'], ['']])
    """
    as_written = {*categories, id_column} - {*of_numbers}
    raw = _source(source, as_written, needs_targets=target == "y")
    with naming(raw.file):
        if target and raw.targets is None and target not in raw.columns:
            raise ValueError(_no_target(target, [*map(shown, raw.columns)]))
        missing = [name for name in (*numbers, *categories) if name not in raw.columns]
        if missing:
            names, there = (", ".join(map(repr, map(shown, each))) or "none" for each in (missing, raw.columns))
            raise ValueError(f"expected the columns that the run was trained on, got no {names}; there are {there}")
        if id_column and id_column not in raw.columns:
            raise ValueError(unknown("column", id_column, map(shown, raw.columns)))
        for name in numbers:
            column = raw.columns[name]
            _no_text(raw, column, f"column {shown(name)!r} as in training")
            if np.isinf(column).any():
                raise ValueError(_infinite(raw, name, np.isinf(column), remedy=False))
        n = len(next(iter(raw.columns.values())))
        targets = np.full(n, np.nan)
        if target:
            targets = raw.columns[target] if raw.targets is None else raw.targets
            _no_text(raw, targets, f"the target {target!r}")
            _finite_targets(raw, targets, target, skip_bad=False)
    as_text = [_text(raw.columns[name]) for name in categories]
    table = Table(
        np.stack([raw.columns[name] for name in numbers], axis=1) if numbers else np.empty((n, 0)),
        tuple(numbers),
        np.stack(as_text, axis=1) if as_text else np.empty((n, 0), dtype=object),
        tuple(categories),
        targets,
    )
    return table, _text(raw.columns[id_column]) if id_column else None


def _source(source: Any, as_written: Collection[str], *, needs_targets: bool) -> _Raw:
    """Columns of a file or of what is in memory, of which some are text whatever is in them."""
    if isinstance(source, (str, os.PathLike)):
        return _raw(file_of(Path(source)), as_written=as_written, needs_targets=needs_targets)
    if isinstance(source, np.ndarray):
        if source.ndim != 2:
            raise ValueError(f"expected rows (n, p), got an array {source.shape}")
        source = {str(place): column for place, column in enumerate(source.T)}
    if hasattr(source, "iloc"):
        columns = _of_frame(source, as_written)
    elif isinstance(source, Mapping):
        columns = {str(name): _column(values, str(name) in as_written) for name, values in source.items()}
    else:
        raise ValueError(f"expected a path, a table of pandas, a mapping or an array, got a {type(source).__name__}")
    lengths = {name: len(column) for name, column in columns.items()}
    if len({*lengths.values()}) != 1 or not min(lengths.values()):
        raise ValueError(f"expected columns with as many rows each, at least one, got {lengths or 'none'}")
    return _Raw("the table", columns)


def _column(values: Any, as_written: bool) -> Array:
    """Of anything that numpy takes: numbers, or text with "" where a value is missing."""
    own = np.asarray(values)
    if own.ndim != 1:
        raise ValueError(f"expected columns (n,), got one {own.shape}")
    if own.dtype.kind in "fiu" or (own.dtype.kind == "b" and not as_written):
        return own.astype(np.float64)
    missing = [value is None or (isinstance(value, float) and math.isnan(value)) for value in own.tolist()]
    cells = ["" if no else str(value) for value, no in zip(own.tolist(), missing, strict=True)]
    return _numbers_or_text(cells, as_written)


@contextmanager
def naming(file: str | os.PathLike[str]) -> Iterator[None]:
    """Has each ValueError name the file of the table that it is about."""
    try:
        yield
    except ValueError as error:
        if os.fspath(file) in str(error):
            raise
        raise ValueError(f"{error}; the table is {os.fspath(file)}") from error


def of_cells(names: Sequence[str], cells: Sequence[Sequence[str]], target: str, *, file: str) -> Table:
    """The table of rows of text, read as those of a csv are.

    Args:
        names: of the columns.
        cells: rows, each of as many cells.
        target: name of the column to predict.
        file: what errors call it.
    """
    return _table(_Raw(file, _columns(names, cells)), target, (), (), False)


def check(root: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None) -> list[Problem]:
    """What is wrong with a table, whichever column is the target.

    Args:
        root: as in :func:`read`.
        progress: is told that the one file is read.
    """
    file = file_of(Path(root))
    name = shown(file.name)
    problems: list[Problem] = []
    try:
        raw = _raw(file, problems)
        for column, values in raw.columns.items():
            problems += [Problem(name, reason) for reason in _oddities(column, values, raw)]
        if raw.targets is not None:
            _finite_targets(raw, raw.targets, "y", skip_bad=False)
    except ValueError as error:
        problems.append(Problem(name, str(error)))
    if progress is not None:
        progress(1, 1)
    return problems


def aligned(table: Table, like: Table) -> Table:
    """The columns of another table in the order of this one's; a ValueError names a column that is not there.

    Args:
        table: with the same columns in any order, and perhaps more.
        like: the table whose columns they should be.
    """
    found = []
    for kind, names, own, values, others in (
        ("numbers", like.number_names, table.number_names, table.numbers, table.category_names),
        ("categories", like.category_names, table.category_names, table.categories, table.number_names),
    ):
        for name in names:
            if name in others:
                raise ValueError(f"expected {kind} in column {shown(name)!r} as in training, got something else")
            if name not in own:
                raise ValueError(unknown("column", name, map(shown, [*table.number_names, *table.category_names])))
        found.append(values[:, [own.index(name) for name in names]])
    numbers, categories = found
    return table._replace(
        numbers=numbers, number_names=like.number_names, categories=categories, category_names=like.category_names
    )


def file_of(path: Path) -> Path:
    """The file itself; of a folder the one table inside. An error where there is none."""
    if path.is_dir():
        inside = sorted(child for child in path.iterdir() if child.suffix.lower() in ENDINGS and not child.is_dir())
        if len(inside) != 1:
            got = ", ".join(shown(child.name) for child in inside) or "none"
            raise ValueError(f"expected one table ({', '.join(ENDINGS)}) in the folder {path}, got {got}")
        path = inside[0]
    elif path.suffix.lower() not in ENDINGS and path.exists():
        raise ValueError(f"expected a table that ends in {', '.join(ENDINGS)}, got {path}")
    files.size(path, "a table")
    return path


def _raw(
    path: Path,
    problems: list[Problem] | None = None,
    *,
    as_written: Collection[str] = (),
    needs_targets: bool = True,
) -> _Raw:
    """Of any file; lines of a csv that do not fit are refused, or noted where there is a list for them.

    Args:
        path: of the file.
        problems: where lines are noted.
        as_written: columns of a csv that are text even if all their cells are numbers.
        needs_targets: whether an .npz without ``y`` is refused.
    """
    try:
        if path.suffix.lower() == ".npz":
            return _of_npz(path, needs_targets)
        if path.suffix.lower() == ".parquet":
            return _of_parquet(path, as_written)
        return _of_csv(path, problems, as_written)
    except (PermissionError, IsADirectoryError) as error:
        raise OSError(f"expected to be able to read {path}, got: {error.strerror}") from error


def _of_csv(path: Path, problems: list[Problem] | None, as_written: Collection[str]) -> _Raw:
    try:
        text = files.text(path)
    except UnicodeDecodeError as error:
        found = f"byte {error.start:,} is {error.object[error.start]:#04x}"
        raise ValueError(f"expected text in UTF-8 in {path}, got something else: {found}") from error
    first = text.partition("\n")[0]
    delimiter = "\t" if path.suffix.lower() == ".tsv" else max(_DELIMITERS, key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    cells: list[list[str]] = []
    lines: list[int] = []
    wrong: list[tuple[int, int]] = []  # lines and their numbers of fields
    try:
        names = [name.strip() for name in next(reader, [])]
        for row in reader:
            if len(row) == len(names):
                cells.append(row)
                lines.append(reader.line_num)
            elif row:  # no empty line
                wrong.append((reader.line_num, len(row)))
    except csv.Error as error:
        raise ValueError(f"expected a csv, got {path}, of which line {reader.line_num} is none: {error}") from error
    if not names:
        raise ValueError(f"expected the names of the columns in the first line of {path}, got an empty file")
    if wrong and problems is None:
        more = f", one of {len(wrong):,} such lines" if len(wrong) > 1 else ""
        raise ValueError(
            f"expected {len(names)} fields in line {wrong[0][0]} of {path}, as its first line has, "
            f"got {wrong[0][1]}{more}"
        )
    if problems is not None:
        for line, count in wrong:
            reason = f"expected {len(names)} fields, as the first line has, got {count}"
            problems.append(Problem(shown(path.name), f"line {line}: {reason}"))
    if not cells:
        raise ValueError(f"expected rows below the names of the columns in {path}, got none")
    return _Raw(str(path), _columns(names, cells, as_written), lines)


def _columns(
    names: Sequence[str], cells: Sequence[Sequence[str]], as_written: Collection[str] = ()
) -> dict[str, Array]:
    """By name; a column without one is called by its number."""
    own = [name or f"column {place}" for place, name in enumerate(names, start=1)]
    _different(own)
    columns = zip(own, zip(*cells, strict=True), strict=True)
    return {name: _numbers_or_text(column, name in as_written) for name, column in columns}


def _numbers_or_text(cells: Sequence[str], as_written: bool = False) -> Array:
    """Numbers if all cells that are not missing are, unless they are wanted as they are written; else text."""
    texts = ["" if cell.strip().lower() in MISSING else cell.strip() for cell in cells]
    if as_written:
        return np.array(texts, dtype=object)
    numbers = np.array([_number(text) for text in texts], dtype=np.float64)
    is_text = np.isnan(numbers) & np.array([text != "" for text in texts])
    return np.array(texts, dtype=object) if is_text.any() else numbers


def _number(text: str) -> float:
    """NaN for what is none."""
    try:
        return np.nan if "_" in text else float(text)  # Python reads 3_5 as 35
    except ValueError:
        return np.nan


def _different(names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"expected columns of different names, got {shown(name)!r} twice")
        seen.add(name)


def _of_parquet(path: Path, as_written: Collection[str]) -> _Raw:
    try:
        import pandas  # type: ignore[import-untyped,unused-ignore]  # noqa: F401
        import pyarrow.parquet  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise ImportError(f"reading {path} needs pandas and pyarrow: pip install pandas pyarrow") from error
    files.size(path)
    with path.open("rb") as stream:
        try:
            content = pyarrow.parquet.ParquetFile(stream)
            claimed = _claimed(content.metadata)
        except Exception as error:  # its libraries have errors of their own
            raise ValueError(f"expected a Parquet file, got {path}, which cannot be read: {_said(error)}") from error
        files.check_unpacked(path, claimed)
        files.check_fits(path, claimed)
        try:
            frame = content.read().to_pandas()
        except Exception as error:  # as above
            raise ValueError(f"expected a Parquet file, got {path}, which cannot be read: {_said(error)}") from error
    if not len(frame):
        raise ValueError(f"expected rows in {path}, got none")
    return _Raw(str(path), _of_frame(frame, as_written))


def _of_frame(frame: Any, as_written: Collection[str]) -> dict[str, Array]:
    """Columns of a table of pandas."""
    import pandas

    names = [str(name).strip() for name in frame.columns]
    _different(names)
    columns: dict[str, Array] = {}
    for place, name in enumerate(names):
        own = frame.iloc[:, place]
        if pandas.api.types.is_numeric_dtype(own) and not pandas.api.types.is_bool_dtype(own):
            columns[name] = own.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            missing = own.isna().to_numpy()
            columns[name] = np.array(["" if no else str(value) for value, no in zip(own, missing, strict=True)], object)
    return columns


def _claimed(metadata: Any) -> int:
    """Bytes that a Parquet file says its columns have, packed as they are or as numbers in memory."""
    groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
    columns = [group.column(place) for group in groups for place in range(group.num_columns)]
    numbers = max(
        int(metadata.num_rows * metadata.num_columns),
        sum(int(group.num_rows * group.num_columns) for group in groups),
        sum(int(column.num_values) for column in columns),
    )
    return max(8 * numbers, sum(int(column.total_uncompressed_size) for column in columns))


def _said(error: Exception) -> str:
    return shown(" ".join(str(error).split())) or type(error).__name__


def _of_npz(path: Path, needs_targets: bool) -> _Raw:
    there = arrays.names(path)
    missing = [name for name in ("X", "y")[: 1 + needs_targets] if name not in there]
    if missing:
        some = ", ".join(shown(name, 40) for name in there[:8]) or "nothing"
        raise ValueError(f"expected X and y in {path}, got no {' and no '.join(missing)}: there is {some}")
    wanted = [name for name in there if name in ("X", "y", "columns", "n_splits") or re.fullmatch(r"test_\d+", name)]
    found = arrays.load(path, wanted)
    x = found["X"]
    y = found.get("y", np.zeros(x.shape[:1]))
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if x.ndim != 2 or y.shape != x.shape[:1] or not len(x):
        raise ValueError(f"expected X (n, p) and y (n,) with n of at least 1 in {path}, got {x.shape} and {y.shape}")
    for name, array, kinds in (("X", x, "fiubUS"), ("y", y, "fiub")):
        if array.dtype.kind not in kinds:
            raise ValueError(f"expected {name} of real numbers in {path}, got {array.dtype}")
    names = [str(name).strip() for name in found.get("columns", np.arange(x.shape[1])).ravel()]
    if len(names) != x.shape[1]:
        raise ValueError(f"expected columns with the {x.shape[1]} names of X in {path}, got {len(names)}")
    _different(names)
    columns = [_numbers_or_text(list(map(str, column))) for column in x.T] if x.dtype.kind in "US" else list(x.T)
    tests = _tests(found, len(x), path)
    floats = {
        name: column if column.dtype == object else column.astype(np.float64)
        for name, column in zip(names, columns, strict=True)
    }
    return _Raw(str(path), floats, None, y.astype(np.float64) if "y" in found else None, tests)


def _tests(stored: Mapping[str, Array], count: int, path: Path) -> tuple[Array, ...]:
    """Test rows of the published splits, in the order of their numbers."""
    found = []
    for place, name in enumerate(sorted((name for name in stored if name.startswith("test_")), key=_place)):
        rows = stored[name]
        if _place(name) != place:
            raise ValueError(f"expected splits test_0, test_1, ... without a gap in {path}, got no test_{place}")
        whole = rows.ndim == 1 and rows.dtype.kind in "iu"
        if not whole or not 0 < len(rows) < count or rows.min() < 0 or rows.max() >= count:
            raise ValueError(
                f"expected row numbers from 0 to {count - 1} in {name} of {path}, some but not all, "
                f"got {rows.dtype} of shape {rows.shape}"
            )
        if len(np.unique(rows)) < len(rows):
            raise ValueError(f"expected different row numbers in {name} of {path}, got some twice")
        found.append(rows.astype(np.int64))
    said = stored.get("n_splits")
    if said is not None and said.tolist() != len(found):
        raise ValueError(f"expected as many splits in {path} as n_splits says, {said}, got {len(found)}")
    return tuple(found)


def _place(name: str) -> int:
    return int(name.removeprefix("test_"))


def _table(raw: _Raw, target: str, ignore: Sequence[str], categories: Sequence[str], skip_bad: bool) -> Table:
    columns = dict(raw.columns)
    names = [shown(name) for name in columns]
    for name in (*ignore, *categories):
        if name not in columns:
            raise ValueError(unknown("column", name, names))
    if target and target in ignore:
        raise ValueError(f"expected a target that is not ignored, got {target!r}")
    if target and target in categories:
        raise ValueError(f"expected a target of numbers, got {target!r} among the categories")
    if raw.targets is not None:
        if target not in ("", "y"):
            raise ValueError(f"expected no target for {raw.file}, whose y it is, got {target!r}")
        targets, target = raw.targets, "y"
    elif not target:
        raise ValueError(f"expected --target COLUMN, or the setting target=COLUMN, one of {', '.join(names)}, got none")
    elif target not in columns:
        raise ValueError(_no_target(target, names))
    else:
        targets = columns.pop(target)
    columns = {name: column for name, column in columns.items() if name not in ignore}
    if not columns:
        raise ValueError(f"expected a column beside the target {target!r} to predict it from, got none in {raw.file}")
    _no_text(raw, targets, f"the target {target!r}")
    kept = _finite_targets(raw, targets, target, skip_bad=skip_bad)
    for name, column in columns.items():
        if column.dtype != object:
            infinite = np.isinf(column)
            if infinite.any() and not skip_bad:
                raise ValueError(_infinite(raw, name, infinite))
            kept &= ~infinite
        else:
            mistaken = _mistaken(name, column, raw)
            if mistaken is not None:
                _LOG.warning("%s; it is taken as categories", mistaken)
    left_out = int((~kept).sum())
    if left_out:
        _LOG.warning("%s rows of %s left out: no target, or an infinite number", f"{left_out:,}", raw.file)
    if not kept.any():
        raise ValueError(f"expected rows with a target in {raw.file}, got none")
    targets = targets[kept]
    if (targets == targets[0]).all():
        rows = f"all {len(targets):,} rows" if len(targets) > 1 else "the only row"
        raise ValueError(f"expected targets that differ, got {targets[0]:g} in {rows} of {target!r}")
    as_text = {name: _text(column) for name, column in columns.items() if column.dtype == object or name in categories}
    numbers = {name: column for name, column in columns.items() if name not in as_text}
    place = np.cumsum(kept) - 1  # of each row among those that are kept
    return Table(
        np.stack([*numbers.values()], axis=1)[kept] if numbers else np.empty((int(kept.sum()), 0)),
        tuple(numbers),
        np.stack([*as_text.values()], axis=1)[kept] if as_text else np.empty((int(kept.sum()), 0), dtype=object),
        tuple(as_text),
        targets,
        tuple(place[rows[kept[rows]]] for rows in raw.tests),
        left_out,
    )


def _no_target(target: str, names: Sequence[str]) -> str:
    """The sentence that the target is not there: with the names near it, or else that it is missing."""
    if difflib.get_close_matches(target, names):
        return unknown("column", target, names)
    return f"expected the target {target!r} among the columns, got none of that name; there are {', '.join(names)}"


def _no_text(raw: _Raw, column: Array, what: str) -> None:
    """A ValueError where a column that should have numbers has text."""
    if column.dtype == object:
        text = [row for row, cell in enumerate(column) if cell and np.isnan(_number(cell))]
        raise ValueError(
            f"expected numbers in {what}, got text in {len(text):,} of {len(column):,} rows, the first "
            f"{shown(column[text[0]], 40)!r} in {raw.where(text[0])}"
        )


def _finite_targets(raw: _Raw, targets: Array, name: str, *, skip_bad: bool) -> Array:
    """Which rows have a finite target; a ValueError if some have none."""
    missing, infinite = np.isnan(targets), np.isinf(targets)
    if infinite.any() and not skip_bad:
        raise ValueError(_infinite(raw, name, infinite))
    if missing.any() and not skip_bad:
        raise ValueError(
            f"expected a target in every row, got none in {int(missing.sum()):,} of {len(targets):,} rows of {name!r}, "
            f"the first in {raw.where(int(missing.argmax()))}; skip_bad=true leaves these rows out"
        )
    return ~(missing | infinite)


def _infinite(raw: _Raw, name: str, where: Array, *, remedy: bool = True) -> str:
    count, first = int(where.sum()), raw.where(int(where.argmax()))
    ones = "an infinite one" if count == 1 else f"{count:,} infinite ones, the first"
    then = "; skip_bad=true leaves out such rows" if remedy else ""
    return f"expected finite numbers, got {ones} in column {shown(name)!r} ({first}){then}"


def _text(column: Array) -> Array:
    """Categories; those that are numbers as a person writes them."""
    if column.dtype == object:
        return column
    return np.array(["" if np.isnan(number) else f"{number:.15g}" for number in column], dtype=object)


def _mistaken(name: str, column: Array, raw: _Raw) -> str | None:
    """What is said of text in a column where nearly all other cells are numbers; None where that is not so."""
    there = np.array([cell != "" for cell in column])
    text = there & np.isnan([_number(cell) for cell in column])
    if not 0 < text.sum() <= (1 - _MOSTLY) * there.sum():
        return None
    first = int(text.argmax())
    return (
        f"column {shown(name)!r} has numbers in all but {int(text.sum()):,} of {len(column):,} rows, "
        f"the first {shown(column[first], 40)!r} in {raw.where(first)}"
    )


def _oddities(name: str, column: Array, raw: _Raw) -> list[str]:
    """What is likely wrong with a column."""
    found = []
    if re.fullmatch(r"column \d+", name):
        found.append(f"{name} has no name")
    if column.dtype == object:
        mistaken = _mistaken(name, column, raw)
        return found if mistaken is None else [*found, mistaken]
    infinite = np.isinf(column)
    if infinite.any():
        found.append(f"column {shown(name)!r} has {int(infinite.sum()):,} infinite numbers")
    return found
