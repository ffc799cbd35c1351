"""The results of the runs, in `results.json`, and their tables in docs/deploy/compatibility.md.

A run replaces the rows of the minor versions that it tried; the page and the file must agree (`test_results.py`).
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.support.reference import json_rows, rewritten, table

FILE: Final = Path(__file__).with_name("results.json")
PAGE: Final = Path(__file__).parents[2] / "docs" / "deploy" / "compatibility.md"
NOT_THERE: Final = "—"

Row = dict[str, str]
Results = dict[str, list[Row]]

# What names a row, and so is replaced by a later run.
KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "pyspark": ("pyspark", "by"),
    "kafka": ("kafka",),
    "upgrade": ("from", "to"),
}
COLUMNS: Final[Mapping[str, Mapping[str, str]]] = {
    "pyspark": {
        "pyspark": "PySpark",
        "by": "by",
        "stream": "stream",
        "batch": "batch job",
        "source": "source",
        "on": "run on",
    },
    "kafka": {
        "kafka": "Apache Kafka",
        "transaction_version": "`transaction.version`",
        "stream": "stream",
        "batch": "batch job",
        "source": "source",
        "commands": "`eos-kafka transactions`",
        "pyspark": "PySpark",
        "on": "run on",
    },
    "upgrade": {
        "from": "from",
        "to": "to",
        "queries": "queries",
        "held": "open transactions",
        "levels": "feature levels",
        "seen": "seen by readers",
        "pyspark": "PySpark",
        "on": "run on",
    },
}


def load(file: Path = FILE) -> Results:
    """Return the recorded rows."""
    recorded: Results = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return {kind: recorded.get(kind, []) for kind in COLUMNS}


def record(kind: str, row: Row, file: Path = FILE, shown: Path = PAGE) -> None:
    """Add a row, or replace the one of the same minor versions, and rewrite the page."""
    results = load(file)
    kept = [each for each in results[kind] if _key(kind, each) != _key(kind, row)]
    results[kind] = sorted([*kept, row], key=lambda each: _key(kind, each))
    file.write_text(json_rows(results) + "\n", encoding="utf-8")
    shown.write_text(page(shown.read_text(encoding="utf-8"), results), encoding="utf-8")


def page(text: str, results: Results) -> str:
    """Return the page with the tables of these results."""
    return rewritten(text, {f"{kind} results": _writer(kind, results[kind]) for kind in COLUMNS})


def _writer(kind: str, rows: list[Row]) -> Callable[[], str]:
    columns = COLUMNS[kind]
    return lambda: table(tuple(columns.values()), [[each.get(name, NOT_THERE) for name in columns] for each in rows])


def _key(kind: str, row: Row) -> tuple[Any, ...]:
    """Return the row's minor versions and ways, so that versions sort by number."""
    return tuple(_minor(row[name]) if row[name][:1].isdigit() else row[name] for name in KEYS[kind])


def _minor(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))
