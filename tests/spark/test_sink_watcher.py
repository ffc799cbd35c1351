"""The processes that end the open transactions of a task or a driver, and that they end nothing decided or newer."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker_core.types import ProducerIdentity, TopicPartition
from spark_eos.client import transactions
from spark_eos.client.inspection import describe_transactions
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.errors import ClientStateError
from spark_eos.open_transaction import OpenTransaction
from spark_eos.options.client import ClientOptions
from spark_eos.options.sink import sink_options
from spark_eos.runtime import process_state
from spark_eos.sink import abort_sweep
from spark_eos.sink.abort_sweep import keep_sweeping, sweep_at_the_end, sweep_incarnation
from spark_eos.sink.decision import Decision
from spark_eos.sink.detached_process import DetachedProcess, end_unprepared
from spark_eos.sink.incarnation import checkpoint_of, current_incarnation, end_incarnation, new_incarnation
from spark_eos.sink.messages import Prepared
from spark_eos.sink.spark_writers import _before_driver_ends
from spark_eos.sink.task.transaction import TaskTransaction, Watchdog, watch
from tests.support.clocks import AheadClock, runtime_by
from tests.support.spark_eos.client_world import encoded, make_topic, read_values, unique
from tests.support.spark_eos.driving import log_of
from tests.support.spark_eos.sink_process import SinkProcess
from tests.support.spark_eos.spark_session import ROOT
from tests.support.waiting import wait_until

# The call that a detached process makes in these tests, picklable by name.
TOUCH = Path.touch


@pytest.fixture(params=[2, 1], ids=["V2", "V1"])
def address(request: pytest.FixtureRequest, kafka_address: str, tv1_address: str) -> str:
    return kafka_address if request.param == 2 else tv1_address


@pytest.fixture
def client(address: str) -> Iterator[KafkaClient]:
    with KafkaClient(ClientOptions((address,))) as made:
        yield made


def ended(detached: DetachedProcess) -> None:
    detached._process.wait(60)


# The process that outlives a worker

DYING = """
import os, signal, sys
from pathlib import Path
from functools import partial
from spark_eos.sink.detached_process import DetachedProcess
made = DetachedProcess()
for path in sys.argv[1:]:
    made.hand_over(partial(Path.touch, Path(path)) if path else None)
os.kill(0, signal.SIGHUP)
os.kill(os.getpid(), signal.SIGKILL)
"""


def die(*calls: str) -> None:
    process = subprocess.run([sys.executable, "-c", DYING, *calls], cwd=ROOT, start_new_session=True, timeout=60)
    assert process.returncode < 0


SWEEPING = """
import os, signal
from pathlib import Path
from spark_eos.options.sink import sink_options
from spark_eos.sink.abort_sweep import keep_sweeping
keep_sweeping(sink_options({"topic": "t", "kafka.bootstrap.servers": "127.0.0.1:1"}), "incarnation", 0)
child = int(Path(f"/proc/self/task/{os.getpid()}/children").read_text())
print(os.readlink(f"/proc/{child}/fd/2"))
os.kill(child, signal.SIGKILL)
"""


@pytest.mark.parametrize(("folder", "is_silent"), [("blockmgr-1", False), ("of-no-driver", True)])
def test_only_what_spark_has_started_shares_its_standard_error(tmp_path: Path, folder: str, is_silent: bool) -> None:
    """A pipeline of a client of Spark Connect would wait for the sweep."""
    (tmp_path / folder).mkdir()
    process = subprocess.run(
        [sys.executable, "-c", SWEEPING],
        cwd=ROOT, env=os.environ | {"SPARK_LOCAL_DIRS": str(tmp_path / folder)}, capture_output=True, timeout=60,
    )  # fmt: skip
    assert (process.stdout == b"/dev/null\n") is is_silent and process.returncode == 0, process


def test_final_request_is_sent_when_a_process_is_killed(tmp_path: Path) -> None:
    first, last = tmp_path / "first", tmp_path / "last"
    die(str(first), "", str(last))
    wait_until(last.exists, "the call is made")
    assert not first.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_stop_of_every_process_leaves_the_watcher(tmp_path: Path, number: signal.Signals) -> None:
    """As systemd stops a service, a logout ends a session, and a machine shuts down."""
    detached, path = DetachedProcess(), tmp_path / "path"
    detached.hand_over(partial(TOUCH, path))
    pid = detached._process.pid
    wait_until(lambda: ignores(pid, number), f"the watcher ignores {number.name}")
    os.kill(pid, number)
    detached.close()
    ended(detached)
    assert path.exists()


def ignores(pid: int, number: signal.Signals) -> bool:
    """Return whether a process ignores a signal, as Linux reports it."""
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return bool(int(status["SigIgn"], 16) >> (number - 1) & 1)


def test_request_is_sent_where_the_system_refuses_files_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Linux does with the setting vm.memfd_noexec=2."""

    def refuse(_name: str) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "memfd_create", refuse)
    detached, path = DetachedProcess(), tmp_path / "path"
    detached.hand_over(partial(TOUCH, path))
    detached.close()
    ended(detached)
    assert path.exists()


