"""Check before any data is sent that the cluster can do what the sink needs, and say what to do where it cannot.

Runs on the driver whenever a writer is made; what was found good is not asked again for a minute, since Spark makes a
streaming writer anew for every micro-batch.
"""

import logging
import os
import time
from dataclasses import replace
from typing import Final

from broker_core.types import TopicPartition
from spark_eos import failpoints
from spark_eos.client.connection import KafkaClient
from spark_eos.client.control import init_producer_id
from spark_eos.client.group_offsets import fetch_offsets
from spark_eos.client.inspection import describe_transactions, list_transactions
from spark_eos.client.topics import describe_broker_config
from spark_eos.errors import AuthorizationError, OptionError, UnsupportedError
from spark_eos.sink.decision_topic import ensure_decision_topic, replica_count
from spark_eos.sink.naming import id_pattern, id_prefix, parse_task_id
from spark_eos.sink.ports import TransactionState
from spark_eos.sink_options import FALLBACK_TIMEOUT_MS, LONGEST_DEFAULT_TIMEOUT_MS, SinkOptions

LOG: Final = logging.getLogger("spark_eos.sink")
_USUAL_REPLICAS: Final = 3
_PROBE: Final = "preflight"
_GOOD_FOR_SECONDS: Final = 60.0
_MAX_REMEMBERED: Final = 64
_checked: dict[tuple[int, SinkOptions], tuple[float, SinkOptions]] = {}


def preflight(options: SinkOptions) -> SinkOptions:
    """Return the options with the transaction timeout settled; raises what is wrong with its remedy."""
    key = (os.getpid(), options)
    known = _checked.get(key)
    if known is not None and time.monotonic() < known[0]:
        return known[1]
    failpoints.enter(options.prefix)
    failpoints.reach("driver.before_preflight")
    with KafkaClient(options.client) as client:
        settled = check_cluster(client, options, is_first=known is None)
    while len(_checked) >= _MAX_REMEMBERED:
        _checked.pop(next(iter(_checked)))
    _checked[key] = (time.monotonic() + _GOOD_FOR_SECONDS, settled)
    return settled


def check_cluster(client: KafkaClient, options: SinkOptions, *, is_first: bool = True) -> SinkOptions:
    """Ask the cluster everything the sink depends on; a repeated check neither warns nor writes again."""
    client.connect()
    wanted_replicas = min(_USUAL_REPLICAS, len(client.brokers()))
    if options.topic is not None:
        wanted_replicas = replica_count(client.require_topics([options.topic], need_leaders=False)[options.topic])
    ensure_decision_topic(client, options.decision_topic, wanted_replicas, is_first=is_first)
    _check_transactions(client, options, is_first)
    timeout_ms = settle_timeout(options.transaction_timeout_ms, _limit_ms(client))
    if is_first:
        # The id is nobody's and never holds a transaction. Rights and timeout are judged as for the tasks' own ids.
        init_producer_id(client, f"{options.prefix}.{_PROBE}", transaction_timeout_ms=timeout_ms)
    return replace(options, transaction_timeout_ms=timeout_ms)


def settle_timeout(wanted_ms: int | None, limit_ms: int | None) -> int:
    """Choose the transaction timeout: what the user wants, else the most the broker allows, within bounds.

    What a crash of driver and executors leaves open holds readers up for that long at worst.
    """
    if wanted_ms is None:
        return min(limit_ms, LONGEST_DEFAULT_TIMEOUT_MS) if limit_ms is not None else FALLBACK_TIMEOUT_MS
    if limit_ms is not None and wanted_ms > limit_ms:
        raise OptionError(
            f"Option 'transactionTimeout' is {wanted_ms} ms, the brokers allow {limit_ms} ms",
            checked="transaction.max.timeout.ms by DescribeConfigs",
            remedy="Lower it, or raise transaction.max.timeout.ms on the brokers",
        )
    return wanted_ms


def _check_transactions(client: KafkaClient, options: SinkOptions, is_first: bool) -> None:
    """Ask as a commit will ask, about names nobody uses: old brokers and missing rights show now, not at a crash."""
    probe = f"{options.prefix}.{_PROBE}"
    job = options.job_id
    pattern = id_pattern(id_prefix(options.prefix, job) if job is not None else probe)
    try:
        describe_transactions(client, [probe])
        listed = list_transactions(client, states=[TransactionState.ONGOING], id_pattern=pattern)
    except UnsupportedError as error:
        raise UnsupportedError(
            "The brokers do not serve DescribeTransactions and ListTransactions, without which no crash can be mended",
            checked=str(error),
            remedy="Use brokers of Apache Kafka 3.0 or newer",
        ) from error
    fetch_offsets(client, probe, [TopicPartition(options.decision_topic, 0)], require_stable=True)
    names = [parse_task_id(each.transactional_id) for each in listed]
    found = sum(name is not None and (name.prefix, name.query) == (options.prefix, job) for name in names)
    if is_first and found:
        LOG.warning(
            "%d transactions of job %s are open already: an earlier run of it died, or one is going on. Of two runs at "
            "once one commits and the other writes nothing or fails; give every job a jobId of its own", found, job,
        )


def _limit_ms(client: KafkaClient) -> int | None:
    """Read the brokers' limit; None where the principal may not, or the broker does not tell."""
    try:
        text = describe_broker_config(client, client.brokers()[0].node_id).get("transaction.max.timeout.ms")
    except (AuthorizationError, UnsupportedError) as error:
        LOG.info("transaction.max.timeout.ms cannot be read, %d ms is used: %s", FALLBACK_TIMEOUT_MS, error)
        return None
    return int(text) if text else None
