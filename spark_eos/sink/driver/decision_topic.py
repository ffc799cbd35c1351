"""The decision topic: its creation and the checks that it keeps what is written to it.

A decision that is lost between its commit point and its completion leaves a micro-batch partly visible, so the topic
has to be as durable as the data it decides about.
"""

import logging
import shlex
from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple

from broker_core.errors import ErrorCode
from broker_core.records.batch import NewRecord, build_batch
from broker_core.records.compression import Compression
from broker_core.types import CONSUMER_OFFSETS_TOPIC, TopicPartition, counted
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.metadata import TopicMetadata
from spark_eos.client.produce import produce_alone
from spark_eos.client.topics import BROKER_DEFAULT, create_topic, describe_topic_config
from spark_eos.errors import AuthorizationError, EosKafkaError, TopicError, UnansweredError, UnsupportedError
from spark_eos.runtime import now_ms
from spark_eos.sink.decision import sealed_json
from spark_eos.sink.driver.broker_capabilities import MIN_INSYNC, OFFSETS_REPLICATION, REPLICATION, BrokerCapabilities
from spark_eos.sink.naming import DECISION_TOPIC_PARTITIONS, LAYOUT_KEY

logger = logging.getLogger(__name__)
_USUAL_REPLICAS: Final = 3
# With as many replicas as min.insync.replicas, writes stop as soon as one broker is offline.
_REPLICAS_OF_TWO_INSYNC: Final = 3
_TWO_INSYNC: Final = 2
# Kafka compacts closed segments only: by its defaults a segment of a gigabyte or of a week.
_COMPACTION: Final = {
    "segment.bytes": "67108864",
    "segment.ms": "21600000",
    "max.compaction.lag.ms": "86400000",
    "min.cleanable.dirty.ratio": "0.1",
}
_MARK_TIMEOUT_MS: Final = 10_000
# A response from the same check.
_JUST_ASKED_MS: Final = 1_000
# The smallest decision has half of it. With 1, Apache Kafka refuses its own markers as well, without an end.
_FEWEST_MESSAGE_BYTES: Final = 1024
_LONGEST_LAG_MS: Final = 86_400_000
_LARGEST_SEGMENT_BYTES: Final = 128 << 20
# For platforms that allow only other values.
_REFUSED: Final = frozenset({ErrorCode.INVALID_CONFIG, ErrorCode.POLICY_VIOLATION, ErrorCode.INVALID_REQUEST})


class Durability(NamedTuple):
    """How many replicas a topic has, and how many of them a write must reach (0: unknown)."""

    replicas: int
    min_insync: int


def data_durability(client: KafkaClient, topic: str | None) -> Durability:
    """Return how durable the data is; assume the usual if only rows name topics. Raises if the topic does not exist."""
    if topic is None:
        replicas = min(_USUAL_REPLICAS, len(client.brokers()))
        return Durability(replicas, _TWO_INSYNC if replicas >= _REPLICAS_OF_TWO_INSYNC else 0)
    replicas = replica_count(client.require_topics([topic], need_leaders=False, max_age_ms=_JUST_ASKED_MS)[topic])
    try:
        config = describe_topic_config(client, topic)
    except (AuthorizationError, UnsupportedError) as error:
        logger.info("cannot check that decisions are as durable as the data in %s: %s", topic, error)
        config = {}
    return Durability(replicas, int(config.get(MIN_INSYNC) or 0))


def ensure_decision_topic(
    client: KafkaClient,
    name: str,
    data: Durability,
    capabilities: BrokerCapabilities,
    *,
    is_first: bool = True,
    may_expire: bool = False,
) -> None:
    """Create the decision topic if it is missing; raise if it could lose decisions.

    With `may_expire`, its decisions may be deleted after a time.
    """
    described = _described(client, name)
    if described is None:
        if _create(client, name, capabilities):
            _mark(client, name)
        # Another broker may not know it yet.
        return
    try:
        config = describe_topic_config(client, name)
    except (AuthorizationError, UnsupportedError) as error:
        if is_first:
            logger.info(
                "cannot read the settings of the decision topic %s, so its cleanup.policy is not checked: %s",
                name,
                error,
            )
        return
    problem = topic_problem(name, config, may_expire=may_expire)
    if problem is not None:
        raise problem
    for doubt in topic_doubts(name, config, replica_count(described), data) if is_first else ():
        logger.warning("%s", doubt)


def _described(client: KafkaClient, name: str) -> TopicMetadata | None:
    """Return the topic, or None at the first answer that it does not exist; other answers pass."""
    recent = client.recent.since([name], client.runtime.clock.monotonic() - _JUST_ASKED_MS / 1000)
    described = (recent or client.metadata([name])).get(name)
    if described is None or described.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return None
    try:
        return client.require_topics([name], need_leaders=False, max_age_ms=_JUST_ASKED_MS)[name]
    except TopicError as error:
        # It may be deleted in between.
        if error.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return None


