"""Single transactional requests, so that a test can do what no well-behaved client does."""

import time
from collections.abc import Collection
from typing import Any, NamedTuple

from kafka.record.default_records import DefaultRecordBatchBuilder

from broker_core.wire import messages as m
from tests.support.messages import filled
from tests.support.raw_client import RawClient

DEADLINE_S = 30
NOT_LEADER_OR_FOLLOWER, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR = 6, 14, 15, 16
CONCURRENT_TRANSACTIONS = 51
# Temporary error codes after the creation of a topic, those behind the coordinators included.
LOADING = frozenset({NOT_LEADER_OR_FOLLOWER, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR})
NOT_YET = LOADING | {CONCURRENT_TRANSACTIONS}


class Identity(NamedTuple):
    """A producer id and epoch."""

    producer_id: int
    producer_epoch: int


NOBODY = Identity(-1, -1)


def record_batch(
    values: Collection[bytes],
    identity: Identity,
    sequence: int,
    *,
    transactional: bool = True,
    timestamp_ms: int | None = None,
) -> bytes:
    """Build one uncompressed record batch as a producer would, with the current time by default."""
    if timestamp_ms is None:
        timestamp_ms = int(time.time() * 1000)
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=transactional,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        base_sequence=sequence,
        batch_size=1 << 20,
    )
    for offset, value in enumerate(values):
        builder.append(offset, timestamp_ms, None, value, [])
    return bytes(builder.build())


def _committed(topic: str, offset: int) -> dict[str, Any]:
    """Return an offset of partition 0 in a request that commits it."""
    part = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}
    return {"name": topic, "partitions": [part]}


