"""The check, before any data is sent, that the cluster can do what the sink needs, and what to do where it cannot.

Runs on the driver whenever a writer is made, and Spark makes a streaming writer for every micro-batch: what a
query has found good at its start is taken as it was. Every ten minutes a running query looks at what may have changed:
whether brokers have come that do not verify transactions, and whether the decision topic still keeps decisions. An
outage is no reason to stop there. The feature level needs no look: each transaction begins with what connections say.

A commit that fails may have found what a check would have found, as that the decision topic was deleted. It happens in
another Python process, so that it leaves a file in the temporary folder of the driver's JVM (see `incarnation`), and
the next writer checks all of it again.
"""

import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from broker_core.types import TopicPartition, TransactionState
from spark_eos import failpoints
from spark_eos.client.group_offsets import fetch_offsets
from spark_eos.client.inspection import check_listing, describe_transactions, list_transactions
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.transactions import init_producer_id
from spark_eos.errors import OptionError, UnansweredError, UnreachableError, UnsupportedError
from spark_eos.options.sink import FALLBACK_TIMEOUT_MS, LONGEST_DEFAULT_TIMEOUT_MS, SinkOptions
from spark_eos.runtime import ProcessState, Runtime
from spark_eos.sink.driver.broker_capabilities import TIMEOUT_LIMIT, VERIFICATION, BrokerCapabilities
from spark_eos.sink.driver.decision_topic import Durability, data_durability, ensure_decision_topic
from spark_eos.sink.incarnation import local_path
from spark_eos.sink.naming import id_pattern, id_prefix, parse_task_id
from spark_eos.sink.process_cache import ProcessCache, client_of

logger = logging.getLogger(__name__)
_PROBE: Final = "preflight"
_LOOKS_EVERY_SECONDS: Final = 600.0
_LOOK_AGAIN_SECONDS: Final = 60.0
_LOOK_PATIENCE_MS: Final = 5_000


@dataclass(slots=True)
class _Checked:
    """What a check found, and when the next look is due."""

    options: SinkOptions
    capabilities: BrokerCapabilities
    next_look: float


class _Checks:
    """What a process has checked."""

    def __init__(self, runtime: Runtime) -> None:
        # A query that makes no writer for so long is taken for one that starts.
        self.by_options: ProcessCache[SinkOptions, _Checked] = ProcessCache(runtime.clock, _LOOKS_EVERY_SECONDS)


def preflight(process: ProcessState, options: SinkOptions) -> SinkOptions:
    """Return the options with what the brokers allow filled in; raises what is wrong with its remedy."""
    checks = process.part(_Checks).by_options
    if _take_doubt(options):
        checks.forget(options)
    checked = checks.get(options, lambda: _check_first(process, options))
    if process.runtime.clock.monotonic() >= checked.next_look:
        _look(process, options, checked)
    return checked.options


def leave_doubt(options: SinkOptions) -> None:
    """Have the next writer of this driver for the same decision topic check the cluster again."""
    path = local_path("doubt", _topic_of(options))
    if path is not None:
        with suppress(OSError):
            path.touch()


def _take_doubt(options: SinkOptions) -> bool:
    path = local_path("doubt", _topic_of(options))
    try:
        if path is not None:
            path.unlink()
            return True
    except OSError:
        pass
    return False


def _topic_of(options: SinkOptions) -> str:
    return repr((options.client.bootstrap_servers, options.decision_topic))


def _check_first(process: ProcessState, options: SinkOptions) -> _Checked:
    failpoints.enter(options.prefix)
    failpoints.reach("driver.before_preflight")
    capabilities = BrokerCapabilities()
    options_now = check_cluster(client_of(process, options.client), options, capabilities)
    return _Checked(options_now, capabilities, process.runtime.clock.monotonic() + _LOOKS_EVERY_SECONDS)


def _look(process: ProcessState, options: SinkOptions, checked: _Checked) -> None:
    """Check what may have changed; where brokers do not answer, the micro-batch itself is better placed to wait."""
    client = client_of(process, options.client)
    try:
        # Names the brokers that have come.
        client.metadata([], timeout_ms=_LOOK_PATIENCE_MS)
        checked.options = check_cluster(client, options, checked.capabilities, is_first=False)
        checked.next_look = process.runtime.clock.monotonic() + _LOOKS_EVERY_SECONDS
    except (UnansweredError, UnreachableError) as error:
        logger.info("the cluster is not looked at for now: %s", error)
        checked.next_look = process.runtime.clock.monotonic() + _LOOK_AGAIN_SECONDS


