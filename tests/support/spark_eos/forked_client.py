"""A fork of a process that has an open client, run in a process of its own, with a report of both.

It needs a process of its own because a fork copies one thread only: a garbage collection in the child must not free
clients of other libraries whose threads were not copied, and the process that runs the tests may have some.
"""

import gc
import os
import sys
from typing import NoReturn

from spark_eos.client.kafka_client import KafkaClient
from spark_eos.errors import ClientStateError
from spark_eos.options.client import ClientOptions

EXPECTED = [
    "the child is refused",
    "the child is let in after it closed the client, by connections of its own",
    "the child ended with 0",
    "the parent goes on: transaction.version 2",
]


def main(address: str) -> None:
    """Print what the child and, after it, the parent could do."""
    with KafkaClient(ClientOptions((address,))) as client:
        assert client.metadata([]) == {}
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            _use(client)
        _, status = os.waitpid(child, 0)
        print(f"the child ended with {os.waitstatus_to_exitcode(status)}")
        assert client.metadata([], timeout_ms=30_000) == {}
        print(f"the parent goes on: transaction.version {client.transaction_version(refresh=True, timeout_ms=30_000)}")


def _use(client: KafkaClient) -> NoReturn:
    code = 1
    try:
        print(f"the child is {_refused(client)}")
        # What the child frees must not change the parent's registrations.
        client.close()
        gc.collect()
        print(f"the child is {_refused(client)} after it closed the client, by connections of its own")
        sys.stdout.flush()
        code = 0
    finally:
        os._exit(code)


def _refused(client: KafkaClient) -> str:
    try:
        client.metadata([])
    except ClientStateError:
        return "refused"
    return "let in"


if __name__ == "__main__":
    main(*sys.argv[1:])
