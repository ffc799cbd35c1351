"""Administrators: they create topics, change feature levels, and find and end hanging transactions (KIP-664)."""

from typing import TYPE_CHECKING, Any, NamedTuple

from broker_core.errors import ErrorCode
from broker_core.types import TRANSACTION_STATE_TOPIC
from broker_core.wire import messages as m
from tests.simulation.client import TRANSACTION, Client, GaveUpError, UnansweredError
from tests.simulation.producers import NOBODY
from tests.support.messages import filled
from tests.support.raw_session import Identity, record_batch
from tests.support.simulated.faults import FaultKind

if TYPE_CHECKING:
    from tests.simulation.world import World

E = ErrorCode
# A transaction that no coordinator knows may still be on its way to one, but not for that long.
_SUSPICION_MS = 12_000
_NO_START = -1
_FEATURE, _LEVELS = "transaction.version", (1, 2)


class Hanging(NamedTuple):
    """An open transaction that no coordinator will end."""

    topic: str
    partition: int
    producer: Identity
    coordinator_epoch: int
    start_offset: int


class AdministratorActor:
    """An administrator that acts at intervals."""

    def __init__(self, client: Client, name: str, *, changes_features: bool) -> None:
        self.world: World = client.world
        self.name = name
        self._client = client
        self._changes_features = changes_features
        self._random = self.world.random_of(name)
        self._suspects: dict[Hanging, int] = {}
        self._topic_count = 0
        self._level = int(self.world.plan.settings[_FEATURE])

    def run(self) -> None:
        """Act until the calm."""
        deeds = [self._make_topic, self._look_for_hanging, self._look_for_hanging, self._list]
        if self._changes_features:
            deeds += [self._change_feature] * 2
        while not self.world.is_calm:
            self.world.fibers.sleep_ms(self._random.randint(500, 5_000))
            try:
                self._random.choice(deeds)()
            except (GaveUpError, UnansweredError) as error:
                self.world.scheduler.note(f"{self.name}: {error}")
        # Two searches some time apart: what both find hangs.
        for _ in range(3):
            self._look_for_hanging()
            self.world.fibers.sleep_ms(_SUSPICION_MS)
        self._client.close()

    def _ask_any(self, request: Any, version: int) -> Any:
        return self._client.ask(self._client.any_broker(), request, version)

    def _make_topic(self) -> None:
        self._topic_count += 1
        topic = {"name": f"{self.name}-{self._topic_count}", "num_partitions": 2, "replication_factor": 1}
        topics = [topic | {"assignments": [], "configs": []}]
        self._ask_any(filled(m.CreateTopicsRequest, topics=topics, timeout_ms=1_000, validate_only=False), 7)

    def _change_feature(self) -> None:
        level = next(each for each in _LEVELS if each != self._level)
        try:
            # Only the broker knows for sure whether this is an upgrade or a downgrade, and it refuses the wrong one.
            for kind in (1, 2):
                updates = [{"feature": _FEATURE, "max_version_level": level, "upgrade_type": kind}]
                changing = filled(
                    m.UpdateFeaturesRequest, timeout_ms=1_000, validate_only=False, feature_updates=updates
                )
                answer = self._ask_any(changing, 2)
                if answer.error_code == E.NONE:
                    return
        finally:
            self._note_level()

    def _note_level(self) -> None:
        """Count a change that took effect, whatever the response was."""
        if self.world.server.is_running:
            level = self.world.server.cluster.metadata.features[_FEATURE]
            if level != self._level:
                self._level = level
                self.world.nemesis(f"{_FEATURE} is {level}")
                self.world.faults.record(FaultKind.FEATURE_CHANGED)

    def _list(self) -> set[int]:
        """Return the producer ids of all transactions that a coordinator has open; raise `UnansweredError`."""
        found: set[int] = set()
        for broker_id in self.world.broker_ids:
            answer = self._client.ask(
                broker_id,
                m.ListTransactionsRequest(
                    state_filters=[], producer_id_filters=[], duration_filter=-1, transactional_id_pattern=None
                ),
                2,
            )
            if answer.error_code != E.NONE:
                raise UnansweredError(ErrorCode(answer.error_code).name)
            found |= {
                each.producer_id
                for each in answer.transaction_states
                if each.transaction_state in ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
            }
        # No list has the transactions of a partition without a leader.
        asked = m.MetadataRequest.MetadataRequestTopic(name=TRANSACTION_STATE_TOPIC)
        [topic] = self._ask_any(m.MetadataRequest(topics=[asked], allow_auto_topic_creation=False), 9).topics
        if any(part.error_code != E.NONE for part in topic.partitions):
            raise UnansweredError("some transactional ids have no coordinator")
        return found

    def _look_for_hanging(self) -> None:
        if self.world.outages.cut_off:
            # An isolated broker's response does not show whether an id has a coordinator.
            self._suspects.clear()
            return
        try:
            open_here = self._open_in_logs()
            known = self._list()
        except (GaveUpError, UnansweredError) as error:
            self.world.scheduler.note(f"{self.name}: {error}")
            return
        now_ms = self.world.scheduler.now_us // 1_000
        suspects = {one: self._suspects.get(one, now_ms) for one in open_here if one.producer.producer_id not in known}
        self._suspects = suspects
        for one, since_ms in suspects.items():
            if now_ms - since_ms >= _SUSPICION_MS:
                self._end(one)

    def _open_in_logs(self) -> list[Hanging]:
        form = m.DescribeProducersRequest
        found = []
        for topic, (partitions, _) in sorted(self.world.plan.topics.items()):
            for partition in range(partitions):
                answer, code, _ = self._client.ask_leader(
                    topic,
                    partition,
                    lambda topic=topic, partition=partition: form(
                        topics=[form.TopicRequest(name=topic, partition_indexes=[partition])]
                    ),
                    0,
                    lambda answer: int(answer.topics[0].partitions[0].error_code),
                    patience_ms=3_000,
                )
                if code == E.NONE:
                    found += [
                        Hanging(
                            topic,
                            partition,
                            Identity(each.producer_id, each.producer_epoch),
                            each.coordinator_epoch,
                            each.current_txn_start_offset,
                        )
                        for each in answer.topics[0].partitions[0].active_producers
                        if each.current_txn_start_offset != _NO_START
                    ]
        return found

    def _end(self, one: Hanging) -> None:
        if one.producer.producer_id not in self.world.rogues:
            self.world.problems.append(f"a transaction hangs: {one}")
        self.world.nemesis(f"{self.name} aborts {one}")

        def marking() -> Any:
            marker = {
                **one.producer._asdict(),
                "transaction_result": False,
                "coordinator_epoch": max(0, one.coordinator_epoch),
                "transaction_version": 0,
                "topics": [{"name": one.topic, "partition_indexes": [one.partition]}],
            }
            return filled(m.WriteTxnMarkersRequest, markers=[marker])

        self._client.ask_leader(
            one.topic,
            one.partition,
            marking,
            2,
            lambda answer: int(answer.markers[0].topics[0].partitions[0].error_code),
        )


