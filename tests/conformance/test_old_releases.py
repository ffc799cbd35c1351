"""`eos-kafka transactions abort` on releases of Apache Kafka that cannot report what the command checks first."""

import pytest

from spark_eos.admin.output import ExitCode
from tests.support.both_brokers import Kafka
from tests.support.clients import make_producer, make_topic, send, values_soon
from tests.support.old_kafka import old_kafka
from tests.support.raw_client import RawClient
from tests.support.raw_session import Identity, RawSession, record_batch
from tests.support.transactions_command import ours

# The newest version of Produce that both releases serve.
PRODUCE = 8
# An identity that no coordinator of this cluster has given out.
LATE = Identity(4_000, 3)


@pytest.mark.parametrize(
    ("release", "missing"),
    [
        ("2.7.2", "cannot report what is open in"),
        # The first with DescribeProducers; ListTransactions came with 3.0.
        ("2.8.2", "cannot report whether the transaction is live"),
    ],
)
@pytest.mark.usefixtures("apache_asked_for")
def test_abort_without_checks_needs_force(release: str, missing: str) -> None:
    with old_kafka(release) as address, RawClient(address) as client:
        kafka = Kafka(address, "apache")
        topic = make_topic(kafka)
        late = RawSession(client, None)
        late.transactional_id = "late"
        assert late.produce(topic, record_batch([b"late"], LATE, 0), version=PRODUCE)[0] == 0
        send(make_producer(kafka), topic, [b"behind"])
        values_soon(kafka, topic, [])
        words = (
            *("abort", "--topic", topic, "--partition", "0", f"--producer-id={LATE.producer_id}"),
            *(f"--producer-epoch={LATE.producer_epoch}", "--coordinator-epoch=0"),
        )

        refused = ours(address, *words)
        assert refused.code == ExitCode.NOTHING_DONE
        assert missing in refused.errors and "--force" in refused.errors
        values_soon(kafka, topic, [])

        assert ours(address, *words, "--force", "--yes").code == ExitCode.DONE
        values_soon(kafka, topic, [b"behind"])
