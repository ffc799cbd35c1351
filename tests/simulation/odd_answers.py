"""Answers that are odd and legal: brokers lag behind, move and differ, and proxies and services stand before them.

An answer is changed after a broker has sent it. No change says something false in a definite way, as a list of open
transactions without one of them would: what is left says nothing, or what no client asked for.
"""

import copy
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from broker_core.broker.apis import SERVED
from broker_core.errors import ErrorCode
from broker_core.records.batch import NewRecord, build_batch
from broker_core.wire.layout import answer_has_tags

_CORRELATION_BYTES: Final = 4
_BASE_OFFSET_BYTES: Final = 8
_MOVED: Final = "NOT_LEADER_OR_FOLLOWER UNKNOWN_TOPIC_OR_PARTITION LEADER_NOT_AVAILABLE KAFKA_STORAGE_ERROR "
_READ: Final = f"{_MOVED} UNKNOWN_LEADER_EPOCH FENCED_LEADER_EPOCH UNKNOWN_SERVER_ERROR OFFSET_NOT_AVAILABLE "
_COORDINATED: Final = "COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR COORDINATOR_LOAD_IN_PROGRESS UNKNOWN_SERVER_ERROR "
_ENDED: Final = f"{_COORDINATED} CONCURRENT_TRANSACTIONS "
_TXN: Final = f"{_ENDED} INVALID_PRODUCER_EPOCH PRODUCER_FENCED INVALID_TXN_STATE INVALID_PRODUCER_ID_MAPPING "
# The error codes of each API, by the list that they are in; without one, of the whole answer.
CODES: Final = {
    "Produce.partition_responses": f"{_TXN} {_MOVED} CORRUPT_MESSAGE REQUEST_TIMED_OUT NOT_ENOUGH_REPLICAS "
    "UNKNOWN_TOPIC_ID NOT_ENOUGH_REPLICAS_AFTER_APPEND OUT_OF_ORDER_SEQUENCE_NUMBER UNKNOWN_PRODUCER_ID "
    "NETWORK_EXCEPTION TRANSACTION_ABORTABLE",
    "Fetch.": "UNKNOWN_SERVER_ERROR UNKNOWN_TOPIC_ID",
    "Fetch.partitions": f"{_READ} OFFSET_OUT_OF_RANGE UNKNOWN_TOPIC_ID INCONSISTENT_TOPIC_ID REPLICA_NOT_AVAILABLE",
    "ListOffsets.partitions": f"{_READ} REPLICA_NOT_AVAILABLE REQUEST_TIMED_OUT",
    "Metadata.": "REBOOTSTRAP_REQUIRED",
    "Metadata.topics": "UNKNOWN_TOPIC_OR_PARTITION LEADER_NOT_AVAILABLE",
    "Metadata.partitions": "LEADER_NOT_AVAILABLE LISTENER_NOT_FOUND REPLICA_NOT_AVAILABLE",
    "OffsetFetch.groups": _COORDINATED,
    "OffsetFetch.partitions": "UNSTABLE_OFFSET_COMMIT UNKNOWN_TOPIC_OR_PARTITION",
    "FindCoordinator.coordinators": f"{_COORDINATED} REQUEST_TIMED_OUT",
    "ApiVersions.": "UNKNOWN_SERVER_ERROR UNSUPPORTED_VERSION",
    "CreateTopics.topics": "NOT_CONTROLLER REQUEST_TIMED_OUT TOPIC_ALREADY_EXISTS UNKNOWN_SERVER_ERROR",
    "InitProducerId.": f"{_ENDED} PRODUCER_FENCED REQUEST_TIMED_OUT TRANSACTION_ABORTABLE",
    "OffsetForLeaderEpoch.partitions": _READ,
    "AddPartitionsToTxn.results_by_partition": f"{_TXN} OPERATION_NOT_ATTEMPTED UNKNOWN_TOPIC_OR_PARTITION "
    "TRANSACTION_ABORTABLE",
    "EndTxn.": f"{_TXN} REQUEST_TIMED_OUT TRANSACTION_ABORTABLE UNKNOWN_PRODUCER_ID",
    "TxnOffsetCommit.partitions": f"{_TXN} REQUEST_TIMED_OUT UNKNOWN_TOPIC_OR_PARTITION TRANSACTION_ABORTABLE",
    "DescribeConfigs.results": "UNKNOWN_SERVER_ERROR REQUEST_TIMED_OUT CLUSTER_AUTHORIZATION_FAILED",
    "DescribeProducers.partitions": f"{_MOVED} UNKNOWN_SERVER_ERROR",
    "DescribeTransactions.transaction_states": _COORDINATED,
    "ListTransactions.": _COORDINATED,
}
_NAMES: Final = ("name", "topic", "key", "transactional_id", "resource_name", "group_id")
_NUMBERS: Final = ("partition_index", "partition", "index")
# Lists whose every item is a fact of its own: without one, or without all, the answer would be false.
_FACTS: Final = frozenset({"active_producers", "aborted_transactions", "record_errors"})
_FACTS_OF: Final = {
    "ListTransactions": {"transaction_states"},
    "DescribeTransactions": {"topics", "partitions"},
    "Metadata": {"partitions"},
    "ApiVersions": {"finalized_features"},
}
# Other values of a field: no leader, no epoch, no id, and what a broker answers that lags behind.
_VALUES: Final[dict[str, list[Any]]] = {
    "leader_id": [-1, 99],
    "isr_nodes": [[]],
    "replica_nodes": [[]],
    "topic_id": [UUID(int=0)],
    "records": [b""],
    "max_version": [0],
    **{each: [-1] for each in ("base_offset", "offset", "high_watermark", "last_stable_offset")},
}