class RogueActor:
    """A client that makes one transaction hang: like an old client's late request, its record has no coordinator."""

    def __init__(self, client: Client, name: str, topic: str, partitions: int) -> None:
        self.world: World = client.world
        self.name = name
        self._client = client
        self._topic = topic
        self._random = self.world.random_of(name)
        self._partition = self._random.randrange(partitions)

    def run(self) -> None:
        """Write one record after a while."""
        self.world.fibers.sleep_ms(self._random.randint(1_000, 8_000))
        try:
            answer, code, _ = self._client.ask_coordinator(
                TRANSACTION,
                self.name,
                lambda: m.InitProducerIdRequest(
                    transactional_id=self.name,
                    transaction_timeout_ms=6_000,
                    producer_id=NOBODY.producer_id,
                    producer_epoch=NOBODY.producer_epoch,
                ),
                4,
            )
            if code == E.NONE:
                identity = Identity(answer.producer_id, answer.producer_epoch)
                self.world.rogues.add(identity.producer_id)
                self._write(identity)
        except GaveUpError as error:
            self.world.scheduler.note(f"{self.name}: {error}")
        self._client.close()

    def _write(self, identity: Identity) -> None:
        batch = record_batch([f"{self.name}:0".encode()], identity, 0, timestamp_ms=self.world.clock.now_ms())
        data = [{"name": self._topic, "partition_data": [{"index": self._partition, "records": batch}]}]
        given = {"transactional_id": self.name, "acks": -1, "timeout_ms": 1_000}
        self._client.ask_leader(
            self._topic,
            self._partition,
            lambda: filled(m.ProduceRequest, topic_data=data, **given),
            11,
            lambda answer: int(answer.responses[0].partition_responses[0].error_code),
        )
