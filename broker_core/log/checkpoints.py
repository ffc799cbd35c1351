"""Kafka's checkpoint files, small text files of numbers that are replaced atomically.

First line: version 0. Second line: the number of lines that follow.
"""

from collections.abc import Iterator
from typing import Final

from broker_core.errors import DamageError
from broker_core.ports import Storage, Syncs

TEMPORARY_SUFFIX: Final = ".tmp"
_VERSION: Final = "0"


def checkpoint_steps(storage: Storage, folder: str, name: str, rows: list[str]) -> Iterator[Syncs]:
    """Replace the file; it is durable when its folder is synced. Yield what has to be synced before the next step."""
    path = f"{folder}/{name}"
    temporary = storage.open(path + TEMPORARY_SUFFIX)
    temporary.truncate(0)
    temporary.append("".join(f"{line}\n" for line in (_VERSION, str(len(rows)), *rows)).encode())
    yield [temporary.sync]
    temporary.close()
    storage.rename(path + TEMPORARY_SUFFIX, path)


def read_checkpoint(storage: Storage, folder: str, name: str) -> list[list[str]] | None:
    """Return the words of each row, None if there is no file; raise `DamageError` if it is not a checkpoint.

    An empty folder stands for the parent of all logs.
    """
    path = f"{folder}/{name}" if folder else name
    if not storage.exists(path):
        return None
    file = storage.open(path)
    try:
        lines = file.read(0, file.size()).decode("ascii").splitlines()
    except UnicodeDecodeError:
        raise DamageError(f"{path}: not a text file of numbers") from None
    finally:
        file.close()
    if len(lines) < 2 or lines[0] != _VERSION or lines[1] != str(len(lines) - 2):
        raise DamageError(f"{path}: not a checkpoint of version {_VERSION} with all its lines")
    return [line.split() for line in lines[2:]]
