"""Transactions that faults interrupt."""

from broker_core.records.batch import NewRecord, build_batch
from broker_core.wire import messages as m
from tests.support.messages import filled

ID = "t"


def produce(client, producer_id, producer_epoch, partitions=(0,)):
    batch = bytes(
        build_batch(
            [NewRecord(None, b"v")],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
    )
    answer = client.send(
        filled(
            m.ProduceRequest,
            transactional_id=ID,
            acks=-1,
            timeout_ms=1000,
            topic_data=[{"name": "in", "partition_data": [{"index": each, "records": batch} for each in partitions]}],
        ),
        12,
    )
    assert {part.error_code for topic in answer.responses for part in topic.partition_responses} == {0}


def begun(client, partitions=(0,)):
    """Begin a transaction on the partitions; return the request that commits it."""
    got = client.send(m.InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000), 4)
    assert got.error_code == 0
    produce(client, got.producer_id, got.producer_epoch, partitions)
    return m.EndTxnRequest(
        transactional_id=ID, producer_id=got.producer_id, producer_epoch=got.producer_epoch, committed=True
    )
