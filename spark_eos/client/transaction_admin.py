"""An administrator's view of producers and transactions, and the end of those that hang (KIP-664).

kafka-python's admin client has the calls. It gives up at the first passing failure, so each is retried here. Four
calls are not used: its `list_transactions`, which fails for a state that only a newer broker knows; its
`describe_transactions`, which fails as a whole for one unknown id and keeps a coordinator that has moved (`inspection`
does neither); its `describe_producers`, which queries one broker after the other and fails as a whole for one partition
(`producer_scan` does neither); and its `find_hanging_transactions`, which lists what coordinators know to be old: a
transaction hangs if no coordinator knows it.
"""

import struct
from collections.abc import Callable, Collection
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import kafka.errors as kafka_errors
from kafka import TopicPartition as KafkaTopicPartition
from kafka.admin import AbortTransactionSpec, KafkaAdminClient
from kafka.net.compat import KafkaNetClient
from kafka.protocol.admin import ListTransactionsRequest
from kafka.protocol.producer import WriteTxnMarkersRequest

from broker_core.errors import ErrorCode
from broker_core.types import TopicPartition
from spark_eos.client.active_producers import ActiveProducer
from spark_eos.client.credentials import Hidden, token_provider
from spark_eos.client.error_table import code_name
from spark_eos.client.inspection import (
    FIRST_DURATION_VERSION,
    FIRST_PATTERN_VERSION,
    TransactionListing,
    list_by_broker,
)
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.metadata import TopicMetadata
from spark_eos.client.offset_lookup import OffsetLookup, partition_error
from spark_eos.client.producer_scan import DEFAULT_MAX_IN_FLIGHT, MISSING_GRACE_SECONDS, ProducerScan, Report
from spark_eos.client.response_reader import install_response_reader, only_part
from spark_eos.client.tls import tls_context
from spark_eos.client.transport import manager_config, translate
from spark_eos.errors import (
    AuthorizationError,
    BrokerError,
    EosKafkaError,
    TopicError,
    UnansweredError,
    UnsupportedError,
)

Answer = TypeVar("Answer")

_RECENT_MS: Final = 5_000
# The last version whose markers have the epoch of the transaction, whatever the version of its protocol.
_LAST_CLASSIC_MARKER_VERSION: Final = 1
# After these, a request may have been carried out anyway.
_ANSWER_LOST: Final = (
    kafka_errors.KafkaConnectionError,
    kafka_errors.KafkaTimeoutError,
    kafka_errors.RequestTimedOutError,
    kafka_errors.Cancelled,
    kafka_errors.KafkaProtocolError,
)
_RIGHTS: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Grant the principal READ on the topic",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Grant the principal ALTER on the cluster",
}