def test_cancelled_request_is_not_sent(tmp_path: Path) -> None:
    detached, path = DetachedProcess(), tmp_path / "path"
    detached.hand_over(partial(TOUCH, path))
    detached.hand_over(None)
    detached.close()
    ended(detached)
    assert not path.exists()


def test_incomplete_request_is_not_sent(tmp_path: Path) -> None:
    detached, path = DetachedProcess(), tmp_path / "path"
    detached.hand_over(partial(TOUCH, path))
    os.ftruncate(detached._file.fileno(), 20)
    detached.close()
    ended(detached)
    assert not path.exists()


def test_stopped_watcher_is_not_waited_for_and_knows_the_last_request(tmp_path: Path) -> None:
    detached, path = DetachedProcess(), tmp_path / "path"
    os.kill(detached._process.pid, signal.SIGSTOP)
    for name in ["other"] * 10_000 + ["path"]:
        detached.hand_over(None)
        detached.hand_over(partial(TOUCH, tmp_path / name))
    detached.close()
    os.kill(detached._process.pid, signal.SIGCONT)
    ended(detached)
    assert list(tmp_path.iterdir()) == [path]


def test_killed_watcher_is_replaced() -> None:
    watchdog, identity = Watchdog(), OpenTransaction("t", ProducerIdentity(1, 0), 2)
    watchdog.begin(ClientOptions(("127.0.0.1:1",)), identity)
    first = watchdog._process
    assert first is not None
    os.kill(first._process.pid, signal.SIGKILL)
    ended(first)
    watchdog.release()
    watchdog.begin(ClientOptions(("127.0.0.1:1",)), identity)
    assert watchdog._process is not None and not watchdog._process.has_ended
    watchdog.release()
    watchdog._process.close()


