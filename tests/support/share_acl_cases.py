"""The responses of the APIs of share groups to a principal with none, some and all of the rights that it needs.

The expected responses are those of Apache Kafka.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

from broker_core.errors import ErrorCode
from broker_core.security.acls import Operation
from broker_core.wire import messages as m
from tests.support.acl_cases import Case, answer_of
from tests.support.acl_cases import case as case_of
from tests.support.guarded_kafka import Stage
from tests.support.share_session import ACCEPT, ShareMember

READ, DELETE, DESCRIBE, CLUSTER_ACTION = (
    Operation.READ,
    Operation.DELETE,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
)
SHARE_CASES: list[Case] = []
case = partial(case_of, into=SHARE_CASES)
_GROUP_REFUSED = "Group authorization failed."
_TOPIC_REFUSED = "Topic authorization failed."
_CLUSTER_REFUSED = "Cluster authorization failed."


def _root_member(stage: Stage) -> ShareMember:
    """Return a member of the group that the administrator has joined, so that the states are initialized."""
    if "member" not in stage.notes:
        stage.notes["member"] = ShareMember(stage.root, stage.group, stage.topic).join()
    member: ShareMember = stage.notes["member"]
    return member


def _empty_group(stage: Stage) -> None:
    """Let the administrator make a group with states and without members."""
    if "is empty" not in stage.notes:
        member = _root_member(stage)
        assert member.heartbeat(-1).error_code == ErrorCode.NONE
        stage.notes["is empty"] = True


def _own_member(stage: Stage) -> ShareMember:
    """Return a member on the user's connection, with the id of the topic that only the administrator may see."""
    member = ShareMember(stage.client, stage.group, stage.topic)
    member.topic_id = _root_member(stage).topic_id
    return member


# Rule G.1/18, row by row


@case((READ, "group"), (DESCRIBE, "topic"), answers=((30, None), (29, None), (0, None)))
def share_group_heartbeat(stage: Stage) -> tuple[int, str | None]:
    _root_member(stage)
    answer = _own_member(stage).heartbeat(0)
    return int(answer.error_code), answer.error_message


@case(
    (DESCRIBE, "group"),
    (DESCRIBE, "topic"),
    (DELETE, "group"),
    answers=(
        (30, None, 0, None),
        (29, "The group has described topic(s) that the client is not authorized to describe.", 0, None),
        (0, None, 1, {8}),
        (0, None, 1, {6, 8}),
    ),
)
def share_group_describe(stage: Stage) -> tuple[int, str | None, int, set[int] | None]:
    _root_member(stage)
    fields = {"group_ids": [stage.group], "include_authorized_operations": True}
    [group] = answer_of(stage, 1, m.ShareGroupDescribeRequest, **fields).groups
    operations = group.authorized_operations
    if not isinstance(operations, int):
        return int(group.error_code), group.error_message, len(group.members), operations and set(operations)
    bits = None if operations < 0 else {bit for bit in range(32) if operations >> bit & 1}
    return int(group.error_code), group.error_message, len(group.members), bits


@case((READ, "group"), (DESCRIBE, "topic"), (READ, "topic"), answers=((30, []), (0, [29]), (0, [29]), (0, [0])))
def share_fetch(stage: Stage) -> tuple[int, list[int]]:
    answer = _own_member(stage).fetch(wait_ms=0, session_epoch=0)
    return int(answer.error_code), [part.error_code for topic in answer.responses for part in topic.partitions]


@case((READ, "group"), (READ, "topic"), answers=((30, []), (0, [29]), (0, [121])), what="share_fetch_that_acknowledges")
def _acknowledge_by_fetch(stage: Stage) -> tuple[int, list[int]]:
    member = _own_member(stage)
    member.fetch(wait_ms=0)
    answer = member.fetch((0, 0, [ACCEPT]), wait_ms=0)
    return int(answer.error_code), [
        part.acknowledge_error_code for topic in answer.responses for part in topic.partitions
    ]


@case((READ, "group"), (DESCRIBE, "topic"), (READ, "topic"), answers=(30, 29, 29, 121))
def share_acknowledge(stage: Stage) -> int:
    member = _own_member(stage)
    member.fetch(wait_ms=0)
    return member.acknowledge(0, 0, ACCEPT)


# Rule G.1/19


@case((DESCRIBE, "cluster"), (CLUSTER_ACTION, "cluster"), answers=(31, 31, 0))
def find_share_coordinator(stage: Stage) -> int:
    key = f"{stage.group}:AAAAAAAAAAAAAAAAAAAAAA:0"
    return answer_of(stage, 6, m.FindCoordinatorRequest, key_type=2, coordinator_keys=[key]).coordinators[0].error_code


def _state_of(stage: Stage, form: Any, version: int = 0, **values: Any) -> tuple[int, str | None]:
    """Send a request about one state of a share partition that the administrator has initialized."""
    member = _root_member(stage)
    topic = {"topic_id": member.topic_id, "partitions": [{"partition": 0, **values}]}
    answer = answer_of(stage, version, form, group_id=stage.group, topics=[topic])
    [[partition]] = [topic.partitions for topic in answer.results]
    return int(partition.error_code), partition.error_message


