"""What features keep in one broker, and the coordinators of a broker."""

from collections.abc import Collection, Mapping
from typing import Protocol
from uuid import UUID

from broker_core.errors import ErrorCode


class Coordinator(Protocol):
    """What keeps its state in an internal topic."""

    def become_leader(self, partition: int, coordinator_epoch: int, now_ms: int) -> None: ...

    def resign(self, partition: int) -> None: ...


class NoCoordinator:
    """What stands for the coordinator of a feature that is not installed: its topic is kept, and nothing reads it."""

    def become_leader(self, partition: int, coordinator_epoch: int, now_ms: int) -> None:
        """Do nothing."""

    def resign(self, partition: int) -> None:
        """Do nothing."""


class BrokerPart(Protocol):
    """What one feature keeps in one broker."""

    @property
    def coordinators(self) -> Mapping[str, Coordinator]: ...

    def advance(self, now_ms: int) -> None: ...

    def next_deadline_ms(self) -> int | None: ...

    def forget_sessions(self) -> None: ...

    def forget_topics(self, topic_ids: Collection[UUID], now_ms: int) -> None: ...

    def delete_kept_for(self, group_id: str, now_ms: int) -> ErrorCode: ...
