"""The boundaries of records: a chain of lengths, followed in many places at once.

A record has a length, and nothing else determines where the next one begins. Followed one by one in Python, these
lengths cost more than all other decoding together. So the chain is split into lanes. A lane begins where a section
does, or where the bytes look as if a record began, and ends where the next lane begins; all lanes advance in step, by
one record each, with a handful of numpy calls for a step.

The result does not depend on correct guesses. The first lane of a section begins at a record. A lane that begins at a
record and lands exactly on the start of the next proves that the next begins at a record too. A lane that does not land
(because of a wrong guess ahead, a length of three bytes, or corruption) is followed one record at a time, past wrong
guesses, until it lands on a lane or the end of its section. So the records, and the failures, are the same as in a
single walk.

Bytes can be hostile, so nothing here costs more than the records that should be there: no walk finds more of them, and
guesses look at a limited number of places at a time.
"""

from array import array
from collections.abc import Callable, Sequence
from itertools import repeat
from math import isqrt
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from broker_core.errors import InvalidBatch
from spark_eos.codec.varints import Ints, Octets

Section = tuple[int, int]

# Below this many records, or above this mean size of one, a plain walk costs less than guessing where to begin.
_FEWEST_RECORDS: Final = 1500
_LARGEST_MEAN_BYTES: Final = 4096
# Guesses cost time for each lane and steps cost time for each record of a lane: their sum is smallest near this number.
_LANES_PER_ROOT: Final = 6
_LINKS_OF_A_GUESS: Final = 3
_LOOKED_AT_ONCE: Final = 2**19
_STEPS_BETWEEN_LOOKS: Final = 4
_FEW_LANES: Final = 50
# Beyond the end of any data of at most as many bytes, from wherever a record can begin.
_ASTRAY: Final = 2**31 - 1
# Attributes, two deltas, the lengths of key and value, and the number of headers.
_SMALLEST_LENGTH: Final = 6
SMALLEST_RECORD_BYTES: Final = 1 + _SMALLEST_LENGTH
# No varint of more than ten bytes is a number of 64 bits.
_LONGEST_LENGTH: Final = 10
_LARGEST_SHIFT: Final = 63


class _Lanes(NamedTuple):
    """The start of each lane, where it should land, and its section."""

    starts: Ints
    goals: Ints
    sections: Ints


