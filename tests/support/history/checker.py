"""The check that one set of Kafka logs can explain a history.

It follows Jepsen's checker for Kafka and adds torn transactions, records that are consumed twice, and group offsets.
It reports certain anomalies only: an operation of unknown outcome is no anomaly until a reader sees a part of it.
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
    """Return all anomalies of a history; raises `ValueError` for a malformed history."""
    index = index_history(history)
    return [anomaly for each in CHECKS for anomaly in each(index) if anomaly.kind not in allowed]