_BY_CLUSTER = ((31, _CLUSTER_REFUSED), (0, None))


@case((CLUSTER_ACTION, "cluster"), answers=_BY_CLUSTER)
def initialize_share_group_state(stage: Stage) -> tuple[int, str | None]:
    return _state_of(stage, m.InitializeShareGroupStateRequest, state_epoch=99, start_offset=0)


@case((CLUSTER_ACTION, "cluster"), answers=_BY_CLUSTER)
def read_share_group_state(stage: Stage) -> tuple[int, str | None]:
    return _state_of(stage, m.ReadShareGroupStateRequest, leader_epoch=99)


@case((CLUSTER_ACTION, "cluster"), answers=_BY_CLUSTER)
def write_share_group_state(stage: Stage) -> tuple[int, str | None]:
    values = {"start_offset": 0, "delivery_complete_count": 0, "state_batches": []}
    return _state_of(stage, m.WriteShareGroupStateRequest, 1, state_epoch=99, leader_epoch=99, **values)


@case((CLUSTER_ACTION, "cluster"), answers=_BY_CLUSTER)
def delete_share_group_state(stage: Stage) -> tuple[int, str | None]:
    return _state_of(stage, m.DeleteShareGroupStateRequest)


@case((CLUSTER_ACTION, "cluster"), answers=_BY_CLUSTER)
def read_share_group_state_summary(stage: Stage) -> tuple[int, str | None]:
    return _state_of(stage, m.ReadShareGroupStateSummaryRequest, 1, leader_epoch=0)


# Rule G.1/20


# The code and the message of the group, and those of each topic or partition.
_Answer = tuple[int, str | None, list[tuple[int, str | None]]]
# To change offsets needs two rights on the group, then two on the topic.
_OFFSETS_ANSWERS: tuple[_Answer, ...] = (
    (30, _GROUP_REFUSED, []),
    (30, _GROUP_REFUSED, []),
    (0, None, [(29, _TOPIC_REFUSED)]),
    (0, None, [(29, _TOPIC_REFUSED)]),
    (0, None, [(0, None)]),
)


def _answer(group: Any, parts: Iterable[Any]) -> _Answer:
    return (
        int(group.error_code),
        group.error_message,
        [(int(part.error_code), part.error_message) for part in parts],
    )


def _described_offsets(stage: Stage, topics: list[Any] | None) -> _Answer:
    _root_member(stage)
    groups = [{"group_id": stage.group, "topics": topics}]
    [group] = answer_of(stage, 1, m.DescribeShareGroupOffsetsRequest, groups=groups).groups
    return _answer(group, (part for topic in group.topics for part in topic.partitions))


@case(
    (DESCRIBE, "group"),
    (DESCRIBE, "topic"),
    answers=((30, None, []), (0, None, [(29, _TOPIC_REFUSED)]), (0, None, [(0, None)])),
)
def describe_share_group_offsets(stage: Stage) -> _Answer:
    return _described_offsets(stage, [{"topic_name": stage.topic, "partitions": [0]}])


@case((DESCRIBE, "group"), (DESCRIBE, "topic"), answers=((30, None, []), (0, None, []), (0, None, [(0, None)])))
def describe_all_share_group_offsets(stage: Stage) -> _Answer:
    return _described_offsets(stage, None)


@case((DESCRIBE, "group"), (READ, "group"), (DESCRIBE, "topic"), (READ, "topic"), answers=_OFFSETS_ANSWERS)
def alter_share_group_offsets(stage: Stage) -> _Answer:
    _empty_group(stage)
    partition = {"partition_index": 0, "start_offset": 0}
    topics = [{"topic_name": stage.topic, "partitions": [partition]}]
    answer = answer_of(stage, 0, m.AlterShareGroupOffsetsRequest, group_id=stage.group, topics=topics)
    return _answer(answer, (part for topic in answer.responses for part in topic.partitions))


@case((READ, "group"), (DELETE, "group"), (DESCRIBE, "topic"), (READ, "topic"), answers=_OFFSETS_ANSWERS)
def delete_share_group_offsets(stage: Stage) -> _Answer:
    _empty_group(stage)
    topics = [{"topic_name": stage.topic}]
    answer = answer_of(stage, 0, m.DeleteShareGroupOffsetsRequest, group_id=stage.group, topics=topics)
    return _answer(answer, answer.responses)


@case((READ, "group"), (DELETE, "group"), answers=(30, 30, 0))
def delete_a_share_group(stage: Stage) -> int:
    _empty_group(stage)
    if "deleted" in stage.notes:
        return 0
    code: int = answer_of(stage, 2, m.DeleteGroupsRequest, groups_names=[stage.group]).results[0].error_code
    if not code:
        stage.notes["deleted"] = True
    return code


@case((READ, "topic"), (DESCRIBE, "group"), answers=(set(), set(), {"share"}))
def list_share_groups(stage: Stage) -> set[str]:
    _root_member(stage)
    groups = answer_of(stage, 5, m.ListGroupsRequest, states_filter=[], types_filter=["share"]).groups
    return {group.group_type for group in groups if group.group_id == stage.group}
