"""The broker of the fixtures for tests on a real cluster, with cleanup after each test.

After each test its topics and groups are deleted and its transactions aborted, so that the next test starts as with a
new broker:

- A test has the topics that `create_topic` created or that a producer of `kafka_producer` wrote to.
- It has the groups that a consumer of `kafka_consumer` joined.
- Topics and groups that existed before the test may be in use and are not deleted. A test that would create or join
  one of them is skipped.
- Topics and groups of other clients are not deleted either. They are listed at the end of the run.

Transactional ids stay on the cluster; the next producer with the same id fences the previous one.
"""

import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, NoReturn, Self, TypeVar

import pytest
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from broker_core.embedded import EmbeddedBroker
from broker_core.types import counted

T = TypeVar("T")

_PATIENCE_S = 30
# How long the report of a failed test waits for the cluster.
_REPORT_PATIENCE_S = 5
_SHOWN_RECORDS = 10
_SHOWN_BYTES = 60
_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
# Expected errors: the test may have deleted its topics itself, and a consumer that never polled creates no group.
_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.GROUP_ID_NOT_FOUND)


class RealRun:
    """The connection to the cluster, and the state of the whole pytest run."""

    def __init__(self, address: str, settings: Mapping[str, str]) -> None:
        self.address = address
        self.client_settings = {**settings, "bootstrap.servers": address}
        self.not_deleted: list[str] = []
        self.problem = ""
        self._topics_before: set[str] = set()
        try:
            self.admin = AdminClient(dict(self.client_settings))
        except KafkaException as error:
            self.problem = f"--kafka-config: librdkafka refuses the settings: {_text(error)}"
            return
        try:
            self._topics_before = self.topics(_PATIENCE_S)
        except KafkaException as error:
            # Saved, because otherwise every test would wait for this timeout.
            self.problem = (
                f"--kafka-bootstrap {address}: no broker answered a metadata request within {_PATIENCE_S} s "
                f"({_text(error)})"
            )

    def topics(self, timeout_s: float) -> set[str]:
        return {name for name in self.admin.list_topics(timeout=timeout_s).topics if not name.startswith("__")}

    def left(self) -> list[str]:
        left = list(self.not_deleted)
        with suppress(KafkaException):
            came_up = sorted(self.topics(_REPORT_PATIENCE_S) - self._topics_before) if not self.problem else []
            if came_up:
                left.append(f"topics created during the test: {', '.join(came_up)}")
        return [f"left on {self.address}: {each}" for each in left]


