"""The command `eos-kafka` on a broker, and its connection options."""

import csv
import errno
import io
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_core import Drop, EmbeddedBroker, Error
from broker_core.records.batch import NewRecord, build_batch
from broker_core.types import TRANSACTION_STATE_TOPIC, TopicPartition, coordinator_partition
from spark_eos.admin.command import ExitCode, main
from spark_eos.admin.inventory import blocked_read
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.producer import TransactionalProducer
from spark_eos.client.transactions import init_producer_id
from spark_eos.codec.encoded_batch import EncodedBatch
from spark_eos.errors import UnansweredError
from spark_eos.options.client import ClientOptions
from tests.support.spark_eos.client_world import unique
from tests.support.spark_eos.scraping import refusing_port
from tests.support.spark_eos.sink_world import World
from tests.support.waiting import wait_until

# Prints which of the named libraries the help imports, then the exit codes of commands that run without them.
ONLY_THE_BASE = """
import contextlib, json, sys
from spark_eos.admin.command import main
names = sys.argv[1].split()
with contextlib.suppress(SystemExit):
    main(["--help"])
imported = [name for name in names if name in sys.modules]
sys.modules |= dict.fromkeys(names)
print(json.dumps([imported, [main(words) for words in json.loads(sys.argv[2])]]))
"""
# What only other installations need, and what the extra `cli` brings.
NOT_IN_THE_BASE = "pyspark pyarrow numpy re2 scramp asn1crypto prometheus_client rich textual shtab starlette uvicorn"


@pytest.fixture
def world(kafka_address: str) -> Iterator[World]:
    with KafkaClient(ClientOptions((kafka_address,))) as client:
        yield World(kafka_address, client)


def command(world: World, *words: str) -> int:
    fixed = ["--bootstrap-server", world.address, "--decision-topic", world.decisions]
    query = [] if words[0] == "list" else ["--prefix", "p", "--query", world.query]
    watch = ["--watch-seconds", "0.1"] if words[0] in ("complete", "abort") else []
    return main(["decisions", *words, *fixed, *query, *watch])


def die_after_the_decision(world: World) -> None:
    prepared = world.prepare("run1")
    world.log().decide(world.decision(prepared), world.log().take_over())


