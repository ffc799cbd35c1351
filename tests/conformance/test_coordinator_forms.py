"""Every form and version of the requests about transactions."""

import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka.protocol.admin import DescribeProducersRequest, DescribeTransactionsRequest, ListTransactionsRequest
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest
from kafka.protocol.producer import AddPartitionsToTxnRequest, WriteTxnMarkersRequest

from broker_core.errors import ErrorCode
from tests.support.clients import Kafka, make_topic, unique
from tests.support.messages import SAFE, UPGRADE, filled, levels_request
from tests.support.protocols import END, V2, both_ends, both_protocols, bumped, markers, wait_for_state, write
from tests.support.raw_client import RawClient
from tests.support.raw_session import Identity, RawSession
from tests.support.re2_examples import MATCHES, REFUSED, TAKEN
from tests.support.waiting import wait_until

E = ErrorCode
FEATURE = "transaction.version"

Asked = tuple[str, Identity, bool, list[tuple[str, list[int]]]]
Answered = dict[str, dict[str, dict[int, int]]]


# Rule J.4/1.
@pytest.mark.parametrize("version", [0, 1, 2])
def test_listed_but_unserved_produce_version_closes_the_connection(kafka: Kafka, version: int):
    with RawClient(kafka.bootstrap_servers) as client:
        body = struct.pack(">hhihhii", 0, version, 7, -1, 1, 1000, 0)
        client.send_bytes(struct.pack(">i", len(body)) + body)
        assert client.is_closed_by_peer()


# AddPartitionsToTxn


def batched(session: RawSession, version: int, *asked: Asked) -> Answered:
    """Send one AddPartitionsToTxn as brokers send it to each other."""
    transactions = [
        {
            "transactional_id": name,
            **identity._asdict(),
            "verify_only": verify_only,
            "topics": [{"name": topic, "partitions": partitions} for topic, partitions in topics],
        }
        for name, identity, verify_only, topics in asked
    ]
    answer = session.client.send(filled(AddPartitionsToTxnRequest, transactions=transactions), version)
    assert answer.error_code == E.NONE
    return {
        result.transactional_id: {
            topic.name: {part.partition_index: part.partition_error_code for part in topic.results_by_partition}
            for topic in result.topic_results
        }
        for result in answer.results_by_transaction
    }


# Rules A.6 verify/1, A.6 verify/3, A.6 verify/4, A.6 verify/6, A.6 verify/7 and A.6 request/5.
@pytest.mark.parametrize("version", [4, 5])
def test_verification_answers_each_partition_and_adds_none(kafka: Kafka, session: RawSession, version: int):
    topic, name, identity = make_topic(kafka, partitions=3), session.transactional_id, session.init()[1]

    def verify(who: Identity, *partitions: int, transactional_id: str = name) -> dict[int, int]:
        answer = batched(session, version, (transactional_id, who, True, [(topic, list(partitions))]))
        return answer[transactional_id][topic]

    assert verify(identity, 0) == {0: E.TRANSACTION_ABORTABLE}
    assert session.add(identity, topic, 0) == {E.NONE}
    assert verify(identity, 0, 1) == {0: E.NONE, 1: E.TRANSACTION_ABORTABLE}
    assert verify(identity, 0, 9) == {0: E.OPERATION_NOT_ATTEMPTED, 9: E.UNKNOWN_TOPIC_OR_PARTITION}
    assert verify(Identity(identity.producer_id + 1000, 0), 0) == {0: E.INVALID_PRODUCER_ID_MAPPING}
    assert verify(bumped(identity), 0) == {0: E.PRODUCER_FENCED}
    assert verify(identity, 0, transactional_id="") == {0: E.INVALID_REQUEST}
    assert verify(identity, 0, transactional_id=unique("unknown")) == {0: E.INVALID_PRODUCER_ID_MAPPING}
    assert [(entry.topic, entry.partitions) for entry in session.describe().topics] == [(topic, [0])]