def topic_problem(name: str, config: Mapping[str, str | None], *, may_expire: bool = False) -> TopicError | None:
    limit = int(config.get("max.message.bytes") or _FEWEST_MESSAGE_BYTES)
    if limit < _FEWEST_MESSAGE_BYTES:
        return TopicError(
            f"The decision topic '{name}' has max.message.bytes={limit}, so brokers refuse decisions",
            checked="DescribeConfigs",
            remedy="Set max.message.bytes to 1048588, Kafka's default",
        )
    policy, retention = config.get("cleanup.policy") or "compact", _retention(config)
    if retention is None or may_expire:
        return None
    return TopicError(
        f"The decision topic '{name}' has cleanup.policy={policy.strip()}, so decisions can be deleted",
        checked=f"DescribeConfigs: {retention}",
        remedy="Set it to compact, or choose another topic for a new query with the option decisionTopic. If the "
        "brokers do not compact, set retention.ms and retention.bytes to -1, or accept with "
        "allowDecisionRetention=true that a query that stops for longer can write a micro-batch twice",
    )


def topic_doubts(name: str, config: Mapping[str, str | None], replicas: int, data: Durability) -> list[str]:
    """Return what makes a decision topic less durable than the data, or less than its settings say."""
    doubts = []
    retention = _retention(config)
    if retention is not None:
        doubts.append(
            f"The decision topic '{name}' deletes decisions ({retention}). A query that writes nothing for longer "
            "stops at its next start, or repeats the last micro-batch if its consumer group has expired too. Set "
            "retention.ms to more than the longest pause of the query, or to -1"
        )
    if replicas < data.replicas:
        doubts.append(
            f"The decision topic '{name}' has {counted(replicas, 'replica')}, the data has {data.replicas}: the "
            "permanent loss of a broker could lose decisions. Reassign its partitions to more replicas"
        )
    needed = int(config.get(MIN_INSYNC) or 1)
    if needed > replicas:
        doubts.append(
            f"The decision topic '{name}' has {counted(replicas, 'replica')} and min.insync.replicas={needed}. Newer "
            "brokers ask for no more replicas than a topic has; Kafka 3.6 refuses every decision. Add replicas, or "
            "lower min.insync.replicas of the topic"
        )
    # Not all replicas: writes would stop as soon as one broker is offline.
    wanted = min(data.min_insync, replicas - 1)
    if needed < wanted:
        doubts.append(
            f"The decision topic '{name}' has min.insync.replicas={needed}, the data has {data.min_insync}: the "
            f"loss of brokers could lose acknowledged decisions. Set it to {wanted} for this topic"
        )
    if (config.get("unclean.leader.election.enable") or "").strip() == "true":
        doubts.append(
            f"The decision topic '{name}' has unclean.leader.election.enable=true, so decisions can be lost. Set it to "
            "false for this topic"
        )
    if "compact" not in (config.get("cleanup.policy") or "compact"):
        return doubts
    lag_ms = min((int(config[key] or 0) for key in ("segment.ms", "max.compaction.lag.ms") if key in config), default=0)
    if lag_ms > _LONGEST_LAG_MS and int(config.get("segment.bytes") or 0) > _LARGEST_SEGMENT_BYTES:
        doubts.append(
            f"The decision topic '{name}' is rarely compacted: its segments close after {lag_ms} ms or "
            f"{config['segment.bytes']} bytes, and each new query reads all records in them. Use other settings, "
            f"for example with kafka-configs.sh --alter --entity-type topics --entity-name {name} --add-config "
            + ",".join(f"{key}={value}" for key, value in _COMPACTION.items())
        )
    return doubts


def _retention(config: Mapping[str, str | None]) -> str | None:
    """Return the settings by which a topic deletes records, or None if it keeps them."""
    if "delete" not in (config.get("cleanup.policy") or "compact"):
        return None
    limits = {key: config.get(key) for key in ("retention.ms", "retention.bytes")}
    if set(limits.values()) == {"-1"}:
        return None
    return ", ".join(f"{key}={value}" for key, value in limits.items() if value is not None) or "cleanup.policy=delete"


def replica_count(topic: TopicMetadata) -> int:
    """Return the number of replicas of a topic; a partition without any named one has some all the same."""
    return min((len(each.replicas) for each in topic.partitions.values() if each.replicas), default=1)


