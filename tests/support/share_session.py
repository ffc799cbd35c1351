"""Single requests of a member of a share group."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from broker_core.errors import ErrorCode
from broker_core.wire import messages as m
from tests.support.clients import DEADLINE_S, Kafka, admin, unique
from tests.support.messages import filled
from tests.support.waiting import wait_until

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
BATCH_OPTIMIZED, RECORD_LIMIT = 0, 1
_NOT_YET = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}


def make_group(kafka: Kafka, **settings: str) -> str:
    """Return a group that begins at the earliest record, with further settings."""
    group = unique("share")
    every = {"share.auto.offset.reset": "earliest", **{name.replace("_", "."): text for name, text in settings.items()}}
    entries = [ConfigEntry(name, text, incremental_operation=AlterConfigOpType.SET) for name, text in every.items()]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    client = admin(kafka)
    client.incremental_alter_configs([resource])[resource].result(DEADLINE_S)
    return group


class Connection(Protocol):
    """A client's connection, as far as a member uses it."""

    def send(self, request: Any, version: int) -> Any:
        """Send a request and return its response."""

    def close(self) -> None:
        """Close the connection."""


class Range(NamedTuple):
    """Acquired records: the first and last offset, and how often they were delivered."""

    first: int
    last: int
    delivery_count: int = 1


class ShareMember:
    """One connection of one member of a share group that reads partition 0 of a topic."""

    def __init__(self, client: Connection, group: str, topic: str, member_id: str | None = None) -> None:
        self.client = client
        self.group = group
        self.topic = topic
        self.member_id = member_id or str(uuid4())
        self.epoch = 0
        self.session_epoch = 0
        described = client.send(
            filled(
                m.MetadataRequest, topics=[{"name": topic, "topic_id": m.NULL_UUID}], allow_auto_topic_creation=False
            ),
            12,
        )
        self.topic_id = described.topics[0].topic_id

    def heartbeat(self, epoch: int | None = None) -> Any:
        """Send a heartbeat when the coordinator is there, and remember the epoch it gives."""
        request = m.ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch if epoch is None else epoch,
            subscribed_topic_names=[self.topic],
        )
        answer: Any = None

        def is_answered() -> bool:
            nonlocal answer
            answer = self.client.send(request, 1)
            return answer.error_code not in _NOT_YET

        wait_until(is_answered, "the coordinator is there", pause_s=0.05)
        if not answer.error_code:
            self.epoch = answer.member_epoch
        return answer

    def join(self) -> "ShareMember":
        """Join the group and wait for the assignment of partition 0."""
        found = self.client.send(m.FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group]), 6)
        assert len(found.coordinators) == 1

        def is_assigned() -> bool:
            assignment = self.heartbeat().assignment
            return assignment is not None and bool(assignment.topic_partitions)

        wait_until(is_assigned, "partition 0 is assigned", deadline_s=30, pause_s=0.05)
        return self

    def fetch(
        self,
        *acknowledged: tuple[int, int, Sequence[int]],
        wait_ms: int = 500,
        most: int = 500,
        batch_size: int = 500,
        mode: int = BATCH_OPTIMIZED,
        session_epoch: int | None = None,
    ) -> Any:
        """Fetch, and acknowledge ranges of offsets; return the answer."""
        request = m.ShareFetchRequest(
            **self._subject(m.ShareFetchRequest.FetchTopic, "FetchPartition", acknowledged, session_epoch),
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=most,
            batch_size=batch_size,
            share_acquire_mode=mode,
            forgotten_topics_data=[],
        )
        answer = self.client.send(request, 2)
        if session_epoch is None and not answer.error_code:
            self.session_epoch += 1
        return answer

    def acquire(self, **arguments: Any) -> list[Range]:
        """Fetch until records are acquired."""
        found: list[Range] = []

        def is_acquired() -> bool:
            found.extend(acquired(self.fetch(**arguments)))
            return bool(found)

        wait_until(is_acquired, "records are acquired", deadline_s=30)
        return found

    def acknowledge(
        self, first: int, last: int, *kinds: int, is_renewal: bool = False, session_epoch: int | None = None
    ) -> int:
        """Acknowledge a range; return the error of the request or of the partition."""
        form, ranges = m.ShareAcknowledgeRequest.AcknowledgeTopic, [(first, last, kinds)]
        request = m.ShareAcknowledgeRequest(
            **self._subject(form, "AcknowledgePartition", ranges, session_epoch), is_renew_ack=is_renewal
        )
        answer = self.client.send(request, 2)
        if answer.error_code:
            return int(answer.error_code)
        if session_epoch is None:
            self.session_epoch += 1
        return int(answer.responses[0].partitions[0].error_code)

    def _subject(
        self, topic: Any, partition: str, ranges: Sequence[tuple[int, int, Sequence[int]]], session_epoch: int | None
    ) -> dict[str, Any]:
        """Return the member, its session and the acknowledged ranges of partition 0, as fields of a request."""
        form = getattr(topic, partition)
        batches = [
            form.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(kinds))
            for first, last, kinds in ranges
        ]
        return {
            "group_id": self.group,
            "member_id": self.member_id,
            "share_session_epoch": self.session_epoch if session_epoch is None else session_epoch,
            "topics": [
                topic(topic_id=self.topic_id, partitions=[form(partition_index=0, acknowledgement_batches=batches)])
            ],
        }


def acquired(answer: Any) -> list[Range]:
    """Return the acquired records of a fetch without errors."""
    assert not answer.error_code, answer
    partitions = [partition for topic in answer.responses for partition in topic.partitions]
    assert not any(partition.error_code for partition in partitions), answer
    return [
        Range(each.first_offset, each.last_offset, each.delivery_count)
        for partition in partitions
        for each in partition.acquired_records
    ]