class RawSession:
    """One connection and one transactional id."""

    def __init__(self, client: RawClient, transactional_id: str | None):
        self.client = client
        self.transactional_id: Any = transactional_id
        if transactional_id:
            # The first request for a coordinator creates its topic; no other request does.
            for key_type in (0, 1):
                self._ask(4, m.FindCoordinatorRequest, key_type=key_type, coordinator_keys=[transactional_id])

    def _ask(self, version: int, form: Any, **fields: Any) -> Any:
        """Send a request, whose nested parts are dicts, and return the response."""
        return self.client.send(filled(form, **fields), version)

    def init(self, *, expected: Identity = NOBODY, timeout_ms: int = 60_000, version: int = 5) -> tuple[int, Identity]:
        """Send one InitProducerId; retried only while the coordinator loads."""
        return self._retry(lambda: self._init(expected, timeout_ms, version), LOADING)

    def init_until_done(self, *, expected: Identity = NOBODY, timeout_ms: int = 60_000, version: int = 5) -> Identity:
        """Send InitProducerId until no other transaction blocks it."""
        error, identity = self._retry(lambda: self._init(expected, timeout_ms, version), NOT_YET)
        assert error == 0, error
        return identity

    def _init(self, expected: Identity, timeout_ms: int, version: int) -> tuple[int, Identity]:
        answer = self._ask(
            version,
            m.InitProducerIdRequest,
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=expected.producer_id,
            producer_epoch=expected.producer_epoch,
        )
        return answer.error_code, Identity(answer.producer_id, answer.producer_epoch)

    def add(self, identity: Identity, topic: str, *partitions: int, version: int = 3) -> set[int]:
        """Send one AddPartitionsToTxn and return the set of its error codes."""
        answer = self._ask(
            version,
            m.AddPartitionsToTxnRequest,
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.producer_epoch,
            v3_and_below_topics=[{"name": topic, "partitions": list(partitions) or [0]}],
        )
        return {
            part.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for part in topic.results_by_partition
        }

    def add_until_done(self, identity: Identity, topic: str, *partitions: int) -> None:
        """Send AddPartitionsToTxn until the previous transaction has completed."""
        errors = self._retry(lambda: (max(self.add(identity, topic, *partitions)), None), NOT_YET)
        assert errors[0] == 0, errors

    def add_offsets(self, identity: Identity, group: str, *, version: int = 3) -> int:
        """Send one AddOffsetsToTxn and return its error code."""
        return self._ask(version, m.AddOffsetsToTxnRequest, **self._of(identity), group_id=group).error_code

    def _of(self, identity: Identity) -> dict[str, Any]:
        """Return the fields of a request that name the transaction."""
        return {"transactional_id": self.transactional_id, **identity._asdict()}

    def end(self, identity: Identity, *, commit: bool, version: int) -> tuple[int, Identity]:
        """Send one EndTxn; retried only while the coordinator loads."""
        return self._retry(lambda: self._end(identity, commit, version), LOADING)

    def end_until_done(self, identity: Identity, *, commit: bool, version: int) -> tuple[int, Identity]:
        """Send EndTxn until the previous end has completed."""
        return self._retry(lambda: self._end(identity, commit, version), NOT_YET)

    def _end(self, identity: Identity, commit: bool, version: int) -> tuple[int, Identity]:
        answer = self._ask(version, m.EndTxnRequest, **self._of(identity), committed=commit)
        return answer.error_code, Identity(answer.producer_id, answer.producer_epoch)

    def produce(self, topic: str, batch: bytes, *, version: int, partition: int = 0) -> tuple[int, int]:
        """Send one Produce and return error code and base offset; retried while the previous transaction completes."""
        return self._retry(lambda: self._produce(topic, batch, version, partition), NOT_YET)

    def _produce(self, topic: str, batch: bytes, version: int, partition: int) -> tuple[int, int]:
        part = self.produce_once(topic, batch, version=version, partition=partition)
        return part.error_code, part.base_offset

    def produce_once(self, topic: str, batch: bytes, *, version: int, partition: int = 0) -> Any:
        """Send one Produce and return the partition's part of the response."""
        answer = self._ask(
            version,
            m.ProduceRequest,
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[{"name": topic, "partition_data": [{"index": partition, "records": batch}]}],
        )
        return answer.responses[0].partition_responses[0]

    def fetch(
        self, topic: str, offset: int, *, isolation: int, version: int = 12, partition: int = 0, last_epoch: int = -1
    ) -> Any:
        """Send one Fetch outside any session and return the partition's part of the response."""
        wanted = {
            "partition": partition,
            "fetch_offset": offset,
            "partition_max_bytes": 1 << 20,
            "last_fetched_epoch": last_epoch,
        }
        answer = self._ask(
            version,
            m.FetchRequest,
            max_bytes=1 << 20,
            isolation_level=isolation,
            rack_id="",
            topics=[{"topic": topic, "partitions": [wanted]}],
            forgotten_topics_data=[],
        )
        assert answer.error_code == 0
        return answer.responses[0].partitions[0]

    def describe(self) -> Any:
        """Send one DescribeTransactions for this transactional id."""
        answer = self._ask(0, m.DescribeTransactionsRequest, transactional_ids=[self.transactional_id])
        return answer.transaction_states[0]

    def list_answer(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        duration_ms: int = -1,
        pattern: str | None = None,
        version: int = 2,
    ) -> Any:
        """Send one ListTransactions and return the response."""
        return self._ask(
            version,
            m.ListTransactionsRequest,
            state_filters=[*states],
            producer_id_filters=[*producer_ids],
            duration_filter=duration_ms,
            transactional_id_pattern=pattern,
        )

    def list(self, **filters: Any) -> dict[str, tuple[int, str]]:
        """Send one ListTransactions and return producer id and state by transactional id."""
        answer = self.list_answer(**filters)
        assert answer.error_code == 0
        return {
            entry.transactional_id: (entry.producer_id, entry.transaction_state) for entry in answer.transaction_states
        }

    def producers(self, topic: str, partition: int = 0) -> Any:
        """Send one DescribeProducers for a partition and return its part of the response."""
        answer = self._ask(0, m.DescribeProducersRequest, topics=[{"name": topic, "partition_indexes": [partition]}])
        return answer.topics[0].partitions[0]

    def write_marker(
        self,
        topic: str,
        identity: Identity,
        *,
        commit: bool,
        coordinator_epoch: int,
        transaction_version: int = 0,
        partition: int = 0,
        version: int = 2,
    ) -> int:
        """Send one WriteTxnMarkers, as a coordinator would, and return its error code."""
        marker = {
            **identity._asdict(),
            "transaction_result": commit,
            "topics": [{"name": topic, "partition_indexes": [partition]}],
            "coordinator_epoch": coordinator_epoch,
            "transaction_version": transaction_version,
        }
        answer = self._ask(version, m.WriteTxnMarkersRequest, markers=[marker])
        return answer.markers[0].topics[0].partitions[0].error_code

    def commit_in_transaction(self, identity: Identity, group: str, topic: str, offset: int, *, version: int) -> int:
        """Send one TxnOffsetCommit of a group without members and return its error code."""

        def send() -> tuple[int, None]:
            answer = self._ask(
                version,
                m.TxnOffsetCommitRequest,
                **self._of(identity),
                group_id=group,
                member_id="",
                topics=[_committed(topic, offset)],
            )
            return answer.topics[0].partitions[0].error_code, None

        return self._retry(send, NOT_YET)[0]

    def commit_plainly(self, group: str, topic: str, offset: int) -> int:
        """Send one OffsetCommit outside the transaction and return its error code."""
        answer = self._ask(
            8,
            m.OffsetCommitRequest,
            group_id=group,
            member_id="",
            topics=[_committed(topic, offset)],
        )
        return answer.topics[0].partitions[0].error_code

    def committed(self, group: str, topic: str, *, require_stable: bool) -> tuple[int, int]:
        """Send one OffsetFetch and return error code and offset."""
        topics = [{"name": topic, "partition_indexes": [0]}]
        answer = self._ask(7, m.OffsetFetchRequest, group_id=group, topics=topics, require_stable=require_stable)
        if answer.error_code:
            return answer.error_code, -1
        part = answer.topics[0].partitions[0]
        return part.error_code, part.committed_offset

    @staticmethod
    def _retry(call: Any, codes: Collection[int]) -> Any:
        """Call until the error code, the first part of the result, is none of these."""
        end = time.monotonic() + DEADLINE_S
        while True:
            answer = call()
            if answer[0] not in codes or time.monotonic() > end:
                return answer
            time.sleep(0.02)
