"""A driver dies between its decision and its first EndTxn: what a restart makes visible, for every split of small sets.

The sink's own code runs on `broker_core` in virtual time. The tasks share one partition, so under the old protocol an
open transaction hides one that has timed out.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from broker_core.types import TopicPartition
from spark_eos.errors import EosKafkaError, LostTransactionError
from spark_eos.options.sink import OnLostTransaction, SinkOptions, sink_options
from spark_eos.sink.cluster import KafkaCluster
from spark_eos.sink.decision import Decision
from spark_eos.sink.factory import committer, task_writer
from spark_eos.sink.messages import Place, Prepared, TaskMessage
from spark_eos.sink.protocol import settlement
from spark_eos.sink.protocol.action_table import Fate, SettlementAction
from tests.simulation.judge import final_view
from tests.simulation.plan import SUNK, calm
from tests.simulation.sink import DECISIONS, GROUP, PREFIX, QUERY
from tests.simulation.world import World, calm_world
from tests.support.history.format import READ_COMMITTED
from tests.support.short_form import chosen
from tests.support.spark_eos.driving import end_all, log_of, settle

_MS_US, _SECOND_US = 1_000, 1_000_000
_SHORT_MS, _LONG_MS = 3_000, 60_000
# Longer than the short timeout and the coordinator's interval together, and far less than the long one.
_LOSS_US = 15 * _SECOND_US


class Scene:
    """One query in a world without faults: run 1 decides and dies, run 2 continues from its checkpoint."""

    def __init__(self, world: World, split: str, *, is_crowded: bool, policy: OnLostTransaction) -> None:
        self.world = world
        self.split = split
        # Whether all tasks write to one partition.
        self.is_crowded = is_crowded
        self.shared = len(split)
        self._options = sink_options(
            {
                "kafka.bootstrap.servers": "broker1:9092",
                "topic": SUNK,
                "transactionalIdPrefix": PREFIX,
                "decisionTopic": DECISIONS,
                "transactionTimeout": str(_LONG_MS),
                "onLostTransaction": policy.value,
            }
        )
        self.error: EosKafkaError | None = None

    def do(self, work: Callable[[], Any]) -> Any:
        return self.world.do(work)

    def options_of(self, letter: str) -> SinkOptions:
        return replace(self._options, transaction_timeout_ms=_SHORT_MS) if letter == "L" else self._options

    def places(self, number: int) -> list[int]:
        """Return the partitions of a task: a separate one if the transaction's outcome must stay unknown."""
        if self.split[number] in "UV":
            return [number]
        return [self.shared] if self.is_crowded else [number, self.shared]

    def task(self, run: str, number: int, options: SinkOptions | None = None) -> TaskMessage:
        places = self.places(number)
        rows = pa.RecordBatch.from_arrays(
            [
                pa.array([self.row(number, place).encode() for place in places], pa.binary()),
                pa.array(places, pa.int32()),
            ],
            names=["value", "partition"],
        )
        writer = task_writer(
            self.world.processes.current, options or self._options, Place(QUERY, run, 0, number), may_be_decided=True
        )
        return writer.write(iter([rows]))

    def row(self, number: int, place: int) -> str:
        return f"s{number}.p{place}"

    def rows(self, letters: str) -> list[str]:
        return sorted(
            self.row(number, place)
            for number, letter in enumerate(self.split)
            if letter in letters
            for place in self.places(number)
        )

    def visible(self) -> list[str]:
        view = final_view(self.world, READ_COMMITTED)
        return sorted(value for records in view.values() for _, value in records)

    def decide(self) -> Decision:
        """Prepare and decide in run 1."""
        messages = [
            self.do(lambda n=n: self.task("run1", n, self.options_of(self.split[n]))) for n in range(len(self.split))
        ]
        found = tuple(message.transaction for message in messages if isinstance(message, Prepared))
        assert len(found) == len(self.split)
        decision = Decision(PREFIX, QUERY, "run1", 0, 1, len(found), 0, found)
        driver = self._committer("run1")
        self.do(lambda: log_of(driver()).decide(decision, log_of(driver()).take_over()))
        return decision

    def let_become(self, decision: Decision) -> None:
        """Bring each transaction into the state that the split names."""
        for letter, commit in (("C", True), ("U", True), ("V", False)):
            named = [t for t in decision.transactions if self.split[t.split] == letter]
            self.do(lambda named=named, commit=commit: end_all(self.cluster("run1"), named, commit=commit))
        self.world.scheduler.run(self.world.scheduler.now_us + _LOSS_US)
        for transaction in decision.transactions:
            if self.split[transaction.split] in "UV":
                self.do(lambda name=transaction.transactional_id: self._use_again(name))
                self.world.server.act(lambda cluster, number=transaction.split: self._delete(cluster, number))

    def restart(self) -> None:
        """Run the micro-batch again as run 2, as Spark does."""
        messages: list[TaskMessage] = []
        driver = self._committer("run2")
        try:
            messages = [self.do(lambda n=n: self.task("run2", n)) for n in range(len(self.split))]
            self.do(lambda: driver().commit(messages, 0))
        except EosKafkaError as error:
            self.error = error
            self.do(lambda: driver().abort(messages, 0))

    def begin(self, work: Callable[[], Any], at_us: int) -> Any:
        """Start a function in its own process at the given time."""

        def wait_and_work() -> None:
            self.world.fibers.sleep_ms((at_us - self.world.scheduler.now_us) / _MS_US)
            work()

        fiber = self.world.fibers.spawn(f"client{len(self.world.fibers.all)}", wait_and_work)
        fiber.process_id = self.world.new_process_id()
        return fiber

    def moment_of_loss(self) -> int:
        """Wait until a transaction has timed out."""
        while not self.world.watch.timed_out:
            self.world.scheduler.run(self.world.scheduler.now_us + _MS_US)
        return self.world.scheduler.now_us

    def cluster(self, run: str) -> KafkaCluster:
        """Return the cluster of the calling process."""
        return self._committer(run)().cluster  # type: ignore[no-any-return]

    def newest(self) -> Decision:
        return self.do(lambda: log_of(self._committer("run3")()).newest())

    def end_all(self, decision: Decision, *, commit: bool) -> None:
        self.do(lambda: end_all(self.cluster("run1"), decision.transactions, commit=commit))

    def _committer(self, run: str) -> Callable[[], Any]:
        return lambda: committer(self.world.processes.current, self._options, QUERY, run)

    def _use_again(self, name: str) -> None:
        """Initialize an id, so that its coordinator no longer shows the outcome of its last transaction."""
        for _ in range(2):
            self.cluster("run1").init_producer_id(name, _LONG_MS)

    def _delete(self, cluster: Any, partition: int) -> None:
        log = cluster.logs.get(TopicPartition(SUNK, partition), self.world.clock.now_ms())
        log.delete_records_before(log.log_end_offset)


