"""What is said of answers that say nothing: lists without the brokers, the APIs or the topic that they are for."""

from typing import Any

import pytest
from kafka.protocol.metadata import ApiVersionsResponse, MetadataResponse

from spark_eos.client.broker_client import _check_metadata
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.needed_apis import _newest
from spark_eos.client.transaction_admin import sees_every_topic
from spark_eos.errors import UnansweredError
from spark_eos.options.client import ClientOptions
from spark_eos.runtime import REAL


@pytest.mark.parametrize(("read", "silent", "words"), [
    (_newest, ApiVersionsResponse(version=3), "An answer to ApiVersions names no API"),
    (_check_metadata, MetadataResponse(version=13), "metadata response lists no brokers; the broker is starting"),
])  # fmt: skip
def test_list_without_items_is_no_answer(read: Any, silent: Any, words: str) -> None:
    with pytest.raises(UnansweredError, match=words):
        read(silent)


class OfSilentBrokers(KafkaClient):
    """Has answers without topics, until its time is over at once."""

    def metadata(self, *_: Any, **__: Any) -> Any:
        return {}

    def back_off(self, *_: Any, **__: Any) -> bool:
        return False


def test_topic_that_all_answers_leave_out_is_not_said_to_be_missing() -> None:
    with pytest.raises(UnansweredError, match="Whether topic 't' exists is unknown") as caught:
        OfSilentBrokers(ClientOptions(("fake:1",)), REAL).require_topics(["t"])
    assert "Metadata response from fake:1, which leaves it out" in caught.value.checked


def test_topic_that_all_answers_leave_out_does_not_show_that_all_may_be_seen() -> None:
    assert not sees_every_topic(OfSilentBrokers(ClientOptions(("fake:1",)), REAL))
