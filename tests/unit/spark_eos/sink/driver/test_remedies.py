"""The remedies that errors of the sink print, each followed to its end on a cluster in memory.

A remedy that can lose or double rows says it in its own sentence.
"""

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from zlib import crc32

import pytest

from broker_core.types import TopicPartition
from spark_eos.admin.command import _parser
from spark_eos.admin.decision_operator import DecisionOperator
from spark_eos.errors import EosKafkaError
from spark_eos.options.sink import OnLostTransaction
from spark_eos.sink.decision import OperatorAction, Restart
from spark_eos.sink.driver.committer import Committer
from spark_eos.sink.messages import AlreadyCommitted, Place, Prepared, TaskMessage
from spark_eos.sink.naming import TaskId, is_query_id
from spark_eos.sink.prepared import TopicRows
from spark_eos.sink.protocol.answers import CommittedOffset
from spark_eos.sink.protocol.decision_log import DecisionLog
from spark_eos.sink.protocol.retirement import Retirement
from spark_eos.sink.protocol.state import QueryRun
from tests.support.spark_eos.driving import LogOn, must_task_write
from tests.support.spark_eos.sink_cluster import MemoryCluster

# Not the default: a command that leaves it out finds no decision.
DECISIONS = "decisions-of-a-team"
QUERY, COPY, JOB = "8a1c0d3e-0000-4000-8000-000000000001", "8a1c0d3e-0000-4000-8000-000000000002", "report"


@dataclass
class Scene:
    """Micro-batches whose tasks have one row each, and what readers see of them."""

    cluster: MemoryCluster = field(default_factory=MemoryCluster)
    rows: dict[tuple[int, int], str] = field(default_factory=dict)
    runs: int = 0

    def run(
        self, rows: str, query: str = QUERY, micro_batch: int = 0, *, discard: bool = False, rewrite: bool = False
    ) -> None:
        """Run a micro-batch or a job as Spark does: its tasks look for a decision, then the driver commits."""
        self.runs += 1
        run, policy = f"run{self.runs}", OnLostTransaction.REWRITE if rewrite else OnLostTransaction.FAIL
        log = LogOn(self.cluster, "p", query, DECISIONS, run=run)
        messages = [self._task(log, query, run, micro_batch, split, row, policy) for split, row in enumerate(rows)]
        committer = Committer(self.cluster, QueryRun(log.log, "p", query, run, policy, discard_differing_rows=discard))
        committer.own.retirement = Retirement.REPLACE if is_query_id(query) else Retirement.MARK
        try:
            committer.commit(messages, micro_batch)
        except EosKafkaError:
            committer.abort(messages, micro_batch)
            raise

    def _task(
        self, log: DecisionLog, query: str, run: str, micro_batch: int, split: int, row: str, policy: OnLostTransaction
    ) -> TaskMessage:
        found = (TopicRows("t", 1, crc32(row.encode())),)
        earlier = log.pointed(micro_batch, "")
        if earlier is not None and not must_task_write(self.cluster, earlier, split, policy):
            return AlreadyCommitted(Place(query, run, micro_batch, split), found)
        name = str(TaskId("p", query, run, f"w{split}", 0))
        self.cluster.init_producer_id(name, 60_000)
        transaction = replace(self.cluster.prepare(name, split), rows=found)
        self.rows[split, transaction.ranges[0].first_offset] = row
        return Prepared(Place(query, run, micro_batch, split), transaction)

    def lose(self, rows: str, lost: int, query: str = QUERY) -> None:
        """Decide a micro-batch of which one transaction is ended by its coordinator before it is committed."""
        end, cluster = self.cluster.end_transactions, self.cluster
        name = str(TaskId("p", query, f"run{self.runs + 1}", f"w{lost}", 0))

        def lose_first(opened, commit, *more):  # type: ignore[no-untyped-def]
            if commit and any(each.transactional_id == name for each in opened):
                cluster.end_transactions = end  # type: ignore[method-assign]
                cluster.time_out(name)
            return end(opened, commit, *more)

        cluster.end_transactions = lose_first  # type: ignore[method-assign]
        with pytest.raises(EosKafkaError):
            self.run(rows, query)

    def skip(self, query: str = QUERY) -> None:
        """Run `eos-kafka decisions abort --restart skip`."""
        operator = DecisionOperator(self.cluster, DECISIONS, "ann", watch_seconds=0, is_known_dead=True)
        newest = LogOn(self.cluster, "p", query, DECISIONS).newest()
        operator.carry_out(operator.plan(newest, OperatorAction.ABORT, Restart.SKIP))

    def reset_offsets(self) -> None:
        """Run `kafka-consumer-groups --reset-offsets`, which commits offsets without metadata."""
        places = [TopicPartition(DECISIONS, number) for number in range(self.cluster.partitions)]
        for name in self.cluster.groups:
            self.cluster.groups[name] = {place: CommittedOffset(place, 0, "") for place in places}

    def delete_decisions(self, *, with_pointer: bool) -> None:
        """Empty the decision topic; Kafka deletes the pointer only with the topic itself."""
        for place in [each for each in self.cluster.logs if each.topic == DECISIONS]:
            self.cluster.logs[place] = []
        if with_pointer:
            self.cluster.groups.clear()

    def forget(self) -> None:
        """Let neither coordinators nor logs know the transactions any more, as a mirror of the cluster."""
        self.cluster.forgotten = set(self.cluster.ids)
        for place in [each for each in self.cluster.logs if each.topic == "t"]:
            self.cluster.logs[place] = []

    def repair(self, row: str) -> None:
        """Write a row with another producer."""
        name = f"other-{row}"
        at = self.cluster.prepare(name, 9)
        self.rows[9, at.ranges[0].first_offset] = row
        self.cluster._mark(self.cluster.ids[name], True)

    def visible(self) -> str:
        committed = [place for place, is_committed in self.cluster.outcomes.items() if is_committed]
        return "".join(sorted(self.rows[tp.partition, at] for tp, at in committed if tp.topic == "t"))


