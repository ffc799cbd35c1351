"""The begin and the end of transactions, apart from the producer that fills them.

Each function is one exchange with transaction coordinators, repeated until there is a response. `end_txns` does not
interpret the codes it receives: `inspection.describe_transactions` reports what became of a transaction.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

from broker_core.errors import ErrorCode
from broker_core.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerIdentity, TopicPartition
from spark_eos.client.coordinator_cache import CoordinatorType
from spark_eos.client.coordinator_requests import (
    CoordinatorAnswer,
    CoordinatorRequest,
    ask_coordinator,
    ask_coordinators,
)
from spark_eos.client.error_table import Api, failure, known_code, worst_code
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.metadata import FIRST_TV2_END_TXN, grouped
from spark_eos.client.response_reader import whole_code
from spark_eos.errors import EosKafkaError, UnansweredError
from spark_eos.open_transaction import EndAnswer, OpenTransaction

TV2: Final = 2
_NEVER: Final = 1 << 15
_LAST_INIT: Final = 5
# The ids beyond the first one are not waited for longer.
_AT_ONCE_MS: Final = 2_000
# Versions from 4 on are for brokers only (KIP-890 part 1).
LAST_CLIENT_ADD_PARTITIONS: Final = 3


def init_producer_id(
    client: KafkaClient,
    transactional_id: str,
    *,
    transaction_timeout_ms: int,
    timeout_ms: float | None = None,
    repeats: bool = True,
) -> OpenTransaction:
    """Take over a transactional id: abort its open transaction, fence its former owner, get a new epoch.

    The next transaction is one of the cluster's level. Without `repeats` the first request that receives no response
    raises `UnansweredError`.
    """
    deadline = client.deadline(timeout_ms)
    transaction_version = client.transaction_version(timeout_ms=timeout_ms)
    make = partial(_init_request, transactional_id, transaction_timeout_ms)
    exchange = CoordinatorRequest(Api.INIT_PRODUCER_ID, transactional_id, make, repeats=repeats)
    response = ask_coordinator(client, exchange, deadline).response
    return _initialised(transactional_id, response, transaction_timeout_ms, transaction_version)


def _init_request(transactional_id: str, transaction_timeout_ms: int) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=transaction_timeout_ms,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        max_version=_LAST_INIT,
    )


def _initialised(
    transactional_id: str, response: InitProducerIdResponse, transaction_timeout_ms: int, transaction_version: int
) -> OpenTransaction:
    if response.error_code != ErrorCode.NONE:
        raise failure(
            Api.INIT_PRODUCER_ID,
            response.error_code,
            f"transactional id {transactional_id!r}",
            detail=f"asked with a transaction timeout of {transaction_timeout_ms} ms",
        )
    producer = ProducerIdentity(response.producer_id, response.producer_epoch)
    return OpenTransaction(transactional_id, producer, transaction_version)


def own_some_of(
    client: KafkaClient, transactional_ids: Iterator[str], count: int, *, transaction_timeout_ms: int
) -> Sequence[OpenTransaction]:
    """Take over at least one of these ids, each at most once: `count` at the same time, if that is answered at once.

    Otherwise this returns the ids that were taken, and if there are none, `own_one_of` continues with the ids that
    follow. An unavailable coordinator then costs seconds, and not an id that would have been taken.
    """
    if count > 1:
        names = list(itertools.islice(transactional_ids, count))
        owned = _own_at_once(client, names, transaction_timeout_ms)
        if owned:
            return owned
    return [own_one_of(client, transactional_ids, transaction_timeout_ms=transaction_timeout_ms)]


def _own_at_once(client: KafkaClient, names: Sequence[str], transaction_timeout_ms: int) -> list[OpenTransaction]:
    """Send one request for each; return those that succeeded. Errors show when an id is requested alone."""
    deadline = client.deadline(_AT_ONCE_MS)
    try:
        transaction_version = client.transaction_version(timeout_ms=_AT_ONCE_MS)
        nodes = client.find_coordinators(CoordinatorType.TRANSACTION, names, timeout_ms=client.remaining_ms(deadline))
    except EosKafkaError:
        return []
    requests = [(nodes[name], _init_request(name, transaction_timeout_ms)) for name in names]
    responses = client.send_all(requests, timeout_ms=client.remaining_ms(deadline))
    owned = []
    for name, response in zip(names, responses, strict=True):
        if isinstance(response, EosKafkaError) or response.error_code != ErrorCode.NONE:
            client.forget_coordinators(CoordinatorType.TRANSACTION, name)
        else:
            owned.append(_initialised(name, response, transaction_timeout_ms, transaction_version))
    return owned


def own_one_of(
    client: KafkaClient, transactional_ids: Iterable[str], *, transaction_timeout_ms: int
) -> OpenTransaction:
    """Take over the first of these ids whose coordinator responds.

    A request without a response may be applied late, and would then abort what its id has open at that time. So it is
    not sent again, its id is given up, and the next one is tried, until the client's deadline.
    """
    deadline = client.deadline(None)
    for attempt, transactional_id in enumerate(transactional_ids):
        try:
            return init_producer_id(
                client,
                transactional_id,
                transaction_timeout_ms=transaction_timeout_ms,
                timeout_ms=client.remaining_ms(deadline),
                repeats=False,
            )
        except UnansweredError:
            if not client.back_off(attempt, deadline):
                raise
    raise AssertionError("there are ever more ids")


def end_txn(
    client: KafkaClient, transaction: OpenTransaction, *, commit: bool, timeout_ms: float | None = None
) -> EndAnswer:
    """End one transaction; see `end_txns`."""
    return end_txns(client, [transaction], commit=commit, timeout_ms=timeout_ms)[transaction.transactional_id]


def end_txns(
    client: KafkaClient, opened: Collection[OpenTransaction], *, commit: bool, timeout_ms: float | None = None
) -> dict[str, EndAnswer]:
    """Commit or abort many transactions in parallel, each repeated until there is a response; return it for each id.

    NONE means that the coordinator has recorded the end. Every other code leaves open what became of the transaction:
    describe it.

    A transaction ends by the protocol it was begun with. There is one exception: if the level has fallen to 0 since, a
    transaction of TV2 ends by the old protocol. Apache Kafka's coordinator could not store any other end, and would
    refuse the id from then on.
    """
    deadline = client.deadline(timeout_ms)
    first_tv2 = TV2 if client.known_transaction_version(timeout_ms=timeout_ms) > 0 else _NEVER
    results: dict[str, EndAnswer] = {}
    for by_tv2 in (True, False):
        group = [each for each in opened if (each.transaction_version >= first_tv2) == by_tv2]
        answers = ask_coordinators(client, [_end_exchange(each, commit, by_tv2) for each in group], deadline)
        results |= {
            each.transactional_id: _end_answer(each.producer, answers[each.transactional_id], by_tv2) for each in group
        }
    return results


def _end_exchange(opened: OpenTransaction, commit: bool, by_tv2: bool) -> CoordinatorRequest[EndTxnResponse]:
    make = partial(
        EndTxnRequest,
        transactional_id=opened.transactional_id,
        producer_id=opened.producer.producer_id,
        producer_epoch=opened.producer.producer_epoch,
        committed=commit,
        min_version=FIRST_TV2_END_TXN if by_tv2 else None,
        max_version=FIRST_TV2_END_TXN if by_tv2 else FIRST_TV2_END_TXN - 1,
    )
    return CoordinatorRequest(Api.END_TXN, opened.transactional_id, make)


def _end_answer(producer: ProducerIdentity, answer: CoordinatorAnswer[EndTxnResponse] | int, by_tv2: bool) -> EndAnswer:
    """Return what a final response, or the code of one that is not final, stands for; an unknown code is no success."""
    if isinstance(answer, int):
        return EndAnswer(None)
    response, code = answer.response, known_code(answer.error_code)
    if code is not ErrorCode.NONE or not by_tv2:
        return EndAnswer(code, producer if code is ErrorCode.NONE else None)
    following = ProducerIdentity(response.producer_id, response.producer_epoch)
    return EndAnswer(code, None if following.producer_id == NO_PRODUCER_ID else following)


def add_partitions_to_txn(
    client: KafkaClient,
    identity: OpenTransaction,
    topic_partitions: Iterable[TopicPartition],
    *,
    timeout_ms: float | None = None,
) -> None:
    """Register partitions with the transaction before the first produce to them (TV1)."""
    asked = list(topic_partitions)
    topic_class = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    make = partial(
        AddPartitionsToTxnRequest,
        v3_and_below_transactional_id=identity.transactional_id,
        v3_and_below_producer_id=identity.producer.producer_id,
        v3_and_below_producer_epoch=identity.producer.producer_epoch,
        v3_and_below_topics=[topic_class(name=name, partitions=each) for name, each in grouped(asked).items()],
        max_version=LAST_CLIENT_ADD_PARTITIONS,
    )

    def code_of(response: AddPartitionsToTxnResponse) -> int:
        what = f"{Api.ADD_PARTITIONS.value} for {identity.transactional_id!r}"
        return whole_code(_worst_partition_code(response), asked, _partition_codes(response), what)

    exchange = CoordinatorRequest(Api.ADD_PARTITIONS, identity.transactional_id, make, code_of)
    answer = ask_coordinator(client, exchange, client.deadline(timeout_ms))
    codes, worst = _partition_codes(answer.response), answer.error_code
    if worst != ErrorCode.NONE:
        refused = next(each for each, code in codes.items() if code == worst)
        raise failure(Api.ADD_PARTITIONS, worst, f"{refused} in transaction {identity.transactional_id!r}")


def _partition_codes(response: AddPartitionsToTxnResponse) -> Mapping[TopicPartition, int]:
    return {
        TopicPartition(topic.name, partition.partition_index): partition.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    }


def _worst_partition_code(response: AddPartitionsToTxnResponse) -> int:
    """Return the code that decides; OPERATION_NOT_ATTEMPTED only means that another partition has the reason."""
    codes = list(_partition_codes(response).values())
    reasons = [code for code in codes if code != ErrorCode.OPERATION_NOT_ATTEMPTED]
    return worst_code(Api.ADD_PARTITIONS, reasons) or worst_code(Api.ADD_PARTITIONS, codes)
