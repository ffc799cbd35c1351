"""See that the decision topic is there and keeps what is written to it.

A decision that is lost between its commit point and the completion leaves a micro-batch half visible, so the topic has
to be as durable as the data it decides about.
"""

import logging
from collections.abc import Mapping
from typing import Final

from broker_core.errors import ErrorCode
from spark_eos.client.connection import KafkaClient
from spark_eos.client.metadata import TopicMetadata
from spark_eos.client.topics import create_topic, describe_topic_config
from spark_eos.errors import AuthorizationError, EosKafkaError, TopicError, UnsupportedError

LOG: Final = logging.getLogger("spark_eos.sink")
DECISION_TOPIC_PARTITIONS: Final = 8


def ensure_decision_topic(client: KafkaClient, name: str, wanted_replicas: int, *, is_first: bool = True) -> None:
    """Create the decision topic where it is missing; refuse one that would forget decisions or cannot take any."""
    described = client.metadata([name]).get(name)
    if described is None or described.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        _create(client, name, wanted_replicas)
        return
    described = client.require_topics([name], need_leaders=False)[name]
    try:
        config = describe_topic_config(client, name)
    except (AuthorizationError, UnsupportedError) as error:
        if is_first:
            LOG.info("the settings of the decision topic %s cannot be read, so it is not checked that it keeps "
                     "decisions: %s", name, error)
        return
    problem = topic_problem(name, config, replica_count(described))
    if problem is not None:
        raise problem
    for doubt in topic_doubts(name, config, replica_count(described), wanted_replicas) if is_first else ():
        LOG.warning("%s", doubt)


def topic_problem(name: str, config: Mapping[str, str | None], replicas: int) -> TopicError | None:
    """Say why a decision topic must not be used; None when it may."""
    policy = (config.get("cleanup.policy") or "compact").strip()
    if policy != "compact":
        return TopicError(
            f"The decision topic '{name}' has cleanup.policy={policy}, so decisions can be deleted",
            checked="DescribeConfigs",
            remedy="Set it to compact, or name another topic with the option decisionTopic",
        )
    needed = int(config.get("min.insync.replicas") or 1)
    if needed > replicas:
        return TopicError(
            f"The decision topic '{name}' has {replicas} replica(s) and min.insync.replicas={needed}, so no decision "
            "can be written",
            checked="Metadata and DescribeConfigs",
            remedy="Give it more replicas, or lower its min.insync.replicas",
        )
    return None


def topic_doubts(
    name: str, config: Mapping[str, str | None], replicas: int, wanted_replicas: int
) -> list[str]:
    """Say what makes a decision topic less durable than the data."""
    doubts = []
    if replicas < wanted_replicas:
        doubts.append(
            f"The decision topic '{name}' has {replicas} replica(s), the data has {wanted_replicas}: a broker that is "
            "lost for good could take decisions with it. Reassign its partitions to more replicas"
        )
    if (config.get("unclean.leader.election.enable") or "").strip() == "true":
        doubts.append(
            f"The decision topic '{name}' has unclean.leader.election.enable=true, so decisions can be lost. Set it to "
            "false for this topic"
        )
    return doubts


def replica_count(topic: TopicMetadata) -> int:
    """Count the replicas of the partition that has the fewest."""
    return min((max(1, len(each.replicas)) for each in topic.partitions.values()), default=1)


def _create(client: KafkaClient, name: str, replicas: int) -> None:
    try:
        made = create_topic(
            client, name, partition_count=DECISION_TOPIC_PARTITIONS, replication_factor=replicas,
            config={"cleanup.policy": "compact"},
        )
    except EosKafkaError as error:
        raise TopicError(
            f"The decision topic '{name}' does not exist and cannot be created",
            checked=str(error),
            remedy=(
                f"Create it with cleanup.policy=compact, {DECISION_TOPIC_PARTITIONS} partitions and {replicas} "
                "replica(s), or grant CREATE on it"
            ),
        ) from error
    client.require_topics([name])
    if made:
        LOG.info("created the decision topic %s with %d replica(s)", name, replicas)
