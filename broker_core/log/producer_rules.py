"""The tables of appends by producers: client batches (rules C.5) and end-of-transaction markers (rules C.6).

Both are ordered: Kafka evaluates these rules one after the other, and the first that fits decides.
"""

from collections.abc import Hashable
from enum import Enum, auto
from typing import Final, NamedTuple

from broker_core.decision_table import Row, Table
from broker_core.errors import ErrorCode
from broker_core.log.producer_entry import ProducerStateEntry
from broker_core.types import FENCING_EPOCH, MAX_SEQUENCE, NO_PRODUCER_EPOCH

ACCEPT: Final = ErrorCode.NONE


class Age(Enum):
    """The relation of a batch's epoch to the one the partition knows."""

    OLDER = auto()
    SAME = auto()
    NEWER = auto()


def _age(epoch: int, known: int) -> Age:
    if epoch == known:
        return Age.SAME
    return Age.OLDER if epoch < known else Age.NEWER


class ProducerVerification(NamedTuple):
    """The state of a producer between its verification with the coordinator and its first batch (rules C.3)."""

    guard: int
    producer_epoch: int
    lowest_sequence: int
    supports_epoch_bump: bool


class BatchCase(NamedTuple):
    """A client's batch and the partition's state of its producer."""

    entry: ProducerStateEntry
    verification: ProducerVerification | None
    producer_epoch: int
    base_sequence: int

    def facts(self) -> dict[str, Hashable]:
        entry, verification = self.entry, self.verification
        last = entry.last_sequence
        return {
            "producer_epoch": _age(self.producer_epoch, entry.producer_epoch),
            # False if the partition has no state of the producer, or it has expired.
            "producer_is_known": entry.producer_epoch != NO_PRODUCER_EPOCH,
            # False if the known epoch has no batch, or only a marker.
            "has_batches": bool(entry.batches),
            "begins_at_zero": self.base_sequence == 0,
            # The next sequence, which is 0 after 2**31 - 1.
            "follows_newest": self.base_sequence == (0 if last == MAX_SEQUENCE else last + 1),
            # A client that uses transactions V2 is about to write: each of its transactions begins at sequence 0.
            "bumps_epochs": verification is not None and verification.supports_epoch_bump,
            # A batch with a lower sequence started a verification and has to be appended first.
            "is_behind_verified": verification is not None and self.base_sequence > verification.lowest_sequence,
        }


class MarkerCase(NamedTuple):
    """A marker and the partition's state of its producer."""

    entry: ProducerStateEntry
    producer_epoch: int
    coordinator_epoch: int
    transaction_version: int

    def facts(self) -> dict[str, Hashable]:
        return {
            "producer_epoch": _age(self.producer_epoch, self.entry.producer_epoch),
            # Markers of transactions V2 carry the epoch after the transaction's own.
            "is_v2": self.transaction_version >= 2,
            # Without an open transaction the marker is a duplicate.
            "transaction_is_open": self.entry.current_txn_first_offset is not None,
            # The last epoch, 32767, has no successor and ends its own transaction.
            "is_last_epoch": self.producer_epoch == FENCING_EPOCH,
            # A newer coordinator has already written a marker: this one is a zombie.
            "coordinator_is_older": self.coordinator_epoch < self.entry.coordinator_epoch,
        }


_FLAG: Final = (False, True)
_OLD_EPOCH: Final = ErrorCode.INVALID_PRODUCER_EPOCH
_BAD_SEQUENCE: Final = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

# Rules C.5/4, C.5/1, C.5/2, C.5/3, C.5/5 and C.5/6, then C.5/7 and C.5/9, and C.5/8 and C.5/9.
BATCH_RULES: Final = Table[ErrorCode](
    "client batch",
    {
        "producer_epoch": tuple(Age),
        "producer_is_known": _FLAG,
        "has_batches": _FLAG,
        "begins_at_zero": _FLAG,
        "follows_newest": _FLAG,
        "bumps_epochs": _FLAG,
        "is_behind_verified": _FLAG,
    },
    [
        Row("an older epoch is fenced", {"producer_epoch": Age.OLDER}, _OLD_EPOCH),
        Row(
            "a V2 transaction begins at sequence 0",
            {"bumps_epochs": True, "has_batches": False, "begins_at_zero": False},
            _BAD_SEQUENCE,
        ),
        Row("an earlier batch still waits for verification", {"is_behind_verified": True}, _BAD_SEQUENCE),
        Row("an unknown producer may begin anywhere", {"producer_is_known": False}, ACCEPT),
        Row("a new epoch begins at sequence 0", {"producer_epoch": Age.NEWER, "begins_at_zero": True}, ACCEPT),
        Row("a new epoch may not begin later", {"producer_epoch": Age.NEWER}, _BAD_SEQUENCE),
        Row("the next sequence", {"follows_newest": True}, ACCEPT),
        Row("a gap or a repetition too old to be known", {}, _BAD_SEQUENCE),
    ],
    ordered=True,
)

_ACCEPTED_MARKER: Final = Row("a marker, the first or a repetition", {}, ACCEPT)
# Rules C.6/2, C.6/3, C.6/4 and C.6/5.
MARKER_RULES: Final = Table[ErrorCode](
    "end-of-transaction marker",
    {
        "producer_epoch": tuple(Age),
        "is_v2": _FLAG,
        "transaction_is_open": _FLAG,
        "is_last_epoch": _FLAG,
        "coordinator_is_older": _FLAG,
    },
    [
        Row("an older epoch is fenced", {"producer_epoch": Age.OLDER}, _OLD_EPOCH),
        Row(
            "a V2 marker may not end a transaction of its own epoch",
            {"is_v2": True, "producer_epoch": Age.SAME, "transaction_is_open": True, "is_last_epoch": False},
            _OLD_EPOCH,
        ),
        Row("a zombie coordinator is fenced", {"coordinator_is_older": True}, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        _ACCEPTED_MARKER,
    ],
    ordered=True,
)


def judge_batch(case: BatchCase) -> ErrorCode:
    """Return the verdict on a client's batch.

    Most batches are the next of a known epoch, which is 0 if it has none, and for those the verdict needs no table. A
    test checks that it is the table's verdict.
    """
    entry, verification = case.entry, case.verification
    if (
        case.producer_epoch == entry.producer_epoch
        and case.base_sequence == entry.last_sequence + 1
        and (verification is None or case.base_sequence <= verification.lowest_sequence)
    ):
        return ACCEPT
    return BATCH_RULES.resolve(**case.facts())


def judge_marker(case: MarkerCase) -> Row[ErrorCode]:
    """Return the row with the verdict on a marker.

    Most markers of transactions V2 have a newer epoch than the partition knows, and for those the verdict needs no
    table. A test checks that it is the table's verdict.
    """
    entry = case.entry
    if case.producer_epoch > entry.producer_epoch and case.coordinator_epoch >= entry.coordinator_epoch:
        return _ACCEPTED_MARKER
    return MARKER_RULES.row(**case.facts())
