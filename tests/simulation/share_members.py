"""Members of share groups: they fetch records, and accept, release, reject or forget them."""

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from broker_core.errors import ErrorCode
from broker_core.features.share_groups.states.state import SharePartitionKey
from broker_core.wire import messages as m
from tests.simulation.client import GROUP, RETRIED, Client, GaveUpError, UnansweredError
from tests.simulation.history import READ_UNCOMMITTED
from tests.simulation.readers import visible
from tests.support.messages import filled

if TYPE_CHECKING:
    from tests.simulation.world import World

E = ErrorCode
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
JOINS = 0
_REJOINS = frozenset({E.FENCED_MEMBER_EPOCH, E.UNKNOWN_MEMBER_ID, E.GROUP_ID_NOT_FOUND})
_RETRIED = RETRIED | {E.GROUP_MAX_SIZE_REACHED}
_LOST_SESSION = frozenset({E.SHARE_SESSION_NOT_FOUND, E.INVALID_SHARE_SESSION_EPOCH, E.SHARE_SESSION_LIMIT_REACHED})
_MAX_BYTES = 1 << 20
# A member that is content accepts nearly everything; others cause all kinds of redeliveries.
_KINDS = {ACCEPT: 70, RELEASE: 14, REJECT: 8, RENEW: 8}


class Held(NamedTuple):
    """A record that a member has acquired; `is_gap` for an offset without a record, such as a marker's."""

    offset: int
    delivery_count: int
    is_gap: bool


class _RejoinError(Exception):
    """The coordinator does not know the member any more."""


