"""Check before any data is sent that the cluster can do what the sink needs, and say what to do where it cannot.

Runs on the driver whenever a writer is made; what was found good is not asked again for a minute, since Spark makes a
streaming writer anew for every micro-batch.
"""

import logging
import os
import time
from dataclasses import replace
from typing import Final

from broker_core.errors import ErrorCode
from broker_core.types import TopicPartition
from spark_eos.client.connection import KafkaClient
from spark_eos.client.group_offsets import fetch_offsets
from spark_eos.client.inspection import describe_transactions, list_transactions
from spark_eos.client.topics import create_topic, describe_broker_config, describe_topic_config
from spark_eos.errors import AuthorizationError, EosKafkaError, OptionError, TopicError, UnsupportedError
from spark_eos.sink.naming import id_pattern
from spark_eos.sink.ports import TransactionState
from spark_eos.sink_options import FALLBACK_TIMEOUT_MS, SinkOptions

LOG: Final = logging.getLogger("spark_eos.sink")
DECISION_TOPIC_PARTITIONS: Final = 8
_GOOD_FOR_SECONDS: Final = 60.0
_MAX_REMEMBERED: Final = 64
_checked: dict[tuple[int, SinkOptions], tuple[float, SinkOptions]] = {}


def preflight(options: SinkOptions) -> SinkOptions:
    """Return the options with the transaction timeout settled; raises what is wrong with its remedy."""
    key = (os.getpid(), options)
    known = _checked.get(key)
    if known is not None and time.monotonic() < known[0]:
        return known[1]
    with KafkaClient(options.client) as client:
        settled = check_cluster(client, options)
    while len(_checked) >= _MAX_REMEMBERED:
        _checked.pop(next(iter(_checked)))
    _checked[key] = (time.monotonic() + _GOOD_FOR_SECONDS, settled)
    return settled


def check_cluster(client: KafkaClient, options: SinkOptions) -> SinkOptions:
    """Ask the cluster everything the sink depends on."""
    client.connect()
    if options.topic is not None:
        client.require_topics([options.topic], need_leaders=False)
    _ensure_decision_topic(client, options.decision_topic)
    _check_transactions(client, options)
    return replace(options, transaction_timeout_ms=settle_timeout(options.transaction_timeout_ms, _limit_ms(client)))


def settle_timeout(wanted_ms: int | None, limit_ms: int | None) -> int:
    """Choose the transaction timeout: what the user wants, else the most the broker allows."""
    if wanted_ms is None:
        return limit_ms if limit_ms is not None else FALLBACK_TIMEOUT_MS
    if limit_ms is not None and wanted_ms > limit_ms:
        raise OptionError(
            f"Option 'transactionTimeout' is {wanted_ms} ms, the brokers allow {limit_ms} ms",
            checked="transaction.max.timeout.ms by DescribeConfigs",
            remedy="Lower it, or raise transaction.max.timeout.ms on the brokers",
        )
    return wanted_ms


def _check_transactions(client: KafkaClient, options: SinkOptions) -> None:
    """Ask as a commit will ask, about names nobody uses: old brokers and missing rights show now, not at a crash."""
    probe = f"{options.prefix}.preflight"
    try:
        describe_transactions(client, [probe])
        list_transactions(client, states=[TransactionState.ONGOING], id_pattern=id_pattern(probe))
    except UnsupportedError as error:
        raise UnsupportedError(
            "The brokers do not serve DescribeTransactions and ListTransactions, without which no crash can be mended",
            checked=str(error),
            remedy="Use brokers of Apache Kafka 3.0 or newer",
        ) from error
    fetch_offsets(client, probe, [TopicPartition(options.decision_topic, 0)], require_stable=True)


def _limit_ms(client: KafkaClient) -> int | None:
    """Read the brokers' limit; None where the principal may not, or the broker does not tell."""
    try:
        text = describe_broker_config(client, client.brokers()[0].node_id).get("transaction.max.timeout.ms")
    except (AuthorizationError, UnsupportedError) as error:
        LOG.info("transaction.max.timeout.ms cannot be read, %d ms is used: %s", FALLBACK_TIMEOUT_MS, error)
        return None
    return int(text) if text else None


def _ensure_decision_topic(client: KafkaClient, name: str) -> None:
    """Create the decision topic where it is missing; refuse one that would forget decisions."""
    described = client.metadata([name]).get(name)
    if described is None or described.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        _create_decision_topic(client, name)
        return
    client.require_topics([name], need_leaders=False)
    try:
        policy = describe_topic_config(client, name).get("cleanup.policy")
    except (AuthorizationError, UnsupportedError):
        return
    if policy is not None and policy.strip() != "compact":
        raise TopicError(
            f"The decision topic '{name}' has cleanup.policy={policy}, so decisions can be deleted",
            checked="DescribeConfigs",
            remedy="Set it to compact, or name another topic with the option decisionTopic",
        )


def _create_decision_topic(client: KafkaClient, name: str) -> None:
    try:
        made = create_topic(
            client, name, partition_count=DECISION_TOPIC_PARTITIONS, config={"cleanup.policy": "compact"}
        )
    except EosKafkaError as error:
        raise TopicError(
            f"The decision topic '{name}' does not exist and cannot be created",
            checked=str(error),
            remedy=(
                f"Create it with cleanup.policy=compact, {DECISION_TOPIC_PARTITIONS} partitions and the replication of "
                "your data, or grant CREATE on it"
            ),
        ) from error
    client.require_topics([name])
    if made:
        LOG.info("created the decision topic %s", name)
