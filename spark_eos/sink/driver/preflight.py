"""The checks, before any data is sent, that the cluster supports what the sink needs.

They run on the driver whenever a writer is made, and Spark makes a streaming writer for every micro-batch. A query
keeps the results of its start. Every ten minutes a running query checks again what may have changed: whether there are
brokers that do not verify transactions, and whether the decision topic still keeps decisions. An outage does not
stop the query there. The feature level needs no check: each transaction begins with what the connections report.

Every writer that plans asks how many partitions the output topic has, by which all tasks of a micro-batch place rows:
each worker's own count would put one key into two partitions while the topic grows.

What fails may show what a check would have found, such as a decision topic that was deleted. So Spark's abort leaves a
text for the other processes of the driver (see `incarnation`), and the next writer checks everything again.
"""

import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from broker_core.types import TopicPartition, TransactionState, counted
from spark_eos import failpoints
from spark_eos.client.allowed_operations import is_write_refused
from spark_eos.client.broker_client import ReplacedClusterError
from spark_eos.client.group_offsets import fetch_offsets
from spark_eos.client.inspection import check_listing, describe_transactions, list_transactions
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.metadata import MISSING_TOPIC_GRACE_SECONDS, TopicMetadata
from spark_eos.client.needed_apis import check_sink_apis
from spark_eos.client.transactions import init_producer_id
from spark_eos.errors import OUTAGES, AuthorizationError, EosKafkaError, OptionError, UnsupportedError
from spark_eos.options.sink import FALLBACK_TIMEOUT_MS, LONGEST_DEFAULT_TIMEOUT_MS, SinkOptions
from spark_eos.runtime import ProcessState, Runtime
from spark_eos.sink.driver.broker_capabilities import TIMEOUT_LIMIT, VERIFICATION, BrokerCapabilities
from spark_eos.sink.driver.decision_topic import Durability, data_durability, ensure_decision_topic
from spark_eos.sink.incarnation import doubt_of, take
from spark_eos.sink.naming import id_pattern, id_prefix, parse_task_id
from spark_eos.sink.process_cache import ProcessCache, client_of

logger = logging.getLogger(__name__)
# The last part of the transactional id and of the group that checks use.
PROBE: Final = "preflight"
_LOOKS_EVERY_SECONDS: Final = 600.0
_LOOK_AGAIN_SECONDS: Final = 60.0
_LOOK_PATIENCE_MS: Final = 5_000


@dataclass(slots=True)
class _Checked:
    options: SinkOptions
    capabilities: BrokerCapabilities
    next_look: float
    topic: TopicMetadata | None = None


def _checks(runtime: Runtime) -> ProcessCache[SinkOptions, _Checked]:
    # A query that makes no writer for this long counts as new.
    return ProcessCache(runtime.clock, _LOOKS_EVERY_SECONDS)


def preflight(process: ProcessState, options: SinkOptions, *, plans: bool = True) -> SinkOptions:
    """Return the options, completed with the brokers' limits; each error comes with its remedy.

    For a writer that plans tasks they also describe the output topic as it is now.
    """
    checks, monotonic = process.part(_checks), process.runtime.clock.monotonic
    began = monotonic()
    if take("doubt", doubt_of(options)) is not None:
        checks.forget(options)
    checked = checks.get(options, lambda: _check_first(process, options))
    client = client_of(process, options.client)
    try:
        if monotonic() >= checked.next_look:
            _look(client, options, checked)
        if plans and options.topic is not None and (found := _describe_topic(client, options.topic, began)):
            checked.topic = found.completed(checked.topic)
    except EosKafkaError:
        # The query stops: on another cluster it must not go on. The next writer checks everything again.
        checks.forget(options)
        raise
    settled = replace(checked.options, cluster_id=client.cluster_id)
    if checked.topic is None:
        return settled
    return replace(settled, partition_count=checked.topic.partition_count, topic_id=checked.topic.topic_id)