def find_records(
    data: bytes | bytearray | memoryview, sections: Sequence[Section], counts: Sequence[int]
) -> tuple[Ints, Ints]:
    """Return the start and the end of every record in sections (their start and end) that have `counts` records.

    Raises `InvalidBatch` if the lengths do not lead from the start of a section to exactly its end.
    """
    bounds = np.array(sections, np.int64).reshape(-1, 2)
    octets = np.frombuffer(data, np.uint8)
    total = sum(counts)
    size_bytes = int((bounds[:, 1] - bounds[:, 0]).sum())
    if total < _FEWEST_RECORDS or size_bytes > total * _LARGEST_MEAN_BYTES:
        lanes = _lanes(bounds, np.empty(0, np.int64))
        paths = np.empty((0, len(bounds)), np.int64)
    else:
        words = np.ndarray((len(octets) - 1,), np.dtype("<u2"), octets.data, 0, (1,))
        lanes = _lanes(bounds, _guesses(octets, words, bounds, total))
        paths = _advance(words, lanes, 2 * total // len(lanes.starts) + 4 * _STEPS_BETWEEN_LOOKS)
    starts, lane_counts = _collect(data, lanes, paths, total)
    found = np.bincount(lanes.sections, lane_counts, len(bounds)).astype(np.int64)
    if (found != counts).any():
        raise _astray()
    ends = np.empty_like(starts)
    ends[:-1] = starts[1:]
    ends[np.cumsum(counts) - 1] = bounds[:, 1]
    return starts, ends


def find_leading_records(data: bytes | bytearray | memoryview, most: int, complete: bool) -> tuple[Ints, int]:
    """Return where the first records begin, at most `most` of them, and where the last ends.

    That end is beyond the data if the record is truncated. Unless the data is `complete`, its last few bytes are not
    read, because they may be only a part of a record's length. Raises `InvalidBatch` for an invalid length.
    """
    starts = array("q")
    goal = len(data) if complete else len(data) - _LONGEST_LENGTH
    end = _walk(data, 0, goal, min(most, len(data) // SMALLEST_RECORD_BYTES + 1), starts.append)
    return np.frombuffer(starts, np.int64), end


def _astray() -> InvalidBatch:
    return InvalidBatch("the record lengths do not add up to the size of the batch")


def _lanes(bounds: Ints, guesses: Ints) -> _Lanes:
    section = np.searchsorted(bounds[:, 0], guesses, "right") - 1
    inside = (guesses > bounds[section, 0]) & (guesses < bounds[section, 1]) & (section >= 0)
    starts = np.concatenate([bounds[:, 0], guesses[inside]])
    sections = np.concatenate([np.arange(len(bounds)), section[inside]])
    order = np.lexsort((starts, sections))
    starts, sections = starts[order], sections[order]
    goals = np.append(starts[1:], 0)
    goals[np.append(sections[1:] != sections[:-1], True)] = bounds[:, 1]
    return _Lanes(starts, goals, sections)


def _stride_table() -> npt.NDArray[np.int32]:
    """Make the table of the distance to the next record by a record's first two bytes; very far if unknown."""
    pairs = np.arange(2**16)
    low, high = pairs & 0xFF, pairs >> 8
    short = low < 0x80
    zigzag = np.where(short, low, low & 0x7F | high << 7)
    is_length = (short | (high < 0x80)) & (zigzag >> 1 >= _SMALLEST_LENGTH)
    return np.where(is_length, (zigzag >> 1) + np.where(short, 1, 2), _ASTRAY).astype(np.int32)


_STRIDES: Final = _stride_table()


def _guesses(octets: Octets, words: Any, bounds: Ints, total: int) -> Ints:
    """Look into one window after another for the first place where a record seems to begin.

    A record's attributes are zero, so the zero bytes of a window are the candidates. Those remain from which lengths
    lead to more records.
    """
    begin, end = int(bounds[:, 0].min()), int(bounds[:, 1].max())
    spacing = max(1, (end - begin) // (_LANES_PER_ROOT * isqrt(total)))
    width = min(spacing, 2 * (end - begin) // total)
    windows: Octets = np.ndarray(((end - begin - width) // spacing, width), np.uint8, octets.data, begin, (spacing, 1))
    rows = max(1, _LOOKED_AT_ONCE // max(1, width))
    found = [
        _look(octets, words, windows[first : first + rows], begin + first * spacing, end - 3)
        for first in range(0, len(windows), rows)
    ]
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _look(octets: Octets, words: Any, windows: Octets, begin: int, last: int) -> Ints:
    """Return the first place in each of the windows, the first of them at `begin`, where a record seems to begin."""
    spacing, width = windows.strides[0], windows.shape[1]
    window, column = np.divmod(np.flatnonzero(windows == 0), width)
    attributes = begin + window * spacing + column
    # The length before them takes one byte or two.
    places = np.concatenate([attributes - 1, attributes - 2])
    attributes = np.concatenate([attributes, attributes])
    places = places[(places >= begin) & (places + 1 + (octets[places] >> 7) == attributes)]
    reached = places
    for _ in range(_LINKS_OF_A_GUESS):
        reached = np.minimum(reached + _STRIDES[words[reached]], last)
        linked = np.flatnonzero(octets[reached + 1 + (octets[reached] >> 7)] == 0)
        places, reached = places[linked], reached[linked]
    places.sort()
    first_of_windows: Ints = places[np.flatnonzero(np.diff((places - begin) // spacing, prepend=-1))]
    return first_of_windows


def _advance(words: Any, lanes: _Lanes, most_steps: int) -> Ints:
    """Follow all lanes in step; return their places before each step, one row each.

    A lane that has reached its goal continues. When only a few have not, walking costs less than more steps.
    """
    paths = np.empty((most_steps, len(lanes.starts)), np.int64)
    last = len(words) - 1
    paths[0] = lanes.starts
    for step in range(most_steps - 1):
        places = paths[step]
        if step % _STEPS_BETWEEN_LOOKS == 0 and np.count_nonzero(places < lanes.goals) <= _FEW_LANES:
            return paths[: step + 1]
        np.add(places, _STRIDES[words[np.minimum(places, last)]], out=paths[step + 1])
    return paths


def _collect(data: bytes | bytearray | memoryview, lanes: _Lanes, paths: Ints, most: int) -> tuple[Ints, Ints]:
    """Return the start of every record, and their number in each lane; walk on where a lane has not landed."""
    inside = paths < lanes.goals
    counts = inside.sum(0)
    landed = np.zeros(len(lanes.starts), bool)
    done = np.flatnonzero(counts < len(paths))
    landed[done] = paths[counts[done], done] == lanes.goals[done]
    if landed.all():
        return paths.T[inside.T], counts
    astray = np.flatnonzero(~landed)
    # The last place of such a lane is a record, if its first is; where that record ends is still unknown.
    resumed = lanes.starts.copy()
    begun = astray[counts[astray] > 0]
    counts[begun] -= 1
    resumed[begun] = paths[counts[begun], begun]
    inside[counts[begun], begun] = False
    walked, nowhere = _walk_lanes(data, lanes, resumed.tolist(), astray.tolist(), most)
    inside[:, nowhere] = False
    counts[nowhere] = 0
    added = np.zeros_like(counts)
    added[list(walked)] = [len(found) for found in walked.values()]
    places = np.repeat(np.cumsum(counts), added)
    return np.insert(paths.T[inside.T], places, np.concatenate(list(walked.values()))), counts + added


def _walk_lanes(
    data: bytes | bytearray | memoryview, lanes: _Lanes, resumed: Sequence[int], astray: Sequence[int], most: int
) -> tuple[dict[int, "array[int]"], list[int]]:
    """Walk from the current place of each lane until it lands, over at most `most` records.

    Returns the records of each, and the lanes that did not begin at a record.
    """
    goals, sections = lanes.goals.tolist(), lanes.sections.tolist()
    walked: dict[int, array[int]] = {}
    nowhere: list[int] = []
    for lane in astray:
        if nowhere and lane <= nowhere[-1]:
            continue
        found = walked[lane] = array("q")
        ahead = lane
        place = _walk(data, resumed[lane], goals[lane], most, found.append)
        while place > goals[ahead]:
            ahead += 1
            if ahead == len(goals) or sections[ahead] != sections[lane]:
                raise _astray()
            nowhere.append(ahead)
            place = _walk(data, place, goals[ahead], most - len(found), found.append)
        if place < goals[ahead]:
            raise _astray()
        most -= len(found)
    return walked, nowhere


def _walk(data: bytes | bytearray | memoryview, place: int, goal: int, most: int, append: Callable[[int], None]) -> int:
    """Append the start of each record from `place` on, up to `goal`; return where the walk ended.

    That is before the goal if it takes more than `most` records to get there.
    """
    try:
        for _ in repeat(None, most):
            if place >= goal:
                break
            append(place)
            byte = data[place]
            if byte < 0x80:
                place += 1 + (byte >> 1)
            elif (second := data[place + 1]) < 0x80:
                # Most records have 64 to 8191 bytes: two bytes hold 6 and 7 bits of their length.
                place += 2 + (byte >> 1 & 0x3F) + (second << 6)
            else:
                unsigned = byte & 0x7F
                shift = 7
                while byte >= 0x80 and shift <= _LARGEST_SHIFT:
                    place += 1
                    byte = data[place]
                    unsigned |= (byte & 0x7F) << shift
                    shift += 7
                place += 1 + (unsigned >> 1)
    except IndexError:
        raise _astray() from None
    return place
