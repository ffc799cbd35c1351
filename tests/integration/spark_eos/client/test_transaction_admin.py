"""Transaction administration: retries, and errors for refusals."""

import uuid
from collections.abc import Callable, Iterator

import pytest

from broker_core import Disconnect, EmbeddedBroker, Error
from broker_core.types import TopicPartition
from spark_eos.client.coordinator_cache import CoordinatorType
from spark_eos.client.group_offsets import fetch_offsets
from spark_eos.client.inspection import describe_transactions, list_transactions
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.producer_scan import ProducerScan
from spark_eos.client.topics import describe_topic_config
from spark_eos.client.transaction_admin import broker_ids, write_end_marker
from spark_eos.errors import (
    AuthorizationError,
    BrokerError,
    EosKafkaError,
    TopicError,
    UnansweredError,
    UnreachableError,
    UnsupportedError,
)
from spark_eos.options.client import ClientOptions
from spark_eos.sink.driver.broker_capabilities import BrokerCapabilities
from spark_eos.sink.driver.decision_topic import Durability, ensure_decision_topic

PLACE = TopicPartition("t", 0)


@pytest.fixture
def client(kafka_address: str) -> Iterator[KafkaClient]:
    with KafkaClient(ClientOptions((kafka_address,))) as client:
        yield client


def test_retriable_errors_are_retried(client: KafkaClient) -> None:
    """New topics and moving leaders cause these errors; after two seconds of retries the error is raised."""
    with pytest.raises(TopicError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        ProducerScan(client).run([TopicPartition(f"none-{uuid.uuid4().hex}", 0)])
    with pytest.raises(UnansweredError):
        ProducerScan(client, 77).run([PLACE])


def test_marker_for_a_missing_partition_is_refused(client: KafkaClient) -> None:
    with pytest.raises(TopicError, match="UNKNOWN_TOPIC_OR_PARTITION.*Correct the topic name"):
        write_end_marker(client, TopicPartition(f"none-{uuid.uuid4().hex}", 0), 1, 0, 0, commit=False)


@pytest.fixture
def kafka() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(brokers=2) as kafka:
        kafka.create_topic("t", partitions=1)
        yield kafka


@pytest.fixture
def embedded(kafka: EmbeddedBroker) -> Iterator[KafkaClient]:
    with KafkaClient(ClientOptions(tuple(kafka.bootstrap_servers.split(",")))) as client:
        yield client


def markers(kafka: EmbeddedBroker) -> list[str | None]:
    return [each.marker for each in kafka.records("t", 0, control=True)]


@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize(
    "code", ["NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION", "COORDINATOR_LOAD_IN_PROGRESS"]
)
def test_marker_that_was_not_written_is_sent_again(
    kafka: EmbeddedBroker, embedded: KafkaClient, code: str, commit: bool
) -> None:
    with kafka.fault(api="WriteTxnMarkers", action=Error(code), times=2) as fault:
        write_end_marker(embedded, PLACE, 1, 0, 0, commit=commit)
    assert fault.hits == 2
    assert markers(kafka) == ["COMMIT" if commit else "ABORT"]


READS = pytest.mark.parametrize(
    ("api", "read"),
    [
        ("FindCoordinator", lambda client: client.find_coordinator(CoordinatorType.TRANSACTION, "id")),
        ("DescribeTransactions", lambda client: describe_transactions(client, ["id"])),
        ("ListTransactions", list_transactions),
        ("OffsetFetch", lambda client: fetch_offsets(client, "group", [PLACE], require_stable=True)),
        ("DescribeConfigs", lambda client: describe_topic_config(client, "t")),
    ],
)


@pytest.mark.parametrize("code", ["NOT_CONTROLLER", "REQUEST_TIMED_OUT", "THROTTLING_QUOTA_EXCEEDED"])
def test_creation_that_is_not_made_in_time_was_not_refused(kafka: EmbeddedBroker, code: str) -> None:
    options = ClientOptions(tuple(kafka.bootstrap_servers.split(",")), api_timeout_ms=500)
    with KafkaClient(options) as client, kafka.fault(api="CreateTopics", action=Error(code)):
        with pytest.raises(UnansweredError, match=f"CreateTopics for topic 'new' did not complete in time.*{code}"):
            ensure_decision_topic(client, "new", Durability(1, 0), BrokerCapabilities())


@READS
def test_read_that_failed_inside_the_broker_is_made_again(
    kafka: EmbeddedBroker, embedded: KafkaClient, api: str, read: Callable[[KafkaClient], object]
) -> None:
    with kafka.fault(api=api, action=Error("UNKNOWN_SERVER_ERROR"), times=2) as fault:
        read(embedded)
    assert fault.hits == 2


@READS
def test_read_that_fails_inside_the_broker_for_too_long_has_no_response(
    kafka: EmbeddedBroker, api: str, read: Callable[[KafkaClient], object]
) -> None:
    """A running query goes on then where it only looks whether its cluster has changed."""
    options = ClientOptions(tuple(kafka.bootstrap_servers.split(",")), api_timeout_ms=500)
    with (
        kafka.fault(api=api, action=Error("UNKNOWN_SERVER_ERROR")),
        KafkaClient(options) as client,
        pytest.raises((UnansweredError, UnreachableError), match="UNKNOWN_SERVER_ERROR"),
    ):
        read(client)


def test_marker_is_sent_to_the_new_leader(kafka: EmbeddedBroker, embedded: KafkaClient) -> None:
    write_end_marker(embedded, PLACE, 1, 0, 0, commit=False)
    kafka.move_leader(PLACE, 3 - kafka.leader(PLACE))
    write_end_marker(embedded, PLACE, 1, 1, 0, commit=False)
    assert markers(kafka) == ["ABORT", "ABORT"]


@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize(
    "action", [Disconnect(), Error("REQUEST_TIMED_OUT"), Error("NOT_ENOUGH_REPLICAS_AFTER_APPEND")], ids=str
)
def test_marker_with_a_lost_response_is_not_sent_again(
    kafka: EmbeddedBroker, embedded: KafkaClient, action: Disconnect | Error, commit: bool
) -> None:
    """Between two markers the producer may begin another transaction under the same epoch."""
    broker_ids(embedded)
    with (
        kafka.fault(api="WriteTxnMarkers", action=action) as fault,
        pytest.raises(UnansweredError, match="describe-producers"),
    ):
        write_end_marker(embedded, PLACE, 1, 0, 0, commit=commit)
    assert fault.hits == 1


@pytest.mark.parametrize(
    ("code", "family", "words"),
    [
        ("CLUSTER_AUTHORIZATION_FAILED", AuthorizationError, "ALTER on the cluster"),
        ("TOPIC_AUTHORIZATION_FAILED", AuthorizationError, "READ on the topic"),
        ("INVALID_PRODUCER_EPOCH", BrokerError, "INVALID_PRODUCER_EPOCH"),
        ("TRANSACTION_COORDINATOR_FENCED", BrokerError, "TRANSACTION_COORDINATOR_FENCED"),
        ("INVALID_TOPIC_EXCEPTION", TopicError, "INVALID_TOPIC"),
        ("UNSUPPORTED_VERSION", UnsupportedError, "The brokers do not support"),
    ],
)
def test_broker_refusal_is_reported_as_an_error_of_this_package(
    kafka: EmbeddedBroker, embedded: KafkaClient, code: str, family: type[EosKafkaError], words: str
) -> None:
    with kafka.fault(api="WriteTxnMarkers", action=Error(code)) as fault, pytest.raises(family, match=words):
        write_end_marker(embedded, PLACE, 1, 0, 0, commit=False)
    assert fault.hits == 1
