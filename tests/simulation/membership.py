"""A member of a consumer group of the classic protocol, with a simple assignor."""

import json
from typing import TYPE_CHECKING, Any

from broker_core.errors import ErrorCode
from broker_core.wire import messages as m
from tests.simulation.client import GROUP, RETRIED, Client, GaveUpError

if TYPE_CHECKING:
    from tests.simulation.world import World

E = ErrorCode
SESSION_MS, REBALANCE_MS = 6_000, 5_000
_PROTOCOL_TYPE, _PROTOCOL = "simulated", "spread"


class Member:
    """A member of a group, until it is removed."""

    def __init__(self, client: Client, group: str, topic: str, partitions: int) -> None:
        self.world: World = client.world
        self._client = client
        self._group = group
        self._topic = topic
        self._partitions = partitions
        self.member_id = ""
        self.generation = -1

    def join(self) -> list[int]:
        """Join, and retry until that succeeds; return the assigned partitions."""
        while True:
            try:
                code, answer = self._join()
                if code == E.NONE:
                    code, assigned = self._sync(answer)
                    if code == E.NONE:
                        return assigned
            except GaveUpError:
                if self.world.is_calm:
                    raise
                continue
            if code == E.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            elif code not in (E.MEMBER_ID_REQUIRED, E.REBALANCE_IN_PROGRESS, E.ILLEGAL_GENERATION):
                raise AssertionError(f"joining {self._group} was answered with {code.name}")
            self.world.fibers.sleep_ms(50)

    def _join(self) -> tuple[ErrorCode, Any]:
        form = m.JoinGroupRequest.JoinGroupRequestProtocol

        def joining() -> Any:
            return m.JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                member_id=self.member_id,
                group_instance_id=None,
                protocol_type=_PROTOCOL_TYPE,
                protocols=[form(name=_PROTOCOL, metadata=b"")],
            )

        answer, code, _ = self._client.ask_coordinator(GROUP, self._group, joining, 9, timeout_ms=REBALANCE_MS + 2_000)
        if code in (E.NONE, E.MEMBER_ID_REQUIRED):
            self.member_id = answer.member_id
        return code, answer

    def _sync(self, joined: Any) -> tuple[ErrorCode, list[int]]:
        self.generation = joined.generation_id
        assignments = []
        if joined.leader == self.member_id:
            members = sorted(each.member_id for each in joined.members)
            form = m.SyncGroupRequest.SyncGroupRequestAssignment
            assignments = [
                form(member_id=member, assignment=json.dumps(list(range(at, self._partitions, len(members)))).encode())
                for at, member in enumerate(members)
            ]

        def syncing() -> Any:
            return m.SyncGroupRequest(
                group_id=self._group,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=None,
                protocol_type=_PROTOCOL_TYPE,
                protocol_name=_PROTOCOL,
                assignments=assignments,
            )

        answer, code, _ = self._client.ask_coordinator(GROUP, self._group, syncing, 5, timeout_ms=REBALANCE_MS + 2_000)
        return code, json.loads(bytes(answer.assignment) or b"[]") if code == E.NONE else []

    def is_alive(self) -> bool:
        """Send a heartbeat; return whether the membership is still valid."""

        def beating() -> Any:
            return m.HeartbeatRequest(
                group_id=self._group, generation_id=self.generation, member_id=self.member_id, group_instance_id=None
            )

        try:
            _, code, _ = self._client.ask_coordinator(GROUP, self._group, beating, 4, patience_ms=3_000)
        except GaveUpError:
            return False
        if code == E.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        return code == E.NONE

    def leave(self) -> None:
        """Leave the group; a lost request does not matter."""
        form = m.LeaveGroupRequest

        def leaving() -> Any:
            return form(
                group_id=self._group,
                members=[form.MemberIdentity(member_id=self.member_id, group_instance_id=None, reason="")],
            )

        try:
            self._client.ask_coordinator(GROUP, self._group, leaving, 5, patience_ms=3_000)
        except GaveUpError:
            self.world.scheduler.note(f"{self.member_id} leaves unheard")

    def committed(self) -> dict[int, int]:
        """Read the group's offsets; wait for those of an open transaction."""
        form = m.OffsetFetchRequest

        def fetching() -> Any:
            return form(
                group_id=self._group,
                require_stable=True,
                topics=[
                    form.OffsetFetchRequestTopic(name=self._topic, partition_indexes=list(range(self._partitions)))
                ],
            )

        answer, code, _ = self._client.ask_coordinator(
            GROUP,
            self._group,
            fetching,
            7,
            lambda found: int(
                found.error_code or max(part.error_code for topic in found.topics for part in topic.partitions)
            ),
            retried=RETRIED | {E.UNSTABLE_OFFSET_COMMIT},
            patience_ms=60_000,
        )
        if code != E.NONE:
            raise AssertionError(f"the offsets of {self._group} were refused: {code.name}")
        return {
            part.partition_index: part.committed_offset
            for topic in answer.topics
            for part in topic.partitions
            if part.committed_offset >= 0
        }
