"""The quotas of clients (KIP-13, 124, 219, 546, 599): how they are described and changed, and that they throttle."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka.protocol.admin import AlterClientQuotasRequest, DescribeClientQuotasRequest
from kafka.protocol.metadata import MetadataRequest

from broker_core.errors import ErrorCode
from tests.support.both_brokers import Kafka
from tests.support.broker_core import requests
from tests.support.clients import make_topic, unique
from tests.support.messages import creation, filled
from tests.support.raw_client import RawClient
from tests.support.raw_session import NOBODY, record_batch
from tests.support.restartable import Restartable
from tests.support.waiting import wait_until

Names = dict[str, str | None]
EXACT, DEFAULT, ANY = range(3)
USER, CLIENT, IP = "user", "client-id", "ip"
PRODUCE, FETCH, REQUEST, MUTATION = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
CONNECTION = "connection_creation_rate"


def alter(
    client: RawClient,
    *entries: tuple[list[tuple[str, str | None]], list[tuple[str, float | None]]],
    version: int = 1,
    validate_only: bool = False,
) -> list[tuple[int, str | None, Names]]:
    """Send AlterClientQuotas; a value of None removes. Return code, message and names of each answer."""
    wanted = [
        {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
            "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in values],
        }
        for entity, values in entries
    ]
    request = filled(AlterClientQuotasRequest, entries=wanted, validate_only=validate_only)
    return [
        (each.error_code, each.error_message, {part.entity_type: part.entity_name for part in each.entity})
        for each in client.send(request, version).entries
    ]


def send_filter(
    client: RawClient, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1
) -> Any:
    wanted = [{"entity_type": kind, "match_type": how, "match": match} for kind, how, match in components]
    return client.send(filled(DescribeClientQuotasRequest, components=wanted, strict=strict), version)


def described(
    client: RawClient, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1
) -> list[tuple[Names, dict[str, float]]]:
    """Return the quotas that match."""
    answer = send_filter(client, *components, strict=strict, version=version)
    assert answer.error_code == ErrorCode.NONE
    return [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries
    ]


@contextmanager
def quota(client: RawClient, names: Names, key: str, value: float) -> Iterator[None]:
    """Set a quota for the length of a block, and wait until the broker knows it."""
    entity = list(names.items())
    assert alter(client, (entity, [(key, value)]))[0][0] == ErrorCode.NONE
    wait_until(lambda: (names, {key: value}) in described(client), "the quota is described")
    try:
        yield
    finally:
        alter(client, (entity, [(key, None)]))


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_set_described_and_removed(client: RawClient, version: int):
    user, name = unique("user"), unique("client")
    both = [(USER, user), (CLIENT, name)]
    assert alter(client, ([(USER, user)], [(PRODUCE, 1024.0)]), version=version) == [(0, None, {USER: user})]
    assert alter(client, (both, [(FETCH, 2048.0), (REQUEST, 12.5)]), version=version)[0][0] == 0
    of_user, of_both = ({USER: user}, {PRODUCE: 1024.0}), (dict(both), {FETCH: 2048.0, REQUEST: 12.5})

    def found(*components: tuple[str, int, str | None], strict: bool = False) -> list[tuple[Names, dict[str, float]]]:
        return described(client, *components, strict=strict, version=version)

    wait_until(lambda: of_both in found(), "the quotas are described")
    assert sorted(found((USER, EXACT, user)), key=str) == sorted([of_user, of_both], key=str)
    assert found((USER, EXACT, user), strict=True) == [of_user]
    assert found((USER, EXACT, user), (CLIENT, ANY, None)) == [of_both]
    assert of_user not in found((CLIENT, ANY, None))
    assert alter(client, (both, [(FETCH, None)]), ([(USER, user)], [(PRODUCE, None)]), version=version)[1][0] == 0
    wait_until(lambda: found((USER, EXACT, user)) == [(dict(both), {REQUEST: 12.5})], "two quotas are gone")
    alter(client, (both, [(REQUEST, None)]), version=version)


def test_defaults_and_addresses(client: RawClient):
    with (
        quota(client, {CLIENT: None, USER: None}, MUTATION, 1e6),
        quota(client, {IP: None}, CONNECTION, 1e6),
        quota(client, {IP: "10.1.2.3"}, CONNECTION, 20.0),
    ):
        assert described(client, (USER, DEFAULT, None)) == [({CLIENT: None, USER: None}, {MUTATION: 1e6})]
        assert described(client, (IP, DEFAULT, None)) == [({IP: None}, {CONNECTION: 1e6})]
        assert len(described(client, (IP, ANY, None))) == 2


@pytest.mark.parametrize(
    ("entity", "values", "message"),
    [
        ([(USER, "u")], [(PRODUCE, 1.5)], "producer_byte_rate cannot be a fractional value."),
        ([(USER, "u")], [(PRODUCE, 0.0001)], "producer_byte_rate cannot be a fractional value."),
        ([(USER, "u")], [(PRODUCE, -1.0)], "Quota producer_byte_rate must be greater than 0"),
        ([(USER, "u")], [(PRODUCE, float("nan"))], "Quota producer_byte_rate must be a finite number"),
        ([(USER, "u")], [(PRODUCE, 1e30)], "Proposed value for producer_byte_rate is too large for a LONG."),
        (
            [(IP, "1.2.3.4")],
            [(CONNECTION, 1e12)],
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
        ([(USER, "u")], [("nope", 20.0)], "Invalid configuration key nope"),
        ([(USER, "u")], [(CONNECTION, 20.0)], "Invalid configuration key connection_creation_rate"),
        ([(IP, "1.2.3.4")], [(PRODUCE, 20.0)], "Invalid configuration key producer_byte_rate"),
        ([(IP, "no such host!")], [(CONNECTION, 20.0)], "no such host! is not a valid IP or resolvable host."),
        (
            [(IP, "1.2.3.4"), (USER, "u")],
            [(CONNECTION, 20.0)],
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        ([("galaxy", "u")], [(PRODUCE, 20.0)], "Unhandled client quota entity type: galaxy"),
        ([], [(PRODUCE, 20.0)], "Invalid empty client quota entity"),
        ([(USER, "")], [(PRODUCE, 20.0)], "Empty user not supported"),
        (
            [(USER, "u")],
            [(PRODUCE, 20.0), (PRODUCE, 30.0)],
            "Ignoring duplicate entity ClientQuotaEntity(entries={user=u})",
        ),
    ],
)
def test_a_quota_that_is_refused(
    client: RawClient, entity: list[tuple[str, str | None]], values: list[tuple[str, float | None]], message: str
):
    assert alter(client, (entity, values))[0][:2] == (ErrorCode.INVALID_REQUEST, message)
    assert described(client, (USER, EXACT, "u")) == []


def test_validation_and_removal_of_what_is_not_there_change_nothing(client: RawClient):
    before = described(client)
    assert alter(client, ([(USER, "v")], [(PRODUCE, 20.0)]), validate_only=True) == [(0, None, {USER: "v"})]
    assert alter(client, ([(USER, "v")], [("nope", None)])) == [(0, None, {USER: "v"})]
    assert alter(client, ([(USER, "v")], [])) == [(0, None, {USER: "v"})]
    assert described(client) == before


@pytest.mark.parametrize(
    ("components", "code", "message"),
    [
        ([("galaxy", ANY, None)], ErrorCode.UNSUPPORTED_VERSION, "Unsupported entity type galaxy"),
        ([("", ANY, None)], ErrorCode.INVALID_REQUEST, "Invalid empty entity type."),
        (
            [(USER, ANY, None), (USER, ANY, None)],
            ErrorCode.INVALID_REQUEST,
            "Entity type user cannot appear more than once in the filter.",
        ),
        (
            [(IP, ANY, None), (USER, ANY, None)],
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component.",
        ),
        ([(USER, 9, None)], ErrorCode.INVALID_REQUEST, "Unknown match type 9"),
        (
            [(USER, DEFAULT, "u")],
            ErrorCode.INVALID_REQUEST,
            "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.",
        ),
        (
            [(USER, ANY, "u")],
            ErrorCode.INVALID_REQUEST,
            "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.",
        ),
        (
            [(USER, EXACT, None)],
            ErrorCode.INVALID_REQUEST,
            "Request specified MATCH_TYPE_EXACT, but set match string to null.",
        ),
    ],
)
def test_a_filter_that_is_refused(
    client: RawClient, components: list[tuple[str, int, str | None]], code: int, message: str
):
    answer = send_filter(client, *components)
    assert (answer.error_code, answer.error_message, answer.entries) == (code, message, None)


@contextmanager
def limited(kafka: Kafka, client: RawClient, key: str, value: float) -> Iterator[RawClient]:
    """Yield a client of its own client id with a quota."""
    name = unique("client")
    with (
        quota(client, {CLIENT: name}, key, value),
        RawClient(kafka.bootstrap_servers, client_id=name) as slow,
    ):
        yield slow


def produce(client: RawClient, topic: str, size: int) -> Any:
    """Produce one record; return the response."""
    batch = record_batch([b"x" * size], NOBODY, -1, transactional=False)
    answer = client.send(*requests.produce(batch, topic=topic, version=11))
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    return answer


def fetch(client: RawClient, topic: str, offset: int) -> Any:
    """Fetch outside any session; return the response."""
    partition = {"fetch_offset": offset, "partition_max_bytes": 9_500}
    return client.send(requests.fetch_request(topic, partition, max_wait_ms=1000), 12)


def answered_in_ms(client: RawClient) -> float:
    """Send a request; return after how long its response arrives."""
    began = time.monotonic()
    client.send(MetadataRequest(topics=[], allow_auto_topic_creation=False), 12)
    return (time.monotonic() - began) * 1000


# A burst counts over the ten windows of a second that come first: each byte above ten times the limit is a millisecond
# at a limit of 1000.
LIMIT = 1000
SPARE_MS = 60


def test_a_producer_above_its_quota_gets_its_response_and_then_waits(kafka: Kafka, client: RawClient):
    topic = make_topic(kafka)
    with limited(kafka, client, PRODUCE, LIMIT) as slow:
        began = time.monotonic()
        answer = produce(slow, topic, 10_300)
        took_ms = (time.monotonic() - began) * 1000
        assert 300 <= answer.throttle_time_ms <= 300 + 200 + SPARE_MS
        assert answered_in_ms(slow) >= answer.throttle_time_ms - SPARE_MS - took_ms
        assert answered_in_ms(slow) < 250


def test_a_consumer_above_its_quota_gets_nothing(kafka: Kafka, client: RawClient):
    topic = make_topic(kafka)
    for _ in range(2):
        produce(client, topic, 9_000)
    with limited(kafka, client, FETCH, LIMIT) as slow:
        first = fetch(slow, topic, 0)
        assert first.throttle_time_ms == 0
        assert len(bytes(first.responses[0].partitions[0].records)) >= 9_000
        second = fetch(slow, topic, 1)
        assert second.throttle_time_ms > 0
        assert not second.responses
    assert len(bytes(fetch(client, topic, 1).responses[0].partitions[0].records)) >= 9_000


def test_new_clients_are_refused_above_the_quota_of_changes(kafka: Kafka, client: RawClient):
    def create(slow: RawClient, partitions: int, version: int) -> Any:
        return slow.send(creation(unique("topic"), num_partitions=partitions), version)

    with limited(kafka, client, MUTATION, 2) as slow:
        first = create(slow, 40, 6)
        assert (first.topics[0].error_code, first.throttle_time_ms) == (ErrorCode.NONE, 0)
        # Eighteen above the burst of eleven seconds: for nine seconds, however slow the machine is.
        second = create(slow, 1, 6)
        assert second.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert second.topics[0].error_message is None
        assert 0 < second.throttle_time_ms <= 9000
        # Older clients do not know the error: their request succeeds, and the next one of their connection waits.
        with RawClient(kafka.bootstrap_servers, client_id=slow._client_id) as older:
            third = create(older, 1, 5)
        assert third.topics[0].error_code == ErrorCode.NONE
        assert third.throttle_time_ms > 0


def test_the_time_of_requests_has_a_quota(kafka: Kafka, client: RawClient):
    with limited(kafka, client, REQUEST, 0.01) as slow:

        def throttled() -> bool:
            answer = slow.send(MetadataRequest(topics=None, allow_auto_topic_creation=False), 12)
            assert answer.throttle_time_ms <= 1000
            return bool(answer.throttle_time_ms)

        wait_until(throttled, "a request is throttled")


def test_quotas_survive_a_restart(durable_kafka: Restartable):
    user = unique("user")
    with RawClient(durable_kafka.bootstrap_servers) as client:
        alter(client, ([(USER, user)], [(PRODUCE, 20.0)]), ([(CLIENT, None)], [(PRODUCE, 1e9)]))
    durable_kafka.restart()
    with RawClient(durable_kafka.bootstrap_servers) as client:
        assert described(client, (USER, EXACT, user)) == [({USER: user}, {PRODUCE: 20.0})]
        assert described(client, (CLIENT, DEFAULT, None)) == [({CLIENT: None}, {PRODUCE: 1e9})]
        alter(client, ([(CLIENT, None)], [(PRODUCE, None)]))
