"""Valid inputs, from which mutations start."""

import base64
import json
from collections.abc import Iterator
from functools import cache
from uuid import UUID

from broker_core.broker.apis import SERVED
from broker_core.coordinator.groups.classic.records import GroupMetadata, RecordedMember, group_record
from broker_core.coordinator.groups.offsets.store import OffsetKey, OffsetValue, offset_record
from broker_core.coordinator.transactions.records import encode_key, encode_value
from broker_core.log.indexes import AbortedEntry
from broker_core.log.producer_entry import BatchMetadata, ProducerStateEntry
from broker_core.log.snapshots import encode_snapshot
from broker_core.records.batch import NewRecord, build_batch
from broker_core.records.compression import Compression, compress
from broker_core.records.control import build_end_txn_marker
from broker_core.types import ProducerIdentity, TopicPartition
from spark_eos.open_transaction import OpenTransaction
from spark_eos.sink.decision import Decision, write_decision, write_pointer
from spark_eos.sink.prepared import PreparedTransaction, WrittenRange
from tests.fuzz.files import FOLDER, a_log_folder
from tests.support.broker_core.full_requests import full_requests
from tests.support.broker_core.transaction_world import World as CoordinatorWorld

_NOW_MS = 1_700_000_000_000


@cache
def frames() -> list[bytes]:
    """Return every served request in its oldest and its newest version."""
    return list(_frames())


def _frames() -> Iterator[bytes]:
    for api in SERVED.values():
        for version in {api.min_version, api.max_version}:
            request = full_requests(version, UUID(int=1)).get(api.name)
            if request is not None:
                message = request()
                message.API_VERSION = version
                message.with_header(7, "fuzz")
                yield bytes(message.encode(header=True, framed=True))


@cache
def batches() -> list[bytes]:
    """Return batches of all codecs, with and without keys, headers and producers, and markers."""
    made = [NewRecord(b"key", b"value" * 5, (("h", b"v"), ("n", None)), _NOW_MS), NewRecord(None, None, (), _NOW_MS)]
    found = [build_batch(made, compression=codec) for codec in Compression]
    found.append(build_batch(made * 3, producer_id=5, producer_epoch=1, base_sequence=7, is_transactional=True))
    found += [
        build_end_txn_marker(
            commit=commit, producer_id=5, producer_epoch=1, coordinator_epoch=2, timestamp_ms=_NOW_MS
        ).data
        for commit in (False, True)
    ]
    found.append(found[0] + build_batch(made, base_offset=2))
    return found


@cache
def compressed() -> list[bytes]:
    """Return compressed bytes of every codec, with its number in front."""
    return [
        bytes([number]) + compress(codec, b"some words, again and again, " * 20)
        for number, codec in enumerate(Compression)
    ]


@cache
def snapshots() -> list[bytes]:
    """Return producer snapshots."""
    entries = [ProducerStateEntry(1, 2, 3, _NOW_MS, 17, (BatchMetadata(4, 20, 2, _NOW_MS),)), ProducerStateEntry(9)]
    return [encode_snapshot([]), encode_snapshot(entries)]


@cache
def transaction_indexes() -> list[bytes]:
    """Return indexes of aborted transactions."""
    return [b"", AbortedEntry(1, 5, 9, 3).pack() + AbortedEntry(2, 6, 12, 10).pack()]


@cache
def log_files() -> list[bytes]:
    """Return each file of a log, with its number in the folder in front."""
    storage = a_log_folder()
    found = []
    for number, name in enumerate(sorted(storage.list_folder(FOLDER))):
        file = storage.open(f"{FOLDER}/{name}")
        found.append(bytes([number]) + file.read(0, file.size()))
    return found


@cache
def sparse_indexes() -> list[bytes]:
    """Return offset and time indexes, with a byte in front that selects the kind."""
    storage = a_log_folder()
    found = []
    for mark, ending in ((b"\x00", ".index"), (b"\xff", ".timeindex")):
        for name in storage.list_folder(FOLDER):
            if name.endswith(ending):
                file = storage.open(f"{FOLDER}/{name}")
                found.append(mark + file.read(0, file.size()))
    return found


@cache
def checkpoints() -> list[bytes]:
    """Return checkpoints of leader epochs."""
    return [b"0\n0\n", b"0\n2\n0 0\n3 17\n"]


@cache
def transaction_records() -> list[bytes]:
    """Return records of the transaction coordinator, with the length of the key in front."""
    world = CoordinatorWorld()
    identity = world.identity()
    world.add(identity, TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0))
    key = encode_key("an-id")
    return [bytes([len(key)]) + key + encode_value(world.image(), version) for version in (0, 1, 2)]


@cache
def group_records() -> list[bytes]:
    """Return records of the group coordinator: keys and values, with the kind in front."""
    member = RecordedMember("m", None, "client", "host", 1000, 1000, b"subscription", b"assignment")
    metadata = GroupMetadata("consumer", 3, "range", "m", _NOW_MS, (member,))
    group = group_record("g", metadata)
    commit = offset_record(OffsetKey("g", TopicPartition("t", 0)), OffsetValue(17, 3, "metadata", _NOW_MS, _NOW_MS + 1))
    found = [bytes([kind]) + (part or b"") for kind, record in ((0, commit), (1, group)) for part in record]
    return [bytes([each[0] + shift]) + each[1:] for each in found for shift in range(7)]


@cache
def tokens() -> list[bytes]:
    """Return valid tokens of each mechanism, with its number in front."""
    claims = json.dumps({"sub": "alice", "exp": 1_700_000_100, "iat": 1_699_999_000}).encode()
    unsigned = b".".join(base64.urlsafe_b64encode(each).rstrip(b"=") for each in (b'{"alg":"none"}', claims)) + b"."
    return [
        b"\x00\0alice\0secret",
        b"\x01n,,n=alice,r=nonce\nc=biws,r=nonce,p=AAAA",
        b"\x01n,a=alice,n=alice,r=x,ext=1",
        b"\x02n,,\x01auth=Bearer " + unsigned + b"\x01\x01",
    ]


@cache
def decisions() -> list[bytes]:
    """Return a decision and its pointer."""
    transactions = tuple(
        PreparedTransaction(
            task,
            OpenTransaction(f"p.q.r.w.{task}", ProducerIdentity(task, 0), 2),
            60_000,
            _NOW_MS,
            (WrittenRange("t", 0, 5, 9, 5),),
        )
        for task in range(3)
    )
    decision = Decision("p", "q", "r", 4, 1, len(transactions), 0, transactions)
    return [*write_decision(decision), write_pointer(decision, 1).encode()]


@cache
def options() -> list[bytes]:
    """Return texts that users write."""
    return [b'{"topic":{"0":23,"1":-2}}', b'{"topic":[0,1]}', b"a,b , c", b"topic-.*", b"a=b\\\n  c\n# d\ne : f\\u0041"]
