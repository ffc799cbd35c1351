"""The sending of the cases to one broker, and its answers in a form that is the same for both.

Ids that the broker gives out become names, times, addresses and byte strings of markers become constants, and arrays of
structures are sorted, because Kafka gives their items in the order of a hash table.
"""

import base64
import re
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

from broker_core.errors import ErrorCode
from broker_core.records.header import iter_headers
from broker_core.wire.layout import answer_has_tags
from broker_core.wire.messages import ApiMessage
from tests.support.raw_client import RawClient
from tests.support.raw_session import Identity
from tests.support.request_generator.cases import APIS, Case, build
from tests.support.request_generator.steps import WORLD, Step
from tests.support.request_generator.values import MARKED_ID, UNKNOWN_ID, UNKNOWN_UUID, Batch, Known, batch_bytes
from tests.support.waiting import wait_until

CLOSED, UNANSWERED = "the connection is closed", "no answer"
# A broker answers in milliseconds, and a request without an answer costs this time.
DEADLINE_S: Final = 5
_NOT_YET: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.MEMBER_ID_REQUIRED,
    }
)
_PASSING: Final = _NOT_YET - {ErrorCode.MEMBER_ID_REQUIRED}
_RECENT_MS: Final = 1_600_000_000_000
_ADDRESS: Final = re.compile(r"(127\.0\.0\.1|localhost):\d+")
_MEMBER_ID: Final = re.compile(r"\b[\w-]*[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_KAFKA_UUID: Final = re.compile(r"(?<![\w-])[\w-]{22}(?![\w-])")
_IDS: Final = frozenset({"producer_id", "next_producer_id", "session_id"})
# Fields whose values differ without a meaning.
_CONSTANT: Final = frozenset({"port", "finalized_features_epoch"})
_REQUEST_OBJECT: Final = re.compile(r"Request Request\(.*\) needs")
_LAST: Final = ("error_code", "error_message")

Answer = Any


class Runner:
    """The connections to one broker, and what it gave out."""

    def __init__(self, connect: Callable[[], RawClient], connect_without_rights: Callable[[], RawClient]) -> None:
        self._connect = {True: connect, False: connect_without_rights}
        self._clients: dict[bool, RawClient] = {}
        self._world: dict[str, Any] = {}
        self._known: dict[str, Any] = {}
        self._number = 0

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients.values():
            client.close()

    def versions(self) -> dict[str, tuple[int, int]]:
        """Return the advertised versions of each API by its name, or by its key if `broker_core` does not serve it."""
        answer = self._send(Step("ApiVersions", 3, {"client_software_name": "tests", "client_software_version": "1"}))
        names = {api.key: name for name, api in APIS.items()}
        return {
            names.get(each.api_key, str(each.api_key)): (each.min_version, each.max_version) for each in answer.api_keys
        }

    def prepare(self) -> None:
        """Create what all cases use."""
        for step in WORLD:
            self._prepare(step)
        self._world = dict(self._known)

    def answers(self, cases: Sequence[Case]) -> dict[int, Answer]:
        """Send each case with its steps; return by number the normalized answer, or what happened instead."""
        answers: dict[int, Answer] = {}
        waiting: list[tuple[Case, RawClient, dict[str, Any]]] = []
        for case in cases:
            self._begin(case)
            if case.may_wait:
                client = self._connect[case.has_rights]()
                self._post(client, case.step)
                waiting.append((case, client, self._known))
            else:
                answers[case.number] = self._answer(case)
        deadline = time.monotonic() + DEADLINE_S
        for case, client, known in waiting:
            with client:
                client.wait_at_most(max(deadline - time.monotonic(), 0.01))
                answers[case.number] = self._read(client, case, known)
        return answers

    def _begin(self, case: Case) -> None:
        self._number, self._known = case.number, {name: self._world[name] for name in ("present", "shared")}
        for step in case.setup:
            self._prepare(step)

    def _prepare(self, step: Step) -> None:
        """Send a step until its answer has no passing error."""
        answer: Any = None

        def is_done() -> bool:
            nonlocal answer
            answer = self._send(step)
            codes = set(_error_codes(answer.to_dict(json=False)))
            return not codes & _PASSING

        wait_until(is_done, f"{step.api} is answered without a passing error", deadline_s=30, pause_s=0.02)
        codes = set(_error_codes(answer.to_dict(json=False)))
        assert codes <= {0, ErrorCode.MEMBER_ID_REQUIRED}, (step, answer)
        for name, path in step.remember.items():
            value = answer
            for part in path.split("."):
                value = value[int(part)] if isinstance(value, list) else getattr(value, part)
            self._known[name] = value
        if step.api == "CreateTopics":
            self._wait_for_leaders([each["name"] for each in step.body["topics"]])

    def _wait_for_leaders(self, names: Sequence[str]) -> None:
        body = {
            "topics": [{"topic_id": UUID(int=0), "name": name} for name in names],
            "allow_auto_topic_creation": False,
        }

        def have_leaders() -> bool:
            topics = self._send(Step("Metadata", 12, body)).topics
            return all(
                each.error_code == 0 and all(part.error_code == 0 and part.leader_id >= 0 for part in each.partitions)
                for each in topics
            )

        wait_until(have_leaders, f"leaders of {', '.join(names)}", pause_s=0.005)

    def _client(self, has_rights: bool) -> RawClient:
        if has_rights not in self._clients:
            self._clients[has_rights] = self._connect[has_rights]()
        return self._clients[has_rights]

    def _send(self, step: Step) -> Any:
        """Send a request with all rights and return its answer."""
        client = self._client(True)
        self._post(client, step)
        return _decoded(client, step)

    def _post(self, client: RawClient, step: Step) -> None:
        client.post(build(APIS[step.api], step.version, step.body, self._resolve), step.version)

    def _answer(self, case: Case) -> Answer:
        client = self._client(case.has_rights)
        try:
            self._post(client, case.step)
        except ConnectionError:
            answer = CLOSED
        else:
            answer = self._read(client, case, self._known)
        if isinstance(answer, str):
            self._clients.pop(case.has_rights).close()
        return answer

    def _read(self, client: RawClient, case: Case, known: dict[str, Any]) -> Answer:
        try:
            answer = _decoded(client, case.step)
        except TimeoutError:
            return UNANSWERED
        except ConnectionError:
            return CLOSED
        return Normalizer(known).answer(APIS[case.step.api].response._struct, case.step.version, answer)

    def _resolve(self, value: Any) -> Any:
        if isinstance(value, Known):
            return self._known[value.name]
        if isinstance(value, Batch):
            identity = Identity(self._known.get("producer_id", -1), self._known.get("producer_epoch", -1))
            return batch_bytes(value, identity)
        if isinstance(value, str):
            return value.replace("{n}", str(self._number))
        return value


def _decoded(client: RawClient, step: Step) -> Any:
    """Read one answer.

    Its header has a correlation id, and in newer versions an empty set of tagged fields. The decoder of kafka-python's
    class itself would read an ApiVersions answer with an error as one of version 0.
    """
    response = APIS[step.api].response
    body = client.read_frame()[5 if answer_has_tags(response, step.version) else 4 :]
    return ApiMessage.decode.__func__(response, body, version=step.version)


def _error_codes(value: Any) -> Iterator[int]:
    if isinstance(value, dict):
        for name, each in value.items():
            if name.endswith("error_code"):
                yield each
            else:
                yield from _error_codes(each)
    elif isinstance(value, list):
        for each in value:
            yield from _error_codes(each)


class Normalizer:
    """The names of the ids of one case."""

    def __init__(self, known: dict[str, Any]) -> None:
        self._names: dict[Any, str] = {}
        for name, value in known.items():
            if isinstance(value, UUID) or (isinstance(value, str) and value) or name == "producer_id":
                self._names[value] = f"<{name}>"
                if isinstance(value, UUID):
                    self._names[_base64(value)] = f"<{name}>"
        self._names[UNKNOWN_UUID] = self._names[_base64(UNKNOWN_UUID)] = "<unknown>"

    def answer(self, struct_field: Any, version: int, value: Any) -> Answer:
        """Return the answer as dictionaries and lists."""
        found = {}
        for each in struct_field._fields:
            if each.for_version_q(version):
                found[each.name] = self._field(each, version, getattr(value, each.name))
        return found

    def _field(self, each: Any, version: int, value: Any) -> Answer:
        if value is None:
            return None
        if each.is_struct_array():
            # Sorted first, so that ids get the same names on both brokers.
            return [self.answer(each, version, item) for item in sorted(value, key=partial(_sort_key, each, version))]
        if each.is_struct():
            return self.answer(each, version, value)
        if each.is_array():
            return [self._plain(each.name, item) for item in value]
        if each.type_str == "records":
            return self._records(bytes(value))
        return self._plain(each.name, value)

    def _plain(self, name: str, value: Any) -> Answer:
        if isinstance(value, bool):
            return value
        if isinstance(value, UUID):
            return "<zero>" if not value.int else self._name("id", value)
        if isinstance(value, int):
            if name in _CONSTANT and value > 0:
                return f"<{name}>"
            if name in _IDS and _is_given_out(name, value):
                return self._name("id", value)
            return "<time>" if _RECENT_MS < value < 2 * _RECENT_MS else value
        if isinstance(value, str):
            return self._text(name, value)
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value).hex()
        return value

    def _name(self, kind: str, value: Any) -> str:
        return self._names.setdefault(value, f"<{kind} {len(self._names)}>")

    def _text(self, name: str, value: str) -> str:
        if value in self._names:
            return self._names[value]
        if name in ("host", "cluster_id") and value:
            return f"<{name}>"
        if name == "member_id" and _KAFKA_UUID.fullmatch(value):
            return "<member id>"
        for known, called in self._names.items():
            if isinstance(known, str) and len(known) > 2:
                value = value.replace(known, called)
            elif isinstance(known, int) and known > 99:
                value = re.sub(rf"\b{known}\b", called, value)
        value = _MEMBER_ID.sub("<member id>", _REQUEST_OBJECT.sub("<request> needs", value))
        return _ADDRESS.sub("<address>", value)

    def _records(self, data: bytes) -> list[Answer]:
        """Describe each batch; markers have the time of their writing."""
        return [
            {
                "base_offset": header.base_offset,
                "count": header.record_count,
                "attributes": header.attributes,
                "leader_epoch": header.partition_leader_epoch,
                "producer_id": self._plain("producer_id", header.producer_id),
                "producer_epoch": header.producer_epoch,
                "base_sequence": header.base_sequence,
                "time": self._plain("time", header.max_timestamp),
                "bytes": header.size_bytes,
            }
            for _, header in iter_headers(data)
        ]


def _is_given_out(name: str, value: int) -> bool:
    """Return whether the broker chose the id; the others are arguments of a case, or mean that there is none."""
    return (value > 0 if name == "session_id" else value >= 0) and value < UNKNOWN_ID and value != MARKED_ID


def _base64(value: UUID) -> str:
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def _sort_key(struct_field: Any, version: int, item: Any) -> str:
    """Return what orders the items of an array: all that both brokers have in common, errors last.

    Member ids that a broker has made are random.
    """
    fields = [each.name for each in struct_field._fields if each.for_version_q(version)]
    values = {name: getattr(item, name) for name in fields}
    plain = {name: value for name, value in values.items() if name not in _IDS or not _is_given_out(name, value)}
    kept = {name: value for name, value in plain.items() if _is_comparable(value)}
    if _KAFKA_UUID.fullmatch(kept.get("member_id", "")) or _MEMBER_ID.fullmatch(kept.get("member_id", "")):
        del kept["member_id"]
    return repr([kept[name] for name in kept if name not in _LAST] + [kept[name] for name in kept if name in _LAST])


def _is_comparable(value: Any) -> bool:
    return isinstance(value, bool | str) or (isinstance(value, int) and not _RECENT_MS < value < 2 * _RECENT_MS)
