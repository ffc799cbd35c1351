"""The batches in a partition's files, as a node of Apache Kafka has written them."""

import glob
import struct
from typing import NamedTuple

# Base offset, length, leader epoch, magic, checksum, attributes, last offset delta, times, producer, epoch, sequence.
_HEADER = struct.Struct(">qiibIhiqqqhi")
_TRANSACTIONAL = 0x10
_CONTROL = 0x20


class Batch(NamedTuple):
    """What a script looks at in a batch's header."""

    first: int
    last: int
    producer_id: int
    epoch: int
    is_transactional: bool
    is_marker: bool


def batches(topic: str, data: str = "data") -> list[Batch]:
    """Return the batches of partition 0 of the topic, oldest first."""
    found = []
    for path in sorted(glob.glob(f"{data}/{topic}-0/*.log")):
        with open(path, "rb") as file:
            content = file.read()
        at = 0
        while at + _HEADER.size <= len(content):
            first, length, _, _, _, attributes, delta, _, _, pid, epoch, _ = _HEADER.unpack_from(content, at)
            kinds = bool(attributes & _TRANSACTIONAL), bool(attributes & _CONTROL)
            found.append(Batch(first, first + delta, pid, epoch, *kinds))
            at += 12 + length
    return found