Act = Callable[[Scene], object]


class Remedy(NamedTuple):
    """A sentence that begins a remedy, what its reader does, and what readers of the topic see at the end.

    `cost` is what the same sentence says if that is not each row once.
    """

    text: str
    follow: Act
    visible: str
    cost: str = ""


class Trouble(NamedTuple):
    """What happened, the run that stops, the rows that the topic should have, and the remedies of the error."""

    before: Act
    stops: Act
    wanted: str
    remedies: tuple[Remedy, ...]
    never: tuple[str, ...] = ()


def steps(*acts: Act) -> Act:
    return lambda scene: [act(scene) for act in acts]


def run(rows: str, query: str = QUERY, micro_batch: int = 0, *, discard: bool = False, rewrite: bool = False) -> Act:
    return lambda scene: scene.run(rows, query, micro_batch, discard=discard, rewrite=rewrite)


NEXT = run("z", micro_batch=1)
NEW_UUID = "replace the id in the checkpoint's file 'metadata'"
SKIP = "--restart skip`"
REPAIRED = steps(lambda scene: scene.repair("b"), Scene.skip)
EMPTIED = steps(lambda scene: scene.delete_decisions(with_pointer=False))
MADE_AGAIN = steps(lambda scene: scene.delete_decisions(with_pointer=True))
TROUBLES = {
    "a checkpoint from a backup": Trouble(
        run("ab"),
        run("abcd"),
        "abcdz",
        (
            Remedy("it is at least one micro-batch older", steps(run("ab"), run("cdz", micro_batch=1)), "abcdz"),
            Remedy(NEW_UUID, steps(run("abcd", COPY), run("z", COPY, 1)), "aabbcdz", "a second time"),
            Remedy(SKIP, steps(Scene.skip, run("abcd"), NEXT), "abz", "4 rows of the re-run are .* lost if"),
        ),
        ("set discardDifferingRows=true",),
    ),
    "the same, and the option is set": Trouble(
        run("ab"),
        run("abcd", discard=True),
        "abcdz",
        (Remedy("it is at least one micro-batch older", steps(run("ab"), run("cdz", micro_batch=1)), "abcdz"),),
        ("set discardDifferingRows=true",),
    ),
    "fewer rows by chance": Trouble(
        run("ab"),
        run("a", discard=True),
        "abz",
        (Remedy(SKIP, steps(Scene.skip, run("a", discard=True), NEXT), "abz"),),
    ),
    "records that the source has lost since": Trouble(
        run("ab"),
        run(""),
        "abz",
        (Remedy("the source has lost records", steps(Scene.skip, run(""), NEXT), "abz"),),
    ),
    "a checkpoint that is much older": Trouble(
        steps(run("ab"), run("c", micro_batch=1), run("d", micro_batch=2)),
        run("abcd"),
        "abcdz",
        (
            Remedy("at least 3 micro-batches older", steps(run("d", micro_batch=2), run("z", micro_batch=3)), "abcdz"),
            Remedy("a new checkpoint", run("abcdz", COPY), "aabbccddz", "writes all rows again"),
            Remedy(NEW_UUID, steps(run("abcd", COPY), run("z", COPY, 1)), "aabbccddz", "a second time"),
        ),
    ),
    "other rows by chance": Trouble(
        run("ab"),
        run("xy"),
        "abz",
        (
            Remedy("run the old version", steps(run("ab"), NEXT), "abz"),
            Remedy("set discardDifferingRows=true", steps(run("xy", discard=True), NEXT), "abz"),
        ),
    ),
    "a jobId for other rows": Trouble(
        run("ab", JOB),
        run("cd", JOB),
        "abcd",
        (
            Remedy("their own jobId", run("cd", f"{JOB}-tuesday"), "abcd"),
            Remedy("set discardDifferingRows=true", run("cd", JOB, discard=True), "ab", "lost if"),
        ),
    ),
    "a jobId for the same rows, of another number": Trouble(
        run("ab", JOB),
        run("abc", JOB, discard=True),
        "ab",
        (Remedy("keep the jobId", run("ab", JOB), "ab"), Remedy("do not run it again", steps(), "ab")),
        ("set discardDifferingRows=true", "decisions abort"),
    ),
    "a part was lost": Trouble(
        lambda scene: scene.lose("abc", 1),
        run("abc"),
        "abcz",
        (
            Remedy("set onLostTransaction=rewrite", steps(run("abc", rewrite=True), NEXT), "abcz"),
            Remedy(SKIP, steps(REPAIRED, run("abc"), NEXT), "abcz"),
            Remedy(SKIP, steps(Scene.skip, run("abc"), NEXT), "acz", "never writes"),
        ),
    ),
    "a part was lost, and its tasks have other rows": Trouble(
        lambda scene: scene.lose("abc", 1),
        run("cab", rewrite=True),
        "abcz",
        (
            Remedy("gives each task the same rows", steps(run("abc", rewrite=True), NEXT), "abcz"),
            Remedy(SKIP, steps(REPAIRED, run("cab"), NEXT), "abcz"),
            Remedy(SKIP, steps(Scene.skip, run("cab"), NEXT), "acz", "never writes"),
        ),
        ("now 3 different rows", "UUID", "set discardDifferingRows"),
    ),
    "a part was lost, and there are other tasks": Trouble(
        lambda scene: scene.lose("abc", 1),
        run("abcd", rewrite=True),
        "abcz",
        (
            Remedy("with the same 3 tasks", steps(run("abc", rewrite=True), NEXT), "abcz"),
            Remedy(SKIP, steps(REPAIRED, run("abcd"), NEXT), "abcz"),
            Remedy(SKIP, steps(Scene.skip, run("abcd"), NEXT), "acz", "never writes"),
        ),
    ),
    "a part was lost of a job, and its tasks have other rows": Trouble(
        lambda scene: scene.lose("abc", 1, JOB),
        run("cab", JOB, rewrite=True),
        "abc",
        (
            Remedy("gives each task the same rows", run("abc", JOB, rewrite=True), "abc"),
            Remedy(SKIP, steps(lambda scene: scene.repair("b"), lambda scene: scene.skip(JOB), run("abc", JOB)), "abc"),
        ),
        ("their own jobId", " query"),
    ),
    "a part of an older micro-batch was lost": Trouble(
        lambda scene: scene.lose("abc", 1),
        run("z", micro_batch=1, rewrite=True),
        "abcz",
        (Remedy(SKIP, steps(REPAIRED, NEXT), "abcz"), Remedy(SKIP, steps(Scene.skip, NEXT), "acz", "never writes")),
        ("set onLostTransaction=rewrite",),
    ),
    "the fate is unknown": Trouble(
        steps(run("ab"), Scene.forget),
        run("ab"),
        "abz",
        (Remedy("the rows that are missing", steps(Scene.skip, run("ab"), NEXT), "abz"),),
        ("timed out", "rows of the lost transactions", "set onLostTransaction=rewrite"),
    ),
    "the record of an older decision is gone": Trouble(
        steps(run("ab"), EMPTIED), NEXT, "abz", (Remedy("has the file 'commits/0'", run("z", COPY, 1), "abz"),)
    ),
    "the record of this decision is gone": Trouble(
        steps(run("ab"), EMPTIED),
        run("ab"),
        "abz",
        (
            Remedy("once with", run("z", COPY, 1), "abz"),
            Remedy(NEW_UUID, steps(run("ab", COPY), run("z", COPY, 1)), "aabbz", "writes this micro-batch once more"),
        ),
    ),
    "the decision topic was made again": Trouble(
        steps(run("ab"), MADE_AGAIN),
        run("ab"),
        "abz",
        (
            Remedy("once with", run("z", COPY, 1), "abz"),
            Remedy(NEW_UUID, steps(run("ab", COPY), run("z", COPY, 1)), "aabbz", "writes this micro-batch once more"),
        ),
        ("'commits/",),
    ),
    "the decision of a job is gone": Trouble(
        steps(run("ab", JOB), MADE_AGAIN),
        run("ab", JOB),
        "ab",
        (
            Remedy("do not run it again", steps(), "ab"),
            Remedy("with another jobId, which", run("ab", f"{JOB}-again"), "aabb", "writes all"),
        ),
        ("UUID", " query", "noop"),
    ),
}
FOLLOWED = [(name, number) for name, trouble in TROUBLES.items() for number in range(len(trouble.remedies))]


