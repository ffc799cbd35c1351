"""The broker's benchmarks: the page has a place for each table, and the load generator does what it reports."""

import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.benchmarks.bench_broker import PAGE, PARTS, rewritten
from tests.benchmarks.broker import growth
from tests.benchmarks.broker.brokers import MEMORY, broker_core, running
from tests.benchmarks.broker.load import Broker, generator
from tests.benchmarks.broker.profile import counted
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the processor time of another process needs Linux")


@pytest.fixture(scope="module")
def broker():
    generator()
    with running([MEMORY]) as [broker]:
        yield broker


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    name = request.node.name.translate({ord("["): "-", ord("]"): None})
    broker.load("create", topic=name, partitions=1)
    return name


@pytest.mark.parametrize("part", PARTS)
def test_page_has_a_place_for_each_part(part: str):
    page = PAGE.read_text(encoding="utf-8")
    changed = rewritten(page, part, "a new table")
    begin, end = f"<!-- measured: {part} -->", f"<!-- end of {part} -->"
    assert changed.split(begin)[0] == page.split(begin)[0]
    assert changed.split(end)[1] == page.split(end)[1]
    assert changed.split(begin)[1].split(end)[0] == "\n\na new table\n\n"


def test_fetch_counts_what_produce_wrote(broker: Broker, topic: str):
    produced = broker.load("produce", topic=topic, records=500, size=100, compression="lz4")
    fetched = broker.load("fetch", topic=topic, records=500)
    assert produced["bytes"] == fetched["bytes"] == 50_000
    assert min(produced["broker_s"], fetched["broker_s"]) > 0


def test_fetch_at_read_committed_leaves_out_what_produce_aborted(broker: Broker, topic: str):
    written = broker.load("produce", topic=topic, records=100, size=10, transaction_records=10, abort_every=5)
    assert written["committed"] == 80
    assert broker.load("fetch", topic=topic, records=80, committed=True)["bytes"] == 800
    assert broker.load("fetch", topic=topic, records=100)["bytes"] == 1000


def test_fetch_fails_when_records_are_missing_in_what_it_counts(broker: Broker, topic: str):
    broker.load("produce", topic=topic, records=10)
    with pytest.raises(RuntimeError, match="10 records read, 5 expected"):
        broker.load("fetch", topic=topic, records=5)


def test_transactions_are_shared_by_the_producers(broker: Broker, topic: str):
    found = broker.load("transactions", topic=topic, producers=4, total=20, prefix=topic)
    assert found["transactions"] == 20
    # The first transaction of each producer does not count.
    assert broker.load("fetch", topic=topic, records=24, committed=True)["records"] == 24


def test_latency_counts_records_after_those_that_warm_up(broker: Broker, topic: str):
    found = broker.load("latency", topic=topic, rate=200, records=50, skipped=10)
    assert found["records"] == 50
    assert 0 < found["p50_ms"] <= found["p99_ms"]


def test_producers_write_one_record_each(broker: Broker, topic: str):
    assert broker.load("producers", topic=topic, count=30)["producers"] == 30
    assert broker.load("fetch", topic=topic, records=30)["records"] == 30


@pytest.mark.parametrize("newest_first", [False, True])
def test_open_transactions_are_all_committed(broker: Broker, topic: str, newest_first: bool):
    broker.load("open", topic=topic, count=30, newest_first=newest_first)
    assert broker.load("fetch", topic=topic, records=30, committed=True)["records"] == 30


def test_a_sampled_broker_counts_between_two_signals(tmp_path: Path):
    generator()
    file = tmp_path / "counts.json"
    with broker_core(MEMORY, program=("tests.benchmarks.broker.sampled_broker", str(file))) as broker:
        broker.load("create", topic="t")
        # One step of the processor time is enough, but it needs some load.
        counts = Counter[str]()
        while not counts:
            counts = counted(broker, file, lambda: broker.load("produce", topic="t", records=20_000))
        # The main thread only waits.
        assert all(": " in place and "threading" not in place for place in counts)


def test_topics_are_created_each_by_its_own_request(broker: Broker, topic: str):
    assert broker.load("topics", topic=f"{topic}-many", count=5)["topics"] == 5
    # The last one exists, since its producers find a leader.
    assert broker.load("producers", topic=f"{topic}-many-4", count=1)["producers"] == 1


@pytest.mark.parametrize("command", ["modern", "classic"])
def test_members_leave_the_group_that_they_joined(broker: Broker, topic: str, command: str):
    # Members that stayed would be more than those that join for a second time.
    for _ in range(2):
        found = broker.load(command, topic=topic, count=1)
        assert found["members"] == 1


def test_acls_are_created_with_an_authorizer():
    with running([MEMORY], growth.SETTINGS) as [guarded]:
        assert guarded.load("acls", topic="t", count=5)["acls"] == 5
        assert guarded.load("classic", topic="t", count=5)["members"] == 5


def test_connections_stay_open_until_the_block_ends(broker: Broker):
    files = Path(f"/proc/{broker.process_id}/fd")
    before = len(list(files.iterdir()))
    with broker.held_load("connections", count=20):
        assert len(list(files.iterdir())) == before + 20
    wait_until(lambda: len(list(files.iterdir())) <= before, "the broker closes the connections", deadline_s=60)