def _check_first(process: ProcessState, options: SinkOptions) -> _Checked:
    failpoints.enter(options.prefix)
    failpoints.reach("driver.before_preflight")
    client, capabilities = client_of(process, options.client), BrokerCapabilities()
    if client.cluster_id is not None:
        # Kept from an earlier query. A client that raises this has left the former cluster.
        with suppress(ReplacedClusterError):
            client.metadata([])
    options_now = check_cluster(client, options, capabilities)
    return _Checked(options_now, capabilities, process.runtime.clock.monotonic() + _LOOKS_EVERY_SECONDS)


def _look(client: KafkaClient, options: SinkOptions, checked: _Checked) -> None:
    """Check what may have changed; if brokers do not respond, leave the waiting to the micro-batch itself."""
    try:
        # This finds new brokers.
        client.metadata([], timeout_ms=_LOOK_PATIENCE_MS)
        checked.options = check_cluster(client, options, checked.capabilities, is_first=False)
        checked.next_look = client.runtime.clock.monotonic() + _LOOKS_EVERY_SECONDS
    except ReplacedClusterError:
        raise
    except OUTAGES as error:
        logger.info("the cluster checks are skipped for now: %s", error)
        checked.next_look = client.runtime.clock.monotonic() + _LOOK_AGAIN_SECONDS


def _describe_topic(client: KafkaClient, topic: str, began: float) -> TopicMetadata | None:
    """Describe a topic as of now, or `began` at the earliest; return None if brokers do not respond."""
    age_ms = (client.runtime.clock.monotonic() - began) * 1000
    try:
        # A topic that was seen before does not vanish because one broker lags behind for a moment.
        found = client.require_topics(
            [topic], need_leaders=False, timeout_ms=_LOOK_PATIENCE_MS, max_age_ms=age_ms, were_created=True
        )
    except ReplacedClusterError:
        raise
    except OUTAGES as error:
        logger.info("the partitions of topic %s are not counted again: %s", topic, error)
        return None
    return found[topic]


def check_cluster(
    client: KafkaClient, options: SinkOptions, capabilities: BrokerCapabilities | None = None, *, is_first: bool = True
) -> SinkOptions:
    """Check everything the sink depends on; later checks cover what may have changed, without warnings."""
    client.connect()
    capabilities = BrokerCapabilities() if capabilities is None else capabilities
    if is_first:
        check_sink_apis(client, client.transaction_version())
    capabilities.complete(client)
    may_hang = _check_verification(client, options, capabilities, is_first)
    if is_first and options.topic is not None:
        # Both topics with one request; a topic that is missing, or has no leader yet, is requested again.
        client.metadata([options.topic, options.decision_topic])
    data = data_durability(client, options.topic) if is_first else Durability(0, 0)
    ensure_decision_topic(
        client,
        options.decision_topic,
        data,
        capabilities,
        is_first=is_first,
        may_expire=options.allow_decision_retention,
    )
    if is_first:
        _check_right_to_decide(client, options.decision_topic)
        _check_transactions(client, options)
    limit_ms = min(capabilities.numbers(TIMEOUT_LIMIT), default=None)
    if limit_ms is None and is_first:
        logger.info(
            "cannot read %s, using %d ms: %s",
            TIMEOUT_LIMIT,
            FALLBACK_TIMEOUT_MS,
            "; ".join(capabilities.troubles) or "no broker returned it",
        )
    timeout_ms = choose_timeout(options.transaction_timeout_ms, limit_ms)
    if is_first:
        # The id has no owner and never has a transaction. Rights and timeout are checked as for the tasks' own ids.
        init_producer_id(client, f"{options.prefix}.{PROBE}", transaction_timeout_ms=timeout_ms)
    return replace(
        options, transaction_timeout_ms=timeout_ms, timeout_limit_ms=limit_ms, allow_hanging_transactions=may_hang
    )


