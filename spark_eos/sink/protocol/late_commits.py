"""No transaction of a decided micro-batch is the first to be committed when its time is over.

Coordinators that could not record anything for a while then abort, each at its own time. Of commits that are sent
meanwhile some succeed, and the micro-batch is lost in part. Without any, all of it is aborted and written again.
"""

from collections.abc import Collection, Mapping
from typing import Final

from spark_eos.sink.decision import Decision
from spark_eos.sink.prepared import PreparedTransaction
from spark_eos.sink.protocol.action_table import Fate, SettlementAction, action_for
from spark_eos.sink.protocol.asks import Now
from spark_eos.sink.protocol.descriptions import describe_prepared, time_left_ms

# For which ends are repeated by default.
_LONGEST_MS: Final = 60_000


async def next_action(decision: Decision, fates: Mapping[PreparedTransaction, Fate]) -> SettlementAction:
    """Return the action of the table, or to wait if it is a first commit that comes too late.

    A transaction begins at its coordinator, which may be later than its task says: only the coordinator's time counts.
    """
    action = action_for(decision, fates.values())
    is_first = action is SettlementAction.COMMIT and Fate.COMMITTED not in fates.values()
    if not is_first or decision.intervention is not None:
        return action
    still_open = [each for each, fate in fates.items() if fate is Fate.OPEN]
    if await _left_ms(still_open) > 0:
        return action
    described = await describe_prepared(still_open, now_ms := await Now(), leave_out=True)
    is_over = len(described) < len(still_open) or any(time_left_ms(each, now_ms) <= 0 for each in described.values())
    return SettlementAction.WAIT if is_over else action


async def commits_wait_ms(transactions: Collection[PreparedTransaction]) -> int | None:
    """Return for how long commits are repeated at most, if that is less than by default."""
    left_ms = await _left_ms(transactions) if transactions else 0
    return left_ms if 0 < left_ms < _LONGEST_MS else None


async def _left_ms(transactions: Collection[PreparedTransaction]) -> int:
    """Return when the first of these times out, from now, by this machine's clock."""
    return min(each.started_at_ms + each.timeout_ms for each in transactions) - await Now()
