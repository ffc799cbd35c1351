"""Results of checks of source texts, kept between runs in `.cache/remembered.sqlite`.

The tests of architecture, words and rules parse every file of the project; between two runs few files change. A result
belongs to a digest of the texts and of the file with the function, so that neither can be out of date.
"""

import functools
import hashlib
import inspect
import os
import pickle
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

T = TypeVar("T")

_CACHE: Final = Path(__file__).parents[2] / ".cache" / "remembered.sqlite"


def remembered(function: Callable[..., T], *, path: Path = _CACHE) -> Callable[..., T]:
    """Return the function with its results kept; it may depend on its arguments, all texts, and on its file only."""
    if function.__module__ == "__main__":
        # Where the file is run as a command, its types have a name that no other process finds.
        return function
    name = f"{function.__module__}:{function.__qualname__}"

    @functools.cache
    def database(_process: int) -> tuple[sqlite3.Connection, bytes]:
        path.parent.mkdir(exist_ok=True)
        # Each statement is a transaction of its own: other processes write too. No sync: what is lost is found again.
        connection = sqlite3.connect(path, timeout=60, isolation_level=None)
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS results (name TEXT, version BLOB, texts BLOB PRIMARY KEY, result)"
        )
        version = hashlib.sha256(sys.version.encode() + Path(inspect.getfile(function)).read_bytes()).digest()
        connection.execute("DELETE FROM results WHERE name = ? AND version != ?", (name, version))
        return connection, version

    @functools.wraps(function)
    def found(*texts: str) -> T:
        connection, version = database(os.getpid())
        digest = hashlib.sha256(name.encode() + version)
        for text in texts:
            digest.update(hashlib.sha256(text.encode()).digest())
        row = connection.execute("SELECT result FROM results WHERE texts = ?", (digest.digest(),)).fetchone()
        if row is not None:
            kept: T = pickle.loads(row[0])
            return kept
        result = function(*texts)
        values = name, version, digest.digest(), pickle.dumps(result)
        connection.execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?)", values)
        return result

    return found