def sentence_with(error: EosKafkaError, text: str) -> str:
    found = [each for each in error.remedy.split(". ") if text in each]
    assert found, f"{text!r} is not in: {error.remedy}"
    return found[0]


@pytest.mark.parametrize(("name", "number"), FOLLOWED, ids=[f"{name}, {number}" for name, number in FOLLOWED])
def test_followed_remedy_gives_each_row_once_or_says_that_it_does_not(name: str, number: int) -> None:
    trouble = TROUBLES[name]
    remedy, scene = trouble.remedies[number], Scene()
    trouble.before(scene)
    with pytest.raises(EosKafkaError) as caught:
        trouble.stops(scene)
    sentence = sentence_with(caught.value, remedy.text)
    remedy.follow(scene)
    assert scene.visible() == remedy.visible
    assert remedy.cost or remedy.visible == trouble.wanted
    assert re.search(remedy.cost, sentence)
    for text in trouble.never:
        assert text not in str(caught.value)
    for words in re.findall(r"`(eos-kafka [^`]*)`", caught.value.remedy):
        # It can be typed as it is printed; otherwise this exits.
        chosen = _parser().parse_args(shlex.split(words)[1:])
        assert getattr(chosen, "decision_topic", DECISIONS) == DECISIONS


def test_offsets_reset_in_the_query_s_group_double_nothing() -> None:
    """`kafka-consumer-groups --reset-offsets` replaces the pointer; the decisions themselves are still there."""
    scene = Scene()
    scene.run("ab")
    scene.reset_offsets()
    scene.run("ab")
    scene.run("z", micro_batch=1)
    scene.reset_offsets()
    scene.run("y", micro_batch=2)
    assert scene.visible() == "abyz"
