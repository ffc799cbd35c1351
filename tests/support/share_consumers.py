"""Apache Kafka's Java share consumers, driven by tests."""

import time
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from tests.support.java_tools import JavaProgram

_STRING = "org.apache.kafka.common.serialization.StringDeserializer"
DEADLINE_S = 90
_POLL_MS = 300


class Delivered(NamedTuple):
    """A record as a member got it."""

    partition: int
    offset: int
    value: str
    delivery_count: int


class ShareConsumerError(Exception):
    """An exception of the Java client; `kind` is its class."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class ShareConsumers(JavaProgram):
    """A JVM with share consumers, which `kill` ends without leaving their groups."""

    def __init__(self, bootstrap_servers: str = "") -> None:
        super().__init__("ShareConsumers.java")
        self.bootstrap_servers = bootstrap_servers
        self._members: list[ShareMember] = []

    def open(self, topic: str, group: str, **settings: str) -> "ShareMember":
        """Open a consumer that subscribes to a topic."""
        every = {
            "bootstrap.servers": self.bootstrap_servers,
            "group.id": group,
            "key.deserializer": _STRING,
            "value.deserializer": _STRING,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        member = ShareMember(self, f"consumer-{len(self._members)}", topic)
        self._members.append(member)
        self.call("open", member.name, topic=topic, settings=every)
        return member

    def close_members(self) -> None:
        """Close the consumers that are open."""
        for member in self._members:
            if member.is_open:
                member.close()

    def call(self, call: str, name: str, **arguments: Any) -> Any:
        """Make one call and return its result."""
        answer = self.ask(call, call=call, name=name, **arguments)
        if "error" in answer:
            raise ShareConsumerError(answer["error"], answer["message"])
        return answer


class ShareMember:
    """One share consumer."""

    def __init__(self, owner: ShareConsumers, name: str, topic: str) -> None:
        self._owner = owner
        self.name = name
        self.topic = topic
        self.is_open = True

    def poll(self, ms: int = _POLL_MS) -> list[Delivered]:
        """Poll once; under implicit acknowledgment this accepts the records of the previous poll."""
        records = self._owner.call("poll", self.name, ms=ms)["records"]
        return [Delivered(each["partition"], each["offset"], each["value"], each["delivery_count"]) for each in records]

    def poll_until(self, is_enough: Callable[[Collection[Delivered]], bool]) -> list[Delivered]:
        """Poll until enough records are delivered."""
        found: list[Delivered] = []
        deadline = time.monotonic() + DEADLINE_S
        while not is_enough(found):
            assert time.monotonic() < deadline, f"only {found} were delivered"
            found += self.poll()
        return found

    def take(self, count: int) -> list[Delivered]:
        """Poll until a number of records is delivered."""
        return self.poll_until(lambda found: len(found) >= count)

    def acknowledge(self, delivered: Delivered, kind: str = "ACCEPT") -> None:
        """Acknowledge a record explicitly."""
        self._owner.call("acknowledge", self.name, partition=delivered.partition, offset=delivered.offset, type=kind)

    def commit(self) -> dict[str, str]:
        """Commit acknowledgments; return the class of the error of each partition, empty for none."""
        results: dict[str, str] = self._owner.call("commit", self.name)["results"]
        return results

    def close(self) -> None:
        """Close the consumer, which accepts or releases what is left and leaves the group."""
        self.is_open = False
        self._owner.call("close", self.name)