def play(
    split: str,
    version: int,
    then: Callable[[Scene, Decision], None],
    *,
    is_crowded: bool = True,
    policy: OnLostTransaction = OnLostTransaction.FAIL,
    is_over: bool = True,
) -> None:
    """Run a scene; `is_over`: the transactions of the split time out before the rest runs."""
    plan = calm(SUNK, len(split) + 1, DECISIONS, GROUP, {"transaction.version": str(version)})
    with calm_world(plan) as world:
        scene = Scene(world, split, is_crowded=is_crowded, policy=policy)
        decision = scene.decide()
        if is_over:
            scene.let_become(decision)
        then(scene, decision)


def splits(letters: str, count: int) -> list[str]:
    return ["".join(each) for each in itertools.product(letters, repeat=count)]


def check(scene: Scene, decision: Decision) -> None:
    """Restart, and compare with what the split allows, independently of recovery's table."""
    was, before = set(scene.split), scene.visible()
    scene.restart()
    # The driver of run 1 resumes and sends its EndTxns.
    late = scene.visible()
    scene.end_all(decision, commit=True)
    after = scene.visible()
    every = scene.rows("OCL")
    assert len(after) == len(set(after)), "nothing is visible twice"
    if was & {"U", "V"} or {"C", "L"} <= was:
        assert isinstance(scene.error, LostTransactionError), scene.error
        assert scene.newest().attempt == 1
        is_forward = "C" in was
        assert late == scene.rows("OC" if is_forward else ""), "only what has begun to be visible is completed"
        # An open transaction beside an unknown one is left to an operator; the driver that decided may still commit it.
        if was & {"C", "L"} or "O" not in was:
            assert after == late, "a late commit makes nothing visible"
        return
    assert scene.error is None, scene.error
    assert (late, after) == (every, every)
    assert scene.newest().attempt == (2 if "L" in was else 1)
    if "C" not in was and "L" in was:
        assert before == []


