"""Transactions as their coordinators describe and list them (KIP-664)."""

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from kafka.protocol.admin import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

from broker_core.errors import ErrorCode
from broker_core.types import TopicPartition, TransactionState
from spark_eos.client.coordinator_cache import CoordinatorType
from spark_eos.client.coordinator_requests import RESENT
from spark_eos.client.error_table import Api, Verdict, classify, explained, failure
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.metadata import ELECTION_MS, grouped
from spark_eos.errors import AuthorizationError, EosKafkaError, OptionError, UnansweredError
from spark_eos.runtime import Pending

logger: Final = logging.getLogger(__name__)
# The right that a principal needs to see every transaction.
SEE_EVERY_ID: Final = "Grant the principal DESCRIBE on all transactional ids ('*')"
FIRST_DURATION_VERSION: Final = 1
_SLOW_SECONDS: Final = 0.3
FIRST_PATTERN_VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """The last transaction of an id; with TRANSACTIONAL_ID_NOT_FOUND the other fields have no meaning."""

    transactional_id: str
    error_code: int
    state: str
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    start_time_ms: int
    topic_partitions: tuple[TopicPartition, ...]

    @property
    def exists(self) -> bool:
        return self.error_code == ErrorCode.NONE

    def lists(self, topic_partition: TopicPartition) -> bool:
        return self.exists and topic_partition in self.topic_partitions


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id, its producer, its state and the broker that has listed it."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator_id: int


def describe_transactions(
    client: KafkaClient,
    transactional_ids: Collection[str],
    *,
    timeout_ms: float | None = None,
    unanswered: dict[str, str] | None = None,
) -> dict[str, TransactionDescription]:
    """Describe transactions, with one request for each coordinator, all at once.

    Raises `UnansweredError` if a coordinator gives no final response, or none is found, and the error of every other
    code than TRANSACTIONAL_ID_NOT_FOUND, as `AuthorizationError`. `unanswered` collects the ids without such a
    response after 10 seconds, and why, instead of an error.
    """
    deadline = _deadline(client, timeout_ms, unanswered is not None)
    descriptions: dict[str, TransactionDescription] = {}
    wanted, trouble = list(dict.fromkeys(transactional_ids)), ""
    for _ in client.attempts(deadline):
        trouble = _describe_once(client, wanted, deadline, descriptions)
        wanted = [each for each in wanted if each not in descriptions]
        if not wanted:
            return descriptions
    if unanswered is not None:
        unanswered.update(dict.fromkeys(wanted, trouble))
        return descriptions
    raise UnansweredError(f"{wanted[0]!r} could not be described in time", checked=f"Last response: {trouble}")


def _deadline(client: KafkaClient, timeout_ms: float | None, in_part: bool) -> float:
    deadline = client.deadline(timeout_ms)
    return min(deadline, client.deadline(ELECTION_MS)) if in_part else deadline


def _describe_once(
    client: KafkaClient, wanted: Sequence[str], deadline: float, into: dict[str, TransactionDescription]
) -> str:
    nodes, unknown = client.look_up_coordinators(CoordinatorType.TRANSACTION, wanted, deadline)
    by_node = grouped((node, each) for each, node in nodes.items())
    responses = client.send_all(
        [(node, DescribeTransactionsRequest(transactional_ids=ids)) for node, ids in by_node.items()],
        timeout_ms=client.remaining_ms(deadline),
    )
    trouble = f"FindCoordinator: {unknown}" if unknown else ""
    for ids, response in zip(by_node.values(), responses, strict=True):
        if isinstance(response, UnansweredError):
            trouble = response.happened
            client.forget_coordinators(CoordinatorType.TRANSACTION, *ids)
        elif isinstance(response, EosKafkaError):
            raise response
        else:
            for state in response.transaction_states:
                if state.transactional_id in ids:
                    trouble = _take_description(client, state, into) or trouble
    return trouble


