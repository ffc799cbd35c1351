"""`eos-kafka` accepts each command that a warning or an error suggests."""

import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_core import EmbeddedBroker
from broker_core.types import TopicPartition
from spark_eos.admin.command import ExitCode, _parser, main
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.errors import UnansweredError
from spark_eos.options.client import ClientOptions
from spark_eos.options.operator_commands import OperatorCommands
from spark_eos.readable import one_line
from spark_eos.sink.cluster import KafkaCluster
from spark_eos.sink.protocol.action_table import Fate, Settlement
from spark_eos.sink.protocol.answers import UnstableOffsetsError
from spark_eos.sink.protocol.decision_errors import lost_error
from spark_eos.transactions.judge import name_blocker
from tests.support.hanging import HANGING_SETTINGS, hang, open_up
from tests.support.raw_client import RawClient
from tests.support.raw_session import RawSession
from tests.support.runbook import comparable, outputs, shown_outputs
from tests.support.spark_eos.client_world import make_topic, unique
from tests.support.spark_eos.sink_world import World
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with EmbeddedBroker(config=HANGING_SETTINGS) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def client(address: str) -> Iterator[KafkaClient]:
    with KafkaClient(ClientOptions((address,))) as client:
        yield client


@pytest.fixture
def session(address: str) -> Iterator[RawSession]:
    with RawClient(address) as client:
        yield RawSession(client, unique("id"))


def words_of(message: str) -> list[str]:
    """Return the words of the only command in a message."""
    [words] = all_words_of(message)
    return words


def all_words_of(message: str) -> list[list[str]]:
    """Return the words of each command in a message, split as a shell does."""
    return [shlex.split(line)[1:] for line in re.findall(r"`(eos-kafka transactions [^`]*)`", message)]


def parsed(words: list[str]) -> Any:
    return _parser().parse_args(words)


def stable(session: RawSession, topic: str) -> int:
    return int(session.fetch(topic, 0, isolation=1).last_stable_offset)


@pytest.mark.parametrize(
    ("begin", "text", "stable_after"),
    [(hang, "and it hangs: ", 4), (open_up, "the transaction of '", 2)],
    ids=["hanging", "live"],
)
def test_suggested_blocker_command_ends_the_transaction(
    client: KafkaClient, session: RawSession, begin: Callable[..., object], text: str, stable_after: int
) -> None:
    topic = make_topic(client)
    begin(session, topic)
    message = name_blocker(client, TopicPartition(topic, 0))
    assert text in message and session.transactional_id in message
    assert (main([*words_of(message), "--yes"]), stable(session, topic)) == (ExitCode.DONE, stable_after)


def test_pending_offsets_error_suggests_a_working_command(client: KafkaClient, session: RawSession) -> None:
    decisions, group = make_topic(client), unique("group")
    identity = session.init()[1]
    assert session.commit_in_transaction(identity, group, decisions, 0, version=5) == 0

    def message() -> str | None:
        try:
            KafkaCluster(client, decisions).committed_offsets(group, wait_ms=500)
        except UnstableOffsetsError as error:
            return str(error)
        except UnansweredError:
            # On a slow machine the broker has not responded within that time.
            return None
        raise AssertionError("the pending offset blocked no read")

    words = words_of(wait_until(message, "the error") or "")
    assert parsed(words).topic == "__consumer_offsets"
    assert main(words) == ExitCode.DONE, "the transaction is open, and recent"


def test_unreadable_range_error_suggests_a_working_command(address: str, client: KafkaClient) -> None:
    world = World(address, client)
    decision = world.decision(world.prepare("run"))
    message = str(lost_error(Settlement(decision, (Fate.HIDDEN,) * len(decision.transactions))))
    search, commit = (parsed(words) for words in all_words_of(message))
    assert (search.command, search.topic, search.bootstrap_server) == ("find-hanging", world.topic, "HOST:PORT")
    assert (commit.command, commit.topic, commit.commit, commit.force) == ("abort", world.topic, True, True)


@pytest.mark.parametrize(("topic", "name"), [("plain", "an id's `name`"), ("with.dots-and_all", "--dashes-first")])
def test_every_suggested_command_parses(topic: str, name: str) -> None:
    secured = ClientOptions(("a:1", "b:2"), security_protocol="SSL")
    for options in (ClientOptions(("a:1", "b:2")), secured):
        commands = OperatorCommands.of(options)
        place = TopicPartition(topic, 3)
        lines = (
            commands.abort(place, 17),
            commands.abort(place, 17, commit=True),
            commands.force_terminate(name),
            commands.find_hanging(topic),
            commands.find_hanging_offsets(),
            commands.show_decision(name, name),
        )
        abort, commit, terminate, search, offsets, show = (parsed(shlex.split(line)[1:]) for line in lines)
        for each in (abort, commit):
            assert (each.command, each.topic, each.partition, each.start_offset) == ("abort", topic, 3, 17)
            assert each.commit is (each is commit)
        assert (terminate.command, terminate.transactional_id) == ("force-terminate", name)
        assert (search.topic, offsets.topic) == (topic, "__consumer_offsets")
        assert (show.command, show.prefix, show.query) == ("show", name, name)
        for each in (abort, commit, terminate, search, offsets, show):
            assert each.bootstrap_server == "a:1,b:2"
            assert each.command_config == ("client.properties" if options is secured else None)


def test_no_message_refers_to_another_tool() -> None:
    """Only the modules that reproduce Apache Kafka's tool name it; messages name the command that exists here."""
    naming = {path.name for path in (ROOT / "spark_eos").rglob("*.py") if "kafka-transactions" in path.read_text()}
    assert naming <= {"command.py", "transactions_view.py"}


def test_no_message_names_a_search_without_a_place() -> None:
    """The command refuses to guess what to search, and an operator types what is printed."""
    sources = [path for kind in ("*.py", "*.json") for path in (ROOT / "spark_eos").rglob(kind)]
    incomplete = re.compile(r"eos-kafka transactions (--\S+ \S+ )*find-hanging`")
    assert [path.name for path in sources if incomplete.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("name", ["-orders", "it's", "a b", "writer\x1b[2J\n'\\", "名\x9b31m", "\u202edne"])
def test_suggested_command_has_the_name_as_a_shell_reads_it(name: str) -> None:
    commands, place = OperatorCommands(("b:1",)), TopicPartition(name, 0)
    printed = [commands.force_terminate(name), commands.abort(place, 7), commands.find_hanging(name)]
    for each in (*printed, commands.show_decision(name, name)):
        assert one_line(each) == each, "it can be copied from a terminal"
        split = subprocess.run(["bash", "-c", f"printf '%s\\0' {each}"], capture_output=True, text=True, check=True)
        chosen = parsed(split.stdout.split("\0")[1:-1])
        assert name in vars(chosen).values()


# The pages of the runbook


def test_runbook_pages_show_the_output_of_the_commands() -> None:
    printed = outputs()
    shown = list(shown_outputs())
    assert {name for _, name, _ in shown} == printed.keys()
    old = [f"{page.name}: {name}" for page, name, text in shown if comparable(text) != comparable(printed[name])]
    assert not old, "run `python -m tests.support.runbook`, which rewrites these outputs"
