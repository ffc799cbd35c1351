"""What a small transaction costs the broker: no place takes much time, so the calls of functions are counted."""

from functools import partial

from broker_core.types import TRANSACTION_STATE_TOPIC
from tests.support.broker_core.requests import TOPIC, end_request, init_producer, produce, transactional
from tests.support.direct import DirectClient, direct_cluster
from tests.support.function_calls import count_calls

# A little more than the 486 of Python 3.11, for which a comprehension is a call too.
MOST_CALLS = 499


def test_small_transaction_makes_few_calls() -> None:
    cluster = direct_cluster()
    for topic in (TOPIC, TRANSACTION_STATE_TOPIC):
        cluster.controller.ensure_topic(topic)
    client = DirectClient(cluster)
    identity = init_producer(client)
    calls = []
    # The first one opens logs and fills caches.
    for _ in range(3):
        requests = (produce(transactional(identity), transactional_id="id", version=12), (end_request(identity), 5))
        data = b"".join([client.encoded(*each) for each in requests])
        calls.append(count_calls(partial(client.post_bytes, data)))
        assert client.take().responses[0].partition_responses[0].error_code == 0
        identity = client.take()
        assert identity.error_code == 0
    assert calls[1] == calls[2] <= MOST_CALLS, calls
