"""The states of a transaction, and the records of `__transaction_state` (rules B.1): one key, two versions of value.

Version 1 is flexible, and the only one with fields for the producer ids before and after a
rotation and for the client's transaction version. Version 0 is written at transaction.version 0, but never
for an image that it cannot represent, so that an abort or a rotation in progress survives a downgrade.
"""

import logging
import struct
from collections.abc import Collection
from functools import lru_cache
from itertools import groupby
from typing import Final, NamedTuple

from broker_core.coordinator.record_fields import FieldReader, compact_int32s, compact_length, compact_string, string
from broker_core.errors import DamageError
from broker_core.types import NO_PRODUCER_ID, NO_TIMESTAMP, ProducerIdentity, TopicPartition, TransactionState

logger = logging.getLogger(__name__)

# The legal transitions between the states of a transaction, by the state after it, and groups of states (rules A.2).
_S = TransactionState
PREDECESSORS: Final[dict[TransactionState, frozenset[TransactionState]]] = {
    _S.EMPTY: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.ONGOING: frozenset({_S.EMPTY, _S.ONGOING, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    # From the idle states only with transactions V2, which may abort an empty transaction.
    _S.PREPARE_ABORT: frozenset({_S.ONGOING, _S.PREPARE_EPOCH_FENCE, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}

# A fence is an intermediate step to PREPARE_ABORT and a dead id is a tombstone: neither state is written.
PERSISTED: Final = frozenset(_S) - {_S.DEAD, _S.PREPARE_EPOCH_FENCE}
IDLE: Final = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
PREPARED: Final = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
BY_LABEL: Final = {state.label: state for state in _S}


def is_legal(old: TransactionState, new: TransactionState) -> bool:
    return old in PREDECESSORS[new]


KEY_TYPE: Final = 0
_PREVIOUS_ID_TAG: Final = 0
_NEXT_ID_TAG: Final = 1
_CLIENT_VERSION_TAG: Final = 2
_KEY_HEAD: Final = struct.Struct(">hH")
# Version, producer id and epoch, timeout, and state; then partitions, then the times.
_HEAD: Final = struct.Struct(">hqhib")
_IDENTITY: Final = struct.Struct(">qhib")
_TIMES: Final = struct.Struct(">qq")
_STATES: Final = {int(state): state for state in PERSISTED}
# Tagged fields: tag and size, which take one byte each, and the number.
_INT64_TAG: Final = struct.Struct(">BBq")
_INT16_TAG: Final = struct.Struct(">BBh")
_NO_TAGS: Final = b"\0"
_NULL_ARRAY: Final = b"\0"


class TransactionImage(NamedTuple):
    """The durable state of a transactional id.

    `previous_producer_id` is the id before the record was written, mostly the same one;
    `next_producer_id` is set while a transaction that used up its producer id's epochs is ending.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition]
    update_ms: int
    start_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_transaction_version: int = 0

    @property
    def identity(self) -> ProducerIdentity:
        """Return the producer id and epoch that markers and fencing use."""
        return ProducerIdentity(self.producer_id, self.producer_epoch)

    @property
    def next_identity(self) -> ProducerIdentity:
        """Return the identity the id will have once the transaction is complete."""
        return ProducerIdentity(self.next_producer_id, 0) if self.rotates else self.identity

    @property
    def rotates(self) -> bool:
        """Return whether the completion changes to a new producer id (rules A.9)."""
        return self.client_transaction_version >= 2 and self.next_producer_id != NO_PRODUCER_ID

    @property
    def fits_version_0(self) -> bool:
        """Return whether a version 0 value can represent it; a previous id equal to the current one is not needed."""
        return (
            self.client_transaction_version == 0
            and self.next_producer_id == NO_PRODUCER_ID
            and self.previous_producer_id in (NO_PRODUCER_ID, self.producer_id)
        )


# A transaction writes its key three times.
@lru_cache(maxsize=1024)
def encode_key(transactional_id: str) -> bytes:
    name = transactional_id.encode()
    return _KEY_HEAD.pack(KEY_TYPE, len(name)) + name


def decode_key(key: bytes) -> str | None:
    """Return the transactional id, or None, with a warning, for an unknown record type."""
    reader = FieldReader(key)
    record_type = reader.int16()
    if record_type != KEY_TYPE:
        logger.warning("skipped a transaction state record of unknown type %d", record_type)
        return None
    return reader.string()


def encode_value(image: TransactionImage, transaction_version: int) -> bytes:
    """Build the value; version 0 only at transaction.version 0 and if it can represent the image."""
    assert image.state in PERSISTED, f"{image.state.name} is never written"
    assert not (image.state is TransactionState.EMPTY and image.partitions), "an EMPTY id has no partitions"
    if transaction_version == 0 and image.fits_version_0:
        version, partitions, tags = 0, _partitions_v0(image), b""
    else:
        version = 1
        partitions = _NULL_ARRAY if image.state is TransactionState.EMPTY else _partitions_v1(image.partitions)
        tags = _tags(image.previous_producer_id, image.next_producer_id, image.client_transaction_version)
    head = _HEAD.pack(version, image.producer_id, image.producer_epoch, image.timeout_ms, image.state)
    return head + partitions + _TIMES.pack(image.update_ms, image.start_ms) + tags


def as_stored(image: TransactionImage, transaction_version: int) -> TransactionImage:
    """Return the image that `decode_value` reads from the value: version 0 has no previous producer id."""
    if transaction_version == 0 and image.fits_version_0:
        return image._replace(previous_producer_id=NO_PRODUCER_ID)
    return image


def decode_value(value: bytes) -> TransactionImage | None:
    """Return the image, or None, with a warning, for an unknown version; raise `DamageError` for a malformed value."""
    reader = FieldReader(value)
    version = reader.int16()
    if version not in (0, 1):
        logger.warning("skipped a transaction state value of unknown version %d", version)
        return None
    producer_id, producer_epoch, timeout_ms, status = reader.numbers(_IDENTITY)
    state = _STATES.get(status)
    if state is None:
        raise DamageError(f"transaction status {status} is never written")
    reader.flexible = version == 1
    partitions = _read_partitions(reader)
    update_ms, start_ms = reader.numbers(_TIMES)
    tags = reader.tags() if version == 1 else {}
    return TransactionImage(
        producer_id,
        producer_epoch,
        timeout_ms,
        state,
        partitions,
        update_ms,
        start_ms,
        FieldReader(tags[_PREVIOUS_ID_TAG]).int64() if _PREVIOUS_ID_TAG in tags else NO_PRODUCER_ID,
        FieldReader(tags[_NEXT_ID_TAG]).int64() if _NEXT_ID_TAG in tags else NO_PRODUCER_ID,
        FieldReader(tags[_CLIENT_VERSION_TAG]).int16() if _CLIENT_VERSION_TAG in tags else 0,
    )


def _by_topic(partitions: Collection[TopicPartition]) -> list[tuple[str, list[int]]]:
    """Group partitions by topic, sorted, so that equal images have equal bytes."""
    if len(partitions) == 1:
        # Nearly always: sorting and grouping take 0.8 µs.
        ((topic, partition),) = partitions
        return [(topic, [partition])]
    grouped = groupby(sorted(partitions), key=lambda one: one.topic)
    return [(topic, [one.partition for one in group]) for topic, group in grouped]


def _partitions_v0(image: TransactionImage) -> bytes:
    if image.state is TransactionState.EMPTY:
        return struct.pack(">i", -1)
    topics = _by_topic(image.partitions)
    value = bytearray(struct.pack(">i", len(topics)))
    for topic, partitions in topics:
        value += string(topic)
        value += struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return bytes(value)


# A transaction writes its partitions twice, and most producers write to the same ones again. Only a few are kept, since
# one transaction may have thousands of partitions, and another set of them with each that is added.
@lru_cache(maxsize=128)
def _partitions_v1(partitions: frozenset[TopicPartition]) -> bytes:
    topics = [compact_string(topic) + compact_int32s(numbers) + _NO_TAGS for topic, numbers in _by_topic(partitions)]
    return compact_length(len(topics)) + b"".join(topics)


# They are the same in all records of a producer id that come from clients of one version.
@lru_cache(maxsize=1024)
def _tags(previous_producer_id: int, next_producer_id: int, client_transaction_version: int) -> bytes:
    """Return the tagged fields that differ from their defaults, in order, as the flexible format requires."""
    present = []
    if previous_producer_id != NO_PRODUCER_ID:
        present.append(_INT64_TAG.pack(_PREVIOUS_ID_TAG, 8, previous_producer_id))
    if next_producer_id != NO_PRODUCER_ID:
        present.append(_INT64_TAG.pack(_NEXT_ID_TAG, 8, next_producer_id))
    if client_transaction_version:
        present.append(_INT16_TAG.pack(_CLIENT_VERSION_TAG, 2, client_transaction_version))
    return b"".join((bytes((len(present),)), *present))


def _read_partitions(reader: FieldReader) -> frozenset[TopicPartition]:
    found: set[TopicPartition] = set()
    for _ in range(reader.length()):
        topic = reader.string()
        found.update(TopicPartition(topic, reader.int32()) for _ in range(reader.length()))
        reader.skip_tags()
    return frozenset(found)
