"""Consume, transform, produce, while clients come and go: with each client."""

from tests.interop.copying import SHORT_SESSION_MS, hard_or_clean, make_job, with_or_without_metadata
from tests.interop.driver import Client
from tests.support.clients import READ_UNCOMMITTED
from tests.support.interop_brokers import Running


def test_every_third_copy_is_aborted_and_every_input_is_copied_once(kafka: Running, client: Client):
    job = make_job(kafka)
    job.feed_last()
    client.start_copying(job.task, abort_every=3)
    counts = client.finish_copying()
    assert counts["aborts"] >= 3
    job.assert_copied_once()


@with_or_without_metadata
@hard_or_clean
def test_client_restarts_during_a_copy_and_every_input_is_copied_once_in_order(
    kafka: Running, client: Client, hard: bool, sends: str
):
    job = make_job(kafka, metadata=sends == "group metadata", session_ms=SHORT_SESSION_MS)
    job.feed_last()
    if hard:
        client.start_copying(job.task, hold_at=3)
        # Its records and offsets are in the log, and no process is left that could end it.
        client.reader.wait_for_note()
        client.reader.kill()
    else:
        client.start_copying(job.task, stop_after=3)
        client.finish_copying()
    half = sum(map(len, job.seen(READ_UNCOMMITTED).values()))
    assert 0 < half < sum(map(len, job.wanted.values()))
    client.start_copying(job.task)
    client.finish_copying()
    job.assert_copied_once()
    # The killed client's transaction was not committed, and its records were written again.
    written = sum(map(len, job.seen(READ_UNCOMMITTED).values()))
    assert (written > sum(map(len, job.wanted.values()))) is hard


def test_killed_static_member_is_replaced_during_its_transaction(kafka: Running, client: Client):
    # Its session is longer than the test: only the same static member may take its partitions before.
    job = make_job(kafka, instance="static", session_ms=120_000)
    job.feed_last()
    client.start_copying(job.task, hold_at=3)
    client.reader.wait_for_note()
    client.reader.kill()
    client.start_copying(job.task)
    client.finish_copying()
    job.assert_copied_once()
