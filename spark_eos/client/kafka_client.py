"""The synchronous Kafka client of the driver and the tasks: brokers, topics, coordinators, feature levels.

A client is used by one process and one thread at a time and connects at first use. It keeps no topic metadata: code
that needs leaders requests and keeps them. The look-ups of topics and coordinators are repeated until their deadline.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from kafka.protocol.metadata import FindCoordinatorRequest

from broker_core.errors import ErrorCode
from broker_core.records.compression import Compression, decompress
from broker_core.records.header import HEADER_SIZE, BatchHeader
from spark_eos.client.broker_client import BrokerClient
from spark_eos.client.coordinator_cache import (
    FIRST_BATCHED_VERSION,
    CoordinatorCache,
    CoordinatorType,
    FoundCoordinators,
    find_coordinator_request,
    read_coordinators,
)
from spark_eos.client.metadata import (
    HIDDEN_TOPIC,
    MISSING_TOPIC_GRACE_SECONDS,
    WAITED_FOR,
    BrokerAddress,
    Doubt,
    RecentTopics,
    TopicMetadata,
    metadata_request,
    problem_with,
    topic_error,
    topics_of,
    versions_request,
)
from spark_eos.errors import EosKafkaError, UnansweredError, UnreachableError
from spark_eos.options.client import ClientOptions
from spark_eos.runtime import REAL, Clock, Runtime

if TYPE_CHECKING:
    from kafka.protocol.api_message import ApiRequest

    # A process that plans a write has a client and no batches.
    from spark_eos.codec.encoded_batch import EncodedBatch

ResponseT = TypeVar("ResponseT")

# A list of topics may be long.
_COMPARED: Final = 2
# The setting may be raised while a query runs; it costs one refused batch to find out.
_LIMITS_KEPT_SECONDS: Final = 600.0
# Short, because no transaction has to wait for it.
_FEATURES_TIMEOUT_MS: Final = 2_000


class _Limit(NamedTuple):
    refused_bytes: int
    records_bytes: int
    noted_at: float


class BatchLimits:
    """The batch sizes that brokers accept for a topic, as one process has learned them from refused batches.

    `max.message.bytes` is a topic setting, and reading it takes a right that producers seldom have. So the first
    batches of a process discover it, and the next ones are made to fit.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._limits: dict[str, _Limit] = {}

    def note_refused(self, topic: str, batch: "EncodedBatch") -> None:
        """Record that a batch of several records was too large: halves of it are tried next."""
        records_bytes = _uncompressed_bytes(batch) // 2
        known = self._known(topic)
        refused_bytes = batch.size_bytes
        if known is not None:
            refused_bytes = min(refused_bytes, known.refused_bytes)
            records_bytes = min(records_bytes, known.records_bytes)
        self._limits[topic] = _Limit(refused_bytes, records_bytes, self._clock.monotonic())

    def is_too_large(self, topic: str, batch: "EncodedBatch") -> bool:
        """Return whether a batch as small as this one was refused and this one can be split."""
        known = self._known(topic)
        return known is not None and batch.record_count > 1 and batch.size_bytes >= known.refused_bytes

    def batch_bytes(self, topic: str, wanted_bytes: int) -> int:
        known = self._known(topic)
        return wanted_bytes if known is None else min(wanted_bytes, known.records_bytes)

    def _known(self, topic: str) -> _Limit | None:
        limit = self._limits.get(topic)
        if limit is not None and self._clock.monotonic() - limit.noted_at > _LIMITS_KEPT_SECONDS:
            del self._limits[topic]
            return None
        return limit


def _uncompressed_bytes(batch: "EncodedBatch") -> int:
    compression = BatchHeader.parse(batch.data).compression
    if compression is Compression.NONE:
        return batch.size_bytes
    return HEADER_SIZE + len(decompress(compression, bytes(memoryview(batch.data)[HEADER_SIZE:])))


