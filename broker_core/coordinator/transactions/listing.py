"""The filters of ListTransactions (rules F.3)."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from broker_core.coordinator.patterns import NamePattern
from broker_core.coordinator.transactions.messages import ListedTransaction
from broker_core.coordinator.transactions.records import TransactionImage
from broker_core.coordinator.transactions.states import BY_LABEL
from broker_core.types import TransactionState


class ListFilter(NamedTuple):
    """The criteria of a list; an empty collection and None match everything."""

    states: frozenset[TransactionState]
    unknown_states: tuple[str, ...]
    producer_ids: frozenset[int]
    duration_ms: int
    pattern: NamePattern | None

    @property
    def keeps_nothing(self) -> bool:
        """Return whether there are state filters and all of them are unknown states."""
        return bool(self.unknown_states) and not self.states

    def keeps(self, transactional_id: str, image: TransactionImage, now_ms: int) -> bool:
        """Return whether an id matches; without a start time every duration is exceeded, as in Kafka."""
        return (
            (not self.states or image.state in self.states)
            and (not self.producer_ids or image.producer_id in self.producer_ids)
            and (self.duration_ms < 0 or now_ms - image.start_ms > self.duration_ms)
            and (self.pattern is None or self.pattern.matches(transactional_id))
        )


def list_filter(
    states: Collection[str], producer_ids: Collection[int], duration_ms: int, pattern: str | None
) -> ListFilter:
    """Return the filter of a request; raise INVALID_REGULAR_EXPRESSION for an invalid pattern."""
    return ListFilter(
        frozenset(BY_LABEL[name] for name in states if name in BY_LABEL),
        tuple(name for name in states if name not in BY_LABEL),
        frozenset(producer_ids),
        duration_ms,
        NamePattern(pattern) if pattern else None,
    )


def select(
    chosen: ListFilter, images: Iterable[tuple[str, TransactionImage]], now_ms: int
) -> tuple[ListedTransaction, ...]:
    """Return the ids that match the filter, in the given order; none if all its states are unknown."""
    if chosen.keeps_nothing:
        return ()
    return tuple(
        ListedTransaction(transactional_id, image.producer_id, image.state.label)
        for transactional_id, image in images
        if chosen.keeps(transactional_id, image, now_ms)
    )
