"""The log of the newest requests: client, API, content and outcome.

It helps to find the reason of a failed test. The subject of a request is extracted when it is read; only that of large
requests is extracted at once, so that the log never keeps many bytes.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from broker_core.broker.request_context import RequestContext
from broker_core.errors import ErrorCode
from broker_core.types import TopicPartition
from broker_core.wire import messages as m
from broker_core.wire.error_responses import error_codes
from broker_core.wire.framing import Request, Response

_LARGE_BYTES: Final = 16_384
_TRANSACTIONAL_IDS: Final = frozenset({"transactional_id", "v3_and_below_transactional_id", "transactional_ids"})
_GROUPS: Final = frozenset({"group_id", "group_ids", "groups_names", "groups"})
_TOPIC_NAMES: Final = frozenset({"topic_names", "subscribed_topic_names"})
_TOPICS: Final = frozenset({"topics", "topic_data", "v3_and_below_topics", "topic_partitions"})
_PARTITIONS: Final = frozenset({"partitions", "partition_data", "partition_indexes"})
_INDEX: Final = ("index", "partition_index", "partition")
_NAME: Final = ("name", "topic", "topic_name")
# Further fields that a summary shows.
_TELLING: Final = (
    "producer_id",
    "v3_and_below_producer_id",
    "producer_epoch",
    "v3_and_below_producer_epoch",
    "committed",
    "generation_id",
    "generation_id_or_member_epoch",
    "member_id",
    "member_epoch",
    "acks",
)
_GROUP_KEY: Final = 0


class RequestSubject(NamedTuple):
    """The topics, partitions, groups and transactional ids in a request."""

    transactional_ids: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    partitions: frozenset[TopicPartition] = frozenset()
    details: str = ""


@dataclass(eq=False, repr=False)
class RequestSeen:
    """One request: `api`, `version`, `client_id`, `principal`, `broker`, `time_ms`, and its outcome.

    `outcome` is "no answer" until there is one, then "answered", "none expected" (Produce with acks=0) or what a fault
    has done; `error_codes` holds the different codes in the answer, without NONE.
    """

    api: str
    version: int
    client_id: str
    principal: str
    broker: int
    time_ms: int
    size_bytes: int = 0
    outcome: str = "no answer"
    error_codes: tuple[ErrorCode, ...] = ()
    _subject: RequestSubject | None = None
    _request: Request | None = None
    _topic_names: Mapping[UUID, str] | None = None
    # What the request is about because its session has it, so that a fault finds it.
    in_session: frozenset[TopicPartition] = frozenset()

    @classmethod
    def of(cls, context: RequestContext) -> "RequestSeen":
        """Return the entry of a request that has just arrived."""
        request = context.request
        seen = cls(
            request.api.name,
            request.version,
            context.client_id,
            str(context.principal),
            context.broker.broker_id,
            context.now_ms,
            request.size_bytes,
            _request=request,
            _topic_names=context.broker.metadata.names,
        )
        if request.size_bytes > _LARGE_BYTES:
            _ = seen.subject
        return seen

    @classmethod
    def of_marker(
        cls, topic_partition: TopicPartition, transactional_id: str, broker: int, time_ms: int
    ) -> "RequestSeen":
        """Return the entry of a marker that is to be written; it has no client."""
        subject = RequestSubject(
            frozenset({transactional_id}),
            topics=frozenset({topic_partition.topic}),
            partitions=frozenset({topic_partition}),
            details="marker",
        )
        return cls("EndTxn", -1, "", "", broker, time_ms, _subject=subject)

    @property
    def subject(self) -> RequestSubject:
        """Return the subject of the request."""
        # Read before the check: another thread may extract the subject meanwhile, and sets the request to None last.
        request = self._request
        if self._subject is None:
            assert request is not None
            self._subject, self._request = _subject(request, self._topic_names or {}), None
        return self._subject

    @property
    def transactional_ids(self) -> frozenset[str]:
        """Return the transactional ids named."""
        return self.subject.transactional_ids

    @property
    def groups(self) -> frozenset[str]:
        """Return the groups named."""
        return self.subject.groups

    @property
    def topics(self) -> frozenset[str]:
        """Return the topics that the request names. While there are faults, add the topics of its session."""
        return self.subject.topics | {each.topic for each in self.in_session}

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """Return the partitions that the request names. While there are faults, add its session's."""
        return self.subject.partitions | self.in_session

    @property
    def summary(self) -> str:
        """Return the subject of the request in one line."""
        subject = self.subject
        parts = [f"transactional_id={name}" for name in sorted(subject.transactional_ids)]
        parts += [f"group={name}" for name in sorted(subject.groups)]
        named = {each.topic for each in subject.partitions}
        parts += sorted(subject.topics - named)
        parts += [str(each) for each in sorted(subject.partitions)]
        return " ".join([*parts, *([subject.details] if subject.details else [])])

    def answered(self, response: Response, version: int) -> None:
        """Record the response."""
        self.outcome = "answered"
        self.error_codes = tuple(sorted({_named(code) for code in error_codes(response, version) if code}))

    def __str__(self) -> str:
        errors = ", ".join(code.name for code in self.error_codes)
        who = f"{_plain(self.client_id or '-')} {_plain(str(self.principal))}"
        return (
            f"{self.time_ms} broker {self.broker} {self.api} v{self.version} {who}: "
            f"{self.summary or '-'} -> {self.outcome}{f' {errors}' if errors else ''}"
        )

    __repr__ = __str__