class ShareMemberActor:
    """A member of a share group, until everything is acknowledged."""

    def __init__(self, client: Client, name: str, group: str, topic: str, *, begins_after_ms: int = 0) -> None:
        self.world: World = client.world
        self.name = name
        self._client = client
        self._group = group
        self._topic = topic
        self._begins_after_ms = begins_after_ms
        self._random = self.world.random_of(name)
        self._epoch = JOINS
        self._is_answered = True
        self._topic_id = UUID(int=0)
        self._assigned: frozenset[int] = frozenset()
        # The next epoch of the session with each broker, and what was acquired from it.
        self._sessions: dict[int, int] = {}
        self._held: dict[int, dict[int, dict[int, Held]]] = defaultdict(lambda: defaultdict(dict))
        self._heartbeat_ms = self._random.choice((300, 1_000, 2_500))

    def successor(self, name: str, begins_after_ms: int) -> "ShareMemberActor":
        """Make another process that does the same work, as another member."""
        client = Client(self.world, name)
        return ShareMemberActor(client, name, self._group, self._topic, begins_after_ms=begins_after_ms)

    def run(self) -> None:
        """Work until the group has done with all records."""
        try:
            self.world.fibers.sleep_ms(self._begins_after_ms)
            while not self._is_over():
                try:
                    self._heartbeat()
                    self._work()
                except (GaveUpError, UnansweredError, _RejoinError) as error:
                    self.world.scheduler.note(f"{self.name}: {error}")
                    self.world.fibers.sleep_ms(self._random.randint(50, 500))
        finally:
            # The connections of a killed process are closed, those of a dead machine are not.
            if not self.world.fibers.current.is_killed or self._random.random() < 0.7:
                self.world.scheduler.after(0, self._client.close)

    def _is_over(self) -> bool:
        return self.world.is_calm and self.world.all_done("producer") and self.world.share_group_is_done(self._group)

    # Membership

    def _heartbeat(self) -> None:
        """Join or stay; raise `_RejoinError` when the member has to join again."""

        def heartbeat() -> Any:
            # A heartbeat whose predecessor was not answered is complete: only then is the assignment returned again.
            names = [self._topic] if self._epoch == JOINS or not self._is_answered else None
            self._is_answered = False
            return m.ShareGroupHeartbeatRequest(
                group_id=self._group, member_id=self.name, member_epoch=self._epoch, subscribed_topic_names=names
            )

        answer, code, _ = self._client.ask_coordinator(
            GROUP, self._group, heartbeat, 1, retried=_RETRIED, patience_ms=5_000
        )
        if code in _REJOINS:
            self._epoch, self._assigned = JOINS, frozenset()
            raise _RejoinError(code.name)
        if code != E.NONE:
            raise AssertionError(f"the heartbeat of {self.name} was answered with {code.name}")
        self._epoch, self._is_answered = answer.member_epoch, True
        if answer.assignment is not None:
            self._assigned = frozenset(
                partition for topic in answer.assignment.topic_partitions for partition in topic.partitions
            )
            for topic in answer.assignment.topic_partitions:
                self._topic_id = topic.topic_id

    # Work between two heartbeats

    def _work(self) -> None:
        until_us = self.world.scheduler.now_us + self._heartbeat_ms * 1_000
        while self.world.scheduler.now_us < until_us and not self._is_over():
            leaders = defaultdict(list)
            for partition in sorted(self._assigned):
                leaders[self._client.leader(self._topic, partition)].append(partition)
            for broker_id in sorted(leaders.keys() | self._sessions.keys()):
                self._fetch(broker_id, leaders.get(broker_id, []))
                self.world.fibers.sleep_ms(self._random.choice((1, 20, 200, 1_500)))
                if self._random.random() < 0.7:
                    self._acknowledge(broker_id)
            self.world.fibers.sleep_ms(self._random.randint(1, 300))

    def _fetch(self, broker_id: int, partitions: list[int]) -> None:
        """Fetch from one broker; at times acknowledge in the same request."""
        epoch = self._sessions.get(broker_id, 0)
        chosen = self._choose(broker_id) if epoch > 0 and self._random.random() < 0.4 else {}
        wanted = [
            {"partition_index": partition, "acknowledgement_batches": _batches(chosen.get(partition, []))}
            for partition in sorted({*partitions, *chosen})
        ]
        request = filled(
            m.ShareFetchRequest,
            group_id=self._group,
            member_id=self.name,
            share_session_epoch=epoch,
            max_wait_ms=self._random.choice((0, 0, 200)),
            min_bytes=1,
            max_bytes=self._random.choice((300, _MAX_BYTES)),
            max_records=self._random.choice((1, 3, 100)),
            batch_size=self._random.choice((1, 100)),
            share_acquire_mode=self._random.choice((0, 1)),
            is_renew_ack=any(kind == RENEW for kinds in chosen.values() for _, kind in kinds),
            topics=[{"topic_id": self._topic_id, "partitions": wanted}] if wanted else [],
            forgotten_topics_data=[],
        )
        if request.is_renew_ack:
            request.max_bytes = request.min_bytes = request.max_records = request.max_wait_ms = 0
        answer = self._exchange(broker_id, request, chosen)
        for partition, part in [] if answer is None else _parts(answer):
            self._take(broker_id, partition, part)
            if partition in chosen:
                self._note(partition, chosen[partition], part.acknowledge_error_code)

    def _take(self, broker_id: int, partition: int, part: Any) -> None:
        if part.error_code:
            self._refused(ErrorCode(part.error_code))
        records, _ = visible(bytes(part.records or b""), 0, READ_UNCOMMITTED, [])
        there = {offset for offset, _ in records}
        for each in part.acquired_records:
            # A member that forgets records lets their locks end.
            if self.world.is_calm or self._random.random() < 0.93:
                self._held[broker_id][partition] |= {
                    offset: Held(offset, each.delivery_count, offset not in there)
                    for offset in range(each.first_offset, each.last_offset + 1)
                }

    def _acknowledge(self, broker_id: int) -> None:
        """Acknowledge some of what was acquired from one broker."""
        epoch = self._sessions.get(broker_id, 0)
        chosen = self._choose(broker_id) if epoch > 0 else {}
        if not chosen:
            return
        partitions = [
            {"partition_index": partition, "acknowledgement_batches": _batches(kinds)}
            for partition, kinds in chosen.items()
        ]
        request = filled(
            m.ShareAcknowledgeRequest,
            group_id=self._group,
            member_id=self.name,
            share_session_epoch=epoch,
            is_renew_ack=any(kind == RENEW for kinds in chosen.values() for _, kind in kinds),
            topics=[{"topic_id": self._topic_id, "partitions": partitions}],
        )
        answer = self._exchange(broker_id, request, chosen)
        for partition, part in [] if answer is None else _parts(answer):
            self._note(partition, chosen[partition], part.error_code)

    def _choose(self, broker_id: int) -> dict[int, list[tuple[Held, int]]]:
        """Take some acquired records, and decide how each is acknowledged."""
        chosen: dict[int, list[tuple[Held, int]]] = {}
        for partition, held in self._held[broker_id].items():
            count = len(held) if self.world.is_calm else self._random.randint(0, len(held))
            kinds = [(each, GAP if each.is_gap else self._kind()) for each in sorted(held.values())[:count]]
            if kinds:
                chosen[partition] = kinds
            for each, kind in kinds:
                if kind != RENEW:
                    del held[each.offset]
                if kind not in (RENEW, RELEASE):
                    self.world.shares.wanted.add((self._key(partition), each.offset))
        return chosen

    def _kind(self) -> int:
        if self.world.is_calm:
            return ACCEPT
        return self._random.choices(list(_KINDS), list(_KINDS.values()))[0]

    def _note(self, partition: int, kinds: list[tuple[Held, int]], code: int) -> None:
        """Note the response to an acknowledgment."""
        if code:
            self._refused(ErrorCode(code))
            return
        for each, kind in kinds:
            if kind != RENEW:
                self.world.shares.answered(
                    (self._key(partition), each.offset),
                    is_release=kind == RELEASE,
                    delivery_count=each.delivery_count,
                )

    def _exchange(self, broker_id: int, request: Any, chosen: dict[int, Any]) -> Any | None:
        """Send a request of the session with a broker; None without a response, which ends the session here."""
        try:
            answer = self._client.ask(broker_id, request, 2)
        except UnansweredError as error:
            self.world.scheduler.note(f"{self.name}: {error}")
            self._end_session(broker_id)
            return None
        if answer.error_code:
            self._refused(ErrorCode(answer.error_code))
            self._end_session(broker_id)
            return None
        self._sessions[broker_id] = request.share_session_epoch + 1
        return answer

    def _end_session(self, broker_id: int) -> None:
        """Begin another session next time; at times the records are acknowledged there, though they may be released."""
        self._sessions.pop(broker_id, None)
        self._client.forget_leaders()
        if self._random.random() < 0.5:
            self._held.pop(broker_id, None)

    def _refused(self, code: ErrorCode) -> None:
        expected = code in RETRIED or code in _LOST_SESSION or code in (E.INVALID_RECORD_STATE, E.INVALID_REQUEST)
        if not expected:
            raise AssertionError(f"a request of {self.name} was answered with {code.name}")
        if code in RETRIED:
            self._client.forget_leaders()

    def _key(self, partition: int) -> SharePartitionKey:
        return SharePartitionKey(self._group, self._topic_id, partition)


def _parts(answer: Any) -> Iterator[tuple[int, Any]]:
    for topic in answer.responses:
        for part in topic.partitions:
            yield part.partition_index, part


def _batches(kinds: list[tuple[Held, int]]) -> list[dict[str, Any]]:
    """Return one acknowledgment for each range of offsets that follow each other."""
    ranges: list[list[tuple[Held, int]]] = []
    for each in kinds:
        if ranges and ranges[-1][-1][0].offset + 1 == each[0].offset:
            ranges[-1].append(each)
        else:
            ranges.append([each])
    return [
        {
            "first_offset": found[0][0].offset,
            "last_offset": found[-1][0].offset,
            "acknowledge_types": [kind for _, kind in found],
        }
        for found in ranges
    ]