class RealCluster:
    """The part of `EmbeddedBroker` that a real cluster supports; a test that uses other parts is skipped."""

    def __init__(self, run: RealRun, brokers: int, topics: Mapping[str, int]) -> None:
        if run.problem:
            pytest.fail(run.problem, pytrace=False)
        self.bootstrap_servers = run.address
        self.client_settings = dict(run.client_settings)
        self._run = run
        self._wanted = brokers, dict(topics)
        self._topics_before = run.topics(_PATIENCE_S)
        self._groups_before = {each.group_id for each in run.admin.list_consumer_groups().result(_PATIENCE_S).valid}
        self._topics: set[str] = set()
        self._groups: set[str] = set()
        self._own_group = f"test-{secrets.token_hex(4)}"

    def __enter__(self) -> Self:
        brokers, topics = self._wanted
        found = len(self._run.admin.list_topics(timeout=_PATIENCE_S).brokers)
        if found < brokers:
            pytest.skip(f"the test needs {counted(brokers, 'broker')}; the real cluster has {found}")
        try:
            for name, partitions in topics.items():
                self.create_topic(name, partitions)
        except BaseException:
            self._clean_up()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._clean_up()

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic, which is deleted after the test; skip the test if the topic exists already."""
        if name in self._run.topics(_PATIENCE_S):
            pytest.skip(f"the real cluster already has a topic {name!r}, which may belong to another user")
        created = self._run.admin.create_topics([NewTopic(name, partitions, config=dict(config or {}))])
        created[name].result(_PATIENCE_S)
        self._topics.add(name)

        def has_leaders() -> bool:
            # Brokers receive a new topic after the controller's response.
            topic = self._run.admin.list_topics(timeout=_PATIENCE_S).topics.get(name)
            return topic is not None and all(each.leader >= 0 for each in topic.partitions.values())

        self.wait_for(has_leaders, _PATIENCE_S)

    def wait_for(self, condition: Callable[[], T], timeout: float = 10) -> T:
        """Call `condition` until its result is true, and return it; raise AssertionError after `timeout` seconds."""
        return EmbeddedBroker.wait_for(condition, timeout)

    # The test's clients

    def producer(self, settings: Mapping[str, Any]) -> Producer:
        """Return a producer; topics that its writes create are deleted after the test."""
        topics, before = self._topics, self._topics_before

        class NotingProducer(Producer):
            def produce(self, topic: str, *args: Any, **kwargs: Any) -> None:
                topics.update({topic} - before)
                super().produce(topic, *args, **kwargs)

            def produce_batch(self, topic: str, *args: Any, **kwargs: Any) -> int:
                topics.update({topic} - before)
                return super().produce_batch(topic, *args, **kwargs)

        return NotingProducer(dict(settings))

    def abort_open_transaction(self, producer: Producer) -> None:
        """Abort a transaction that the test has left open, which would block readers until its timeout."""
        # Raised if the producer has no transaction to abort.
        with suppress(KafkaException):
            producer.abort_transaction(_PATIENCE_S)

    def group(self, wanted: str | None) -> str:
        """Return the group for a consumer, by default one of this test only; it is deleted after the test."""
        name = self._own_group if wanted is None else wanted
        if name in self._groups_before:
            pytest.skip(f"the real cluster already has a group {name!r}, which may belong to another user")
        self._groups.add(name)
        return name

    def _clean_up(self) -> None:
        admin, topics, groups = self._run.admin, sorted(self._topics), sorted(self._groups)
        # Groups first: Kafka deletes committed offsets of a deleted topic only after some time.
        self._await("group", admin.delete_consumer_groups(groups) if groups else {})
        deleted = self._await("topic", admin.delete_topics(topics) if topics else {})
        # The next test may use the same topic names.
        self.wait_for(lambda: not deleted & self._run.topics(_PATIENCE_S), _PATIENCE_S)

    def _await(self, kind: str, futures: "Mapping[str, Future[Any]]") -> set[str]:
        """Wait for deletions and return the deleted names; failures are listed at the end of the run."""
        deleted = set()
        for name, future in futures.items():
            try:
                future.result(_PATIENCE_S)
            except KafkaException as error:
                if error.args[0].code() not in _GONE:
                    self._run.not_deleted.append(f"{kind} {name!r}, which cannot be deleted: {_text(error)}")
                    continue
            deleted.add(name)
        return deleted

    # A failed test's report

    def story(self, most: int) -> str:
        """Return a listing of at most `most` partitions of new topics, with their newest records.

        Records of open and aborted transactions are included.
        """
        try:
            came_up = self._run.topics(_REPORT_PATIENCE_S) - self._topics_before
            listings = list(self._listings(came_up, most))
        except (KafkaException, TimeoutError) as error:
            listings = [f"it cannot be looked at now: {_text(error)}"]
        head = f"{self.bootstrap_servers} is a real cluster: its request log is not available"
        return "\n".join([head, *(listings or ["nothing was written to a topic that is new"])])

    def _listings(self, topics: Collection[str], most: int) -> Iterator[str]:
        known = self._run.admin.list_topics(timeout=_REPORT_PATIENCE_S).topics
        places = [TopicPartition(name, number) for name in sorted(topics) for number in sorted(known[name].partitions)]
        starts = self._offsets(places, _EARLIEST, IsolationLevel.READ_UNCOMMITTED)
        stable = self._offsets(places, _LATEST, IsolationLevel.READ_COMMITTED)
        ends = self._offsets(places, _LATEST, IsolationLevel.READ_UNCOMMITTED)
        written = [row for row in zip(places, starts, stable, ends, strict=True) if row[3] > row[1]]
        for place, start, last_stable, end in written[:most]:
            yield f"{place.topic}-{place.partition}: log start {start}, LSO {last_stable}, HW {end}"
            yield from self._newest(place, start, end)
        if len(written) > most:
            yield f"... {counted(len(written) - most, 'more partition')}"

    def _offsets(self, places: Collection[TopicPartition], spec: OffsetSpec, isolation: IsolationLevel) -> list[int]:
        if not places:
            return []
        asked = self._run.admin.list_offsets(
            dict.fromkeys(places, spec), isolation_level=isolation, request_timeout=_REPORT_PATIENCE_S
        )
        return [asked[place].result(_REPORT_PATIENCE_S).offset for place in places]

    def _newest(self, place: TopicPartition, start: int, end: int) -> Iterator[str]:
        """Yield lines for the last records of a partition; markers and compacted records leave gaps in the offsets."""
        first = max(start, end - _SHOWN_RECORDS)
        if first > start:
            yield f"  ... {counted(first - start, 'earlier offset')}"
        reader = Consumer(
            {
                **self.client_settings,
                "group.id": self._own_group,
                "enable.auto.commit": False,
                "isolation.level": "read_uncommitted",
                "enable.partition.eof": True,
            }
        )
        try:
            reader.assign([TopicPartition(place.topic, place.partition, first)])
            while (message := reader.poll(_REPORT_PATIENCE_S)) is not None and message.error() is None:
                yield f"  {message.offset()}: {_shown(message.key())}={_shown(message.value())}"
        finally:
            reader.close()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_") or not hasattr(EmbeddedBroker, name):
            raise AttributeError(name)
        pytest.skip(f"kafka.{name} needs the embedded broker: run without --kafka-bootstrap")


def _text(error: Exception) -> str:
    """Return librdkafka's description of an error; errors without one are timeouts."""
    first = error.args[0] if error.args else None
    return first.str() if isinstance(first, KafkaError) else "no answer in time"


def _shown(data: bytes | str | None) -> str:
    if data is None:
        return "null"
    text = repr(data[:_SHOWN_BYTES]).removeprefix("b")
    return f"{text}..." if len(data) > _SHOWN_BYTES else text
