"""The check of each micro-batch of Trigger.AvailableNow."""

from collections.abc import Mapping

from broker_core.types import TopicPartition
from spark_eos.errors import EosKafkaError

Offsets = Mapping[TopicPartition, int]


def check_micro_batch(end: Offsets, fixed: Offsets, latest: Offsets) -> None:
    """Raise unless `end` has the partitions of `fixed`, is not beyond it, and is within the current logs.

    That is for each micro-batch of Trigger.AvailableNow; `fixed` are the ends when the query began. Spark's own source
    has the same four failures, with the same names. All of them mean that topics changed under the query in a way that
    no later micro-batch can repair, so `failOnDataLoss` does not apply.
    """
    strange = end.keys() ^ fixed.keys()
    if strange:
        raise _error(
            "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_END_OFFSET_AND_PREFETCHED",
            f"The partitions to read differ from those the query began with: {_names(strange)}",
            f"At the start there were {len(fixed)}, the micro-batch ends with {len(end)}",
        )
    beyond = {tp for tp, offset in end.items() if offset > fixed[tp]}
    if beyond:
        raise _error(
            "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_PREFETCHED",
            f"The micro-batch ends beyond the offsets that existed when the query began: {_names(beyond)}",
            _account(beyond, end, fixed),
        )
    lost = end.keys() - latest.keys()
    if lost:
        raise _error(
            "LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW",
            f"Partitions that existed when the query began are gone: {_names(lost)}",
            "Requested all partitions of the subscription from the brokers",
        )
    cut = {tp for tp, offset in end.items() if offset > latest[tp]}
    if cut:
        raise _error(
            "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST_WITH_TRIGGER_AVAILABLENOW",
            f"Partitions end before where they ended when the query began: {_names(cut)}",
            _account(cut, end, latest),
        )


def _names(partitions: set[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions)))


def _account(partitions: set[TopicPartition], wanted: Offsets, there: Offsets) -> str:
    return ", ".join(f"{tp}: wanted {wanted[tp]}, found {there[tp]}" for tp in sorted(partitions))


def _error(name: str, happened: str, checked: str) -> EosKafkaError:
    return EosKafkaError(
        f"[{name}] {happened}",
        checked=checked,
        remedy="Restart the query: it continues from its checkpoint with the current partitions and end offsets",
    )