class TransactionAdmin:
    """An administrator's requests, with kafka-python's admin client beside `KafkaClient`; both connect at first use."""

    def __init__(self, client: KafkaClient) -> None:
        self.client = client
        self._stack = ExitStack()
        self._admin: Any = None

    def __enter__(self) -> Self:
        """Return itself; it connects at first use."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the admin client; the caller closes the other one."""
        self._stack.close()

    def topics(self) -> list[str]:
        """List all topics, the internal ones included: offsets of groups hang as records do (KAFKA-13288)."""
        return sorted(self.client.metadata(None))

    def broker_ids(self) -> list[int]:
        """List the ids of the brokers."""
        self.client.metadata([])
        return sorted(broker.node_id for broker in self.client.brokers())

    def partitions(self, topics: Collection[str], broker_id: int | None = None) -> list[TopicPartition]:
        """List the partitions of topics that exist, or those of which a broker has a replica."""
        found: list[TopicPartition] = []
        for topic in self._recent(topics):
            found += [
                TopicPartition(topic.name, number)
                for number, partition in topic.partitions.items()
                if broker_id is None or broker_id in partition.replicas
            ]
        return found

    def _recent(self, topics: Collection[str]) -> Collection[TopicMetadata]:
        """Describe topics; `topics()` has usually just requested all of them."""
        if not topics:
            return ()
        return self.client.require_topics(topics, need_leaders=False, max_age_ms=_RECENT_MS).values()

    def describe_producers(
        self,
        topic_partitions: Collection[TopicPartition],
        broker_id: int | None = None,
        *,
        max_in_flight: int = DEFAULT_MAX_IN_FLIGHT,
        report: Report | None = None,
        unreadable: dict[TopicPartition, str] | None = None,
    ) -> dict[TopicPartition, list[ActiveProducer]]:
        """Describe all producers of partitions, as their leaders know them or as one broker does.

        `unreadable` collects the partitions that no broker describes, instead of an error for the first.
        """
        return ProducerScan(self.client, broker_id, max_in_flight, report, unreadable).run(topic_partitions)

    def list_transactions(
        self,
        *,
        producer_ids: Collection[int] = (),
        states: Collection[str] = (),
        duration_ms: int | None = None,
        id_pattern: str | None = None,
    ) -> dict[int, list[TransactionListing]]:
        """List transactional ids by the broker that coordinates them; every broker must answer."""
        if duration_ms is not None:
            self._require_filter("duration", FIRST_DURATION_VERSION, "3.8")
        if id_pattern is not None:
            self._require_filter("pattern", FIRST_PATTERN_VERSION, "4.1")
        return list_by_broker(
            self.client, states=states, producer_ids=producer_ids, duration_ms=duration_ms, id_pattern=id_pattern
        )

    def _require_filter(self, what: str, version: int, kafka: str) -> None:
        try:
            self.client.api_version(ListTransactionsRequest, min_version=version)
        except UnsupportedError as error:
            raise UnsupportedError(
                f"The brokers cannot filter transactions by {what}: Kafka {kafka} is the first that does",
                checked=error.happened,
                remedy="List all transactions and filter the output",
            ) from error

    def write_abort_marker(
        self, topic_partition: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """Have a partition's leader write the marker that aborts a producer's open transaction there.

        A marker whose response was lost is not sent again: the producer may have begun a new transaction in the
        meantime.
        """
        spec = AbortTransactionSpec(
            KafkaTopicPartition(topic_partition.topic, topic_partition.partition),
            producer_id,
            producer_epoch,
            coordinator_epoch,
        )
        what = f"WriteTxnMarkers for {topic_partition}"
        self._ask(what, lambda admin: admin.abort_transaction(spec), _ANSWER_LOST)

    def write_commit_marker(
        self, topic_partition: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """Have a partition's leader write the marker that commits a producer's open transaction; never sent twice.

        The library can only abort.
        """
        what = f"WriteTxnMarkers for {topic_partition}"
        place = OffsetLookup(self.client).places([topic_partition.topic]).get(topic_partition)
        if place is None:
            raise TopicError(f"Partition {topic_partition} does not exist")
        marker = WriteTxnMarkersRequest.WritableTxnMarker
        topic = marker.WritableTxnMarkerTopic(name=topic_partition.topic, partition_indexes=[topic_partition.partition])
        request = WriteTxnMarkersRequest(
            markers=[
                marker(
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    transaction_result=True,
                    topics=[topic],
                    coordinator_epoch=coordinator_epoch,
                )
            ]
        )
        # From version 2 on the epoch would have to be the next one already.
        response = self.client.send(place.leader_id, request, max_version=_LAST_CLASSIC_MARKER_VERSION)
        written = [part for made in response.markers for each in made.topics for part in each.partitions]
        for code in [only_part(written, what).error_code, *(part.error_code for part in written)]:
            if code != ErrorCode.NONE:
                raise partition_error(topic_partition, code, what)

    def _ask(self, what: str, call: Callable[[Any], Answer], never_again: tuple[type[Exception], ...] = ()) -> Answer:
        """Retry a call until it succeeds or fails for good; `never_again` has errors that are final for the caller."""
        deadline = self.client.deadline()
        missing_until = min(deadline, self.client.runtime.clock.monotonic() + MISSING_GRACE_SECONDS)
        attempt = 0
        while True:
            try:
                return call(self._connected())
            except kafka_errors.KafkaError as error:
                until = missing_until if isinstance(error, kafka_errors.UnknownTopicOrPartitionError) else deadline
                is_final = not error.retriable or isinstance(error, never_again)
                if is_final or not self.client.back_off(attempt, until):
                    raise _translated(error, what) from error
                attempt += 1
            except EosKafkaError:
                raise
            except ValueError as error:
                # The library has an enumeration of states, which a newer broker may add to.
                raise UnsupportedError(f"The response to {what} cannot be decoded: {error}") from error
            except (LookupError, TypeError, AttributeError, OverflowError, struct.error) as error:
                # The library expects every requested item in a response.
                raise UnansweredError(
                    f"{what}: malformed response: {type(error).__name__}: {error}",
                    remedy="Check with describe-producers or list before you try again",
                ) from error

    def _connected(self) -> Any:
        if self._admin is None:
            # `KafkaClient` distinguishes an unreachable broker from refused credentials, and knows when to give up.
            self.client.connect()
            options = self.client.options
            config = {
                "bootstrap_timeout_ms": options.api_timeout_ms,
                **manager_config(options, tls_context(options), token_provider(options, self.client.runtime)),
            }
            known = {name: value for name, value in config.items() if name in KafkaAdminClient.DEFAULT_CONFIG}
            if options.sasl_password is not None:
                known["sasl_plain_password"] = Hidden(options.sasl_password)
            self._admin = self._stack.enter_context(KafkaAdminClient(kafka_client=_checked_client, **known))
        return self._admin


def _checked_client(**config: Any) -> KafkaNetClient:
    client = KafkaNetClient(**config)
    install_response_reader(client._manager)
    return client


def _translated(error: Any, what: str) -> EosKafkaError | BaseException:
    """Convert one of kafka-python's exceptions to ours, by the broker's error code if there is one."""
    if isinstance(error, kafka_errors.UnsupportedVersionError):
        return UnsupportedError(f"The brokers do not support {what}: {error}")
    if isinstance(error, _ANSWER_LOST):
        unread = isinstance(error, kafka_errors.KafkaProtocolError)
        happened = "received a malformed response" if unread else "received no response"
        return UnansweredError(
            f"{what} {happened}: {error}", remedy="Check with describe-producers or list before you try again"
        )
    if not isinstance(error, kafka_errors.BrokerResponseError):
        return translate(error, what)
    code = int(error.errno)
    happened = f"{what} was refused with {code_name(code)}"
    if isinstance(error, kafka_errors.AuthorizationError):
        known = ErrorCode(code) if code in tuple(ErrorCode) else None
        return AuthorizationError(happened, remedy=_RIGHTS.get(known, "") if known else "", error_code=code)
    if isinstance(error, kafka_errors.UnknownTopicOrPartitionError | kafka_errors.InvalidTopicError):
        # Metadata omits a topic that the principal has no right on, as if it did not exist.
        return TopicError(
            happened,
            error_code=code,
            remedy="Correct the topic name or the partition number. A topic is also hidden from a principal "
            "without rights on it: Grant the principal READ on the topic",
        )
    return BrokerError(happened, checked=str(error), error_code=code)