def check_cluster(
    client: KafkaClient, options: SinkOptions, capabilities: BrokerCapabilities | None = None, *, is_first: bool = True
) -> SinkOptions:
    """Ask the cluster everything the sink depends on; a later one asks what may have changed, without a warning."""
    client.connect()
    capabilities = BrokerCapabilities() if capabilities is None else capabilities
    capabilities.complete(client)
    may_hang = _check_verification(client, options, capabilities, is_first)
    if is_first and options.topic is not None:
        # Both topics by one request; what is missing, or has no leader yet, is asked for again.
        client.metadata([options.topic, options.decision_topic])
    data = data_durability(client, options.topic) if is_first else Durability(0, 0)
    ensure_decision_topic(client, options.decision_topic, data, capabilities, is_first=is_first)
    if is_first:
        _check_transactions(client, options)
    limit_ms = min(capabilities.numbers(TIMEOUT_LIMIT), default=None)
    if limit_ms is None and is_first:
        logger.info(
            "%s cannot be read, %d ms is used: %s",
            TIMEOUT_LIMIT,
            FALLBACK_TIMEOUT_MS,
            "; ".join(capabilities.troubles) or "no broker knows it",
        )
    timeout_ms = choose_timeout(options.transaction_timeout_ms, limit_ms)
    if is_first:
        # The id has no owner and never holds a transaction. Rights and timeout are judged as for the tasks' own ids.
        init_producer_id(client, f"{options.prefix}.{_PROBE}", transaction_timeout_ms=timeout_ms)
    return replace(
        options, transaction_timeout_ms=timeout_ms, timeout_limit_ms=limit_ms, allow_hanging_transactions=may_hang
    )


def choose_timeout(wanted_ms: int | None, limit_ms: int | None) -> int:
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


def _check_transactions(client: KafkaClient, options: SinkOptions) -> None:
    """Ask as a commit will ask, about unused names: old brokers and missing rights show now, not at a crash."""
    probe = f"{options.prefix}.{_PROBE}"
    try:
        describe_transactions(client, [probe])
        check_listing(client)
    except UnsupportedError as error:
        raise UnsupportedError(
            "The brokers do not serve DescribeTransactions and ListTransactions, which recovery from a crash needs",
            checked=str(error),
            remedy="Use brokers of Apache Kafka 3.6 or newer",
        ) from error
    fetch_offsets(client, probe, [TopicPartition(options.decision_topic, 0)], require_stable=True)
    if options.job_id is not None:
        _warn_of_other_runs(client, options.prefix, options.job_id)


def _warn_of_other_runs(client: KafkaClient, prefix: str, job: str) -> None:
    pattern = id_pattern(id_prefix(prefix, job))
    listed = list_transactions(client, states=[TransactionState.ONGOING.label], id_pattern=pattern)
    names = [parse_task_id(each.transactional_id) for each in listed]
    found = sum(name is not None and (name.prefix, name.query) == (prefix, job) for name in names)
    if found:
        logger.warning(
            "%d transactions of job %s are open already: an earlier run of it died, or one is going on. Of two runs at "
            "once one commits and the other writes nothing or fails; give every job a jobId of its own",
            found,
            job,
        )


def _check_verification(
    client: KafkaClient, options: SinkOptions, capabilities: BrokerCapabilities, is_first: bool
) -> bool:
    """Refuse brokers that do not verify transactions, unless they are accepted; says whether transactions may hang."""
    unverifying = capabilities.unverifying(client.transaction_version())
    reasons = "; ".join(f"broker {node_id} {reason}" for node_id, reason in unverifying.items())
    if unverifying and not options.allow_hanging_transactions:
        raise UnsupportedError(
            "The brokers do not verify that a transaction is open before they write to it, so that the end of a lost "
            f"task's transaction could leave one that hangs and blocks readers for ever: {reasons}",
            checked="ApiVersions and DescribeConfigs of every broker",
            remedy=(
                f"Use brokers of Apache Kafka 3.6 or newer, all of them, with {VERIFICATION}=true. The option "
                "allowHangingTransactions=true accepts such brokers: what lost tasks leave open is then left to its "
                "timeout, and transactions can still hang, by requests that arrive late"
            ),
        )
    if unverifying and is_first:
        logger.warning(
            "transactions may hang, and what lost tasks leave open holds readers back until its timeout: %s", reasons
        )
    return options.allow_hanging_transactions and (bool(unverifying) or bool(capabilities.troubles))