# Rules A.6 request/6 and A.6/3.
@pytest.mark.parametrize("version", [4, 5])
def test_add_partitions_batch_answers_each_transaction(kafka: Kafka, session: RawSession, version: int):
    topic, other = make_topic(kafka, partitions=2), RawSession(session.client, unique("id"))
    first, second, stranger = session.init()[1], other.init()[1], unique("unknown")
    state = "__transaction_state"
    answer = batched(
        session,
        version,
        (session.transactional_id, first, False, [(topic, [0, 1]), (state, [0])]),
        (other.transactional_id, second, False, [(topic, [0, 7])]),
        (stranger, second, False, [(topic, [0])]),
    )
    assert answer == {
        # A client may not add these, but a coordinator of another broker may.
        session.transactional_id: {topic: {0: E.NONE, 1: E.NONE}, state: {0: E.NONE}},
        other.transactional_id: {topic: {0: E.OPERATION_NOT_ATTEMPTED, 7: E.UNKNOWN_TOPIC_OR_PARTITION}},
        stranger: {topic: {0: E.INVALID_PRODUCER_ID_MAPPING}},
    }
    assert (session.describe().transaction_state, other.describe().transaction_state) == ("Ongoing", "Empty")
    # The error for a fence has its new name in every version.
    late = batched(session, version, (session.transactional_id, bumped(first), False, [(topic, [0])]))
    assert late[session.transactional_id][topic] == {0: E.PRODUCER_FENCED}
    assert session.end(first, commit=False, version=4)[0] == E.NONE


# Rules A.6 request/3 and A.6 request/5.
@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_client_cannot_add_an_internal_topic(kafka: Kafka, session: RawSession, version: int):
    topic, identity = make_topic(kafka), session.init()[1]
    request = AddPartitionsToTxnRequest
    answer = session.client.send(
        request(
            v3_and_below_transactional_id=session.transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.producer_epoch,
            v3_and_below_topics=[
                request.AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in (topic, "__transaction_state")
            ],
        ),
        version,
    )
    codes = {
        result.name: result.results_by_partition[0].partition_error_code
        for result in answer.results_by_topic_v3_and_below
    }
    assert codes == {topic: E.OPERATION_NOT_ATTEMPTED, "__transaction_state": E.TOPIC_AUTHORIZATION_FAILED}
    assert session.describe().transaction_state == "Empty"


# Rules C.5 codes/2, C.5 codes/3 and I.4/5.
@pytest.mark.parametrize(
    ("what", "versions", "first_that_knows"),
    [
        ("init", range(3, 6), 4),
        ("add", range(4), 2),
        ("add_offsets", range(5), 2),
        ("end", range(5), 2),
    ],
)
def test_fencing_error_name_depends_on_the_version(
    kafka: Kafka, session: RawSession, what: str, versions: range, first_that_knows: int
):
    topic, old = make_topic(kafka), session.init()[1]
    assert session.init()[0] == session.init()[0] == E.NONE
    ask: dict[str, Callable[[int], Any]] = {
        "init": lambda version: session.init(expected=old, version=version)[0],
        "add": lambda version: session.add(old, topic, version=version).pop(),
        "add_offsets": lambda version: session.add_offsets(old, "group", version=version),
        "end": lambda version: session.end(old, commit=True, version=version)[0],
    }
    found = [ask[what](version) for version in versions]
    assert found == [
        E.PRODUCER_FENCED if version >= first_that_knows else E.INVALID_PRODUCER_EPOCH for version in versions
    ]


# Markers and descriptions


def write_markers(client: RawClient, *sent: tuple[int, int, list[tuple[str, list[int]]]]) -> dict[int, Any]:
    """Send abort markers (producer id, epoch, partitions by topic); return the codes by producer id."""
    sending = [
        {
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "topics": [{"name": topic, "partition_indexes": partitions} for topic, partitions in topics],
        }
        for producer_id, epoch, topics in sent
    ]
    answer = client.send(filled(WriteTxnMarkersRequest, markers=sending), 1)
    codes = [
        (marker.producer_id, {t.name: {p.partition_index: p.error_code for p in t.partitions} for t in marker.topics})
        for marker in answer.markers
    ]
    assert len(codes) == len(dict(codes)), "a producer is answered once"
    return dict(codes)