class KafkaClient(BrokerClient):
    """A client that sends requests to brokers by node id, found by metadata and coordinator look-ups.

    >>> with KafkaClient(options) as client:                                        # doctest: +SKIP
    ...     topic = client.require_topics(["lines"])["lines"]
    ...     client.send(topic.partitions[0].leader, request, timeout_ms=5_000)
    """

    def __init__(self, options: ClientOptions, runtime: Runtime = REAL) -> None:
        super().__init__(options, runtime)
        self._coordinators = CoordinatorCache()
        self.recent = RecentTopics()
        self.batch_limits = BatchLimits(runtime.clock)

    # Topics.

    def metadata(self, topics: Collection[str] | None, *, timeout_ms: float | None = None) -> dict[str, TopicMetadata]:
        """Describe topics (None: all of them), each with its own error code; retry until a broker responds.

        A response that leaves out a topic says nothing about it, and is believed only if that lasts.
        """
        deadline, doubt = self.deadline(timeout_ms), Doubt(self._monotonic)
        wanted = set(topics or ())
        found: dict[str, TopicMetadata] = {}
        for _ in self.attempts(deadline):
            response = self.ask_metadata(
                lambda: metadata_request(topics),
                timeout_ms=self.remaining_ms(deadline),
                is_whole=lambda answer: wanted <= {each.name for each in answer.topics},
            )
            self.transport.cluster.update_metadata(response)
            self._doubted.clear()
            found = self.recent.note(topics_of(response), self._monotonic())
            if found.keys() >= wanted or not doubt.lasts():
                break
        return found

    def require_topics(
        self,
        topics: Collection[str],
        *,
        need_leaders: bool = True,
        timeout_ms: float | None = None,
        max_age_ms: float = 0,
        were_created: bool = False,
    ) -> dict[str, TopicMetadata]:
        """Describe topics that must exist and have leaders; wait for elections, raise for missing topics.

        Topics that `were_created` a moment ago are waited for until the timeout: while brokers take over thousands of
        new partitions, they do not know of later topics.

        With `max_age_ms`, if leaders are not needed, a response of that age is used: writers make the same request many
        times.
        """
        recent = self.recent.since(topics, self._monotonic() - max_age_ms / 1000) if max_age_ms else None
        if recent is not None and not need_leaders:
            return recent
        deadline = self.deadline(timeout_ms)
        missing_until = deadline if were_created else min(deadline, self._monotonic() + MISSING_TOPIC_GRACE_SECONDS)
        attempt = 0
        while True:
            found = self.metadata(topics, timeout_ms=self.remaining_ms(deadline))
            problems = {name: problem_with(found.get(name), need_leaders) for name in topics}
            bad = {name: code for name, code in problems.items() if code is not ErrorCode.NONE}
            if not bad:
                return found
            until = missing_until if ErrorCode.UNKNOWN_TOPIC_OR_PARTITION in bad.values() else deadline
            hopeless = [code for code in bad.values() if code not in WAITED_FOR]
            if hopeless or not self.back_off(attempt, until):
                if unsaid := sorted(bad.keys() - found.keys()):
                    raise UnansweredError(
                        f"Whether topic '{unsaid[0]}' exists is unknown",
                        checked=f"Metadata response from {self._address_list()}, which leaves it out, again and again",
                        remedy=HIDDEN_TOPIC,
                    )
                raise topic_error(bad, self._address_list())
            attempt += 1

    def topics_by_broker(self, topics: Collection[str]) -> dict[BrokerAddress, dict[str, TopicMetadata] | None]:
        """Return what each broker says of topics; None for one that has not answered, or says nothing about topics."""
        answers = self.ask_each_broker(lambda: metadata_request(topics), timeout_ms=MISSING_TOPIC_GRACE_SECONDS * 1_000)
        return {
            broker: None if isinstance(each, EosKafkaError) or each.error_code != ErrorCode.NONE else topics_of(each)
            for broker, each in answers.items()
        }

    # Coordinators.

    def find_coordinator(self, key_type: CoordinatorType, key: str, *, timeout_ms: float | None = None) -> int:
        """Find the node that coordinates a group or transactional id; cached until it is forgotten."""
        return self.find_coordinators(key_type, [key], timeout_ms=timeout_ms)[key]

    def find_coordinators(
        self, key_type: CoordinatorType, keys: Collection[str], *, timeout_ms: float | None = None
    ) -> dict[str, int]:
        """Find the coordinators of many keys with as few requests as the broker's version allows."""
        deadline = self.deadline(timeout_ms)
        found: dict[str, int] = {}
        trouble: str | None = None
        for _ in self.attempts(deadline):
            found, trouble = self.look_up_coordinators(key_type, keys, deadline)
            if len(found) == len(set(keys)):
                return found
        raise UnreachableError(
            f"No coordinator found for {key_type.word} {next(each for each in keys if each not in found)!r}",
            checked=f"Asked {self._address_list()}; last response: {trouble}",
        )

    def look_up_coordinators(
        self, key_type: CoordinatorType, keys: Collection[str], deadline: float
    ) -> tuple[dict[str, int], str | None]:
        """Return the coordinators that are known after one look-up, and why others are not."""
        trouble: str | None = None
        unknown = self._coordinators.missing(key_type, keys)
        if unknown:
            trouble = self._look_up_coordinators(key_type, unknown, deadline)
            unknown = self._coordinators.missing(key_type, unknown)
        found = self._coordinators.known(key_type, [each for each in keys if each not in unknown] if unknown else keys)
        self._coordinators.drop_oldest(len(keys))
        return found, trouble

    def _look_up_coordinators(self, key_type: CoordinatorType, keys: Sequence[str], deadline: float) -> str | None:
        """Send one request and cache the results; return the last retriable failure, or None."""
        doubted = self._coordinators.take_doubted()
        others = [] if doubted is None else [each.node_id for each in self.brokers() if each.node_id != doubted]
        # Any is usually the broker that is already connected.
        node_id = self.runtime.random.choice(others) if others else None
        trouble: str | None = None
        until = self.share(deadline, len(self.brokers()))
        for found in self._ask_for_coordinators(key_type, keys, [node_id], until):
            self._remember_coordinators(key_type, found)
            trouble = found.trouble or trouble
        return trouble

    def agree_on_coordinator(self, key_type: CoordinatorType, key: str, *, timeout_ms: float | None = None) -> None:
        """Find the coordinator that every broker names; raise `UnansweredError` if they do not agree.

        A broker that is disconnected from the others names itself, and its responses are outdated. But a coordinator
        knows that it is one: if no broker names another, no other has accepted anything.
        """
        deadline = self.deadline(timeout_ms)
        trouble: str | None = None
        for _ in self.attempts(deadline):
            trouble = self._disagreement(key_type, key, deadline)
            if trouble is None:
                return
        raise UnansweredError(
            f"The brokers disagree on the coordinator of {key_type.word} {key!r}",
            checked=f"FindCoordinator to each of them: {trouble}",
            remedy="Look for a broker that is disconnected from the others or does not respond",
        )

    def _disagreement(self, key_type: CoordinatorType, key: str, deadline: float) -> str | None:
        self._coordinators.drop(key_type, key)
        self.metadata([], timeout_ms=self.remaining_ms(deadline))
        node_ids = [each.node_id for each in self.brokers()]
        answers = list(self._ask_for_coordinators(key_type, [key], node_ids, deadline))
        named = {None if each.trouble is not None else each.nodes[key] for each in answers}
        if len(named) == 1 and None not in named:
            self._remember_coordinators(key_type, answers[0])
            return None
        said = [each.trouble or f"broker {each.nodes[key]}" for each in answers]
        return "; ".join(f"broker {node_id}: {answer}" for node_id, answer in zip(node_ids, said, strict=True))

    def _remember_coordinators(self, key_type: CoordinatorType, found: FoundCoordinators) -> None:
        self._coordinators.remember(key_type, found.nodes)
        for address in found.addresses:
            # A coordinator that came back elsewhere is known here before metadata is requested again.
            self.note_address(address)

    def _ask_for_coordinators(
        self, key_type: CoordinatorType, keys: Sequence[str], node_ids: Sequence[int | None], deadline: float
    ) -> Iterator[FoundCoordinators]:
        """Ask each of some brokers (None: any) for all keys, or key by key if that is all they can answer."""
        is_batched = self.api_version(FindCoordinatorRequest) >= FIRST_BATCHED_VERSION
        asked = [(node_id, group) for node_id in node_ids for group in ([keys] if is_batched else zip(keys))]
        responses = self.send_all(
            [(node_id, find_coordinator_request(key_type, group, is_batched)) for node_id, group in asked],
            timeout_ms=self.remaining_ms(deadline),
        )
        for (_, group), response in zip(asked, responses, strict=True):
            yield read_coordinators(key_type, group, response, is_batched)

    def forget_coordinators(self, key_type: CoordinatorType, *keys: str) -> None:
        """Drop what is cached after NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE or a lost connection."""
        self._coordinators.forget(key_type, keys)

    # Features.

    def transaction_version(self, *, refresh: bool = False, timeout_ms: float | None = None) -> int:
        """Return the cluster's finalized `transaction.version`, 0, 1 or 2 (KIP-890), for a transaction that begins now.

        Connections learn it when they open. A broker is queried if none has reported it for `FEATURES_MAX_AGE_SECONDS`,
        after a transaction has failed, or with `refresh`; if it does not respond, the last known level is returned.
        """
        deadline = self.deadline(timeout_ms)
        self._ensure_connected(deadline)
        features = self.features
        if refresh or not features.is_fresh:
            try:
                self.send(None, versions_request(), timeout_ms=min(self.remaining_ms(deadline), _FEATURES_TIMEOUT_MS))
            except UnansweredError:
                features.go_on()
        return features.transaction_version

    def known_transaction_version(self, *, timeout_ms: float | None = None) -> int:
        """Return the last known level, without a request: for ending transactions, which must not wait."""
        self._ensure_connected(self.deadline(timeout_ms))
        return self.features.transaction_version


def answers_to_compare(client: KafkaClient, make: "Callable[[], ApiRequest[ResponseT]]") -> "list[ResponseT]":
    """Ask two brokers what one has answered before, and return their responses.

    At least one of the two is another broker. There are none in a cluster of one broker, or if none responds soon.
    """
    brokers = [each.node_id for each in client.brokers()]
    if len(brokers) < 2:
        return []
    client.runtime.random.shuffle(brokers)
    requests = [(each, make()) for each in brokers[:_COMPARED]]
    answers = client.send_all(requests, timeout_ms=MISSING_TOPIC_GRACE_SECONDS * 1_000)
    return [each for each in answers if not isinstance(each, EosKafkaError)]
