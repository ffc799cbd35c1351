"""Rows of JSON lines, CSV and Parquet files as records to write."""

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from broker_core.errors import MissingExtraError
from broker_core.testing.producing import ProducerRecord

T = TypeVar("T")


class Columns(NamedTuple):
    """The names of the columns with the parts of a record; without `value` the whole row is the value, as JSON."""

    key: str | None
    value: str | None
    headers: str | None
    timestamp: str | None
    partition: str | None


class _Row(NamedTuple):
    """A row of a file, where it is, and its text if the file contains it as JSON."""

    place: str
    cells: Mapping[str, Any]
    text: str | None = None


def records_of(path: Path, columns: Columns) -> list[ProducerRecord]:
    """Return a record for each row of a file, whose suffix names its format.

    Raises ValueError that names the row for content that cannot be used.
    """
    read = _READERS.get(path.suffix.lower())
    if read is None:
        raise ValueError(f"{path}: unknown format {path.suffix!r}; expected one of {', '.join(_READERS)}")
    try:
        return [_record(row, columns) for row in read(path)]
    except UnicodeDecodeError:
        raise ValueError(f"{path}, line {_first_undecodable(path)}: not UTF-8: save the file as UTF-8") from None


def _first_undecodable(path: Path) -> int:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 1


def _json_lines(path: Path) -> Iterator[_Row]:
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, 1):
            text, place = line.strip(), f"{path}, line {number}"
            if not text:
                continue
            try:
                cells = json.loads(text)
            except ValueError as error:
                raise ValueError(f"{place}: not JSON: {error}") from None
            # A row may be any JSON value, as long as no column is named.
            yield _Row(place, cells if isinstance(cells, dict) else {}, text)


def _csv(path: Path) -> Iterator[_Row]:
    with path.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.DictReader(lines, restkey="", strict=True)
        try:
            names = list(reader.fieldnames or ())
            for name in names:
                if names.count(name) > 1:
                    raise ValueError(f"{path}, line {reader.line_num}: two columns have the name {name!r}")
            for cells in reader:
                place = f"{path}, line {reader.line_num}"
                # DictReader files what is too much under `restkey`, and gives None for what is missing.
                if "" in cells or None in cells.values():
                    raise ValueError(f"{place}: the row has not as many cells as the first line")
                yield _Row(place, cells)
        except csv.Error as error:
            raise ValueError(f"{path}, after line {reader.line_num}: not CSV: {error}") from None


def _parquet(path: Path) -> Iterator[_Row]:
    try:
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise MissingExtraError("pyarrow", "arrow") from error
    for number, cells in enumerate(parquet.read_table(path).to_pylist(), 1):
        yield _Row(f"{path}, row {number}", cells)


_READERS: dict[str, Callable[[Path], Iterator[_Row]]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".csv": _csv,
    ".parquet": _parquet,
}


def _record(row: _Row, columns: Columns) -> ProducerRecord:
    def part(name: str | None, read: Callable[[_Row, str, Any], T]) -> T | None:
        if name is None:
            return None
        if name not in row.cells:
            raise ValueError(f"{row.place}: there is no column {name!r}; there are {', '.join(row.cells) or 'none'}")
        return read(row, name, row.cells[name])

    key, value = part(columns.key, _text), part(columns.value, _text)
    if columns.value is None:
        value = row.text if row.text is not None else _json(row, dict(row.cells))
    headers = part(columns.headers, _headers) or ()
    return ProducerRecord(
        key, value, headers, part(columns.timestamp, _timestamp_ms), part(columns.partition, _partition)
    )


def _text(row: _Row, name: str, cell: Any) -> str | bytes | None:
    return cell if cell is None or isinstance(cell, str | bytes) else _json(row, cell, name)


def _json(row: _Row, data: Any, name: str = "") -> str:
    def default(value: Any) -> str:
        if isinstance(value, date):
            return value.isoformat()
        if isinstance(value, Decimal):
            return str(value)
        raise ValueError(
            f"{row.place}: {f'column {name!r}' if name else 'the row'} has {type(value).__name__}, which JSON cannot "
            "hold; name one column as value="
        )

    return json.dumps(data, default=default, ensure_ascii=False, separators=(",", ":"))


def _headers(row: _Row, name: str, cell: Any) -> list[tuple[str, str | bytes | None]]:
    """Return the pairs of a mapping, of a list of pairs, or of a list of {key, value}; text is parsed as JSON."""
    found = cell
    if isinstance(cell, str):
        try:
            found = json.loads(cell) if cell else {}
        except ValueError as error:
            raise ValueError(f"{row.place}: column {name!r} has headers that are not JSON: {error}") from None
    if isinstance(found, Mapping):
        found = list(found.items())
    try:
        pairs = [(each["key"], each["value"]) if isinstance(each, Mapping) else tuple(each) for each in found or ()]
        return [(key, _text(row, name, value)) for key, value in pairs]
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            f"{row.place}: column {name!r} has {cell!r}; expected headers as a mapping or a list of pairs"
        ) from None


def _timestamp_ms(row: _Row, name: str, cell: Any) -> int | None:
    """Return milliseconds since the epoch; a time without zone is in UTC."""
    try:
        if cell is None or cell == "":
            return None
        if isinstance(cell, int) or (isinstance(cell, str) and cell.lstrip("-").isdigit()):
            return int(cell)
        moment = cell if isinstance(cell, datetime) else datetime.fromisoformat(cell)
    except (TypeError, ValueError):
        raise ValueError(
            f"{row.place}: column {name!r} has {cell!r}; expected milliseconds since the epoch or an ISO 8601 time"
        ) from None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1000)


def _partition(row: _Row, name: str, cell: Any) -> int | None:
    try:
        return None if cell is None or cell == "" else int(cell)
    except (TypeError, ValueError):
        raise ValueError(f"{row.place}: column {name!r} has {cell!r}; expected a partition") from None