# Rules A.13 receiver/2, A.13 receiver/3 and A.13 receiver/7.
def test_marker_results_are_per_producer_and_partition(kafka: Kafka, idempotent: RawSession):
    client, topic, missing = idempotent.client, make_topic(kafka, partitions=2), unique("missing")
    # A leader that has not yet learned that it leads does not know the partition.
    for partition in (0, 1):
        wait_until(
            lambda at=partition: idempotent.fetch(topic, 0, isolation=0, partition=at).error_code == E.NONE,
            f"partition {partition} has its leader",
        )
    assert write_markers(client) == {}
    assert write_markers(client, (900_000, 0, [])) == {}
    assert write_markers(client, (900_001, 0, [(topic, [0, 7]), (missing, [0])]), (900_002, 0, [(topic, [0])])) == {
        900_001: {topic: {0: E.NONE, 7: E.UNKNOWN_TOPIC_OR_PARTITION}, missing: {0: E.UNKNOWN_TOPIC_OR_PARTITION}},
        900_002: {topic: {0: E.NONE}},
    }
    assert write_markers(client, (900_003, 0, [(topic, [0])]), (900_003, 1, [(topic, [1])])) == {
        900_003: {topic: {0: E.NONE, 1: E.NONE}}
    }


# Rules F.1/1 and F.1/3.
def test_producers_are_described_or_an_error_returned(kafka: Kafka, session: RawSession):
    topic, identity = make_topic(kafka), session.init()[1]
    assert session.producers(topic).active_producers == []
    write(session, identity, topic, V2)
    request = DescribeProducersRequest
    names = {topic: [0, 9], unique("missing"): [0], "bad name!": [0], "": [0], ".": [0]}
    answer = session.client.send(
        request(
            topics=[request.TopicRequest(name=name, partition_indexes=partitions) for name, partitions in names.items()]
        ),
        0,
    )
    assert [[part.error_code for part in described.partitions] for described in answer.topics] == [
        [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION],
        [E.UNKNOWN_TOPIC_OR_PARTITION],
        *[[E.INVALID_TOPIC_EXCEPTION]] * 3,
    ]
    # Only an unknown topic has a message.
    messages = [answer.topics[0].partitions[1].error_message, answer.topics[1].partitions[0].error_message]
    assert messages == [None, "This server does not host this topic-partition."]
    [producer] = answer.topics[0].partitions[0].active_producers
    assert Identity(producer.producer_id, producer.producer_epoch) == identity
    assert (producer.last_sequence, producer.coordinator_epoch, producer.current_txn_start_offset) == (0, -1, 0)
    assert session.end(identity, commit=True, version=5)[0] == E.NONE
    ended = wait_until(
        lambda: [one for one in session.producers(topic).active_producers if one.current_txn_start_offset == -1],
        "the marker is described",
    )
    # The marker of transactions V2 already has the next epoch, so a late batch has a stale one.
    assert Identity(ended[0].producer_id, ended[0].producer_epoch) == bumped(identity)
    assert ended[0].last_sequence == -1
    assert ended[0].coordinator_epoch >= 0


def test_each_id_is_described_independently(session: RawSession):
    session.init()
    answer = session.client.send(
        DescribeTransactionsRequest(transactional_ids=[session.transactional_id, "", unique("unknown")]), 0
    )
    assert [state.error_code for state in answer.transaction_states] == [
        E.NONE,
        E.INVALID_REQUEST,
        E.TRANSACTIONAL_ID_NOT_FOUND,
    ]


# Rule A.4/6.
@pytest.mark.parametrize("version", range(1, 6))
def test_unknown_coordinator_type_is_refused(client: RawClient, version: int):
    answer = client.send(FindCoordinatorRequest(key="some", key_type=2, coordinator_keys=["some"]), version)
    assert (answer if version < 4 else answer.coordinators[0]).error_code == E.INVALID_REQUEST


# ListTransactions' pattern


def listed(client: RawClient, pattern: str | None) -> tuple[int, list[str]]:
    answer = client.send(
        ListTransactionsRequest(
            state_filters=[], producer_id_filters=[], duration_filter=-1, transactional_id_pattern=pattern
        ),
        2,
    )
    return answer.error_code, [state.transactional_id for state in answer.transaction_states]


# Rule F.3/4.
def test_pattern_is_accepted_or_refused_by_its_syntax(session: RawSession):
    session.init()
    assert [pattern for pattern in TAKEN if listed(session.client, pattern)[0] != E.NONE] == []
    assert [
        pattern for pattern in REFUSED if listed(session.client, pattern) != (E.INVALID_REGULAR_EXPRESSION, [])
    ] == []
    for everything in (None, ""):
        error, names = listed(session.client, everything)
        assert error == E.NONE
        assert session.transactional_id in names


