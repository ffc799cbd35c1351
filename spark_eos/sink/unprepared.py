"""Ending the transaction of a task whose worker has ended before it was prepared.

Imported by the process that outlives the worker, so it asks for nothing but the client.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from spark_eos.client.connection import KafkaClient
from spark_eos.client.control import TransactionIdentity, end_txn
from spark_eos.client.inspection import describe_transactions
from spark_eos.errors import EosKafkaError
from spark_eos.options.client import ClientOptions

# What a killed worker has sent may reach its broker after the abort, and open the transaction again.
LOOKS_AFTER_SECONDS: Final = (0.0, 0.2, 0.5, 1.0, 2.0, 4.0)
_OPEN: Final = "Ongoing"
# For all looks together: where brokers stay away longer, the transaction times out.
LIMIT_SECONDS: Final = 60.0
_LONGEST_CALL_MS: Final = 15_000
_PAUSE_SECONDS: Final = 1.0


def impatient(options: ClientOptions) -> ClientOptions:
    """Give the client of a process that must not live long after the worker it belonged to."""
    return replace(options, api_timeout_ms=min(options.api_timeout_ms, _LONGEST_CALL_MS))


def end_unprepared(
    options: ClientOptions, identity: TransactionIdentity, pauses: Sequence[float] = LOOKS_AFTER_SECONDS
) -> None:
    """Abort exactly this transaction if it is open, and look again for requests that arrive late."""
    looks, until = list(pauses), time.monotonic() + LIMIT_SECONDS
    with KafkaClient(impatient(options)) as client:
        while looks and time.monotonic() < until:
            time.sleep(looks[0])
            try:
                _end_if_open(client, identity)
            except EosKafkaError:
                # A broker that is away may come back.
                time.sleep(_PAUSE_SECONDS)
                continue
            looks.pop(0)


def _end_if_open(client: KafkaClient, identity: TransactionIdentity) -> None:
    name = identity.transactional_id
    found = describe_transactions(client, [name])[name]
    is_it = (found.producer_id, found.producer_epoch) == (identity.producer_id, identity.producer_epoch)
    if found.exists and is_it and found.state == _OPEN:
        end_txn(client, identity, commit=False)
