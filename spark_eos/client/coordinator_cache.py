"""The cache of the coordinators of groups and transactional ids.

`KafkaClient` sends the requests; this module has the cache, and the encoding of FindCoordinator.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse

from broker_core.errors import ErrorCode
from spark_eos.client.error_table import Api, Verdict, classify, explained, failure
from spark_eos.client.metadata import BrokerAddress
from spark_eos.errors import EosKafkaError, UnansweredError

# The first version that takes several keys.
FIRST_BATCHED_VERSION: Final = 4
# More keys than one driver or task uses at a time; a stream that runs for weeks uses any number of them.
MAX_REMEMBERED: Final = 10_000


class CoordinatorType(IntEnum):
    """The kind of key that a coordinator belongs to."""

    GROUP = 0
    TRANSACTION = 1

    @property
    def word(self) -> str:
        return "group" if self is CoordinatorType.GROUP else "transactional id"


class CoordinatorCache:
    """The coordinators of the most recently used keys, each until it has moved."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[CoordinatorType, str], int] = {}
        # The node forgotten last: a broker that is disconnected from the others still names itself.
        self._doubted: int | None = None

    def __len__(self) -> int:
        return len(self._nodes)

    def known(self, key_type: CoordinatorType, keys: Collection[str]) -> dict[str, int]:
        return {key: self._nodes[key_type, key] for key in keys}

    def missing(self, key_type: CoordinatorType, keys: Collection[str]) -> list[str]:
        """Return the keys that are not cached; the others count as used."""
        for each in [(key_type, key) for key in keys if (key_type, key) in self._nodes]:
            # Keep the order of last use.
            self._nodes[each] = self._nodes.pop(each)
        return [key for key in dict.fromkeys(keys) if (key_type, key) not in self._nodes]

    def remember(self, key_type: CoordinatorType, found: Mapping[str, int]) -> None:
        self._nodes.update({(key_type, key): node_id for key, node_id in found.items()})

    def drop_oldest(self, wanted_count: int) -> None:
        """Drop the least recently used keys if there are too many; at least as many as are wanted now stay."""
        for oldest in list(self._nodes)[: -max(MAX_REMEMBERED, wanted_count)]:
            del self._nodes[oldest]

    def forget(self, key_type: CoordinatorType, keys: Iterable[str]) -> None:
        """Drop the coordinators of keys; the node forgotten last is not the one to ask next."""
        for key in keys:
            self._doubted = self._nodes.pop((key_type, key), self._doubted)

    def drop(self, key_type: CoordinatorType, key: str) -> None:
        """Drop the coordinator of a key that is looked up again, without distrusting the node."""
        self._nodes.pop((key_type, key), None)

    def take_doubted(self) -> int | None:
        """Return the node that was forgotten last, once."""
        doubted, self._doubted = self._doubted, None
        return doubted


class FoundCoordinators(NamedTuple):
    """The coordinators that a broker returned and where they are, and the last retriable failure, or None."""

    nodes: Mapping[str, int]
    trouble: str | None
    addresses: Collection[BrokerAddress] = ()


def find_coordinator_request(
    key_type: CoordinatorType, keys: Sequence[str], is_batched: bool
) -> FindCoordinatorRequest:
    """Make the request for the coordinators of keys; a version for a single key takes the first."""
    newest = None if is_batched else FIRST_BATCHED_VERSION - 1
    return FindCoordinatorRequest(key=keys[0], key_type=int(key_type), coordinator_keys=list(keys), max_version=newest)


def read_coordinators(
    key_type: CoordinatorType, keys: Sequence[str], response: FindCoordinatorResponse | EosKafkaError, is_batched: bool
) -> FoundCoordinators:
    """Decode a broker's response, or raise if another attempt cannot help."""
    if isinstance(response, UnansweredError):
        return FoundCoordinators({}, response.happened)
    if isinstance(response, EosKafkaError):
        raise response
    nodes: dict[str, int] = {}
    addresses: set[BrokerAddress] = set()
    trouble: str | None = None
    answered = {each.key: each for each in response.coordinators} if is_batched else {keys[0]: response}
    for key in keys:
        each = answered.get(key)
        if each is None:
            trouble = f"a response without {key!r}"
            continue
        verdict = classify(Api.FIND_COORDINATOR, each.error_code)
        if each.error_code == ErrorCode.NONE:
            nodes[key] = each.node_id
            addresses.add(BrokerAddress(each.node_id, each.host, each.port))
        elif verdict in (Verdict.RETRIABLE, Verdict.REFRESH):
            trouble = explained(Api.FIND_COORDINATOR, each.error_code)
        else:
            raise failure(Api.FIND_COORDINATOR, each.error_code, f"{key_type.word} {key!r}")
    return FoundCoordinators(nodes, trouble, addresses)
