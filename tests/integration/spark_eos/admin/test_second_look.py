"""The second look at a plan: what changes while a person reads it is not ended."""

import shlex
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from broker_core import EmbeddedBroker
from spark_eos.admin.command import ExitCode, main
from tests.support.clients import make_topic, unique
from tests.support.hanging import HANGING_SETTINGS, hang, open_up
from tests.support.raw_client import RawClient
from tests.support.raw_session import Identity, RawSession, record_batch
from tests.support.waiting import wait_until

CHANGED = "Nothing was changed: What the plan is about has changed since it was shown. "
_CLASSIC_PRODUCE, _CLASSIC_END = 9, 3


class Person:
    """A standard input at which a person confirms, after something has happened."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self.meanwhile = meanwhile

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        self.meanwhile()
        return "y\n"


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config=HANGING_SETTINGS) as broker:
        yield broker


@pytest.fixture
def session(broker: EmbeddedBroker) -> Iterator[RawSession]:
    with RawClient(broker.bootstrap_servers) as client:
        yield RawSession(client, unique("id"))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], broker: EmbeddedBroker) -> "Asked":
    def run(line: str, meanwhile: Callable[[], object]) -> tuple[int, str]:
        monkeypatch.setattr(sys, "stdin", Person(meanwhile))
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        capsys.readouterr()
        code = main(["transactions", *shlex.split(line), "--bootstrap-server", broker.bootstrap_servers])
        return code, capsys.readouterr().err

    return run


Asked = Callable[[str, Callable[[], object]], tuple[int, str]]


def begin_next(session: RawSession, identity: Identity, topic: str, sequence: int) -> None:
    """Begin the producer's next transaction at the same epoch, as a client of transactions V1 does."""
    session.add_until_done(identity, topic, 0)
    assert session.produce(topic, record_batch([b"next"], identity, sequence), version=_CLASSIC_PRODUCE)[0] == 0


def stable_offset(session: RawSession, topic: str) -> int:
    found: int = session.fetch(topic, 0, isolation=1).last_stable_offset
    return found


@pytest.mark.parametrize("name", ["--start-offset 2", "--producer-id {} --producer-epoch {} --coordinator-epoch 0"])
def test_abort_leaves_a_transaction_alone_that_became_live_while_its_plan_was_read(
    broker: EmbeddedBroker, session: RawSession, asked: Asked, name: str
) -> None:
    topic = make_topic(broker)
    identity = hang(session, topic)
    line = f"abort --topic {topic} --partition 0 {name.format(*identity)}"
    code, said = asked(line, lambda: begin_next(session, identity, topic, 2))
    assert code == ExitCode.NOTHING_DONE
    assert "The transaction does not hang" in said
    assert session.end_until_done(identity, commit=True, version=_CLASSIC_END)[0] == 0
    wait_until(lambda: stable_offset(session, topic) == 5, "the committed rows are visible")


def test_abort_that_is_forced_ends_only_the_transaction_that_was_shown(
    broker: EmbeddedBroker, session: RawSession, asked: Asked
) -> None:
    topic = make_topic(broker)
    identity = hang(session, topic)

    def another_hangs() -> None:
        line = f"transactions abort --topic {topic} --partition 0 --start-offset 2 --yes --bootstrap-server"
        assert main([*line.split(), broker.bootstrap_servers]) == ExitCode.DONE
        assert session.produce(topic, record_batch([b"late"], identity, 2), version=_CLASSIC_PRODUCE)[0] == 0

    code, said = asked(f"abort --topic {topic} --partition 0 --start-offset 2 --force", another_hangs)
    assert code == ExitCode.NOTHING_DONE
    assert CHANGED in said and "Repeat the command" in said
    assert stable_offset(session, topic) == 4


def test_force_terminate_leaves_the_next_transaction_of_the_id_alone(
    broker: EmbeddedBroker, session: RawSession, asked: Asked
) -> None:
    topic = make_topic(broker)
    identity = open_up(session, topic)
    started_ms = session.describe().transaction_start_time_ms

    def go_on() -> None:
        assert session.end_until_done(identity, commit=True, version=_CLASSIC_END)[0] == 0
        wait_until(lambda: time.time_ns() // 1_000_000 > started_ms, "the next millisecond")
        begin_next(session, identity, topic, 1)

    code, said = asked(f"force-terminate --transactional-id {session.transactional_id}", go_on)
    assert code == ExitCode.NOTHING_DONE
    assert CHANGED in said
    assert session.describe().transaction_state == "Ongoing"


def test_plan_that_is_still_right_is_carried_out_and_names_its_cluster(
    broker: EmbeddedBroker, session: RawSession, asked: Asked
) -> None:
    topic = make_topic(broker)
    hang(session, topic)
    code, said = asked(f"abort --topic {topic} --partition 0 --start-offset 2", lambda: None)
    assert code == ExitCode.DONE
    assert f", on {broker.bootstrap_servers}.\n" in said
    assert said.count("Partition: ") == 1, "the second look prints nothing"
    assert stable_offset(session, topic) == 4
