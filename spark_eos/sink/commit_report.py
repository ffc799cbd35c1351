"""What the driver tells the tasks of a micro-batch: which transactions of the one before it has committed.

Without it every worker would have to ask the coordinators of its ids. Spark plans a micro-batch and commits it in two
Python processes, so that the commit leaves its report in a file, in the temporary folder of the driver's JVM, and the
writer that is made for the next micro-batch takes it from there to the tasks.

A report names exactly what was committed: run, micro-batch, worker and number of each id. One that is missing, old or
of another query says nothing of the ids of a task, whose worker then asks.
"""

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from spark_eos.sink.launch import local_path
from spark_eos.sink.messages import Prepared, TaskMessage
from spark_eos.sink.naming import parse_task_id


class CommitReport(NamedTuple):
    """The ids whose transactions the driver has committed in one micro-batch.

    `numbers` has for each worker the sum of 2 ** number over its ids, so that thousands of tasks take a few kilobytes.
    """

    run: str
    micro_batch: int
    numbers: Mapping[str, int]


def report_of(run: str, micro_batch: int, messages: Iterable[TaskMessage]) -> CommitReport:
    """Report a micro-batch all of whose messages' transactions are committed."""
    numbers: dict[str, int] = {}
    for message in messages:
        name = parse_task_id(message.transaction.transactional_id) if isinstance(message, Prepared) else None
        if name is not None:
            numbers[name.worker] = numbers.get(name.worker, 0) | 1 << name.number
    return CommitReport(run, micro_batch, numbers)


def leave_report(place: str | None, report: CommitReport) -> None:
    """Leave a report at a place for the next micro-batch; where that fails, its workers ask."""
    path = local_path("committed", place)
    if path is None:
        return
    fresh = path.with_suffix(f".{os.getpid()}")
    numbers = {worker: f"{each:x}" for worker, each in report.numbers.items()}
    with suppress(OSError):
        fresh.write_text(json.dumps([report.run, report.micro_batch, numbers]))
        os.replace(fresh, path)


def last_report(place: str | None) -> CommitReport | None:
    """Take the report that was left at a place last."""
    path = local_path("committed", place)
    try:
        if path is None:
            return None
        run, micro_batch, numbers = json.loads(path.read_text())
        return CommitReport(run, micro_batch, {worker: int(each, 16) for worker, each in numbers.items()})
    except (OSError, ValueError, TypeError, AttributeError):
        return None
