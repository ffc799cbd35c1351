"""The requests about a group's offsets and their answers, as plain values without wire versions."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from broker_core.coordinator.groups.classic.requests import NO_GENERATION, UNKNOWN_MEMBER
from broker_core.errors import ErrorCode
from broker_core.types import NO_LEADER_EPOCH, ProducerIdentity, TopicPartition

NO_OFFSET: int = -1


@dataclass(frozen=True, slots=True)
class OffsetToCommit:
    """One partition's offset in a commit."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str | None = ""


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """A commit of offsets; with `producer`, as a part of that producer's open transaction (KIP-98, KIP-447).

    Leave `generation_id` at -1 and the ids empty for a reader that manages its partitions itself.
    `retention_ms` is the explicit retention of versions 2 to 4; -1 selects the broker's. Set
    `knows_member_epochs` for version 9 and later, in a transaction version 6: only these can carry the epoch of a
    consumer group's member.
    """

    group_id: str
    offsets: Mapping[TopicPartition, OffsetToCommit]
    generation_id: int = NO_GENERATION
    member_id: str = UNKNOWN_MEMBER
    group_instance_id: str | None = None
    retention_ms: int = -1
    knows_member_epochs: bool = False
    producer: ProducerIdentity | None = None


@dataclass(frozen=True, slots=True)
class FetchedOffset:
    """The committed offset of one partition; -1 means none."""

    error: ErrorCode = ErrorCode.NONE
    offset: int = NO_OFFSET
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class FetchOffsetsResult:
    """The answer to an offset fetch: an error of the whole group, or one answer for each partition."""

    error: ErrorCode
    offsets: Mapping[TopicPartition, FetchedOffset] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeleteOffsetsResult:
    """The answer to an offset deletion: an error of the whole group, or one result for each partition."""

    error: ErrorCode
    partitions: Mapping[TopicPartition, ErrorCode] = field(default_factory=dict)
