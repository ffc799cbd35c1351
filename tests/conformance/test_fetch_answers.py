"""Fetch responses in special cases: unknown leader epochs, and a log trimmed within a batch."""

from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.broker_core.requests import fetch_request
from tests.support.clients import Kafka, make_topic
from tests.support.raw_client import RawClient
from tests.support.raw_session import NOBODY, RawSession, record_batch

DEADLINE_S = 30
NONE, OFFSET_OUT_OF_RANGE = 0, 1
UNCOMMITTED, COMMITTED = 0, 1


@pytest.fixture
def session(kafka: Kafka) -> Iterator[RawSession]:
    with RawClient(kafka.bootstrap_servers) as client:
        yield RawSession(client, None)


@pytest.fixture
def topic(kafka: Kafka, session: RawSession) -> str:
    """Return a topic with a batch at 0 and one at 3."""
    name = make_topic(kafka)
    for offset in (0, 3):
        batch = record_batch([b"a", b"b", b"c"], NOBODY, -1, transactional=False)
        assert session.produce(name, batch, version=9) == (NONE, offset)
    return name


@pytest.mark.parametrize(("epoch", "error"), [(-5, NONE), (-1, NONE), (0, NONE), (1, OFFSET_OUT_OF_RANGE)])
def test_fetch_with_an_unknown_last_fetched_epoch_is_refused(session: RawSession, topic: str, epoch: int, error: int):
    answer = session.fetch(topic, 0, isolation=UNCOMMITTED, last_epoch=epoch)
    assert answer.error_code == error
    assert bool(answer.records) == (error == NONE)


# Rules D.1/4 and D.1 more/1.
@pytest.mark.parametrize("isolation", [UNCOMMITTED, COMMITTED])
def test_fetch_responses_around_the_log_ends(kafka: Kafka, session: RawSession, topic: str, isolation: int):
    """The batch that contains the new log start is still sent whole: the reader skips the records before its offset."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_records([TopicPartition(topic, 0, 2)])[TopicPartition(topic, 0)].result(DEADLINE_S)
    aborted = None if isolation == UNCOMMITTED else []
    for offset, error, found in (
        (1, OFFSET_OUT_OF_RANGE, 0),
        (2, NONE, 2),
        (5, NONE, 1),
        (6, NONE, 0),
        (7, OFFSET_OUT_OF_RANGE, 0),
    ):
        answer = session.fetch(topic, offset, isolation=isolation)
        assert answer.error_code == error, offset
        assert answer.records.count(b"\x02a\0") == found if answer.records else not found, offset
        if error:
            assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (-1, -1, -1)
        else:
            assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (6, 6, 2)
            assert answer.aborted_transactions == aborted


def test_a_session_leaves_out_a_partition_that_is_named_again_and_has_not_changed(session: RawSession, topic: str):
    def fetch(session_id: int, epoch: int, *offsets: int) -> tuple[int, list[int]]:
        """Name the partition once for each offset; return the session's id and the lengths of what was read."""
        topics = [fetch_request(topic, {"fetch_offset": offset}).topics[0] for offset in offsets]
        request = fetch_request(topic, session_id=session_id, session_epoch=epoch)
        request.topics = topics
        answer = session.client.send(request, 12)
        assert answer.error_code == NONE
        read = [len(each.records or b"") for found in answer.responses for each in found.partitions]
        return answer.session_id, read

    session_id, read = fetch(0, 0, 6)
    assert session_id
    assert read == [0]
    assert fetch(session_id, 1) == (session_id, [])
    assert fetch(session_id, 2, 6) == (session_id, [])
    (length,) = fetch(session_id, 3, 3)[1]
    assert length > 0
    assert fetch(session_id, 4, 6) == (session_id, [])
