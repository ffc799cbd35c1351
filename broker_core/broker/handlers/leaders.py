"""ElectLeaders, and the reassignment of partitions to brokers.

The first replica of a partition is its preferred leader (rule J.5/10). A reassignment is complete as soon as all new
replicas run, since brokers share the logs: at once, or when the last of them starts. Then a replica leads.
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from broker_core.broker.api import api
from broker_core.broker.authorization import require
from broker_core.broker.partitions import Topic, replica_problem
from broker_core.broker.request_context import ApiCall, RequestContext
from broker_core.errors import ErrorCode, KafkaError
from broker_core.security.acls import Operation, ResourceType
from broker_core.types import NO_LEADER, TopicPartition
from broker_core.wire import messages as m
from broker_core.wire.served import INDEXES, PARTITIONS, Echo

_PREFERRED, _UNCLEAN = 0, 1
_NOT_AVAILABLE = KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
_NONE_ELIGIBLE = KafkaError(
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available."
)
_NOT_NEEDED = KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")


_Reassigned: TypeAlias = m.AlterPartitionReassignmentsResponse.ReassignableTopicResponse.ReassignablePartitionResponse
_Ongoing: TypeAlias = m.ListPartitionReassignmentsResponse.OngoingTopicReassignment.OngoingPartitionReassignment
_Verdicts = list[tuple[int, KafkaError | None]]


def elect(context: ApiCall[m.ElectLeadersRequest]) -> m.ElectLeadersResponse:
    """Elect leaders of some partitions, or of all that need one."""
    body = context.body
    results: list[tuple[str, _Verdicts]]
    kind = body.election_type
    try:
        require(context, Operation.ALTER, ResourceType.CLUSTER)
        if kind not in (_PREFERRED, _UNCLEAN):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {kind}")
    except KafkaError as error:
        results = [
            (topic.topic, [(index, error) for index in topic.partitions]) for topic in body.topic_partitions or ()
        ]
        return _elected(error.code, results)
    if body.topic_partitions is None:
        found = [
            (topic.name, _elections(context, kind, topic.name, range(len(topic.partitions))))
            for topic in list(context.broker.metadata.topics.values())
        ]
        results = [(name, [each for each in elections if each[1] is not _NOT_NEEDED]) for name, elections in found]
    else:
        results = [
            (topic.topic, _elections(context, kind, topic.topic, topic.partitions)) for topic in body.topic_partitions
        ]
    return _elected(ErrorCode.NONE, results)


def _elections(context: RequestContext, kind: int, topic: str, indexes: Iterable[int]) -> _Verdicts:
    return [(index, _elect(context, kind, TopicPartition(topic, index))) for index in indexes]


def _elect(context: RequestContext, kind: int, topic_partition: TopicPartition) -> KafkaError | None:
    """Elect the leader of one partition; return the error, None if a leader was elected."""
    topic, controller = topic_partition.topic, context.broker.controller
    if topic not in context.broker.metadata.topics:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}")
    if not context.broker.metadata.has_partition(topic_partition):
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic_partition}")
    leader = context.broker.metadata.leadership(topic_partition).leader
    preferred = controller.preferred_leader(topic_partition)
    if leader != NO_LEADER and (leader == preferred or kind == _UNCLEAN):
        return _NOT_NEEDED
    if kind == _PREFERRED:
        if leader == NO_LEADER or preferred not in controller.addresses:
            return _NOT_AVAILABLE
        controller.move_leader(topic_partition, preferred)
        return None
    controller.elect(topic_partition, preferred)
    return _NONE_ELIGIBLE if controller.leader_of(topic_partition) is None else None


def _elected(code: ErrorCode, results: Iterable[tuple[str, _Verdicts]]) -> m.ElectLeadersResponse:
    form = m.ElectLeadersResponse.ReplicaElectionResult

    def result(index: int, error: KafkaError | None) -> m.ElectLeadersResponse.ReplicaElectionResult.PartitionResult:
        if error is None:
            return form.PartitionResult(partition_id=index, error_message=None)
        return form.PartitionResult(partition_id=index, error_code=error.code, error_message=error.message)

    found = [form(topic=topic, partition_result=[result(*each) for each in verdicts]) for topic, verdicts in results]
    return m.ElectLeadersResponse(error_code=code, replica_election_results=found)


def reassign(context: ApiCall[m.AlterPartitionReassignmentsRequest]) -> m.AlterPartitionReassignmentsResponse:
    """Reassign partitions to brokers, each independently of the others."""
    require(context, Operation.ALTER, ResourceType.CLUSTER)
    form = m.AlterPartitionReassignmentsResponse
    responses = []
    for topic in context.body.topics:
        partitions = []
        for part in topic.partitions:
            code, message = ErrorCode.NONE, None
            try:
                _reassign(context, TopicPartition(topic.name, part.partition_index), part.replicas)
            except KafkaError as error:
                code, message = error.code, error.message or None
            partitions.append(_Reassigned(partition_index=part.partition_index, error_code=code, error_message=message))
        responses.append(form.ReassignableTopicResponse(name=topic.name, partitions=partitions))
    return form(
        # Kafka answers an empty text if the request names no topic.
        error_message=None if context.body.topics else "",
        allow_replication_factor_change=context.body.allow_replication_factor_change,
        responses=responses,
    )


def _reassign(
    context: ApiCall[m.AlterPartitionReassignmentsRequest],
    topic_partition: TopicPartition,
    replicas: Sequence[int] | None,
) -> None:
    controller, metadata, topic = context.broker.controller, context.broker.metadata, topic_partition.topic
    if topic not in metadata.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {topic}.")
    if not metadata.has_partition(topic_partition):
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {topic}:{topic_partition.partition}."
        )
    partition = metadata.leadership(topic_partition)
    if replicas is None:
        if not partition.is_reassigned:
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        controller.cancel_reassignment(topic_partition)
        return
    problem = replica_problem(replicas, controller.broker_ids)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {problem}.")
    count = len(metadata.replicas(partition)) - len(partition.removing)
    if not context.body.allow_replication_factor_change and len(replicas) != count:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"The replication factor is changed from {count} to {len(replicas)}"
        )
    controller.reassign(topic_partition, replicas)


def list_reassignments(context: ApiCall[m.ListPartitionReassignmentsRequest]) -> m.ListPartitionReassignmentsResponse:
    """List the reassignments in progress: those with a new replica whose broker does not run."""
    require(context, Operation.DESCRIBE, ResourceType.CLUSTER)
    topics, wanted = context.broker.metadata.topics, context.body.topics
    if wanted is None:
        named = {name: list(range(len(topic.partitions))) for name, topic in topics.items()}
    else:
        named = {topic.name: topic.partition_indexes for topic in wanted}
    form = m.ListPartitionReassignmentsResponse
    listed = [(name, _reassignments(topics[name], indexes)) for name, indexes in named.items() if name in topics]
    return form(
        error_message=None,
        topics=[form.OngoingTopicReassignment(name=name, partitions=found) for name, found in listed if found],
    )


def _reassignments(topic: Topic, indexes: Iterable[int]) -> list[_Ongoing]:
    return [
        _Ongoing(
            partition_index=index,
            replicas=list(topic.partitions[index].replicas),
            adding_replicas=list(topic.partitions[index].adding),
            removing_replicas=list(topic.partitions[index].removing),
        )
        for index in indexes
        if 0 <= index < len(topic.partitions) and topic.partitions[index].is_reassigned
    ]


APIS = (
    api(
        m.ElectLeadersRequest,
        (0, 2),
        elect,
        "ALTER CLUSTER",
        echoes=(
            Echo(
                "topic_partitions",
                "replica_election_results",
                inner=(Echo("partitions", "partition_result", {"partition_id": ""}),),
            ),
        ),
    ),
    api(
        m.AlterPartitionReassignmentsRequest,
        (0, 1),
        reassign,
        "ALTER CLUSTER",
        echoes=(Echo("topics", "responses", inner=PARTITIONS),),
    ),
    api(
        m.ListPartitionReassignmentsRequest,
        (0, 0),
        list_reassignments,
        "DESCRIBE CLUSTER",
        echoes=(Echo("topics", "topics", inner=INDEXES),),
    ),
)