class Oddity(NamedTuple):
    """A change of one answer, the n-th to requests of an API (0, 1, ...); or of all from there on, if it lasts."""

    api: str
    nth: int
    change: str
    lasts: bool = False


class OddAnswers:
    """The answers that the clients of one world get, and what becomes of them."""

    def __init__(self) -> None:
        self.planned: Oddity | None = None
        # What could have been changed, by API and number, for a search to choose from.
        self.seen: dict[tuple[str, int], list[str]] | None = None
        # What changes an answer by chance, if it does.
        self.choose: Callable[[Collection[str]], str | None] | None = None
        self.done = 0
        self._counts: Counter[str] = Counter()

    def begin(self, planned: Oddity | None) -> None:
        """Count answers from now on, and change one as planned; without a plan, collect what could be changed."""
        self.planned, self.seen = planned, {} if planned is None else None
        self.done = 0
        self._counts.clear()

    def received(self, request: Any, version: int, frame: bytes) -> bytes:
        """Return what a client gets in place of the answer to a request, with its header."""
        api = SERVED[request.API_KEY].name
        nth = self._counts[api]
        self._counts[api] += 1
        wanted = self.planned if self.planned is not None and self.planned.api == api else None
        if wanted is None and self.seen is None and self.choose is None:
            return frame
        kind: Any = SERVED[request.API_KEY].response
        start = _CORRELATION_BYTES + answer_has_tags(kind, version)
        body = kind.decode(memoryview(frame)[start:], version=version)
        body._header = None
        facts = _FACTS | _FACTS_OF.get(api, frozenset())
        if api == "OffsetFetch" and any(each.topics is None for each in request.groups or ()):
            facts |= {"topics", "partitions"}
        possible = dict(_changes(_Kind(api, version, facts), body))
        if getattr(request, "topics", ()) is None:
            # A list of all topics has no stranger.
            possible = {words: change for words, change in possible.items() if "topics stranger" not in words}
        if self.seen is not None:
            self.seen[api, nth] = list(possible)
        chosen = self.choose(possible) if self.choose is not None else None
        if wanted is not None and (nth == wanted.nth or (wanted.lasts and nth > wanted.nth)):
            chosen = wanted.change
        if chosen not in possible:
            return frame
        possible[chosen]()
        self.done += 1
        # That an API is not served at this version is said in the oldest one.
        is_old = api == "ApiVersions" and body.error_code
        return frame[:start] + bytes(body.encode(version=0 if is_old else version))


