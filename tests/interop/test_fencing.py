"""One transactional id has one owner: with each client on both sides."""

import pytest

from tests.interop.driver import Client
from tests.interop.fencing import PHASES, fences
from tests.interop.judge import (
    ENDED,
    FENCED,
    TIMED_OUT,
    UNABLE,
    end,
    identity,
    is_refused,
    make_topic,
    refusing_journal,
    send_and_commit,
    wait_for_end_offset,
)
from tests.support.clients import READ_UNCOMMITTED, unique
from tests.support.interop_brokers import Running, at_version

# Long enough for several attempts of the client.
SHORT_MS = 2_000


@pytest.mark.parametrize("phase", PHASES)
def test_second_producer_fences_the_first(kafka: Running, client: Client, phase: str):
    fences(kafka, client, client, PHASES[phase])


@pytest.mark.parametrize("phase", ["commit", "send"])
def test_one_client_fences_another(kafka: Running, client: Client, peer: Client, phase: str):
    fences(kafka, client, peer, PHASES[phase])


def test_timed_out_transaction_fences_its_producer(kafka: Running, client: Client):
    topic, transactional_id = make_topic(kafka), unique("id")
    producer = client.producer(transactional_id, timeout_ms=2_000).begin()
    producer.send(topic, "too slow")
    wait_for_end_offset(kafka, topic, 2)
    is_refused(lambda: send_and_commit(producer, topic, "too late"), FENCED | ENDED)
    again = client.producer(transactional_id).begin()
    again.send(topic, "in time")
    again.commit()
    end(kafka, topic)
    assert client.values(topic) == ["in time"]
    assert client.values(topic, isolation=READ_UNCOMMITTED) == ["too slow", "in time"]


@pytest.mark.parametrize("version", [1, 2])
def test_fencing_that_cannot_be_recorded_bumps_the_epoch_once(kafka: Running, client: Client, version: int):
    topic = make_topic(kafka)

    def epochs_moved(*, refused: bool) -> int:
        transactional_id = unique("id")
        old = client.producer(transactional_id).begin()
        old.send(topic, "of the first")
        before = identity(kafka, transactional_id)
        if refused:
            with refusing_journal(kafka):
                unlucky = client.new_producer(transactional_id, block_ms=SHORT_MS)
                is_refused(unlucky.init, TIMED_OUT | UNABLE)
                # Otherwise it retries in the background, which raises the epoch, too.
                unlucky.close()
        new = client.producer(transactional_id).begin()
        after = identity(kafka, transactional_id)
        new.send(topic, "of the second")
        is_refused(old.commit, FENCED)
        new.commit()
        assert after.producer_id == before.producer_id
        return after.producer_epoch - before.producer_epoch

    with at_version(kafka, version):
        assert epochs_moved(refused=True) == epochs_moved(refused=False)
    end(kafka, topic)
    assert client.values(topic) == ["of the second"] * 2
