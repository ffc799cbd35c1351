"""The floor of the driver's commit: its requests to the broker, without Spark, checks or our client."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from tests.support.raw_client import RawClient
from tests.support.raw_session import RawSession, record_batch
from tests.support.waiting import wait_until

PRODUCE, OFFSETS, END = 12, 5, 5


class _Producer(RawSession):
    """A transactional producer under transactions V2."""

    def __init__(self, address: str, name: str, stack: ExitStack):
        super().__init__(stack.enter_context(RawClient(address)), name)
        self.identity = self.init_until_done()

    def append(self, topic: str, partition: int, value: bytes) -> None:
        batch = record_batch([value], self.identity, 0)
        error, _ = self.produce(topic, batch, version=PRODUCE, partition=partition)
        assert error == 0, error

    def commit_offset(self, topic: str) -> None:
        error = self.commit_in_transaction(self.identity, self.transactional_id, topic, 1, version=OFFSETS)
        assert error == 0, error

    def commit(self) -> None:
        error, self.identity = self.end(self.identity, commit=True, version=END)
        assert error == 0, error

    def has_ended(self) -> bool:
        return bool(self.describe().transaction_state == "CompleteCommit")


def bare_commits(address: str, topic: str, *, tasks: int, decision_bytes: int, rounds: int) -> list[float]:
    """Return the ms of each commit, from the decision's first request to the last answer about a task's transaction.

    As docs/contributing/benchmarks.md, "The driver", lists them: the decision, its offset, the end of their
    transaction, and then the ends of the tasks' transactions together.
    """
    found = list[float]()
    group = f"bare-{time.time_ns()}"
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(tasks))
        decision = _Producer(address, group, stack)
        writers = [_Producer(address, f"{group}-{number}", stack) for number in range(tasks)]
        for _ in range(rounds):
            for number, writer in enumerate(writers):
                writer.append(topic, 1 + number, b"x" * 100)
            began = time.perf_counter()
            decision.append(topic, 0, b"d" * decision_bytes)
            decision.commit_offset(topic)
            decision.commit()
            list(pool.map(_Producer.commit, writers))
            found.append(1_000 * (time.perf_counter() - began))
            for each in (decision, *writers):
                wait_until(each.has_ended, "the markers are written", pause_s=0.002)
    return found
