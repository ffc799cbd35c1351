"""What features keep in one broker, and the coordinators of a broker."""

from collections.abc import Collection, Mapping
from typing import Protocol
from uuid import UUID

from broker_core.errors import ErrorCode


class Coordinator(Protocol):
    """What keeps its state in an internal topic."""

    def become_leader(self, partition: int, coordinator_epoch: int, now_ms: int) -> None:
        """Load a partition of the topic, and coordinate its ids."""
        ...

    def resign(self, partition: int) -> None:
        """Stop coordinating a partition."""
        ...


class NoCoordinator:
    """What stands for the coordinator of a feature that is not installed: its topic is kept, and nothing reads it."""

    def become_leader(self, partition: int, coordinator_epoch: int, now_ms: int) -> None:
        """Do nothing."""

    def resign(self, partition: int) -> None:
        """Do nothing."""


class BrokerPart(Protocol):
    """What one feature keeps in one broker."""

    @property
    def coordinators(self) -> Mapping[str, Coordinator]:
        """Return the feature's coordinators, by internal topic."""
        ...

    def advance(self, now_ms: int) -> None:
        """Do what is due."""
        ...

    def next_deadline_ms(self) -> int | None:
        """Return when the next thing is due, None if nothing is."""
        ...

    def forget_sessions(self) -> None:
        """Drop all sessions of clients, as a restart does."""
        ...

    def forget_topics(self, topic_ids: Collection[UUID], now_ms: int) -> None:
        """Forget topics that are being deleted."""
        ...

    def delete_kept_for(self, group_id: str, now_ms: int) -> ErrorCode:
        """Delete what is kept for a group, before the group is deleted."""
        ...