def test_complete_makes_rows_of_a_dead_query_visible(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    die_after_the_decision(world)
    assert world.visible() == []
    assert command(world, "list") == ExitCode.DONE
    assert "1 open" in capsys.readouterr().out
    assert command(world, "complete") == ExitCode.NOTHING_DONE
    assert f"About to complete on {world.address}:" in capsys.readouterr().err
    assert command(world, "complete", "--yes", "--output", "json") == ExitCode.DONE
    assert json.loads(capsys.readouterr().out)["committed"] == 1
    assert world.visible() == ["row of 0"]
    assert command(world, "list") == ExitCode.DONE
    assert "completed" in capsys.readouterr().out
    world.committer("run2").commit([world.prepare("run2")], 0)
    assert world.visible() == ["row of 0"], "the restarted query wrote nothing"


def test_list_does_not_wait_for_open_transactions_of_other_queries(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command once read to the end of the topic, and gave up after a minute if a transaction was open there."""
    world.committer("run1").commit([world.prepare("run1")], 0)
    other = unique("other")
    place = TopicPartition(world.decisions, 0)
    producer = TransactionalProducer(world.client)
    producer.begin(init_producer_id(world.client, other, transaction_timeout_ms=60_000))
    batch = bytearray(build_batch([NewRecord(b"open", b"", timestamp_ms=0)]))
    producer.send(place, [EncodedBatch(batch, 1)])
    first = producer.flush()[place].first_offset
    try:
        began = time.monotonic()
        assert command(world, "list") == ExitCode.DONE
        assert time.monotonic() - began < 20
    finally:
        producer.abort()
    printed = capsys.readouterr()
    assert world.query in printed.out
    assert f"{place} is listed up to its last stable offset {first}, but ends at {first + 1}" in printed.err
    assert f"the transaction of '{other}'" in printed.err
    assert command(world, "list") == ExitCode.DONE
    assert capsys.readouterr().err == ""


def test_coordinator_that_is_offline_hides_no_decision_of_others(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker(config={"transaction.state.log.num.partitions": "5"}) as broker:
        address = broker.bootstrap_servers
        with KafkaClient(ClientOptions((address,))) as client:
            world, other = World(address, client), World(address, client)
            other.decisions = world.decisions
            committed, prepared = world.prepare("run1"), other.prepare("run1")
            name = prepared.transaction.transactional_id
            offline = coordinator_partition(name, 5)
            while coordinator_partition(committed.transaction.transactional_id, 5) == offline:
                world.query = unique("query")
                committed = world.prepare("run1")
            world.committer("run1").commit([committed], 0)
            other.log().decide(other.decision(prepared), other.log().take_over())
        with broker.without_leader((TRANSACTION_STATE_TOPIC, offline)):
            short = ("--timeout-seconds", "5")
            assert command(world, "list", *short) == ExitCode.FAILED
            printed = capsys.readouterr()
            states = {line.split()[1]: line.split("  ")[-1] for line in printed.out.splitlines()[1:]}
            assert (states[world.query], states[other.query]) == ("committed", "1 unclear")
            assert f"without the state of transactions: The coordinator of {name} has not described" in printed.err
            assert command(other, "show", *short) == ExitCode.FAILED
            printed = capsys.readouterr()
            assert f"{name}" in printed.out and "hidden" in printed.out
            assert "COORDINATOR_NOT_AVAILABLE" in printed.err and "what the log shows" in printed.err
            assert command(world, "show", *short) == ExitCode.DONE
            assert command(other, "complete", "--yes", *short) == ExitCode.FAILED, "its driver cannot be fenced"
        assert command(other, "complete", "--yes", "--query-is-dead") == ExitCode.DONE
        assert other.visible() == ["row of 0"]


def test_abort_unblocks_readers_and_the_restarted_query_writes_again(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    die_after_the_decision(world)
    assert command(world, "abort", "--yes", "--reason", "wrong rows") == ExitCode.DONE
    assert world.visible() == []
    capsys.readouterr()
    assert command(world, "show", "--output", "json") == ExitCode.DONE
    shown = json.loads(capsys.readouterr().out)
    assert [each["fate"] for each in shown["transactions"]] == ["lost"]
    assert [(e["action"], e["restart"], e["reason"]) for e in shown["interventions"]] == [
        ("abort", "rewrite", "wrong rows")
    ]
    world.committer("run2").commit([world.prepare("run2")], 0)
    assert world.visible() == ["row of 0"]
    assert command(world, "show", "--output", "json") == ExitCode.DONE
    shown = json.loads(capsys.readouterr().out)
    assert (shown["decision"]["attempt"], len(shown["interventions"])) == (2, 1), "the audit record stays"


def test_csv_of_decisions_has_one_row_for_each_query_and_transaction(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    die_after_the_decision(world)

    def is_listed() -> bool:
        assert command(world, "list") == ExitCode.DONE
        return world.query in capsys.readouterr().out

    # It is left out until the marker of the decision's own transaction is written.
    wait_until(is_listed, "the decision is listed")
    for words, wanted in (
        (("list",), {"query": world.query, "micro_batch": "0", "open": "1", "transaction_count": "1"}),
        (("show",), {"query": world.query, "micro_batch": "0", "task": "0", "fate": "open"}),
        (("complete", "--yes"), {"action": "complete", "done": "true", "committed": "1", "micro_batch": "0"}),
    ):
        capsys.readouterr()
        assert command(world, *words, "--output", "csv") == ExitCode.DONE
        rows = csv.DictReader(io.StringIO(capsys.readouterr().out, newline=""))
        [row] = [each for each in rows if each.get("query", world.query) == world.query]
        assert row | wanted == row, words


def test_base_installation_has_every_command_that_needs_no_library_and_help_imports_none(
    world: World, tmp_path: Path
) -> None:
    die_after_the_decision(world)
    at = ["--bootstrap-server", world.address]
    wanted = [
        (["decisions", "list", *at, "--decision-topic", world.decisions], ExitCode.DONE),
        (["transactions", "list", *at, "--output", "csv"], ExitCode.DONE),
        (["transactions", "find-hanging", *at, "--topic", world.decisions, "--color", "always"], ExitCode.DONE),
        (["timeline", world.decisions, *at, "--out", str(tmp_path / "page.html")], ExitCode.DONE),
        (["watch", *at, "--topic", world.decisions, "--count", "1"], ExitCode.DONE),
        (["completion", "bash"], ExitCode.USAGE),
    ]
    line = [sys.executable, "-c", ONLY_THE_BASE, NOT_IN_THE_BASE, json.dumps([words for words, _ in wanted])]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False, cwd=Path(__file__).parents[4])
    assert done.returncode == 0, done.stderr
    assert world.query in done.stdout
    assert json.loads(done.stdout.splitlines()[-1]) == [[], [code for _, code in wanted]], done.stderr


def test_failures_have_their_exit_codes(
    world: World, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = ["--bootstrap-server", world.address]
    assert main(["decisions", "list", *base, "--decision-topic", "not-there"]) == ExitCode.FAILED
    assert "'not-there' does not exist" in capsys.readouterr().err
    assert command(world, "show") == ExitCode.NOTHING_DONE
    assert "No decision found for query" in capsys.readouterr().err
    config = tmp_path / "client.properties"
    config.write_text("secruity.protocol=SSL\n")
    assert main(["decisions", "list", *base, "--command-config", str(config)]) == ExitCode.USAGE
    assert "Did you mean 'security.protocol'" in capsys.readouterr().err
    assert main(["decisions", "list", *base, "--command-config", str(tmp_path / "none")]) == ExitCode.USAGE
    assert main([]) == ExitCode.USAGE
    assert "eos-kafka watch --bootstrap-server" in capsys.readouterr().err, "the whole help"
    for words in (["decisions"], ["decisions", "show", *base], ["decisions", "abort", *base, "--restart", "no"]):
        with pytest.raises(SystemExit) as wrong:
            main(words)
        assert wrong.value.code == ExitCode.USAGE


def test_list_of_a_cluster_where_no_query_has_written_is_empty(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker() as kafka:
        words = ["decisions", "list", "--bootstrap-server", kafka.bootstrap_servers]
        assert main([*words, "--output", "json"]) == ExitCode.DONE
        written = capsys.readouterr()
        assert json.loads(written.out) == []
        assert written.err == (
            "There is no topic 'eos-kafka-decisions': no query has written yet, it was deleted, or the principal may "
            "not DESCRIBE it.\n"
        )
        for one in (("--query", "q"), ("--prefix", "p")):
            assert main([*words, *one]) == ExitCode.FAILED, "a query that is named has written"


def test_missing_decision_topic_is_an_error_in_the_words_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker() as kafka:
        for line in ("show", "complete --yes", "abort --yes"):
            words = f"decisions {line} --query q --bootstrap-server {kafka.bootstrap_servers}"
            assert main(words.split()) == ExitCode.FAILED
            said = capsys.readouterr().err
            assert "Give the query's decisionTopic as --decision-topic" in said
            assert "this run" not in said, "the command has no run"


def test_command_that_waits_for_a_transaction_says_which_one(
    world: World, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The newest decision of the query may be behind it; it is of another query, or of any producer."""
    die_after_the_decision(world)
    place = TopicPartition(world.decisions, 0)
    blocker = unique("blocker")
    producer = TransactionalProducer(world.client)
    producer.begin(init_producer_id(world.client, blocker, transaction_timeout_ms=60_000))
    producer.send(place, [EncodedBatch(bytearray(build_batch([NewRecord(b"k", b"v")])), 1)])
    producer.flush()
    try:
        assert command(world, "show", "--timeout-seconds", "1") == ExitCode.FAILED
        # The transaction is not blamed for what it has not caused.
        other = UnansweredError(f"Reading {world.decisions}-1 made no progress at offset 0 (planned end 1): no leader")
        assert blocked_read(world.client, world.decisions, other) is other
    finally:
        producer.abort()
    assert f"waiting, at most 1 s, for the end of the transaction that is open at {place}@" in caplog.text
    said = capsys.readouterr().err
    assert f"It is the transaction of '{blocker}'" in said
    assert "kafkaConsumer" not in said, "an option of Spark is unknown here"


def test_timeline_waits_for_a_leader_as_long_as_every_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with EmbeddedBroker(topics={"t": 1}) as kafka:
        kafka.produce("t", ["a"])
        words = f"timeline t --bootstrap-server {kafka.bootstrap_servers} --timeout-seconds 0.5 --out".split()
        with kafka.fault(api="Fetch", action=Error("NOT_LEADER_OR_FOLLOWER")):
            assert main([*words, str(tmp_path / "page.html")]) == ExitCode.FAILED
    assert "Retried for 500 ms (--timeout-seconds)" in capsys.readouterr().err


@pytest.mark.parametrize("lagging", [1, 2])
def test_timeline_draws_the_partition_that_readers_wait_for(lagging: int, capsys: pytest.CaptureFixture[str]) -> None:
    """The question is why a consumer of the topic stands still; partition 0 may have nothing to do with it."""
    with EmbeddedBroker(topics={"t": 3}) as kafka:
        words = ["timeline", "t", "--bootstrap-server", kafka.bootstrap_servers, "--output", "json"]
        kafka.produce("t", ["a"], partition=0)
        assert main(words) == ExitCode.DONE
        assert "No transaction blocks the last stable offset of t-0" in json.loads(capsys.readouterr().out)["summary"]
        kafka.produce("t", ["b"], partition=0, transactional="short", end="open")
        kafka.produce("t", ["c", "d"], partition=lagging, transactional="long", end="open")
        assert main(words) == ExitCode.DONE
        summary = json.loads(capsys.readouterr().out)["summary"]
        assert summary.startswith(f"The last stable offset of t-{lagging} is 0, 2 offsets below")


def test_timeline_is_drawn_although_a_broker_lists_no_transactions(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker(brokers=2, topics={"t": 1}) as kafka:
        kafka.produce("t", ["a"], transactional="named", end="open")
        kafka.move_leader(("t", 0), 1)
        kafka.move_coordinator(1, transactional_id="named")
        words = ["timeline", "t", "--bootstrap-server", kafka.bootstrap_servers, "--output", "json"]
        with kafka.fault(broker=2, api="ListTransactions", action=Drop()):
            assert main([*words, "--timeout-seconds", "2"]) == ExitCode.DONE
        assert "the transaction of 'named'" in json.loads(capsys.readouterr().out)["summary"]


def test_closed_port_is_an_error_in_the_words_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--bootstrap-server", f"127.0.0.1:{refusing_port()}", "--timeout-seconds", "2"]
    for area in ("decisions list", "transactions list", "watch --count 1", "timeline t --out x"):
        began = time.monotonic()
        assert main([*words, *area.split()]) == ExitCode.FAILED
        assert time.monotonic() - began < 20
        said = capsys.readouterr().err
        assert "Connection refused" in said or "ECONNREFUSED" in said, said
        assert "--bootstrap-server" in said
        assert "kafka." not in said, "an option of Spark is unknown here"


def test_closed_port_is_said_at_once_and_not_only_after_the_timeout() -> None:
    address = f"127.0.0.1:{refusing_port()}"
    words = ["transactions", "list", "--bootstrap-server", address]
    line = [sys.executable, "-m", "spark_eos.admin", *words]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as command:
        try:
            assert command.stderr is not None
            said = command.stderr.readline()
            assert command.poll() is None, "it still tries"
        finally:
            command.kill()
    cause = f"KafkaConnectionError: {errno.ECONNREFUSED} ECONNREFUSED"
    assert said.startswith(f"No Kafka broker can be reached yet. Tried {address} ({cause}). Trying again for up to")