class _Kind(NamedTuple):
    """An API, the version of the answer, and its lists whose items are facts."""

    api: str
    version: int
    facts: Collection[str]


def _changes(kind: _Kind, part: Any, path: str = "", level: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each change of a part of an answer: its words, and what makes it."""
    for name, field, value in _fields(part, kind.version):
        if name.endswith("error_code"):
            for code in CODES.get(f"{kind.api}.{level}", "").split():
                yield f"{path}{code}", partial(_refuse, part, kind.version, code, name)
        if name == "brokers" and kind.api == "Metadata":
            for code in ("UNKNOWN_SERVER_ERROR", "REQUEST_TIMED_OUT"):
                yield f"all {code}", partial(_refuse_all, part, kind.version, code)
        values = [each for each in _VALUES.get(name, ()) if each != value]
        if name == "leader_epoch" and value >= 0:
            values.append(value - 1)
        if field.nullable_for_version_q(kind.version) and value is not None and name not in kind.facts:
            values.append(None)
        if field.is_struct_array() and value:
            lists = _other_lists(value, kind.version, is_fact=name in kind.facts)
            yield from (
                (f"{path}{name} {words}", partial(setattr, part, name, items)) for words, items in lists.items()
            )
            for at in {0, len(value) - 1}:
                yield from _changes(kind, value[at], f"{path}{name}[{at}].", name)
        for other in values:
            yield f"{path}{name}={other}", partial(setattr, part, name, other)


def _fields(part: Any, version: int) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, the field and the value of what a part has at a version."""
    for field in part._struct._fields:
        if field.for_version_q(version):
            yield field.name, field, getattr(part, field.name)


def _other_lists(items: list[Any], version: int, *, is_fact: bool) -> dict[str, list[Any]]:
    lists = {"twice": [items[0], *items]}
    if len(items) > 1:
        lists |= {"backwards": items[::-1]}
    if not is_fact:
        lists |= {"none": [], **({"without first": items[1:], "without last": items[:-1]} if len(items) > 1 else {})}
        stranger = copy.deepcopy(items[0])
        if _rename(stranger, version):
            lists |= {"stranger first": [stranger, *items], "stranger alone": [stranger]}
    return lists


def _rename(item: Any, version: int) -> bool:
    """Make an item one of another topic, partition or id, with other content; return whether it has a name."""
    known = {name for name, _, value in _fields(item, version) if value not in (None, "")}
    renamed = [name for name in (*_NAMES, *_NUMBERS) if name in known][:1] + ["topic_id"] * ("topic_id" in known)
    for name in renamed:
        setattr(item, name, UUID(int=77) if name == "topic_id" else 77 if name in _NUMBERS else "stranger")
    _disguise(item, version)
    return bool(renamed)


def _disguise(part: Any, version: int) -> None:
    """Let offsets and records be others, so that a client that takes them for its own is seen to do so."""
    for name, field, value in _fields(part, version):
        if name == "records" and value:
            base_offset = int.from_bytes(bytes(value[:_BASE_OFFSET_BYTES]))
            part.records = build_batch([NewRecord(None, b"stranger", (), 0)], base_offset=base_offset)
        elif "offset" in name and isinstance(value, int) and value >= 0:
            setattr(part, name, value + 3)
        elif field.is_struct_array():
            for each in value or ():
                _disguise(each, version)


def _refuse_all(part: Any, version: int, code: str) -> None:
    """Refuse a request for metadata, as a broker does that fails at it: each topic has the error."""
    for topic in part.topics:
        _refuse(topic, version, code)
    part.brokers = []


def _refuse(part: Any, version: int, code: str, as_field: str = "error_code") -> None:
    """Set an error, and empty what does not name the part, as brokers do."""
    for name, field, value in _fields(part, version):
        if name not in (*_NAMES, *_NUMBERS, "topic_id"):
            is_place = isinstance(value, int) and ("offset" in name or name.endswith(("_id", "watermark")))
            setattr(part, name, -1 if is_place else field.default)
    setattr(part, as_field, ErrorCode[code])