def _plain(name: str) -> str:
    """Escape a name that a client has chosen, so that it cannot add lines."""
    return repr(name)[1:-1]


def is_refusal(response: Response | None, version: int) -> bool:
    """Return whether a response contains only errors, so that nothing has taken effect."""
    codes = [] if response is None else list(error_codes(response, version))
    return bool(codes) and 0 not in codes


class RequestLog:
    """The newest `kept` requests, oldest first; `total` counts all that came."""

    def __init__(self, kept: int) -> None:
        self._seen: deque[RequestSeen] = deque(maxlen=kept)
        self.total = 0

    def __iter__(self) -> Iterator[RequestSeen]:
        return iter(self._seen)

    def add(self, seen: RequestSeen) -> None:
        self._seen.append(seen)
        self.total += 1


class _Found:
    def __init__(self, topic_names: Mapping[UUID, str]) -> None:
        self.topic_names = topic_names
        self.ids: set[str] = set()
        self.groups: set[str] = set()
        self.topics: set[str] = set()
        self.partitions: set[TopicPartition] = set()

    def walk(self, message: object, struct: Any, version: int) -> None:
        for field in struct._fields:
            value = getattr(message, field.name) if field.for_version_q(version) else None
            if value is None:
                continue
            if field.name in _TOPICS and field.is_struct_array():
                for item in value:
                    self._topic(item, field, version)
            elif field.is_struct_array():
                for item in value:
                    self.walk(item, field, version)
            elif field.name in _TRANSACTIONAL_IDS:
                self.ids.update([value] if isinstance(value, str) else value)
            elif field.name in _GROUPS:
                self.groups.update([value] if isinstance(value, str) else value)
            elif field.name in _TOPIC_NAMES:
                self.topics.update(value)

    def _topic(self, item: Any, struct: Any, version: int) -> None:
        fields = {field.name: field for field in struct._fields if field.for_version_q(version)}
        name = next((getattr(item, key) for key in _NAME if key in fields), None)
        if name is None and "topic_id" in fields:
            name = self.topic_names.get(item.topic_id, str(item.topic_id))
        if name is None:
            return
        self.topics.add(name)
        for key in _PARTITIONS & fields.keys():
            for part in getattr(item, key) or ():
                index = part if isinstance(part, int) else next(getattr(part, k) for k in _INDEX if hasattr(part, k))
                self.partitions.add(TopicPartition(name, index))


def nameable(request: type[m.ApiMessage], version: int) -> frozenset[str]:
    """Return which of topic, partition, group and transactional_id a request of this version can name."""
    if request is m.FindCoordinatorRequest:
        return frozenset({"group"} if version < 1 else {"group", "transactional_id"})
    return frozenset(_nameable(request._struct, version))


def _nameable(struct: Any, version: int) -> Iterator[str]:
    for field in struct._fields:
        if not field.for_version_q(version):
            continue
        if field.name in _TOPICS and field.is_struct_array():
            fields = {each.name for each in field._fields if each.for_version_q(version)}
            if fields & {*_NAME, "topic_id"}:
                yield "topic"
                if fields & _PARTITIONS:
                    yield "partition"
        elif field.is_struct_array():
            yield from _nameable(field, version)
        elif field.name in _TRANSACTIONAL_IDS:
            yield "transactional_id"
        elif field.name in _GROUPS:
            yield "group"
        elif field.name in _TOPIC_NAMES:
            yield "topic"


def _subject(request: Request, topic_names: Mapping[UUID, str]) -> RequestSubject:
    body, found = request.body, _Found(topic_names)
    found.walk(body, body._struct, request.version)
    fields = {field.name for field in body._struct._fields if field.for_version_q(request.version)}
    if request.api.name == "FindCoordinator":
        keys = body.coordinator_keys if request.version >= 4 else [body.key]
        is_group = request.version < 1 or body.key_type == _GROUP_KEY
        (found.groups if is_group else found.ids).update(keys)
    details = " ".join(
        f"{name.removeprefix('v3_and_below_')}={getattr(body, name)}"
        for name in _TELLING
        if name in fields and getattr(body, name) not in (None, "", -1)
    )
    return RequestSubject(
        frozenset(found.ids), frozenset(found.groups), frozenset(found.topics), frozenset(found.partitions), details
    )


def _named(code: int) -> ErrorCode:
    return ErrorCode(code) if code in ErrorCode._value2member_map_ else ErrorCode.UNKNOWN_SERVER_ERROR
