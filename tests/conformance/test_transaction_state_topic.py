"""The internal topic of transactions, as consumers see it."""

import struct

from tests.support.both_brokers import SETTINGS, Kafka
from tests.support.clients import read_to_end
from tests.support.raw_session import RawSession

TOPIC = "__transaction_state"
PARTITIONS = int(SETTINGS["transaction.state.log.num.partitions"])


def key_of(transactional_id: str) -> bytes:
    """Return the key of an id's records: version 0 and the id."""
    text = transactional_id.encode()
    return struct.pack(">hh", 0, len(text)) + text


# Rule B.1/1.
def test_a_consumer_reads_the_states_of_transactions(kafka: Kafka, session: RawSession):
    assert session.transactional_id is not None
    identity = session.init_until_done()
    messages = read_to_end(kafka, TOPIC, partitions=PARTITIONS)
    values = [message.value() for message in messages if message.key() == key_of(session.transactional_id)]
    assert values
    assert values[-1] is not None
    # The value begins with its version and the producer's id and epoch.
    version, producer_id, producer_epoch = struct.unpack_from(">hqh", values[-1])
    assert version in (0, 1)
    assert (producer_id, producer_epoch) == identity
