"""The completion of a decided micro-batch, while its transactions are open."""

import itertools
import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

from spark_eos import failpoints
from spark_eos.errors import AuthorizationError, EosKafkaError, LostTransactionError, UnsupportedError
from spark_eos.metrics import SINK_METRICS
from spark_eos.runtime import backoff_ms, now_ms
from spark_eos.sink.decision import Decision
from spark_eos.sink.driver.decision_errors import incomplete_error
from spark_eos.sink.ports import SinkCluster
from spark_eos.sink.prepared import PreparedTransaction
from spark_eos.sink.recovery.settlement import commit_all, lost_error, settle

logger = logging.getLogger(__name__)
_FIRST_PAUSE_MS: Final = 500
_LONGEST_PAUSE_MS: Final = 10_000


class Completion(NamedTuple):
    """The time available for completion, until the first transaction times out, by this machine's clock.

    `is_open` states that none can have timed out yet. Only then does the first attempt commit without verifying.
    """

    ends_at_ms: int
    is_open: bool


def complete(
    cluster: SinkCluster, decision: Decision, prepared: Sequence[PreparedTransaction], completion: Completion
) -> None:
    """Complete a decision, with retries until its transactions are about to time out."""
    clock = cluster.runtime.clock
    wait_until_ms: float = now_ms(clock)
    is_open = completion.is_open
    for attempt in itertools.count():
        pause_ms = backoff_ms(attempt, _FIRST_PAUSE_MS, _LONGEST_PAUSE_MS)
        try:
            if is_open and _commit(cluster, decision, prepared):
                return
            is_open = False
            settled = settle(cluster, decision)
            if not settled.took_effect:
                raise lost_error(settled)
            return
        except LostTransactionError:
            raise
        except EosKafkaError as error:
            is_open = False
            wait_until_ms = max(now_ms(clock), wait_until_ms) + pause_ms
            if wait_until_ms >= completion.ends_at_ms or isinstance(error, AuthorizationError | UnsupportedError):
                raise incomplete_error(decision, error) from error
            logger.warning(
                "micro-batch %d of %s is decided, retrying its completion: %s",
                decision.micro_batch,
                decision.query,
                error,
            )
            SINK_METRICS.add("completion_retries")
            clock.sleep(pause_ms / 1000)


def _commit(cluster: SinkCluster, decision: Decision, prepared: Sequence[PreparedTransaction]) -> bool:
    """Commit all transactions; return whether every response was success."""
    steps = [[t] for t in prepared] if failpoints.is_armed("driver.mid_complete") else [list(prepared)]
    committed: set[PreparedTransaction] = set()
    for step in steps:
        committed |= commit_all(cluster, step)
        failpoints.reach("driver.mid_complete", decision.micro_batch)
    return len(committed) == len(prepared)
