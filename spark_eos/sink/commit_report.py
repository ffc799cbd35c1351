"""The report of the driver to the tasks of a micro-batch: which transactions it has committed before.

The commit leaves its report in a file, in the temporary directory of the driver's JVM, and the writer that is made for
the next micro-batch, in another Python process, passes it on to the tasks. A driver without such a directory keeps the
report in memory.

A report names exactly what was committed: run, worker, micro-batch and number of each id. If it is missing, old or of
another query, it says nothing about the ids of a task, whose worker then asks the coordinators.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from spark_eos.runtime import Runtime, shared_state
from spark_eos.sink.incarnation import leave, left, local_path
from spark_eos.sink.naming import parse_task_id
from spark_eos.sink.prepared import PreparedTransaction

# Not every worker has a task in each micro-batch. One that had none for this long asks the coordinators.
_MICRO_BATCHES_REPORTED: Final = 20


class WorkerIds(NamedTuple):
    """The ids of one worker that were committed in the last micro-batch in which any were.

    `numbers` is the sum of 2 ** number over them, so thousands of tasks take a few kilobytes.
    """

    micro_batch: int
    numbers: int


class CommitReport(NamedTuple):
    """What the driver last committed of each worker of a run."""

    run: str
    workers: Mapping[str, WorkerIds]


def report_of(
    run: str, micro_batch: int, committed: Iterable[PreparedTransaction], before: CommitReport | None = None
) -> CommitReport:
    workers = {
        worker: each
        for worker, each in (before.workers.items() if before is not None and before.run == run else ())
        if micro_batch - _MICRO_BATCHES_REPORTED < each.micro_batch < micro_batch
    }
    for transaction in committed:
        name = parse_task_id(transaction.transactional_id)
        if name is not None:
            known = workers.get(name.worker)
            numbers = known.numbers if known is not None and known.micro_batch == micro_batch else 0
            workers[name.worker] = WorkerIds(micro_batch, numbers | 1 << name.number)
    return CommitReport(run, workers)


def _reports(_runtime: Runtime) -> dict[str, str]:
    """Return the last reports, by place, of a process that has no local directory."""
    return {}


def leave_report(place: str, report: CommitReport) -> None:
    """Store a report for the next micro-batch; if that fails, its workers ask the coordinators."""
    workers = {worker: [each.micro_batch, f"{each.numbers:x}"] for worker, each in report.workers.items()}
    text = json.dumps([report.run, workers])
    if local_path("committed", place) is None:
        shared_state().part(_reports)[place] = text
    leave("committed", place, text)


def last_report(place: str | None) -> CommitReport | None:
    try:
        run, workers = json.loads(left("committed", place) or shared_state().part(_reports)[place or ""])
        return CommitReport(
            run,
            {worker: WorkerIds(micro_batch, int(numbers, 16)) for worker, (micro_batch, numbers) in workers.items()},
        )
    except (KeyError, ValueError, TypeError, AttributeError):
        return None
