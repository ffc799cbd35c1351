"""Find and remember which broker coordinates a group or a transactional id."""

import random
import time
from collections.abc import Collection, Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from kafka.protocol.metadata import FindCoordinatorRequest

from broker_core.errors import ErrorCode
from spark_eos.client.error_table import Api, Verdict, classify, code_name, failure
from spark_eos.errors import EosKafkaError, UnansweredError

if TYPE_CHECKING:
    from spark_eos.client.connection import KafkaClient

_FIRST_BATCHED_VERSION: Final = 4
# More keys than one driver or task uses at a time; a stream that runs for weeks meets any number of them.
MAX_REMEMBERED: Final = 10_000


class CoordinatorType(IntEnum):
    """Say which kind of coordinator a key belongs to."""

    GROUP = 0
    TRANSACTION = 1

    @property
    def word(self) -> str:
        """Name the kind of key in messages."""
        return "group" if self is CoordinatorType.GROUP else "transactional id"


class Coordinators:
    """The coordinators of the keys used last, each until it is said to have moved."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[CoordinatorType, str], int] = {}
        # Forgotten last: a broker that is cut off from its peers goes on to name itself.
        self._doubted: int | None = None

    def __len__(self) -> int:
        """Count the keys remembered."""
        return len(self._nodes)

    def known(self, key_type: CoordinatorType, keys: Collection[str]) -> dict[str, int]:
        """Give the remembered nodes of keys that were looked up."""
        return {key: self._nodes[key_type, key] for key in keys}

    def forget(self, key_type: CoordinatorType, keys: Iterable[str]) -> None:
        """Drop the remembered coordinators of these keys."""
        for key in keys:
            self._doubted = self._nodes.pop((key_type, key), self._doubted)

    def look_up(
        self, client: "KafkaClient", key_type: CoordinatorType, keys: Collection[str], deadline: float
    ) -> str | None:
        """Ask once for those not known and remember them; the last trouble that is worth another try, or None."""
        for each in [(key_type, key) for key in keys if (key_type, key) in self._nodes]:
            # Used last, dropped last.
            self._nodes[each] = self._nodes.pop(each)
        wanted = [key for key in dict.fromkeys(keys) if (key_type, key) not in self._nodes]
        if not wanted:
            return None
        batched = _is_batched(client)
        groups = [wanted] if batched else [[key] for key in wanted]
        asked = self._other_than_doubted(client)
        responses = _ask(client, key_type, [(asked, group) for group in groups], batched, deadline)
        trouble: str | None = None
        for group, response in zip(groups, responses, strict=True):
            trouble = self._remember(key_type, group, response, batched) or trouble
        # All of those asked for now stay, however many they are.
        for oldest in list(self._nodes)[: -max(MAX_REMEMBERED, len(keys))]:
            del self._nodes[oldest]
        return trouble

    def agree(self, client: "KafkaClient", key_type: CoordinatorType, key: str, deadline: float) -> None:
        """Find the coordinator that every broker names; raises `UnansweredError` where they do not come to agree.

        A broker that is cut off from its peers names itself, and its answers are of the past. But a coordinator knows
        that it is one: where no broker names another, no other has accepted anything.
        """
        attempt = 0
        while (trouble := self._disagreement(client, key_type, key, deadline)) is not None:
            if not client.back_off(attempt, deadline):
                raise UnansweredError(
                    f"The brokers do not agree on the coordinator of {key_type.word} {key!r}",
                    checked=f"FindCoordinator, asked of each: {trouble}",
                    remedy="Look for a broker that is cut off from the others, or does not answer",
                )
            attempt += 1

    def _disagreement(self, client: "KafkaClient", key_type: CoordinatorType, key: str, deadline: float) -> str | None:
        """Ask every broker once, all at the same time, and remember whom all of them name."""
        self._nodes.pop((key_type, key), None)
        client.metadata([], timeout_ms=max(1.0, (deadline - time.monotonic()) * 1000))
        nodes, batched = [each.node_id for each in client.brokers()], _is_batched(client)
        responses = _ask(client, key_type, [(node, [key]) for node in nodes], batched, deadline)
        said: dict[int, str] = {}
        named: set[int | None] = set()
        for node, response in zip(nodes, responses, strict=True):
            trouble = self._remember(key_type, [key], response, batched)
            found = None if trouble is not None else self._nodes.pop((key_type, key))
            named.add(found)
            said[node] = trouble or f"broker {found}"
        if len(named) == 1 and (agreed := named.pop()) is not None:
            self._nodes[key_type, key] = agreed
            return None
        return "; ".join(f"broker {node} says {answer}" for node, answer in said.items())

    def _other_than_doubted(self, client: "KafkaClient") -> int | None:
        """Choose a broker to ask; None where any will do. Any is most often the one that is connected already."""
        if self._doubted is None:
            return None
        doubted, self._doubted = self._doubted, None
        others = [each.node_id for each in client.brokers() if each.node_id != doubted]
        return random.choice(others) if others else None

    def _remember(self, key_type: CoordinatorType, keys: Sequence[str], response: Any, batched: bool) -> str | None:
        if isinstance(response, UnansweredError):
            return response.happened
        if isinstance(response, EosKafkaError):
            raise response
        trouble: str | None = None
        found = {each.key: each for each in response.coordinators} if batched else {keys[0]: response}
        for key in keys:
            each = found.get(key)
            if each is None:
                trouble = f"one that leaves out {key!r}"
                continue
            verdict = classify(Api.FIND_COORDINATOR, each.error_code)
            if each.error_code == ErrorCode.NONE:
                self._nodes[key_type, key] = each.node_id
            elif verdict in (Verdict.RETRIABLE, Verdict.REFRESH):
                trouble = code_name(each.error_code)
            else:
                raise failure(Api.FIND_COORDINATOR, each.error_code, f"{key_type.word} {key!r}")
        return trouble


def _is_batched(client: "KafkaClient") -> bool:
    return client.api_version(FindCoordinatorRequest) >= _FIRST_BATCHED_VERSION


def _ask(
    client: "KafkaClient",
    key_type: CoordinatorType,
    asked: Sequence[tuple[int | None, Sequence[str]]],
    batched: bool,
    deadline: float,
) -> list[Any]:
    """Ask brokers for the coordinators of keys, all at once."""
    return client.send_all(
        [
            (node, FindCoordinatorRequest(key=keys[0], key_type=int(key_type), coordinator_keys=list(keys)))
            for node, keys in asked
        ],
        max_version=None if batched else _FIRST_BATCHED_VERSION - 1,
        timeout_ms=max(1.0, (deadline - time.monotonic()) * 1000),
    )
