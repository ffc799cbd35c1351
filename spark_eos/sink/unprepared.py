"""Ending the transaction of a task whose worker has ended before it was prepared.

Imported by the process that outlives the worker, so it asks for nothing but the client.
"""

import time
from collections.abc import Sequence
from typing import Final

from spark_eos.client.connection import KafkaClient
from spark_eos.client.control import TransactionIdentity, end_txn
from spark_eos.client.inspection import describe_transactions
from spark_eos.client_options import ClientOptions
from spark_eos.errors import EosKafkaError

# What a killed worker has sent may reach its broker after the abort, and open the transaction again.
LOOKS_AFTER_SECONDS: Final = (0.0, 0.2, 0.5, 1.0, 2.0, 4.0)
_OPEN: Final = "Ongoing"


def end_unprepared(
    options: ClientOptions, identity: TransactionIdentity, pauses: Sequence[float] = LOOKS_AFTER_SECONDS
) -> None:
    """Abort exactly this transaction if it is open, and look again for requests that arrive late."""
    name = identity.transactional_id
    with KafkaClient(options) as client:
        for seconds in pauses:
            time.sleep(seconds)
            try:
                found = describe_transactions(client, [name])[name]
                is_it = (found.producer_id, found.producer_epoch) == (identity.producer_id, identity.producer_epoch)
                if found.exists and is_it and found.state == _OPEN:
                    end_txn(client, identity, commit=False)
            except EosKafkaError:
                # Its standard streams lead nowhere: the next look is all there is.
                continue