def refuse_once(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Refuse to start one process, as a system at its limit does; return the processes that are started later."""
    start, started, refused = subprocess.Popen, list[subprocess.Popen[bytes]](), list[bool]()

    def start_next(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        if not refused:
            refused.append(True)
            raise BlockingIOError("Resource temporarily unavailable")
        started.append(start(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start_next)
    return started


def test_watcher_that_could_not_be_started_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watchdog, identity = Watchdog(), OpenTransaction("t", ProducerIdentity(1, 0), 2)
    refuse_once(monkeypatch)
    watchdog.begin(ClientOptions(("127.0.0.1:1",)), identity)
    watchdog.release()
    assert "no watchdog process for transaction t; " in caplog.text
    watchdog.begin(ClientOptions(("127.0.0.1:1",)), identity)
    assert watchdog._process is not None
    watchdog.release()
    watchdog._process.close()


def test_driver_that_could_not_be_watched_is_watched_from_its_next_writer_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    folder = tmp_path / "blockmgr-1"
    folder.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(folder))
    options = sink_options({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"})
    watched = refuse_once(monkeypatch)
    for _ in range(3):
        sweep_at_the_end(options)
    assert caplog.text.count("nothing watches this driver yet") == 1
    [process] = watched
    process.kill()
    process.wait(60)


# Transactions of tasks


class Task:
    """A watched transaction of one task, in which a record is sent."""

    def __init__(self, client: KafkaClient) -> None:
        self.client, self.topic, self.name = client, make_topic(client), unique("id")
        self.watchdog = Watchdog()
        options = sink_options({"kafka.bootstrap.servers": client.options.bootstrap_servers[0]})
        self.transaction = TaskTransaction(client, options, self.watchdog)
        self.identity = self.begin()

    def begin(self) -> OpenTransaction:
        made = transactions.init_producer_id(self.client, self.name, transaction_timeout_ms=60_000)
        self.transaction.begin(made)
        return made

    def send(self) -> None:
        """Send a record that reaches the broker, without preparing."""
        self.transaction.send(TopicPartition(self.topic, 0), encoded(["row"]))
        self.transaction.flush()

    def prepare(self) -> None:
        self.transaction.send(TopicPartition(self.topic, 0), encoded(["row"]))
        self.transaction.prepare()

    def end_worker(self) -> None:
        assert self.watchdog._process is not None
        self.watchdog._process.close()
        ended(self.watchdog._process)

    @property
    def state(self) -> str:
        return describe_transactions(self.client, [self.name])[self.name].state


def test_unprepared_transaction_ends_with_its_worker(client: KafkaClient) -> None:
    task = Task(client)
    task.send()
    assert task.state == "Ongoing"
    assert task.watchdog._process is not None
    task.watchdog._process.close()
    wait_until(lambda: task.state == "CompleteAbort", "the transaction is aborted", deadline_s=5)


def test_prepared_transaction_outlives_its_worker(client: KafkaClient) -> None:
    task = Task(client)
    task.prepare()
    task.end_worker()
    assert task.state == "Ongoing"
    assert transactions.end_txn(client, task.identity, commit=True).code == 0
    assert read_values(client.options.bootstrap_servers[0], task.topic) == [["row"]]


def test_transaction_aborted_by_its_task_is_not_checked_again(client: KafkaClient) -> None:
    task = Task(client)
    task.send()
    task.transaction.abort()
    task.end_worker()
    wait_until(lambda: task.state == "CompleteAbort", "the transaction is aborted")


def test_another_transaction_of_the_same_id_is_left_alone(client: KafkaClient) -> None:
    task = Task(client)
    before = task.identity
    task.begin()
    task.send()
    end_unprepared(client.options, before, pauses=(0.0,))
    assert task.state == "Ongoing"
    task.transaction.abort()


def test_request_arriving_after_the_abort_is_ended(client: KafkaClient) -> None:
    task, looks = Task(client), []

    class Clock(AheadClock):
        def sleep(self, seconds: float) -> None:
            looks.append(seconds)
            if len(looks) == 2:
                task.send()

    end_unprepared(client.options, task.identity, (0.0, 0.2), runtime_by(Clock()))
    wait_until(lambda: task.state == "CompleteAbort", "the transaction is aborted")


# Launches


@pytest.fixture
def local_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "blockmgr"
    folder.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{folder},/elsewhere")
    return folder


@pytest.mark.usefixtures("local_folder")
def test_launch_lasts_until_it_is_ended() -> None:
    incarnation, other = current_incarnation("/checkpoint"), current_incarnation("/other")
    assert incarnation is not None and incarnation == current_incarnation("/checkpoint") != other
    assert end_incarnation("/checkpoint") == incarnation
    assert end_incarnation("/checkpoint") is None
    assert current_incarnation("/checkpoint") not in (incarnation, None)
    assert current_incarnation("/other") == other


def test_another_driver_has_its_own_launches(local_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    incarnation, another = current_incarnation("/checkpoint"), local_folder.parent / "blockmgr-2"
    another.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(another))
    assert current_incarnation("/checkpoint") != incarnation


def test_missing_checkpoint_or_folder_gives_no_incarnation(local_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checkpoint_of({"topic": "t"}) is None
    assert checkpoint_of({"checkpointLocation": "/checkpoint"}) == "/checkpoint"
    assert current_incarnation(None) is None and end_incarnation(None) is None
    local_folder.rmdir()
    assert current_incarnation("/checkpoint") is None and end_incarnation("/checkpoint") is None
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    assert current_incarnation("/checkpoint") is None


def test_commit_without_the_folder_of_the_driver_names_a_cleaner_as_well(local_folder: Path) -> None:
    folder = local_folder.rename(local_folder.with_name("blockmgr-1"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_LOCAL_DIRS", str(folder))
        with _before_driver_ends():
            folder.rmdir()
        with (
            pytest.raises(ClientStateError, match="has ended, or its temporary directory was deleted.*spark.local.dir"),
            _before_driver_ends(),
        ):
            pass


class Query(SinkProcess):
    """Tasks and drivers of one query, each run with an incarnation."""

    def __init__(self, client: KafkaClient, address: str) -> None:
        self.client, self.prefix = client, unique("prefix")
        options = {"transactionalIdPrefix": self.prefix, "transactionTimeout": "60s"}
        options["decisionTopic"] = make_topic(client, cleanup_policy="compact")
        super().__init__(address, make_topic(client), str(uuid.uuid4()), **options)

    def prepare(self, run: str, incarnation: str | None, micro_batch: int = 0) -> Prepared:
        return self.write(run, micro_batch=micro_batch, row=f"row {micro_batch}", incarnation=incarnation)

    def commit(self, message: Prepared) -> None:
        self.committer(message.place.run).commit([message], message.place.micro_batch)

    def state_of(self, message: Prepared) -> str:
        name = message.transaction.transactional_id
        return describe_transactions(self.client, [name])[name].state


@pytest.fixture
def query(client: KafkaClient, address: str) -> Query:
    return Query(client, address)


def test_abort_without_messages_leaves_a_newer_driver_alone(query: Query) -> None:
    old_incarnation, new_incarnation_ = new_incarnation(), new_incarnation()
    old, newer = query.prepare("run1", old_incarnation), query.prepare("run2", new_incarnation_)
    sweep_incarnation(query.process, query.options, old_incarnation, 0)
    wait_until(lambda: query.state_of(old) == "CompleteAbort", "the old run's transaction is aborted")
    assert query.state_of(newer) == "Ongoing"
    query.commit(newer)
    late = query.prepare("run1", old_incarnation, 1)
    sweep_incarnation(query.process, query.options, old_incarnation, 1)
    wait_until(lambda: query.state_of(late) == "CompleteAbort", "the old run's transaction is aborted")
    query.commit(query.prepare("run2", new_incarnation_, 1))
    assert query.visible() == [["row 0", "row 1"]]


def test_decided_transactions_are_not_swept(query: Query) -> None:
    incarnation = new_incarnation()
    decided = query.prepare("run1", incarnation)
    log = log_of(query.committer("run1"))
    log.decide(Decision(query.prefix, query.query, "run1", 0, 1, 1, 0, (decided.transaction,)), log.take_over())
    sweep_incarnation(query.process, query.options, incarnation, 0)
    assert query.state_of(decided) == "Ongoing"
    # The next run completes it.
    query.task("run2", 0, row="x")
    assert query.visible() == [["row 0"]]


def test_transactions_without_a_launch_are_left_alone(query: Query) -> None:
    other = query.prepare("run1", None)
    sweep_incarnation(query.process, query.options, new_incarnation(), 0)
    assert query.state_of(other) == "Ongoing"
    query.commit(other)


def test_transaction_prepared_after_the_abort_is_swept_by_another_process(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(abort_sweep, "SWEEPS_AFTER_SECONDS", (0.2,) * 20)
    incarnation = new_incarnation()
    keep_sweeping(query.options, incarnation, 0)
    late = query.prepare("run1", incarnation)
    wait_until(lambda: query.state_of(late) == "CompleteAbort", "the transaction is aborted")


def test_watcher_is_disabled_on_unverified_clusters() -> None:
    options = sink_options({"kafka.bootstrap.servers": "h:1", "topic": "t", "allowHangingTransactions": "true"})
    with KafkaClient(options.client) as client:
        plain = TaskTransaction(client, options)
        watch(process_state(), plain, options)
        assert plain.watchdog is None
