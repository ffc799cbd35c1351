"""Every step of the sink, every fault, and the pairs that are excluded."""

import os
import random
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from tests.crash.case import Case
from tests.crash.wire import Loss
from tests.support.short_form import source_digest


class Fault(StrEnum):
    """What happens while a process is at a point."""

    KILL_WORKER = "kill the Python worker"
    LOSE_ANSWER = "lose the answer"
    MAKE_TOPIC_AGAIN = "make the topic again"
    KILL_BROKER = "kill the broker"
    PAUSE = "pause past the timeout"
    KILL_DRIVER = "kill the driver JVM"


class Answer(NamedTuple):
    """The response that a step waits for next: the API, and whether the driver's own id or the source needs it."""

    name: str
    api_key: int
    of_driver: bool | None = None
    of_source: bool = False

    def loss(self, case: Case) -> Loss:
        """Return the rule that loses the next such response of one query."""
        if self.of_source:
            assert case.feed is not None
            return Loss(self.api_key, (case.feed.client_id.encode(),))
        driver = b".driver"
        return Loss(
            self.api_key,
            (case.prefix.encode(), *([driver] if self.of_driver else [])),
            driver if self.of_driver is False else None,
        )


METADATA: Final = Answer("Metadata", 3)
FETCH_OFFSET: Final = Answer("OffsetFetch", 9)
INIT_TASK: Final = Answer("InitProducerId", 22, of_driver=False)
INIT_DRIVER: Final = Answer("InitProducerId", 22, of_driver=True)
PRODUCE: Final = Answer("Produce", 0, of_driver=False)
PRODUCE_DECISION: Final = Answer("Produce", 0, of_driver=True)
COMMIT_OFFSET: Final = Answer("TxnOffsetCommit", 28)
END_TASK: Final = Answer("EndTxn", 26, of_driver=False)
END_DRIVER: Final = Answer("EndTxn", 26, of_driver=True)
DESCRIBE: Final = Answer("DescribeTransactions", 65)
LIST: Final = Answer("ListTransactions", 66)
ADD_TASK: Final = Answer("AddPartitionsToTxn", 24, of_driver=False)
ADD_DRIVER: Final = Answer("AddPartitionsToTxn", 24, of_driver=True)
ADD_OFFSETS: Final = Answer("AddOffsetsToTxn", 25)
LIST_OFFSETS: Final = Answer("ListOffsets", 2, of_source=True)
FETCH: Final = Answer("Fetch", 1, of_source=True)


class Step(NamedTuple):
    """A step, by its failpoint `POINT[#VISIT]`, and how a query gets there.

    `earlier` is a point where a first run ends, so that the observed run finds what it left; `beside` is a
    `POINT=ACTION` of the same run. Without `in_micro_batch`, the rule applies outside of micro-batches too. A brief
    step must not be held for long: the transaction of a decision has seconds, whatever the `transactionTimeout`.
    `answers_to_v1` are waited for under transactions V1 only.
    """

    point: str
    answers: tuple[Answer, ...] = ()
    earlier: str | None = None
    beside: str | None = None
    in_micro_batch: bool = True
    is_brief: bool = False
    answers_to_v1: tuple[Answer, ...] = ()

    @property
    def reads_kafka(self) -> bool:
        """Return whether this is a step of our source."""
        return self.point.startswith("source.")

    @property
    def is_of_dead_driver(self) -> bool:
        """Return whether only a dead driver's decision times out, so that the tasks need a long timeout."""
        return self.point == "recovery.before_end_driver"

    def __str__(self) -> str:
        after = self.earlier or self.beside
        return f"{self.point} after {after}" if after else self.point


STEPS: Final = (
    Step("driver.before_preflight", (METADATA,), in_micro_batch=False),
    Step("source.before_plan#1", (LIST_OFFSETS,), in_micro_batch=False),
    Step("source.before_plan#2", (LIST_OFFSETS,), in_micro_batch=False),
    Step("source.before_read", (FETCH,), in_micro_batch=False),
    Step("source.mid_read", (FETCH,), in_micro_batch=False),
    Step("task.begin", (FETCH_OFFSET,)),
    Step("task.before_identity", (INIT_TASK,)),
    Step("task.before_write", (PRODUCE,), answers_to_v1=(ADD_TASK,)),
    Step("task.mid_write#1", (PRODUCE,)),
    Step("task.mid_write#2", (PRODUCE,)),
    Step("task.before_flush", (PRODUCE,)),
    Step("task.flushed"),
    Step("task.prepared"),
    Step("driver.before_verify", (INIT_DRIVER,)),
    Step("driver.taken_over", (FETCH_OFFSET, DESCRIBE)),
    Step("driver.before_decide", (PRODUCE_DECISION,), answers_to_v1=(ADD_DRIVER,)),
    Step("driver.decision_flushed", (COMMIT_OFFSET,), is_brief=True, answers_to_v1=(ADD_OFFSETS,)),
    Step("driver.mid_decide", (END_DRIVER,), is_brief=True),
    Step("driver.after_decide", (END_TASK,)),
    Step("driver.mid_complete#1", (END_TASK,)),
    Step("driver.after_complete", (LIST,)),
    Step("driver.mid_sweep", (END_TASK,), beside="task.prepared=kill", in_micro_batch=False),
    # The last step before Spark writes its own commit log.
    Step("driver.after_sweep"),
    Step("driver.abort", (LIST,), beside="driver.before_decide=raise"),
    Step("driver.mid_sweep", (END_TASK,), beside="driver.before_decide=raise", in_micro_batch=False),
    Step("driver.after_abort", beside="driver.before_decide=raise"),
    Step(
        "recovery.before_end_driver",
        (END_DRIVER,),
        beside="driver.mid_decide=kill",
        in_micro_batch=False,
        is_brief=True,
    ),
    Step("task.before_settle", (DESCRIBE,), earlier="driver.after_decide"),
    Step("recovery.before_commit", (END_TASK,), earlier="driver.mid_complete#1"),
    Step("recovery.after_commit", earlier="driver.after_decide"),
    Step("task.settled", earlier="driver.after_decide"),
    Step("driver.before_settle", (DESCRIBE,), earlier="driver.after_decide"),
    Step("driver.settled", (LIST,), earlier="driver.after_decide"),
)

