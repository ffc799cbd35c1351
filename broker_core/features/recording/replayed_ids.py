"""The ids that a server gives out, and what replaces them in the requests of a replay.

Producer ids and epochs, member ids and generations, fetch sessions and topic ids are learned from pairs of answers:
the recorded one and the new one.
"""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from broker_core.records.header import iter_headers, write_producer
from broker_core.wire.messages import NULL_UUID

# What the fields of an item are called that identify it among its neighbours, most specific first.
_KEYS = ("name", "topic", "topic_id", "key", "group_id", "partition_index", "partition", "index", "api_key")
_SINGLE = {"member_id": "member", "session_id": "session", "topic_id": "topic", "leader": "member"}
_PAIRS = (
    ("producer_id", "producer_epoch"),
    ("v3_and_below_producer_id", "v3_and_below_producer_epoch"),
    ("member_id", "generation_id"),
    ("member_id", "generation_id_or_member_epoch"),
    ("member_id", "member_epoch"),
)


class ReplayedIds:
    """The new id for each recorded one."""

    def __init__(self) -> None:
        self._new: dict[tuple[str, Any], Any] = {}

    def learn(self, recorded: dict[str, Any], new: dict[str, Any]) -> None:
        """Learn from the answers to the same request; the new one may lack fields, as an older version does."""
        for identity, counter in _PAIRS:
            if identity in recorded and counter in recorded and identity in new:
                kind = _kind(identity)
                old_pair = recorded[identity], recorded[counter]
                self._new[f"{kind} pair", old_pair] = new[identity], new[counter]
                self._new[kind, recorded[identity]] = new[identity]
        for name, kind in _SINGLE.items():
            if recorded.get(name) and name in new:
                self._new[kind, recorded[name]] = new[name]
        for name, value in recorded.items():
            its_twin = new.get(name)
            if isinstance(value, dict) and isinstance(its_twin, dict):
                self.learn(value, its_twin)
            elif isinstance(value, list) and isinstance(its_twin, list):
                for one, other in self._aligned(value, its_twin):
                    self.learn(one, other)

    def _aligned(self, recorded: list[Any], new: list[Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        if recorded and new and isinstance(recorded[0], dict):
            key = next((key for key in _KEYS if recorded[0].get(key) not in (None, "", NULL_UUID)), None)
            if key is None:
                yield from zip(recorded, new, strict=False)
                return
            by_key = {each.get(key): each for each in new}
            for each in recorded:
                value = self._new.get(("topic", each[key]), each[key]) if isinstance(each[key], UUID) else each[key]
                if value in by_key:
                    yield each, by_key[value]

    def rewrite(self, message: Any) -> bool:
        """Replace the recorded ids in a request; return whether there are any that differ."""
        fields = {each.name: getattr(message, each.name, None) for each in message._struct._fields}
        changed = {}
        for name, kind in _SINGLE.items():
            if fields.get(name):
                changed[name] = self._new.get((kind, fields[name]), fields[name])
        for identity, counter in _PAIRS:
            if identity in fields and counter in fields:
                pair = self._paired(_kind(identity), fields[identity], fields[counter])
                changed[identity], changed[counter] = pair
        records = self._rewritten(fields.get("records"))
        if records is not None:
            changed["records"] = records
        is_changed = False
        for name, value in changed.items():
            if value != fields[name]:
                setattr(message, name, value)
                is_changed = True
        for name, value in fields.items():
            for item in value if isinstance(value, list) else [value]:
                if hasattr(item, "_struct"):
                    is_changed |= self.rewrite(item)
            if name == "topics" and isinstance(value, list) and value and isinstance(value[0], UUID):
                setattr(message, name, [self._new.get(("topic", each), each) for each in value])
                is_changed = True
        return is_changed

    def _paired(self, kind: str, identity: Any, counter: Any) -> tuple[Any, Any]:
        known = self._new.get((f"{kind} pair", (identity, counter)))
        if known is None:
            return self._new.get((kind, identity), identity), counter
        return known[0], known[1]

    def _rewritten(self, records: Any) -> bytearray | None:
        """Return batches with the new producer ids; None if there is nothing to change."""
        if not records:
            return None
        data = bytearray(records)
        for position, header in iter_headers(records):
            if header.has_producer:
                write_producer(
                    data, position, header, *self._paired("producer", header.producer_id, header.producer_epoch)
                )
        return data


def _kind(identity: str) -> str:
    return "member" if identity == "member_id" else "producer"