def choose_timeout(wanted_ms: int | None, limit_ms: int | None) -> int:
    """Return the transaction timeout: the one in the options, or the longest that the broker allows, within bounds.

    In the worst case, what a crash of driver and executors leaves open blocks readers for that long.
    """
    if wanted_ms is None:
        return min(limit_ms, LONGEST_DEFAULT_TIMEOUT_MS) if limit_ms is not None else FALLBACK_TIMEOUT_MS
    if limit_ms is not None and wanted_ms > limit_ms:
        raise OptionError(
            f"Option 'transactionTimeout' is {wanted_ms} ms, but the brokers allow at most {limit_ms} ms",
            checked="Read transaction.max.timeout.ms with DescribeConfigs",
            remedy="Lower it, or raise transaction.max.timeout.ms on the brokers",
        )
    return wanted_ms


def _check_right_to_decide(client: KafkaClient, topic: str) -> None:
    """Refuse a principal that may not write decisions: the first one follows after all rows, perhaps hours later."""
    try:
        is_refused = is_write_refused(client, topic)
    except UnsupportedError as error:
        logger.info("cannot check the right to write to the decision topic %s: %s", topic, error)
        return
    if is_refused:
        raise AuthorizationError(
            f"The principal is not allowed to write to the decision topic '{topic}'",
            checked=f"Metadata of every broker, with the allowed operations, for {MISSING_TOPIC_GRACE_SECONDS:.0f} s",
            remedy="Grant WRITE on the topic",
        )


def _check_transactions(client: KafkaClient, options: SinkOptions) -> None:
    """Send the requests of a commit for unused names, so that old brokers and missing rights show before a crash."""
    probe = f"{options.prefix}.{PROBE}"
    describe_transactions(client, [probe])
    try:
        check_listing(client)
    except UnsupportedError as error:
        logger.warning(
            "transactions that lost tasks leave open delay readers until their timeout, because brokers do not "
            "support ListTransactions: %s",
            error,
        )
    fetch_offsets(client, probe, [TopicPartition(options.decision_topic, 0)], require_stable=True)
    if options.job_id is not None:
        _warn_of_other_runs(client, options.prefix, options.job_id)


def _warn_of_other_runs(client: KafkaClient, prefix: str, job: str) -> None:
    pattern = id_pattern(id_prefix(prefix, job))
    try:
        listed = list_transactions(client, states=[TransactionState.ONGOING.label], id_pattern=pattern)
    except (UnsupportedError, AuthorizationError) as error:
        logger.info("cannot check whether another run of job %s is in progress: %s", job, error)
        return
    names = [parse_task_id(each.transactional_id) for each in listed]
    found = sum(name is not None and (name.prefix, name.query) == (prefix, job) for name in names)
    if found:
        logger.warning(
            "job %s already has %s: an earlier run died or another run is in progress. Of two "
            "concurrent runs, one commits and the other writes nothing or fails; give every job its own jobId",
            job,
            counted(found, "open transaction"),
        )


def _check_verification(
    client: KafkaClient, options: SinkOptions, capabilities: BrokerCapabilities, is_first: bool
) -> bool:
    """Refuse brokers that do not verify transactions, unless accepted; return whether transactions may hang."""
    unverifying = capabilities.unverifying(client.transaction_version())
    reasons = "; ".join(f"broker {node_id} {reason}" for node_id, reason in unverifying.items())
    if unverifying and not options.allow_hanging_transactions:
        raise UnsupportedError(
            "The brokers do not verify that a transaction is open before they write to it. Ending the "
            "transaction of a lost task could leave a transaction that hangs and blocks readers indefinitely: "
            f"{reasons}",
            checked="ApiVersions and DescribeConfigs on every broker",
            remedy=f"Use brokers of Apache Kafka 3.6 or newer only, with {VERIFICATION}=true. The option "
            "allowHangingTransactions=true accepts other brokers: transactions of lost tasks then stay open "
            "until their timeout, and late requests can still leave transactions that hang",
        )
    if unverifying and is_first:
        logger.warning(
            "transactions may hang, and those that lost tasks leave open delay readers until their timeout: %s", reasons
        )
    return options.allow_hanging_transactions and (bool(unverifying) or bool(capabilities.troubles))