def _create(client: KafkaClient, name: str, capabilities: BrokerCapabilities) -> bool:
    """Create the topic with the replication of the cluster's own topics; it outlives the query that creates it.

    Returns whether this call created it.
    """
    replicas, config = creation_settings(client, capabilities)
    create = partial(create_topic, client, name, partition_count=DECISION_TOPIC_PARTITIONS, replication_factor=replicas)
    try:
        try:
            made = create(config={**config, **_COMPACTION})
        except EosKafkaError as error:
            if error.error_code not in _REFUSED:
                raise
            logger.warning("the decision topic %s is created without %s: %s", name, _COMPACTION, error)
            made = create(config=config)
    except UnansweredError:
        # What it lacks is no right.
        raise
    except EosKafkaError as error:
        raise creation_error(client, name, capabilities, error) from error
    client.require_topics([name], were_created=True)
    if made:
        logger.info(
            "created the decision topic %s, replication factor %d (-1: the brokers' default), with %s",
            name,
            replicas,
            config,
        )
    return made


def creation_settings(client: KafkaClient, capabilities: BrokerCapabilities) -> tuple[int, dict[str, str]]:
    # As for the cluster's internal data: its setting, or what its offsets topic has.
    known = capabilities.numbers(REPLICATION) + capabilities.numbers(OFFSETS_REPLICATION)
    if known:
        replicas = max(known)
    else:
        offsets = client.metadata([CONSUMER_OFFSETS_TOPIC]).get(CONSUMER_OFFSETS_TOPIC)
        replicas = replica_count(offsets) if offsets is not None and offsets.partitions else BROKER_DEFAULT
    config = {"cleanup.policy": "compact"}
    if replicas >= _REPLICAS_OF_TWO_INSYNC and min(capabilities.numbers(MIN_INSYNC), default=0) < _TWO_INSYNC:
        config[MIN_INSYNC] = str(_TWO_INSYNC)
    return replicas, config


def creation_error(
    client: KafkaClient, name: str, capabilities: BrokerCapabilities, error: EosKafkaError
) -> TopicError:
    replicas, config = creation_settings(client, capabilities)
    brokers = len(client.brokers())
    if error.error_code != ErrorCode.INVALID_REPLICATION_FACTOR or (replicas != BROKER_DEFAULT and replicas <= brokers):
        command = _creation_command(client, name, replicas, config)
        return TopicError(
            f"The decision topic '{name}' does not exist and cannot be created",
            checked=str(error),
            remedy=f"Grant CREATE on it, or have an administrator run `{command}`",
        )
    config.pop(MIN_INSYNC, None)
    if max(capabilities.numbers(MIN_INSYNC), default=1) > brokers:
        # Otherwise the topic could be created and not written to.
        config[MIN_INSYNC] = str(brokers)
    command = _creation_command(client, name, brokers, config)
    wanted = "the default number of" if replicas == BROKER_DEFAULT else str(replicas)
    return TopicError(
        f"The decision topic '{name}' does not exist and cannot be created with {wanted} replicas on "
        f"{counted(brokers, 'broker')}",
        checked=str(error),
        remedy="If the cluster has more brokers, start them, and start the query again. If it has not, have an "
        f"administrator run `{command}`",
    )


def _creation_command(client: KafkaClient, name: str, replicas: int, config: Mapping[str, str]) -> str:
    reach = ["--bootstrap-server", ",".join(client.options.bootstrap_servers)]
    if client.options.security_protocol != "PLAINTEXT":
        # The administrator's own file.
        reach += ["--command-config", "client.properties"]
    size = ["--partitions", str(DECISION_TOPIC_PARTITIONS)]
    if replicas != BROKER_DEFAULT:
        size += ["--replication-factor", str(replicas)]
    settings = [word for key, value in {**config, **_COMPACTION}.items() for word in ("--config", f"{key}={value}")]
    return shlex.join(["kafka-topics.sh", *reach, "--create", "--topic", name, *size, *settings])


def _mark(client: KafkaClient, name: str) -> None:
    """Write to a new topic a record of the rule by which decisions are placed in it.

    It is written without a transaction, which would take more requests in sequence. Without this record the whole topic
    is read where a part would do, so a failure costs nothing else.
    """
    mark = NewRecord(
        LAYOUT_KEY,
        sealed_json({"version": 1, "partitions": DECISION_TOPIC_PARTITIONS}),
        timestamp_ms=now_ms(client.runtime.clock),
    )
    batch = bytearray(build_batch([mark], compression=Compression.GZIP))
    try:
        produce_alone(client, TopicPartition(name, 0), batch, timeout_ms=_MARK_TIMEOUT_MS)
    except EosKafkaError as error:
        logger.info("every new query will read the whole decision topic %s: %s", name, error)
