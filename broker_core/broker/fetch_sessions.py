"""Fetch sessions, which save consumers from sending all their partitions with each request (KIP-227)."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from broker_core.errors import ErrorCode, KafkaError
from broker_core.types import NO_LEADER_EPOCH
from broker_core.wire import messages as m

NO_SESSION = 0
# Not configurable in Kafka.
EVICTION_MS: Final = 120_000
_INITIAL_EPOCH = 0
_FINAL_EPOCH = -1
_FIRST_BY_ID: Final = 13


class FetchKey(NamedTuple):
    """A partition as the client names it: by topic id from version 13 on, None for the zero id, and by name before."""

    topic: str | UUID | None
    partition: int


@dataclass(slots=True)
class FetchTarget:
    """A client's fetch position in one partition, and the offsets in the last response."""

    key: FetchKey
    fetch_offset: int
    max_bytes: int
    leader_epoch: int = NO_LEADER_EPOCH
    last_fetched_epoch: int = NO_LEADER_EPOCH
    known_marks: tuple[int, ...] | None = None


@dataclass(slots=True)
class FetchSession:
    """One session; its epoch counts the client's requests in it."""

    session_id: int
    owner: str
    uses_ids: bool
    created_ms: int
    used_ms: int
    epoch: int = 1
    targets: dict[FetchKey, FetchTarget] = field(default_factory=dict)


class FetchContext(NamedTuple):
    """The partitions that one request fetches; `session` is None for a request without session."""

    targets: list[FetchTarget]
    session: FetchSession | None
    incremental: bool


class FetchSessions:
    """A broker's sessions, with a limited number of slots.

    When all slots are taken, as in Kafka, a session unused for two minutes is evicted for a new one, else the
    smallest session that is two minutes old, if it has fewer partitions. Else the client gets no session and sends all
    its partitions each time. So a client that opens many sessions does not evict those in use.

    Session ids can be guessed, so only the user who opened a session can use it.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._last_id = 0

    def open(self, body: m.FetchRequest, version: int, owner: str, now_ms: int) -> FetchContext:
        """Return what the request fetches, and update its session; raise `KafkaError` for a session error."""
        uses_ids = version >= _FIRST_BY_ID
        targets = _targets(body, uses_ids=uses_ids)
        session = self._sessions.get(body.session_id)
        if session is not None and session.owner != owner:
            session = None
        if body.session_epoch in (_INITIAL_EPOCH, _FINAL_EPOCH):
            if session is not None:
                del self._sessions[session.session_id]
            new = None
            if body.session_epoch == _INITIAL_EPOCH and self._make_room(len(targets), now_ms):
                new = self._new(targets, owner, now_ms, uses_ids=uses_ids)
            return FetchContext(list(targets.values()), new, incremental=False)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"there is no fetch session {body.session_id}")
        if session.epoch != body.session_epoch:
            raise KafkaError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {body.session_id} is at epoch {session.epoch}, not {body.session_epoch}",
            )
        if session.uses_ids != uses_ids:
            raise KafkaError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "a fetch session names topics either by name or by id"
            )
        self._sessions.move_to_end(session.session_id)
        session.used_ms = now_ms
        session.epoch = session.epoch + 1 if session.epoch < 2**31 - 1 else 1
        for key, target in targets.items():
            # A partition that is named again moves to the end. The client keeps what it was sent about the partition.
            known = session.targets.pop(key, None)
            session.targets[key] = target
            target.known_marks = None if known is None else known.known_marks
        for key in _forgotten(body, uses_ids=uses_ids):
            session.targets.pop(key, None)
        return FetchContext(list(session.targets.values()), session, incremental=True)

    def kept_for(self, body: m.FetchRequest, version: int) -> set[FetchKey]:
        """Return the partitions that a request fetches because its session has them, named again or not."""
        session = self._sessions.get(body.session_id)
        if session is None or body.session_epoch in (_INITIAL_EPOCH, _FINAL_EPOCH):
            return set()
        return session.targets.keys() - set(_forgotten(body, uses_ids=version >= _FIRST_BY_ID))

    def _make_room(self, size: int, now_ms: int) -> bool:
        """Return whether there is a slot for a session of `size` partitions, evicting another session if necessary."""
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        goes = next(iter(self._sessions.values()))
        if now_ms - goes.used_ms <= EVICTION_MS:
            # A new session of the same size evicts nothing; otherwise two clients would evict each other in turn.
            old = [each for each in self._sessions.values() if each.used_ms - each.created_ms > EVICTION_MS]
            goes = min(old, key=lambda each: len(each.targets), default=goes)
            if not old or len(goes.targets) >= size:
                return False
        del self._sessions[goes.session_id]
        return True

    def _new(self, targets: dict[FetchKey, FetchTarget], owner: str, now_ms: int, *, uses_ids: bool) -> FetchSession:
        self._last_id = self._last_id % (2**31 - 1) + 1
        session = FetchSession(self._last_id, owner, uses_ids, now_ms, now_ms, targets=targets)
        self._sessions[session.session_id] = session
        return session


def _targets(body: m.FetchRequest, *, uses_ids: bool) -> dict[FetchKey, FetchTarget]:
    targets = {}
    for topic in body.topics:
        for entry in topic.partitions:
            key = FetchKey(topic.topic_id if uses_ids else topic.topic, entry.partition)
            targets[key] = FetchTarget(
                key, entry.fetch_offset, entry.partition_max_bytes, entry.current_leader_epoch, entry.last_fetched_epoch
            )
    return targets


def _forgotten(body: m.FetchRequest, *, uses_ids: bool) -> Iterator[FetchKey]:
    for topic in body.forgotten_topics_data:
        for partition in topic.partitions:
            yield FetchKey(topic.topic_id if uses_ids else topic.topic, partition)
