"""The replacement of segments by a cleaned one, so that a crash at any point leaves the old ones or the new one.

The cleaned files are written and synced under `.cleaned` names, which recovery deletes. Renaming the log to `.swap`,
last of the four, decides the swap: from there on, live or in recovery, `finish_swap` does the rest, and may
be repeated. The log file gets its final name last, so that a `.swap` log file exists as long as anything is
left to do, and an index with that name and no log file belongs to an undecided swap.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from broker_core.errors import InvalidBatch
from broker_core.log.segment import INDEX_SUFFIXES, LOG_SUFFIX, Segment
from broker_core.ports import Storage

CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"


def discard_cleaned(storage: Storage, folder: str, base_offset: int) -> None:
    """Delete the files of an undecided attempt."""
    path = _path(folder, base_offset)
    for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
        storage.delete(path + suffix + CLEANED_SUFFIX)
    for suffix in INDEX_SUFFIXES:
        storage.delete(path + suffix + SWAP_SUFFIX)


def decide_swap(storage: Storage, folder: str, base_offset: int) -> None:
    """Decide the swap: the cleaned segment, which must be synced, replaces the old ones."""
    path = _path(folder, base_offset)
    for suffix in INDEX_SUFFIXES:
        if storage.exists(path + suffix + CLEANED_SUFFIX):
            storage.rename(path + suffix + CLEANED_SUFFIX, path + suffix + SWAP_SUFFIX)
    storage.sync_folder(folder)
    storage.rename(path + LOG_SUFFIX + CLEANED_SUFFIX, path + LOG_SUFFIX + SWAP_SUFFIX)
    storage.sync_folder(folder)


def finish_swap(storage: Storage, folder: str, base_offset: int, replaced: Iterable[int]) -> None:
    """Remove the segments that begin at `replaced` and give the decided one its final names."""
    path = _path(folder, base_offset)
    for offset in replaced:
        for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
            storage.delete(_path(folder, offset) + suffix)
    for suffix in INDEX_SUFFIXES:
        if storage.exists(path + suffix + SWAP_SUFFIX):
            storage.rename(path + suffix + SWAP_SUFFIX, path + suffix)
        else:
            # It may speak of the old batches. Recovery rebuilds offset and time index, and of an aborted
            # transaction no data is left that a reader would have to be warned of.
            storage.delete(path + suffix)
    storage.sync_folder(folder)
    storage.rename(path + LOG_SUFFIX + SWAP_SUFFIX, path + LOG_SUFFIX)
    storage.sync_folder(folder)


def replaced_by_swap(storage: Storage, folder: str, base_offset: int) -> list[int]:
    """Find the segments a decided one replaces: those that begin where it has offsets.

    One that had lost all its batches may stay; it is what it was before, and the next pass cleans it.
    """
    swap = Segment(storage, folder, base_offset, SWAP_SUFFIX)
    end = base_offset
    with suppress(InvalidBatch):
        for _, header, _, _ in swap.headers():
            end = header.next_offset
    swap.close()
    stems = (name.removesuffix(LOG_SUFFIX) for name in storage.list_folder(folder) if name.endswith(LOG_SUFFIX))
    return [int(stem) for stem in stems if stem.isdecimal() and base_offset < int(stem) < end]


def _path(folder: str, base_offset: int) -> str:
    return f"{folder}/{base_offset:020d}"