@pytest.mark.parametrize(
    ("version", "is_crowded"), chosen(list(itertools.product((1, 2), (True, False))), "splits of two tasks", of=2)
)
def test_every_split_of_two_tasks(version: int, is_crowded: bool) -> None:
    """U was committed and V was lost, and neither outcome can be determined anymore."""
    for split in splits("LOCUV", 2):
        play(split, version, check, is_crowded=is_crowded)


@pytest.mark.parametrize("version", chosen((1, 2), "protocols of splits of three tasks", of=2))
def test_every_split_of_three_tasks(version: int) -> None:
    """In the order of the letters and backwards; splits of two tasks have every order."""
    forwards = {"".join(letters) for letters in itertools.combinations_with_replacement("LOCU", 3)}
    for split in sorted(forwards | {split[::-1] for split in forwards}):
        play(split, version, check)


@pytest.mark.parametrize("version", [1, 2], ids=["V1", "V2"])
def test_partial_loss_is_rewritten_where_the_user_allows_it(version: int) -> None:
    def check_rewritten(scene: Scene, decision: Decision) -> None:
        scene.restart()
        assert scene.error is None, scene.error
        scene.end_all(decision, commit=True)
        assert scene.visible() == scene.rows("OCL")
        assert [t.split for t in scene.newest().transactions if t in decision.transactions] == [
            at for at, letter in enumerate(scene.split) if letter in "OC"
        ]

    for split in ("CL", "LC", "OCL", "LOC"):
        play(split, version, check_rewritten, policy=OnLostTransaction.REWRITE)


@pytest.mark.parametrize("version", [1, 2], ids=["V1", "V2"])
def test_processes_recovering_concurrently_with_a_resuming_driver(version: int) -> None:
    """Around the moment of the loss, either all rows are visible once, or some are and the query stops."""
    lost_at: list[int] = []
    play("OLO", version, lambda scene, _: lost_at.append(scene.moment_of_loss()), is_over=False)
    ends: Counter[str] = Counter()

    def meet(scene: Scene, decision: Decision, random: Random) -> None:
        """Let two processes settle and the driver of run 1 commit, all at about the time of the loss."""
        world = scene.world
        begun = [
            scene.begin(work, lost_at[0] + random.randint(-60, 60) * _MS_US)
            for work in (
                lambda: settle(scene.cluster("run2"), decision),
                lambda: settle(scene.cluster("run3"), decision),
                lambda: end_all(scene.cluster("run1"), decision.transactions, commit=True),
            )
        ]
        while not all(fiber.is_done for fiber in begun):
            assert world.scheduler.step(world.scheduler.now_us + 600 * _SECOND_US)
        before = scene.visible()
        scene.restart()
        after = scene.visible()
        assert len(after) == len(set(after))
        if scene.error is None:
            assert after == scene.rows("OL")
            assert scene.newest().attempt == (1 if before else 2)
            ends["all of attempt 1" if before else "all of attempt 2"] += 1
        else:
            assert isinstance(scene.error, LostTransactionError) and 0 < len(after) < 3
            assert scene.newest().attempt == 1
            ends["part, with an error"] += 1
        scene.end_all(decision, commit=True)
        assert scene.visible() == after

    for seed in range(25):
        play("OLO", version, lambda scene, decision, seed=seed: meet(scene, decision, Random(seed)), is_over=False)
    assert len(ends) == 3, ends


@pytest.mark.parametrize("version", [1, 2], ids=["V1", "V2"])
def test_checker_detects_a_restart_that_splits_a_micro_batch(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink that commits the open transactions beside a lost one, as it once did, is detected."""
    right = settlement.action_for

    def wrong(decision: Decision, fates: Collection[Fate]) -> SettlementAction:
        action = right(decision, fates)
        return SettlementAction.COMMIT if action is SettlementAction.ABORT else action

    def judge(scene: Scene, decision: Decision) -> None:
        death = scene.world.death
        death.look(decision.transactions)
        assert death.to_be_rolled_back == decision.transactions
        scene.restart()
        stories.append(list(death.check()))

    stories: list[list[str]] = []
    play("OL", version, judge)
    with monkeypatch.context() as broken:
        broken.setattr(settlement, "action_for", wrong)
        play("OL", version, judge)
    assert stories[0] == []
    assert [story[:23] for story in stories[1]] == ["task 0 was committed as"]
