"""Check before any data is sent that the cluster can do what the sink needs, and say what to do where it cannot.

Runs on the driver whenever a writer is made; what was found good is not asked again for a minute, since Spark makes a
streaming writer anew for every micro-batch.
"""

import logging
import os
import time
from dataclasses import replace
from typing import Final, NamedTuple

from broker_core.types import TopicPartition
from spark_eos import failpoints
from spark_eos.client.connection import KafkaClient
from spark_eos.client.control import init_producer_id
from spark_eos.client.group_offsets import fetch_offsets
from spark_eos.client.inspection import describe_transactions, list_transactions
from spark_eos.errors import OptionError, UnsupportedError
from spark_eos.sink.decision_topic import data_durability, ensure_decision_topic
from spark_eos.sink.naming import id_pattern, id_prefix, parse_task_id
from spark_eos.sink.ports import TransactionState
from spark_eos.sink.survey import TIMEOUT_LIMIT, VERIFICATION, Survey
from spark_eos.sink_options import FALLBACK_TIMEOUT_MS, LONGEST_DEFAULT_TIMEOUT_MS, SinkOptions

LOG: Final = logging.getLogger("spark_eos.sink")
_PROBE: Final = "preflight"
_GOOD_FOR_SECONDS: Final = 60.0
_MAX_REMEMBERED: Final = 64


class _Checked(NamedTuple):
    """Hold what a check found, and until when it need not be repeated."""

    until: float
    settled: SinkOptions
    survey: Survey


_checked: dict[tuple[int, SinkOptions], _Checked] = {}


def preflight(options: SinkOptions) -> SinkOptions:
    """Return the options with what the brokers allow filled in; raises what is wrong with its remedy."""
    key = (os.getpid(), options)
    known = _checked.get(key)
    if known is not None and time.monotonic() < known.until:
        return known.settled
    failpoints.enter(options.prefix)
    failpoints.reach("driver.before_preflight")
    survey = Survey() if known is None else known.survey
    with KafkaClient(options.client) as client:
        settled = check_cluster(client, options, survey, is_first=known is None)
    while len(_checked) >= _MAX_REMEMBERED:
        _checked.pop(next(iter(_checked)))
    _checked[key] = _Checked(time.monotonic() + _GOOD_FOR_SECONDS, settled, survey)
    return settled


def check_cluster(
    client: KafkaClient, options: SinkOptions, survey: Survey | None = None, *, is_first: bool = True
) -> SinkOptions:
    """Ask the cluster everything the sink depends on; a repeated check neither warns nor writes again."""
    client.connect()
    survey = Survey() if survey is None else survey
    survey.complete(client)
    may_hang = _check_verification(client, options, survey, is_first)
    data = data_durability(client, options.topic, is_first=is_first)
    ensure_decision_topic(
        client, options.decision_topic, data, survey, prefix=options.prefix, is_first=is_first
    )
    _check_transactions(client, options, is_first)
    limit_ms = min(survey.numbers(TIMEOUT_LIMIT), default=None)
    if limit_ms is None and is_first:
        LOG.info("%s cannot be read, %d ms is used: %s", TIMEOUT_LIMIT, FALLBACK_TIMEOUT_MS,
                 "; ".join(survey.troubles) or "no broker knows it")
    timeout_ms = settle_timeout(options.transaction_timeout_ms, limit_ms)
    if is_first:
        # The id is nobody's and never holds a transaction. Rights and timeout are judged as for the tasks' own ids.
        init_producer_id(client, f"{options.prefix}.{_PROBE}", transaction_timeout_ms=timeout_ms)
    return replace(
        options, transaction_timeout_ms=timeout_ms, timeout_limit_ms=limit_ms, allow_hanging_transactions=may_hang
    )


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
            "The brokers do not serve DescribeTransactions and ListTransactions, which recovery from a crash needs",
            checked=str(error),
            remedy="Use brokers of Apache Kafka 3.6 or newer",
        ) from error
    fetch_offsets(client, probe, [TopicPartition(options.decision_topic, 0)], require_stable=True)
    names = [parse_task_id(each.transactional_id) for each in listed]
    found = sum(name is not None and (name.prefix, name.query) == (options.prefix, job) for name in names)
    if is_first and found:
        LOG.warning(
            "%d transactions of job %s are open already: an earlier run of it died, or one is going on. Of two runs at "
            "once one commits and the other writes nothing or fails; give every job a jobId of its own", found, job,
        )


def _check_verification(client: KafkaClient, options: SinkOptions, survey: Survey, is_first: bool) -> bool:
    """Refuse brokers that do not verify transactions, unless they are accepted; says whether transactions may hang."""
    unverifying = survey.unverifying(client.transaction_version())
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
        LOG.warning("transactions may hang, and what lost tasks leave open holds readers back until its timeout: %s",
                    reasons)
    return options.allow_hanging_transactions and (bool(unverifying) or bool(survey.troubles))
