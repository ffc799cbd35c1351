"""Transaction administration through kafka-python's admin client: retries, and errors for refusals."""

import logging
import uuid
from collections.abc import Iterator
from typing import Any

import kafka.errors as kafka_errors
import pytest

from broker_core.types import TopicPartition
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.transaction_admin import TransactionAdmin
from spark_eos.errors import (
    AuthorizationError,
    BrokerError,
    EosKafkaError,
    TopicError,
    UnansweredError,
    UnsupportedError,
)
from spark_eos.options.client import ClientOptions
from tests.support.spark_eos.client_world import make_topic


@pytest.fixture
def admin(kafka_address: str) -> Iterator[TransactionAdmin]:
    with KafkaClient(ClientOptions((kafka_address,))) as client, TransactionAdmin(client) as admin:
        yield admin


def test_retriable_errors_are_retried(admin: TransactionAdmin) -> None:
    """New topics and moving leaders cause these errors; after two seconds of retries the error is raised."""
    with pytest.raises(TopicError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        admin.describe_producers([TopicPartition(f"none-{uuid.uuid4().hex}", 0)])
    with pytest.raises(UnansweredError):
        admin.describe_producers([TopicPartition("t", 0)], broker_id=77)


def test_loading_coordinator_is_queried_again(admin: TransactionAdmin) -> None:
    calls = iter([kafka_errors.CoordinatorLoadInProgressError, kafka_errors.NotCoordinatorError, None])

    def call(library: Any) -> Any:
        trouble = next(calls)
        if trouble is not None:
            raise trouble("not yet")
        return library.list_transactions()

    assert list(admin._ask("ListTransactions", call)) == [1]


def test_unknown_transaction_state_is_reported(admin: TransactionAdmin) -> None:
    """The library decodes some fields to enumerations, which a newer broker may add to."""
    admin._admin = Refusing(ValueError("'PreparedTransaction' is not a valid TransactionState"))
    with pytest.raises(UnsupportedError, match="PreparedTransaction"):
        admin.write_abort_marker(TopicPartition("t", 0), 1, 0, 0)


class Refusing:
    """A substitute for kafka-python's admin client that meets the same error each time."""

    def __init__(self, trouble: Exception) -> None:
        self.trouble = trouble
        self.calls = 0

    def abort_transaction(self, spec: object) -> None:
        """Count the call, and fail."""
        self.calls += 1
        raise self.trouble


@pytest.mark.parametrize("trouble", [kafka_errors.KafkaConnectionError, kafka_errors.RequestTimedOutError])
def test_marker_with_a_lost_response_is_not_sent_again(admin: TransactionAdmin, trouble: type[Exception]) -> None:
    """Between two markers the producer may begin another transaction under the same epoch."""
    admin._admin = Refusing(trouble("lost"))
    with pytest.raises(UnansweredError, match="describe-producers"):
        admin.write_abort_marker(TopicPartition("t", 0), 1, 0, 0)
    assert admin._admin.calls == 1


@pytest.mark.parametrize(
    ("code", "family", "words"),
    [
        (31, AuthorizationError, "ALTER on the cluster"),
        (29, AuthorizationError, "READ on the topic"),
        (47, BrokerError, "INVALID_PRODUCER_EPOCH"),
        (52, BrokerError, "TRANSACTION_COORDINATOR_FENCED"),
        (17, TopicError, "INVALID_TOPIC"),
        (35, UnsupportedError, "The brokers do not support"),
    ],
)
def test_broker_refusal_is_reported_as_an_error_of_this_package(
    admin: TransactionAdmin, code: int, family: type[EosKafkaError], words: str
) -> None:
    admin._admin = Refusing(kafka_errors.for_code(code)("no"))
    with pytest.raises(family, match=words):
        admin.write_abort_marker(TopicPartition("t", 0), 1, 0, 0)


def test_logs_never_contain_the_password(kafka_address: str, caplog: pytest.LogCaptureFixture) -> None:
    """kafka-python writes its configuration to the debug log."""
    options = ClientOptions((kafka_address,), sasl_password="s3cret")
    with caplog.at_level(logging.DEBUG), KafkaClient(options) as client, TransactionAdmin(client) as admin:
        place = TopicPartition(make_topic(client), 0)
        admin.write_abort_marker(place, 1, 0, 0)
    assert "Starting KafkaAdminClient with configuration" in caplog.text
    assert "s3cret" not in caplog.text
