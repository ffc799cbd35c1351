"""An id whose InitProducerId got no response is dropped, because the request may be applied late."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from broker_core import Disconnect, EmbeddedBroker, Error
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.transactions import init_producer_id, own_one_of, own_some_of
from spark_eos.errors import AuthorizationError, UnansweredError, UnreachableError
from spark_eos.options.client import ClientOptions


def asked(kafka: EmbeddedBroker) -> list[str]:
    """List the ids of the InitProducerId requests in order."""
    return [name for each in kafka.requests(api="InitProducerId") for name in each.transactional_ids]


@pytest.mark.parametrize(
    ("fault", "ids"),
    [
        ({"action": Disconnect(), "when": "before"}, ["id0", "id1", "id2"]),
        ({"action": Disconnect(), "when": "after_apply"}, ["id0", "id1", "id2"]),
        ({"action": Error("COORDINATOR_LOAD_IN_PROGRESS")}, ["id0"] * 3),
    ],
    ids=["no response", "lost response", "retriable error"],
)
def test_id_is_kept_after_a_retriable_error_and_given_up_without_a_response(
    fault: dict[str, Any], ids: list[str]
) -> None:
    with EmbeddedBroker() as kafka, KafkaClient(ClientOptions((kafka.bootstrap_servers,))) as client:
        kafka.fault(api="InitProducerId", times=2, **fault)
        made = own_one_of(client, (f"id{n}" for n in itertools.count()), transaction_timeout_ms=60_000)
        assert (made.transactional_id, asked(kafka)) == (ids[-1], ids)


def test_init_of_a_required_id_is_retried() -> None:
    with EmbeddedBroker() as kafka, KafkaClient(ClientOptions((kafka.bootstrap_servers,))) as client:
        kafka.fault(api="InitProducerId", action=Disconnect(), times=2)
        assert init_producer_id(client, "driver", transaction_timeout_ms=60_000).transactional_id == "driver"
        assert asked(kafka) == ["driver"] * 3


def test_init_without_any_response_ends_at_the_client_deadline() -> None:
    with EmbeddedBroker() as kafka:
        options = ClientOptions((kafka.bootstrap_servers,), request_timeout_ms=200, api_timeout_ms=1_000)
        with KafkaClient(options) as client:
            kafka.fault(api="InitProducerId", action=Disconnect())
            # Close to the deadline it may be the look-up of the coordinator that has no time left.
            with pytest.raises((UnansweredError, UnreachableError)):
                own_one_of(client, (f"id{n}" for n in itertools.count()), transaction_timeout_ms=60_000)
            assert len(asked(kafka)) == len(set(asked(kafka))) > 1


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("COORDINATOR_NOT_AVAILABLE", r"response was COORDINATOR_NOT_AVAILABLE \(15\)\. Check that the brokers"),
        (
            "COORDINATOR_LOAD_IN_PROGRESS",
            r"\(14\): the coordinator has not read its partition yet\. .* restart all brokers",
        ),
        ("CONCURRENT_TRANSACTIONS", r"\(51\): an earlier transaction .* `eos-kafka transactions .* describe "),
    ],
)
def test_init_without_a_final_response_says_what_the_last_one_means(code: str, words: str) -> None:
    with EmbeddedBroker() as kafka, KafkaClient(ClientOptions((kafka.bootstrap_servers,))) as client:
        # The time is for the answers: the coordinator is known.
        init_producer_id(client, "driver", transaction_timeout_ms=60_000)
        kafka.fault(api="InitProducerId", action=Error(code))
        with pytest.raises(UnansweredError, match=f"'driver' did not complete in time.*{words}"):
            init_producer_id(client, "driver", transaction_timeout_ms=60_000, timeout_ms=500)


def names() -> Iterator[str]:
    return (f"id{n}" for n in itertools.count())


def owned(client: KafkaClient, ids: Iterator[str], count: int) -> list[str]:
    return [each.transactional_id for each in own_some_of(client, ids, count, transaction_timeout_ms=60_000)]


def test_several_ids_are_initialized_in_two_round_trips() -> None:
    with EmbeddedBroker() as kafka, KafkaClient(ClientOptions((kafka.bootstrap_servers,))) as client:
        ids = names()
        assert owned(client, ids, 4) == ["id0", "id1", "id2", "id3"] == asked(kafka)
        assert len(kafka.requests(api="FindCoordinator")) == 1
        assert owned(client, ids, 1) == ["id4"]


@pytest.mark.parametrize("when", ["before", "after_apply"])
def test_unanswered_ids_of_a_batch_are_abandoned(when: str) -> None:
    with EmbeddedBroker() as kafka, KafkaClient(ClientOptions((kafka.bootstrap_servers,))) as client:
        ids = names()
        kafka.fault(api="InitProducerId", when=when, action=Error("COORDINATOR_LOAD_IN_PROGRESS"), times=1)
        assert owned(client, ids, 3) == ["id1", "id2"]
        kafka.fault(api="InitProducerId", when=when, action=Disconnect(), times=1)
        [alone] = owned(client, ids, 3)
        assert alone not in {"id0", "id1", "id2"}
        assert len(asked(kafka)) == len(set(asked(kafka))), "no id is requested twice"


def test_refusal_of_several_ids_matches_that_of_a_single_id() -> None:
    with EmbeddedBroker() as kafka, KafkaClient(ClientOptions((kafka.bootstrap_servers,))) as client:
        kafka.fault(api="InitProducerId", action=Error("TRANSACTIONAL_ID_AUTHORIZATION_FAILED"))
        with pytest.raises(AuthorizationError):
            owned(client, names(), 3)