# As many concurrent queries as two cores and their memory can run.
CELLS_IN_A_WAVE: Final = 34
# `make test SEARCHES=whole` runs one of them, which takes a minute or two.
PARTS: Final = 3
_NOTHING_ASKED: Final = "what follows is a message to Spark, not a request"
_TOPIC_IS_CHECKED: Final = "the topic was compared before the decision; what was decided may go with it"
_NOTHING_OPEN: Final = "no transaction is open that could time out"
EXCLUDED: Final = {
    ("task.flushed", Fault.LOSE_ANSWER): _NOTHING_ASKED,
    ("task.prepared", Fault.LOSE_ANSWER): _NOTHING_ASKED,
    ("task.settled", Fault.LOSE_ANSWER): _NOTHING_ASKED,
    ("driver.after_sweep", Fault.LOSE_ANSWER): _NOTHING_ASKED,
    ("driver.after_abort", Fault.LOSE_ANSWER): _NOTHING_ASKED,
    ("recovery.after_commit", Fault.LOSE_ANSWER): _NOTHING_ASKED,
    ("driver.before_preflight", Fault.PAUSE): _NOTHING_OPEN,
    ("source.before_plan#1", Fault.PAUSE): _NOTHING_OPEN,
    ("source.before_plan#2", Fault.PAUSE): _NOTHING_OPEN,
    ("source.before_read", Fault.PAUSE): _NOTHING_OPEN,
    ("source.mid_read", Fault.PAUSE): _NOTHING_OPEN,
    ("driver.after_complete", Fault.PAUSE): _NOTHING_OPEN,
    ("driver.after_sweep", Fault.PAUSE): _NOTHING_OPEN,
    ("driver.after_abort", Fault.PAUSE): _NOTHING_OPEN,
    ("recovery.after_commit", Fault.PAUSE): _NOTHING_OPEN,
    ("task.settled", Fault.PAUSE): _NOTHING_OPEN,
    ("driver.before_settle", Fault.PAUSE): _NOTHING_OPEN,
    ("driver.settled", Fault.PAUSE): _NOTHING_OPEN,
    **{
        (point, Fault.MAKE_TOPIC_AGAIN): _TOPIC_IS_CHECKED
        for point in (
            # Of the second micro-batch.
            "source.before_plan#2",
            "driver.decision_flushed",
            "driver.mid_decide",
            "driver.after_decide",
            "driver.mid_complete#1",
            "driver.after_complete",
            "driver.mid_sweep",
            "driver.after_sweep",
            "recovery.before_end_driver",
            "task.before_settle",
            "recovery.before_commit",
            "recovery.after_commit",
            "task.settled",
            "driver.before_settle",
            "driver.settled",
        )
    },
}


class Pair(NamedTuple):
    """One cell of the matrix; `answer` is the response that is lost."""

    step: Step
    fault: Fault
    answer: Answer | None = None

    def __str__(self) -> str:
        return f"{self.step} | {self.fault}" + (f" to {self.answer.name}" if self.answer else "")


def pairs(fault: Fault, transaction_version: int = 2) -> Iterator[Pair]:
    """Return the cells of one fault."""
    for step in STEPS:
        if (step.point, fault) not in EXCLUDED:
            for answer in _answers(step, fault, transaction_version):
                yield Pair(step, fault, answer)


def _answers(step: Step, fault: Fault, transaction_version: int) -> Sequence[Answer | None]:
    awaited = step.answers + (step.answers_to_v1 if transaction_version == 1 else ())
    return awaited if fault is Fault.LOSE_ANSWER else (None,)


def waves(transaction_version: int = 2, chance: random.Random | None = None) -> Iterator[list[Pair]]:
    """Return all cells in groups of one fault; with `chance` in random order."""
    for fault in Fault:
        cells = list(pairs(fault, transaction_version))
        if chance is not None:
            chance.shuffle(cells)
        for start in range(0, len(cells), CELLS_IN_A_WAVE):
            yield cells[start : start + CELLS_IN_A_WAVE]


def part_of_this_source() -> int:
    """Return the part, from 0 on, that a digest of the source of `spark_eos` chooses.

    The same source always gives the same part, and most changes of it give another one.
    """
    return source_digest("spark_eos") % PARTS


def parts_to_run() -> frozenset[int]:
    """Return the parts of `CRASH_PART` (a number or `all`), or the one of this source."""
    chosen = os.environ.get("CRASH_PART")
    return frozenset(range(PARTS) if chosen == "all" else (int(chosen) if chosen else part_of_this_source(),))


def part_waves(parts: frozenset[int]) -> Iterator[list[Pair]]:
    """Return the cells of these parts in groups of one fault.

    Of the cells of each step, a part has every third one, so that each part has every step and every fault.
    """
    chosen = set[Pair]()
    for number, step in enumerate(STEPS):
        cells = [cell for fault in Fault for cell in pairs(fault) if cell.step == step]
        chosen.update(cell for rank, cell in enumerate(cells, start=number) if rank % PARTS in parts)
    for cells in waves():
        yield [cell for cell in cells if cell in chosen]
