"""The checks of `eos-kafka doctor`: whether a cluster, and the rights on it, suit the sink, the source and the tool.

A problem that one check finds does not hide the next one; only a cluster that cannot be reached ends the examination.
Nothing is created, and records are written to the topic of `--trial-topic` only; see `trial_record`. The trial
transaction commits an offset and is aborted, so that no reader ever sees anything of it; it leaves a transactional id,
`{prefix}.preflight`, which the sink's own check before a query uses too.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from broker_core.errors import ErrorCode
from broker_core.types import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition, address_text, counted
from spark_eos.admin import rights
from spark_eos.admin.doctor_findings import CheckResult, Finding
from spark_eos.admin.doctor_topics import described, replicas, size_of, state
from spark_eos.admin.trial_record import try_aborted_record
from spark_eos.client.group_offsets import OffsetAndMetadata, fetch_offsets, txn_offset_commit
from spark_eos.client.inspection import describe_transactions
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.metadata import TRANSACTION_FEATURE
from spark_eos.client.needed_apis import unsupported_apis
from spark_eos.client.offset_lookup import places_of
from spark_eos.client.topics import create_topic, describe_topic_config
from spark_eos.client.transactions import TV2, end_txn, init_producer_id
from spark_eos.errors import AuthorizationError, EosKafkaError, TopicError, UnansweredError, UnreachableError
from spark_eos.open_transaction import OpenTransaction
from spark_eos.options.client import ClientOptions
from spark_eos.options.operator_commands import OperatorCommands
from spark_eos.runtime import now_ms
from spark_eos.sink.driver.broker_capabilities import TIMEOUT_LIMIT, VERIFICATION, BrokerCapabilities
from spark_eos.sink.driver.decision_topic import (
    creation_error,
    creation_settings,
    data_durability,
    replica_count,
    topic_doubts,
    topic_problem,
)
from spark_eos.sink.driver.preflight import choose_timeout
from spark_eos.sink.naming import DECISION_TOPIC_PARTITIONS
from spark_eos.transactions.findings import open_now
from spark_eos.transactions.judge import find_open
from spark_eos.transactions.standstills import ends

# Times of a transaction and of this machine are compared when a commit checks how much time is left.
_CLOCK_DIFFERENCE_MS: Final = 5_000
# A response from the same check.
_JUST_ASKED_MS: Final = 1_000
# How the names of a kind of role begin.
_ROLE_WORDS: Final = {"sink": "sink,", "source": "source,", "operator": "`"}


@dataclass(slots=True)
class _Knowledge:
    """What earlier checks have found out, for later ones."""

    has_decision_topic: bool = False
    has_responding_broker: bool = False
    # The identity of the probe, if the principal may write to it: InitProducerId is sent once.
    probe: OpenTransaction | None = None


def examine(examined: rights.Examination) -> Iterator[Finding]:
    errors = {address: _connection_error(examined.options, address) for address in examined.options.bootstrap_servers}
    is_reachable = None in errors.values()
    yield from (_connection(examined.options, *each, is_reachable) for each in errors.items())
    if not is_reachable:
        return
    knowledge = _Knowledge()
    with KafkaClient(examined.options) as client:
        yield from _brokers(client, knowledge)
        if not knowledge.has_responding_broker:
            return
        for check in _CHECKS:
            try:
                yield from check(client, examined, knowledge)
            except EosKafkaError as error:
                yield _failed(_words(check), error)


def _words(check: Callable[..., object]) -> str:
    return check.__name__.strip("_").replace("_", " ")


def _failed(check: str, error: EosKafkaError, verdict: CheckResult = CheckResult.PROBLEM) -> Finding:
    found = f"{error.happened} ({error.checked})" if error.checked else error.happened
    return Finding(check, verdict, found, error.remedy or error.default_remedy)


# Connections.


def _connection_error(options: ClientOptions, address: str) -> EosKafkaError | None:
    try:
        with KafkaClient(replace(options, bootstrap_servers=(address,))) as client:
            client.connect()
    except EosKafkaError as error:
        return error
    return None


def _connection(options: ClientOptions, address: str, error: EosKafkaError | None, is_reachable: bool) -> Finding:
    check = f"connection to {address}"
    if error is None:
        mechanism = f", {options.sasl_mechanism}" if options.security_protocol.startswith("SASL") else ""
        return Finding(check, CheckResult.OK, f"connected with {options.security_protocol}{mechanism}")
    # A query starts as long as one of several addresses responds.
    is_spare = is_reachable and isinstance(error, UnreachableError)
    return _failed(check, error, CheckResult.WARNING if is_spare else CheckResult.PROBLEM)


def _brokers(client: KafkaClient, knowledge: _Knowledge) -> Iterator[Finding]:
    """Connect to each broker at the address that it advertises."""
    for broker, answer in unsupported_apis(client).items():
        check = f"broker {broker.node_id}"
        if isinstance(answer, EosKafkaError):
            yield Finding(
                check,
                CheckResult.PROBLEM,
                f"no response at its advertised address {address_text(broker.host, broker.port)}: {answer.happened}",
                "Check that the broker runs and that this machine can resolve and reach the address; set "
                "advertised.listeners of the broker to one that it can",
            )
            continue
        knowledge.has_responding_broker = True
        # Another check reports whether brokers verify transactions.
        missing = [api for api in answer if api.name != "AddPartitionsToTxn"]
        for api in missing:
            found = f"does not support {api.name} version {api.version}, which is for {api.use}"
            verdict = CheckResult.WARNING if api.without else CheckResult.PROBLEM
            remedy = api.without or "Use brokers of Apache Kafka 3.6 or newer, or a service that supports this API"
            yield Finding(check, verdict, found, remedy)
        if not missing:
            yield Finding(
                check,
                CheckResult.OK,
                f"responds at {address_text(broker.host, broker.port)} and serves all requests needed",
            )


def _settings_of_brokers(client: KafkaClient, examined: rights.Examination, knowledge: _Knowledge) -> Iterator[Finding]:
    """Compare the settings of all brokers, and the level of the transaction protocol, with what the sink needs."""
    capabilities = BrokerCapabilities()
    capabilities.complete(client)
    level = client.transaction_version(refresh=True)
    yield _level(client.features.level(TRANSACTION_FEATURE), client.features.serves_tv2)
    yield _verification(capabilities, level, CheckResult.PROBLEM if "sink" in examined.roles else CheckResult.WARNING)
    limits_ms = sorted(capabilities.numbers(TIMEOUT_LIMIT))
    timeout_ms = choose_timeout(None, limits_ms[0] if limits_ms else None)
    limit = " to ".join(map(str, dict.fromkeys((limits_ms[0], limits_ms[-1])))) + " ms" if limits_ms else "unknown"
    yield Finding(
        "transaction timeout",
        CheckResult.OK if limits_ms else CheckResult.NOTE,
        f"{TIMEOUT_LIMIT} is {limit}; the sink uses {timeout_ms} ms unless transactionTimeout is set",
    )


def _verification(capabilities: BrokerCapabilities, level: int, too_old: CheckResult) -> Finding:
    """Report what the brokers have, which is more than the sink asks: under transactions V2 it needs no setting."""
    check = "verification of transactions"
    unverifying = _reasons(capabilities.unverifying(level))
    if unverifying:
        return Finding(
            check,
            too_old,
            unverifying,
            f"Use brokers of Apache Kafka 3.6 or newer, and set {VERIFICATION}=true; the sink refuses others, unless "
            "allowHangingTransactions=true accepts the risk",
        )
    switched_off = _reasons(capabilities.unverifying(0))
    if switched_off:
        return Finding(
            check,
            CheckResult.WARNING,
            f"{switched_off}. The sink is protected by transaction.version {level}, and clients before transactions V2 "
            "are not: a late write of theirs begins a transaction that hangs",
            f"Set {VERIFICATION}=true",
        )
    if capabilities.troubles:
        return Finding(check, CheckResult.NOTE, "; ".join(capabilities.troubles))
    return Finding(check, CheckResult.OK, "on at all brokers")


def _reasons(brokers: Mapping[int, str]) -> str:
    return "; ".join(f"broker {node_id} {reason}" for node_id, reason in brokers.items())


def _level(level: int, serves_tv2: bool) -> Finding:
    """Report the level of the cluster; a proxy that limits versions passes it on and does not serve its requests."""
    check = "transaction protocol"
    upgrade = f"kafka-features.sh upgrade --feature transaction.version={TV2}"
    if level >= TV2 and serves_tv2:
        return Finding(check, CheckResult.OK, f"transaction.version {level} (KIP-890)")
    if level >= TV2:
        found = ", but what answers does not serve the requests of that version, and transactions V1 are used"
        remedy = "Upgrade the proxy or service, or reach the brokers without it; they have the feature already"
    else:
        found, remedy = "", f"On Apache Kafka 4.0 or newer: {upgrade}"
        if not serves_tv2:
            remedy = f"Use Apache Kafka 4.0 or newer without a proxy that limits versions, and then: {upgrade}"
    found = f"transaction.version {level}{found}: each transaction needs more requests than with version {TV2}"
    return Finding(check, CheckResult.NOTE, found, remedy)


# Topics.


def _data_topics(client: KafkaClient, examined: rights.Examination, knowledge: _Knowledge) -> Iterator[Finding]:
    """Describe the topics that the query writes or reads."""
    if not examined.topics:
        yield Finding("data topics", CheckResult.SKIPPED, "none given", "Name them with --topic")
    for name in examined.topics:
        check = f"topic {name}"
        try:
            topic = described(client, name) or client.require_topics([name], need_leaders=False)[name]
        except EosKafkaError as error:
            yield _failed(check, error)
            continue
        yield state(client, check, topic)


def _topics_of_coordinators(
    client: KafkaClient, examined: rights.Examination, knowledge: _Knowledge
) -> Iterator[Finding]:
    """Report trouble of topics that hold transactions and offsets: each id and each query depends on one partition."""
    for name in (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC):
        # The brokers create both when they are needed, and a principal seldom may see them.
        with suppress(AuthorizationError):
            topic = described(client, name)
            found = None if topic is None else state(client, f"topic {name}", topic)
            if found is not None and found.verdict is not CheckResult.OK:
                yield found


def _readers(client: KafkaClient, examined: rights.Examination, knowledge: _Knowledge) -> Iterator[Finding]:
    """Report the open transactions that readers of committed records wait for."""
    for name in examined.topics:
        check = f"readers of {name}"
        try:
            places = places_of(client.require_topics([name], max_age_ms=_JUST_ASKED_MS).values())
            stable, high = ends(client, places, places)
            found = open_now(find_open(client, [each for each in high if (stable.get(each) or 0) < (high[each] or 0)]))
        except AuthorizationError:
            yield Finding(check, CheckResult.SKIPPED, "a right to look for open transactions is missing")
            continue
        except TopicError:
            # The check of the topic itself reports it.
            continue
        if silent := places.keys() - high.keys():
            yield Finding(check, CheckResult.WARNING, f"no leader has answered for {counted(len(silent), 'partition')}")
        commands, at_ms = OperatorCommands.of(client.options), now_ms(client.runtime.clock)
        hanging = [each for each in found if each.hangs]
        for each in hanging:
            text = f"{each.transaction.topic_partition} is blocked. {each.sentence(commands, at_ms)}"
            yield Finding(check, CheckResult.PROBLEM, text, each.command(commands) or "")
        if found and not hanging:
            oldest = f"{found[0].transaction.topic_partition}: {found[0].sentence(commands, at_ms)}"
            yield Finding(check, CheckResult.NOTE, f"{counted(len(found), 'open transaction')}; {oldest}")
        elif not found and not silent:
            yield Finding(check, CheckResult.OK, "no open transaction blocks them")


def _decision_topic(client: KafkaClient, examined: rights.Examination, knowledge: _Knowledge) -> Iterator[Finding]:
    """Check what the sink checks before a query, without creating anything."""
    name = examined.decision_topic
    check = f"decision topic {name}"
    decisions = described(client, name)
    if decisions is None:
        yield _missing_decision_topic(client, check, name)
        return
    knowledge.has_decision_topic = True
    try:
        config = describe_topic_config(client, name)
    except EosKafkaError as error:
        yield _failed(check, error, CheckResult.NOTE)
        return
    problem = topic_problem(name, config, may_expire=examined.may_expire)
    if problem is not None:
        yield _failed(check, problem)
        return
    doubts: list[str] = []
    for topic in examined.topics or (None,):
        try:
            data = data_durability(client, topic)
        except EosKafkaError:
            # The check of the topic itself reports it.
            continue
        doubts += topic_doubts(name, config, replica_count(decisions), data)
    for doubt in dict.fromkeys(doubts):
        found, _, remedy = doubt.rpartition(". ")
        yield Finding(check, CheckResult.WARNING, found, remedy)
    if (missing := replicas(check, decisions, config)) is not None:
        yield missing
    elif not doubts:
        policy = config.get("cleanup.policy")
        kept = "compacted" if policy is not None and "compact" in policy else "keeps all records"
        kept = "its cleanup.policy is not reported" if policy is None else kept
        yield Finding(check, CheckResult.OK, f"{size_of(decisions)}, {kept}")


def _missing_decision_topic(client: KafkaClient, check: str, name: str) -> Finding:
    """Find out with a request that only validates whether the sink could create the topic."""
    capabilities = BrokerCapabilities()
    capabilities.complete(client)
    replicas, config = creation_settings(client, capabilities)
    try:
        create_topic(
            client,
            name,
            partition_count=DECISION_TOPIC_PARTITIONS,
            replication_factor=replicas,
            config=config,
            validate_only=True,
        )
    except UnansweredError as error:
        return _failed(check, error)
    except EosKafkaError as error:
        return Finding(
            check,
            CheckResult.PROBLEM,
            f"does not exist, and the sink cannot create it: {error.happened} ({error.checked})",
            creation_error(client, name, capabilities, error).remedy,
        )
    return Finding(check, CheckResult.OK, "does not exist yet; the sink may create it")


# Rights and transactions.


def _rights(client: KafkaClient, examined: rights.Examination, knowledge: _Knowledge) -> Iterator[Finding]:
    """Compare the operations that the brokers allow this principal with what each role needs."""
    allowed, knowledge.probe = rights.allowed_operations(client, examined)
    for role, listed in rights.ROLES.items():
        if not role.startswith(tuple(_ROLE_WORDS[each] for each in examined.roles)):
            continue
        needed = rights.compared(listed, examined, allowed)
        optional = rights.compared(rights.OPTIONAL.get(role, ()), examined, allowed)
        check = f"rights: {role.replace('`', '')}"
        if needed.missing:
            yield Finding(
                check,
                CheckResult.PROBLEM,
                f"lacks {rights.list_text(needed.missing)}",
                rights.grant_commands(needed.missing),
            )
        elif needed.unknown:
            yield Finding(check, CheckResult.NOTE, f"nothing missing; not checked: {rights.list_text(needed.unknown)}")
        elif optional.missing:
            found = f"complete; lacks the optional {rights.list_text(optional.missing)}"
            yield Finding(check, CheckResult.NOTE, found, rights.grant_commands(optional.missing))
        else:
            yield Finding(check, CheckResult.OK, "complete")


def _group_offsets(client: KafkaClient, examined: rights.Examination, knowledge: _Knowledge) -> Iterator[Finding]:
    """Read the offsets of a group that has none, as the sink does before it looks for its newest decision."""
    if "sink" not in examined.roles:
        return
    check = "offsets of a group"
    try:
        for places in ([TopicPartition(examined.decision_topic, 0)], None):
            fetch_offsets(client, examined.probe, places)
    except AuthorizationError:
        # The check of the rights names what is missing.
        yield Finding(check, CheckResult.SKIPPED, "a right is missing")
    else:
        yield Finding(check, CheckResult.OK, "read as the sink does")


def _trial_transaction(client: KafkaClient, examined: rights.Examination, knowledge: _Knowledge) -> Iterator[Finding]:
    """Begin a transaction as the sink's commit does, describe it and abort it; compare the clocks by its start."""
    check = "trial transaction"
    if examined.is_read_only or not knowledge.has_decision_topic:
        reason = "--read-only is given" if examined.is_read_only else "there is no decision topic that can be used"
        yield Finding(check, CheckResult.SKIPPED, reason)
        return
    clock = client.runtime.clock
    identity = knowledge.probe or init_producer_id(
        client, examined.probe, transaction_timeout_ms=rights.TRIAL_TIMEOUT_MS
    )
    begun, begun_at_ms = clock.monotonic(), now_ms(clock)
    try:
        place = TopicPartition(examined.decision_topic, 0)
        txn_offset_commit(client, identity, examined.probe, {place: OffsetAndMetadata(0)})
        described = describe_transactions(client, [examined.probe])[examined.probe]
        described_at_ms = now_ms(clock)
    finally:
        ended = end_txn(client, identity, commit=False)
    taken_ms = (clock.monotonic() - begun) * 1000
    if ended.code is not ErrorCode.NONE:
        yield Finding(
            check,
            CheckResult.PROBLEM,
            f"EndTxn got {'no response' if ended.code is None else ended.code.name}",
            f"Run `eos-kafka transactions describe --transactional-id {examined.probe}`",
        )
        return
    yield Finding(check, CheckResult.OK, f"begun, described and aborted in {taken_ms:.0f} ms")
    yield _clock_difference(described.start_time_ms, begun_at_ms, described_at_ms)


def _clock_difference(start_ms: int, earliest_ms: int, latest_ms: int) -> Finding:
    check = "clock difference"
    difference_ms = start_ms - min(max(start_ms, earliest_ms), latest_ms)
    if abs(difference_ms) <= _CLOCK_DIFFERENCE_MS:
        return Finding(check, CheckResult.OK, f"at most {abs(difference_ms) + latest_ms - earliest_ms} ms")
    return Finding(
        check,
        CheckResult.WARNING,
        f"the coordinator's clock is {abs(difference_ms)} ms {'ahead of' if difference_ms > 0 else 'behind'} this "
        "machine's",
        "Synchronize the clocks (NTP): the time that a transaction has left is computed from both",
    )


def _aborted_records(client: KafkaClient, examined: rights.Examination, knowledge: _Knowledge) -> Iterator[Finding]:
    if examined.trial_topic is not None:
        yield try_aborted_record(client, examined, examined.trial_topic)


_CHECKS: Final = (
    _settings_of_brokers,
    _data_topics,
    _topics_of_coordinators,
    _readers,
    _decision_topic,
    _rights,
    _group_offsets,
    _trial_transaction,
    _aborted_records,
)
