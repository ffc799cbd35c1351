"""Requests to coordinators, repeated until there is a final response or the deadline passes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from broker_core.errors import ErrorCode
from spark_eos.client.coordinator_cache import CoordinatorType
from spark_eos.client.error_table import Api, Verdict, classify, code_name
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


@dataclass(frozen=True, slots=True)
class CoordinatorRequest(Generic[ResponseT]):
    """A request to the coordinator of `key`; `make` builds it for each attempt.

    Without `repeat` the first attempt that receives no response raises `UnansweredError`.
    """

    key: str
    make: "Callable[[], ApiRequest[ResponseT]]"
    code: Callable[[ResponseT], int]
    repeats: bool = True


@dataclass(frozen=True, slots=True)
class CoordinatorAnswer(Generic[ResponseT]):
    """The last response, or None if no attempt received one; its code, and the node that sent it."""

    response: ResponseT | None
    error_code: int
    node_id: int

    @property
    def is_final(self) -> bool:
        """Return whether the coordinator gave a response that another attempt would not change."""
        return self.response is not None


def ask_coordinator(
    client: KafkaClient,
    api: Api,
    key_type: CoordinatorType,
    exchange: CoordinatorRequest[ResponseT],
    *,
    deadline: float,
) -> ResponseT:
    """Query one coordinator; raise `UnansweredError` if it returned only retriable codes until the deadline."""
    response = final_answer(client, api, key_type, exchange, deadline=deadline).response
    assert response is not None, "a final answer has a response"
    return response


def final_answer(
    client: KafkaClient,
    api: Api,
    key_type: CoordinatorType,
    exchange: CoordinatorRequest[ResponseT],
    *,
    deadline: float,
) -> CoordinatorAnswer[ResponseT]:
    """Query one coordinator as `ask_coordinator` does, and also return which node responded."""
    answer = ask_coordinators(client, api, key_type, [exchange], deadline=deadline)[exchange.key]
    if not answer.is_final:
        raise no_final_answer(api, key_type, exchange.key, answer.error_code)
    return answer


def ask_coordinators(
    client: KafkaClient,
    api: Api,
    key_type: CoordinatorType,
    exchanges: Sequence[CoordinatorRequest[ResponseT]],
    *,
    deadline: float,
) -> Mapping[str, CoordinatorAnswer[ResponseT]]:
    """Query the coordinators of many keys at once, with retries for those without a final response.

    After a lost connection the same request is sent again, unless an exchange forbids it.
    """
    open_exchanges = {exchange.key: exchange for exchange in exchanges}
    assert len(open_exchanges) == len(exchanges), "two exchanges for one key would hide each other"
    answers: dict[str, CoordinatorAnswer[ResponseT]] = {}
    attempt = 0
    while open_exchanges:
        nodes = client.find_coordinators(key_type, list(open_exchanges), timeout_ms=client.remaining_ms(deadline))
        responses = client.send_all(
            [(nodes[key], exchange.make()) for key, exchange in open_exchanges.items()],
            timeout_ms=client.remaining_ms(deadline),
        )
        for exchange, response in zip(list(open_exchanges.values()), responses, strict=True):
            answer = _judge(client, api, key_type, exchange, response, nodes[exchange.key])
            answers[exchange.key] = answer
            if answer.is_final:
                del open_exchanges[exchange.key]
        if open_exchanges and not client.back_off(attempt, deadline, first_ms=_FIRST_BACKOFF_MS):
            break
        attempt += 1
        if attempt % _LOOKED_UP_EVERY == 0:
            client.forget_coordinators(key_type, open_exchanges)
    return answers


def no_final_answer(api: Api, key_type: CoordinatorType, key: str, error_code: int) -> EosKafkaError:
    return UnansweredError(
        f"{api.value} for {key_type.word} {key!r} did not complete in time",
        checked=f"The last response was {code_name(error_code)}",
        remedy="Check that the brokers that lead the coordinator's partition are running",
        error_code=error_code,
    )


def _judge(
    client: KafkaClient,
    api: Api,
    key_type: CoordinatorType,
    exchange: CoordinatorRequest[ResponseT],
    response: ResponseT | EosKafkaError,
    node_id: int,
) -> CoordinatorAnswer[ResponseT]:
    if isinstance(response, UnansweredError):
        return _judge_silence(client, key_type, exchange, response, node_id)
    if isinstance(response, EosKafkaError):
        raise response
    try:
        code = exchange.code(response)
    except UnansweredError as error:
        # The response leaves out what was requested, which says nothing about it.
        return _judge_silence(client, key_type, exchange, error, node_id)
    verdict = classify(api, code)
    if verdict is Verdict.REFRESH:
        client.forget_coordinator(key_type, exchange.key)
    return CoordinatorAnswer(None if verdict in RESENT else response, code, node_id)


def _judge_silence(
    client: KafkaClient,
    key_type: CoordinatorType,
    exchange: CoordinatorRequest[ResponseT],
    error: UnansweredError,
    node_id: int,
) -> CoordinatorAnswer[ResponseT]:
    client.forget_coordinator(key_type, exchange.key)
    if not exchange.repeats:
        raise error
    return CoordinatorAnswer(None, ErrorCode.NETWORK_EXCEPTION, node_id)