# Rule F.3/4.
def test_pattern_selects_ids_that_match_completely(client: RawClient):
    # Left out: an unanchored search would find the prefix, and quoting to the end the parenthesis.
    rows = [row for row in MATCHES if not row[0].startswith(("^", "(?m)^", r"\A")) and row[0] != r"\Q."]
    prefix = unique("re") + "-"
    texts = {text for _, match, no_match in rows for text in [*match, *no_match]}
    for text in texts:
        assert RawSession(client, prefix + text).init()[0] == E.NONE
    for pattern, match, no_match in rows:
        error, names = listed(client, f"{prefix}(?:{pattern})")
        assert error == E.NONE, pattern
        assert set(names) >= {prefix + text for text in match}, pattern
        assert not set(names) & {prefix + text for text in no_match}, pattern


# Feature levels


def finalized(client: RawClient) -> int:
    answer = client.send(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
    return {entry.name: entry.max_version_level for entry in answer.finalized_features}.get(FEATURE, 0)


def update(client: RawClient, *updates: tuple[str, int, int], version: int = 2, validate_only: bool = True) -> Any:
    return client.send(levels_request(*updates, validate_only=validate_only), version)


def set_level(client: RawClient, level: int) -> None:
    """Change the level of the cluster and wait until the broker reports it."""
    kind = UPGRADE if level > finalized(client) else SAFE
    assert update(client, (FEATURE, level, kind), validate_only=False).error_code == E.NONE
    wait_until(lambda: finalized(client) == level, f"{FEATURE} is {level}")


@pytest.fixture
def levels(client: RawClient) -> Iterator[Callable[[int], None]]:
    """Let the test change the level; it is 2 for all other tests."""
    assert finalized(client) == 2
    yield lambda level: set_level(client, level)
    if finalized(client) != 2:
        set_level(client, 2)


@pytest.mark.parametrize(
    "updates",
    [
        [(FEATURE, 3, UPGRADE)],
        [(FEATURE, -1, SAFE)],
        [(FEATURE, 1, UPGRADE)],
        [(FEATURE, 2, 0)],
        [(FEATURE, 2, 9)],
        [("no.such", 1, UPGRADE)],
        [("no.such", 0, SAFE)],
        [(FEATURE, 1, SAFE), ("no.such", 1, UPGRADE)],
    ],
)
def test_impossible_feature_level_fails_the_whole_update(client: RawClient, updates: list[tuple[str, int, int]]):
    """In version 1, which has an answer for each feature; `test_features` has the messages of version 2."""
    refused = update(client, *updates, version=1)
    assert (refused.error_code, list(refused.results)) == (E.INVALID_UPDATE_VERSION, [])
    assert finalized(client) == 2


def test_possible_feature_level_is_validated_without_a_change(client: RawClient):
    for updates in (
        [],
        [(FEATURE, 2, UPGRADE)],
        [(FEATURE, 2, SAFE)],
        [(FEATURE, 0, SAFE)],
        [(FEATURE, 0, SAFE), (FEATURE, 2, UPGRADE)],
    ):
        assert update(client, *updates).error_code == E.NONE
    answer = update(client, (FEATURE, 0, SAFE), version=1)
    assert [(entry.feature, entry.error_code) for entry in answer.results] == [(FEATURE, E.NONE)]
    assert finalized(client) == 2


@both_protocols
@both_ends
def test_transaction_survives_a_level_change(
    kafka: Kafka, session: RawSession, levels: Callable[[int], None], protocol: int, commit: bool
):
    topic, identity = make_topic(kafka), session.init()[1]
    write(session, identity, topic, protocol)
    levels(1)
    write(session, identity, topic, protocol, sequence=1)
    error, following = session.end(identity, commit=commit, version=END[protocol])
    assert (error, following) == (E.NONE, bumped(identity) if protocol == V2 else Identity(-1, -1))
    wait_for_state(session, "CompleteCommit" if commit else "CompleteAbort")
    held = bumped(identity) if protocol == V2 else identity
    assert [marker.producer_epoch for marker in markers(session, topic)] == [held.producer_epoch]
    # Producers of both protocols begin at the lower level, and end at the higher one.
    sequence = 0 if protocol == V2 else 2
    write(session, held, topic, protocol, sequence=sequence)
    levels(2)
    assert session.end(held, commit=True, version=END[protocol])[0] == E.NONE
    wait_for_state(session, "CompleteCommit")
