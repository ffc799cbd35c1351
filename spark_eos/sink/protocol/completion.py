"""The completion of a decided micro-batch, while its transactions are open."""

import itertools
from collections.abc import Sequence
from typing import Final

from spark_eos.backoff import backoff_ms
from spark_eos.errors import AuthorizationError, EosKafkaError, LostTransactionError, UnsupportedError
from spark_eos.sink.decision import Decision
from spark_eos.sink.prepared import PreparedTransaction
from spark_eos.sink.protocol.asks import Count, Now, Reach, Sleep, StepsOf, warn
from spark_eos.sink.protocol.decision_errors import incomplete_error
from spark_eos.sink.protocol.settlement import end_all, lost_error, settle

_FIRST_PAUSE_MS: Final = 500
_LONGEST_PAUSE_MS: Final = 10_000


async def complete(
    decision: Decision, prepared: Sequence[PreparedTransaction], ends_at_ms: int, *, is_open: bool
) -> None:
    """Complete a decision, with retries until its transactions are about to time out, at `ends_at_ms`.

    `is_open` states that none can have timed out yet. Only then does the first attempt commit without verifying.
    """
    wait_until_ms: float = await Now()
    for attempt in itertools.count():
        pause_ms = backoff_ms(attempt, _FIRST_PAUSE_MS, _LONGEST_PAUSE_MS)
        try:
            if is_open and await _commit(decision, prepared):
                return
            is_open = False
            settled = await settle(decision)
            if not settled.took_effect:
                raise lost_error(settled)
            return
        except LostTransactionError:
            raise
        except EosKafkaError as error:
            is_open = False
            wait_until_ms = max(await Now(), wait_until_ms) + pause_ms
            if wait_until_ms >= ends_at_ms or isinstance(error, AuthorizationError | UnsupportedError):
                raise incomplete_error(decision, error) from error
            await warn(
                "micro-batch %d of %s is decided, retrying its completion: %s",
                decision.micro_batch,
                decision.query,
                error,
            )
            await Count("completion_retries")
            await Sleep(pause_ms / 1000)


async def _commit(decision: Decision, prepared: Sequence[PreparedTransaction]) -> bool:
    """Commit all transactions; return whether every response was success."""
    steps = [[t] for t in prepared] if await StepsOf("driver.mid_complete") else [list(prepared)]
    committed: set[PreparedTransaction] = set()
    for step in steps:
        committed |= await end_all(step, commit=True)
        await Reach("driver.mid_complete", decision.micro_batch)
    return len(committed) == len(prepared)