def _take_description(
    client: KafkaClient, state: DescribeTransactionsResponse.TransactionState, into: dict[str, TransactionDescription]
) -> str:
    verdict = classify(Api.DESCRIBE_TRANSACTIONS, state.error_code)
    if verdict in RESENT:
        if verdict is Verdict.REFRESH:
            client.forget_coordinators(CoordinatorType.TRANSACTION, state.transactional_id)
        return explained(Api.DESCRIBE_TRANSACTIONS, state.error_code)
    if verdict is not Verdict.SUCCESS and state.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        # It says nothing about the id.
        raise failure(Api.DESCRIBE_TRANSACTIONS, state.error_code, f"transactional id {state.transactional_id!r}")
    into[state.transactional_id] = TransactionDescription(
        transactional_id=state.transactional_id,
        error_code=state.error_code,
        state=state.transaction_state,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        transaction_timeout_ms=state.transaction_timeout_ms,
        start_time_ms=state.transaction_start_time_ms,
        topic_partitions=tuple(
            TopicPartition(each.topic, partition) for each in state.topics for partition in sorted(each.partitions)
        ),
    )
    return ""


def list_transactions(
    client: KafkaClient, *, states: Collection[str] = (), id_pattern: str | None = None
) -> list[TransactionListing]:
    """List the transactional ids of all coordinators, sorted; states are Kafka's names (`Ongoing`, ...).

    `id_pattern` is RE2 for the whole id and saves traffic; brokers before 4.1 ignore it, so the caller still checks
    every id.
    """
    # One that moves while the brokers are queried may be listed twice.
    by_id = {each.transactional_id: each for each in list_by_broker(client, states=states, id_pattern=id_pattern)}
    return sorted(by_id.values(), key=lambda each: each.transactional_id)


def check_listing(client: KafkaClient) -> None:
    """Raise `UnsupportedError` if the connected broker does not list transactions; sends no request."""
    client.api_version(ListTransactionsRequest)


def list_by_broker(
    client: KafkaClient,
    *,
    states: Collection[str] = (),
    producer_ids: Collection[int] = (),
    duration_ms: int | None = None,
    id_pattern: str | None = None,
    timeout_ms: float | None = None,
    silent: set[int] | None = None,
) -> list[TransactionListing]:
    """List transactional ids in the order of the brokers that list them; brokers ignore filters they do not know.

    Every broker must respond, because a broker that is left out would hide its transactions. With `silent`, brokers
    that do not respond within 10 seconds are added to it in place of an error; those in it are not asked. States are as
    the broker spells them, so a state that only a newer broker knows is listed too.
    """
    make = partial(_list_request, states, id_pattern, producer_ids, duration_ms)
    deadline = _deadline(client, timeout_ms, silent is not None)
    listings: dict[int, list[TransactionListing]] = {}
    nodes: list[int] = []
    trouble = ""
    before = {broker.node_id for broker in client.brokers()}
    for _ in client.attempts(deadline):
        client.metadata([], timeout_ms=client.remaining_ms(deadline))
        named = {broker.node_id for broker in client.brokers()}
        # A broker that one response leaves out may have transactions; it is gone if the next one leaves it out, too.
        nodes, before = sorted((before | named) - listings.keys() - (silent or set())), named
        trouble = _ask_once(client, nodes, (), make, deadline, listings)
        if not trouble:
            break
    else:
        if silent is None or not listings:
            raise UnansweredError("ListTransactions was not answered by every broker in time", checked=trouble)
        silent.update(set(nodes) - listings.keys())
    return [each for _, listed in sorted(listings.items()) for each in listed]


