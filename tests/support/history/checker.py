"""Judge a history: can one set of Kafka logs have answered all of this?

After Jepsen's checker of Kafka, and beyond it where a history says more: transactions that are torn, records that are
consumed twice, the offsets of groups. Only what was certainly wrong is told: an operation of unknown outcome is given
the benefit of the doubt until some reader sees a part of it.
"""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from tests.support.history import cycles, groups, order, records
from tests.support.history.anomalies import ALLOWED_BY_KAFKA, Anomaly, Kind
from tests.support.history.format import Op
from tests.support.history.index import index_history

CHECKS = (
    records.inconsistent_offsets,
    records.duplicates,
    records.aborted_reads,
    records.precommitted_reads,
    records.lost_writes,
    order.polls,
    order.sends,
    cycles.cycles,
    groups.consumed_twice,
    groups.group_offsets,
)


def check(history: Iterable[Op], allowed: AbstractSet[Kind] = ALLOWED_BY_KAFKA) -> Sequence[Anomaly]:
    """Give all that is wrong with a history; raises `ValueError` for what is no history."""
    index = index_history(history)
    return [anomaly for each in CHECKS for anomaly in each(index) if anomaly.kind not in allowed]
