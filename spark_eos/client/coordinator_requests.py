"""Requests to coordinators, repeated until there is a final response or the deadline passes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from broker_core.errors import ErrorCode
from spark_eos.client.coordinator_cache import CoordinatorType
from spark_eos.client.error_table import Api, Verdict, classify, code_name, meaning
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.errors import EosKafkaError, UnansweredError

if TYPE_CHECKING:
    from kafka.protocol.api_message import ApiRequest

ResponseT = TypeVar("ResponseT")

RESENT: Final = (Verdict.RETRIABLE, Verdict.REFRESH)
# Usually the coordinator is completing the id's last transaction, which takes some milliseconds.
_FIRST_BACKOFF_MS: Final = 20
# A broker that is disconnected from the others may report forever that it is loading: for one, it gets no new producer
# ids.
_LOOKED_UP_EVERY: Final = 8
_OF_GROUPS: Final = (Api.TXN_OFFSET_COMMIT, Api.OFFSET_COMMIT, Api.OFFSET_FETCH)


@dataclass(frozen=True, slots=True)
class CoordinatorRequest(Generic[ResponseT]):
    """A request to the coordinator of `key`; `make` builds it for each attempt, `code` reads its response.

    Without `repeats` the first attempt that receives no response raises `UnansweredError`.
    """

    api: Api
    key: str
    make: "Callable[[], ApiRequest[ResponseT]]"
    code: Callable[[ResponseT], int] = attrgetter("error_code")
    repeats: bool = True

    @property
    def key_type(self) -> CoordinatorType:
        return CoordinatorType.GROUP if self.api in _OF_GROUPS else CoordinatorType.TRANSACTION


@dataclass(frozen=True, slots=True)
class CoordinatorAnswer(Generic[ResponseT]):
    """A final response, which another attempt would not change; its code, and the node that sent it."""

    response: ResponseT
    error_code: int
    node_id: int


def ask_coordinator(
    client: KafkaClient, exchange: CoordinatorRequest[ResponseT], deadline: float
) -> CoordinatorAnswer[ResponseT]:
    """Query one coordinator; raise `UnansweredError` if it returned only retriable codes until the deadline."""
    answer = ask_coordinators(client, [exchange], deadline)[exchange.key]
    if isinstance(answer, int):
        words, remedy = meaning(exchange.api, answer)
        raise UnansweredError(
            f"{exchange.api.value} for {exchange.key_type.word} {exchange.key!r} did not complete in time",
            checked="The last request had no usable response"
            if answer == ErrorCode.NETWORK_EXCEPTION
            else f"The last response was {code_name(answer)}" + (f": {words}" if words else ""),
            remedy=remedy if words else "Check that the brokers that lead the coordinator's partition are running",
            error_code=answer,
        )
    return answer


def ask_coordinators(
    client: KafkaClient, exchanges: Sequence[CoordinatorRequest[ResponseT]], deadline: float
) -> Mapping[str, CoordinatorAnswer[ResponseT] | int]:
    """Query the coordinators of many keys of one kind at once, with retries for those without a final response.

    A key that stays without one has its last code. After a lost connection the same request is sent again, unless an
    exchange forbids it.
    """
    open_exchanges = {exchange.key: exchange for exchange in exchanges}
    assert len(open_exchanges) == len(exchanges), "two exchanges for one key would hide each other"
    answers: dict[str, CoordinatorAnswer[ResponseT] | int] = {}
    for attempt in client.attempts(deadline, first_ms=_FIRST_BACKOFF_MS) if exchanges else ():
        key_type = exchanges[0].key_type
        if attempt and attempt % _LOOKED_UP_EVERY == 0:
            client.forget_coordinators(key_type, *open_exchanges)
        nodes = client.find_coordinators(key_type, list(open_exchanges), timeout_ms=client.remaining_ms(deadline))
        responses = client.send_all(
            [(nodes[key], exchange.make()) for key, exchange in open_exchanges.items()],
            timeout_ms=client.remaining_ms(deadline),
        )
        for exchange, response in zip(list(open_exchanges.values()), responses, strict=True):
            answer = answers[exchange.key] = _judge(client, exchange, response, nodes[exchange.key])
            if not isinstance(answer, int):
                del open_exchanges[exchange.key]
        if not open_exchanges:
            break
    return answers


def _judge(
    client: KafkaClient, exchange: CoordinatorRequest[ResponseT], response: ResponseT | EosKafkaError, node_id: int
) -> CoordinatorAnswer[ResponseT] | int:
    try:
        if isinstance(response, EosKafkaError):
            raise response
        # This raises, too, if the response leaves out what was requested, which says nothing about it.
        code = exchange.code(response)
    except UnansweredError:
        client.forget_coordinators(exchange.key_type, exchange.key)
        if not exchange.repeats:
            raise
        return ErrorCode.NETWORK_EXCEPTION
    verdict = classify(exchange.api, code)
    if verdict is Verdict.REFRESH:
        client.forget_coordinators(exchange.key_type, exchange.key)
    return code if verdict in RESENT else CoordinatorAnswer(response, code, node_id)