def list_answered(
    client: KafkaClient, slow: set[int], *, states: Collection[str], id_pattern: str | None, timeout_ms: float
) -> list[TransactionListing]:
    """List as `list_transactions` does, without the brokers that do not respond in time.

    Those are added to `slow`. The next call queries them too, but hardly waits for them until they respond.
    """
    make = partial(_list_request, states, id_pattern)
    deadline = client.deadline(timeout_ms)
    listings: dict[int, list[TransactionListing]] = {}
    attempt, is_refreshed = 0, False
    wanted = [broker.node_id for broker in client.brokers()]
    while wanted:
        trouble = _ask_once(client, wanted, slow, make, deadline, listings)
        slow.difference_update(listings)
        wanted = [node for node in wanted if node not in listings and node not in slow]
        if not wanted and not slow and not is_refreshed:
            # Afterwards, and only if all respond: the request may go to any broker, and must not cost the others' time.
            is_refreshed = True
            with suppress(EosKafkaError):
                client.metadata([], timeout_ms=client.remaining_ms(deadline))
            wanted = [broker.node_id for broker in client.brokers() if broker.node_id not in listings]
        elif wanted and not client.back_off(attempt, deadline):
            logger.warning("brokers %s did not list their transactions in time: %s", wanted, trouble)
            slow.update(wanted)
            break
        attempt += 1
    return [each for listing in listings.values() for each in listing]


def _ask_once(
    client: KafkaClient,
    nodes: Sequence[int],
    slow: Collection[int],
    make: Callable[[], ListTransactionsRequest],
    deadline: float,
    into: dict[int, list[TransactionListing]],
) -> str:
    """Ask brokers at once, and wait for the `slow` ones only briefly; return why one has not answered, if so."""
    asked: list[tuple[int, ListTransactionsRequest, Pending]] = []
    trouble = ""
    for node in nodes:
        request = make()
        try:
            # A late broker keeps its connection, so that it need not be slow the next time.
            until = client.deadline() if node in slow else deadline
            asked.append((node, request, client.start(node, request, until)))
        except UnansweredError as error:
            trouble = f"broker {node}: {error.happened}"
    client.transport.wait([pending for node, _, pending in asked if node not in slow], deadline)
    until = min(deadline, client.runtime.clock.monotonic() + _SLOW_SECONDS)
    client.transport.wait([pending for node, _, pending in asked if node in slow], until)
    for node, request, pending in asked:
        try:
            trouble = _take_listings(node, client.outcome(pending, request, node), into) or trouble
        except UnansweredError as error:
            trouble = f"broker {node}: {error.happened}"
    return trouble


def unused_name(client: KafkaClient) -> str:
    """Return the name of an id or a topic that does not exist, to see whether the principal may see all.

    It begins with chance: a principal may be allowed to see all names with a prefix, `eos-kafka` for example.
    """
    return f"{client.runtime.random.token_hex(16)}-eos-kafka-probe"


def sees_every_id(client: KafkaClient, *, timeout_ms: float | None = None) -> bool:
    """Return whether the principal may DESCRIBE every transactional id, by describing one that is not in use.

    Brokers silently leave out of a listing what the principal may not see. If such a listing is treated as complete, a
    live transaction looks like one that hangs.
    """
    nobodys = unused_name(client)
    try:
        describe_transactions(client, [nobodys], timeout_ms=timeout_ms)
    except AuthorizationError:
        return False
    finally:
        client.forget_coordinators(CoordinatorType.TRANSACTION, nobodys)
    return True


def _list_request(
    states: Collection[str], id_pattern: str | None, producer_ids: Collection[int] = (), duration_ms: int | None = None
) -> ListTransactionsRequest:
    return ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=-1 if duration_ms is None else duration_ms,
        transactional_id_pattern=id_pattern,
    )


def _take_listings(node: int, response: ListTransactionsResponse, into: dict[int, list[TransactionListing]]) -> str:
    if classify(Api.LIST_TRANSACTIONS, response.error_code) in RESENT:
        return f"broker {node}: {explained(Api.LIST_TRANSACTIONS, response.error_code)}"
    if response.error_code != ErrorCode.NONE:
        raise failure(Api.LIST_TRANSACTIONS, response.error_code, f"broker {node}")
    if response.unknown_state_filters:
        raise OptionError(
            f"Broker {node} does not know the transaction state {', '.join(response.unknown_state_filters)}",
            remedy=f"Use states of Kafka, as it spells them: {', '.join(each.label for each in TransactionState)}",
        )
    into[node] = [
        TransactionListing(each.transactional_id, each.producer_id, each.transaction_state, node)
        for each in response.transaction_states
    ]
    return ""
