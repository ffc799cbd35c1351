"""The sweep of what tasks leave open after Spark has aborted their job.

Spark calls `abort` at once and lets the tasks run on: a worker is killed some seconds later (twice
`spark.python.task.killTimeout`, 2 s each), or finishes first and leaves a transaction that no driver will decide. So
what is open under the incarnation is swept now, and again until no task can be left, by a separate process: Spark may
end the aborting process, and the user waits for it. The run of an incarnation that has ended commits nothing more, so
what its newest decision does not name is never decided.

A driver that ends without an abort ends all its incarnations. A process that waits for that sweeps what begins with the
driver's name (see `driver_end`); there is one for each cluster, decision topic and prefix that a driver writes with.
"""

import logging
import os
import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from spark_eos.errors import ClientStateError, EosKafkaError
from spark_eos.options.sink import SinkOptions
from spark_eos.runtime import ProcessState, process_state
from spark_eos.sent_to_tasks import for_same_version, refuse_replaced
from spark_eos.sink.detached_process import LIMIT_SECONDS, DetachedProcess, impatient
from spark_eos.sink.driver_end import after_driver_ends, create_lock
from spark_eos.sink.factory import cluster_of, committer
from spark_eos.sink.incarnation import driver_folder, driver_name, is_users_process, local_path
from spark_eos.sink.naming import parse_task_id
from spark_eos.sink.protocol.orphan_sweep import UNLISTED

logger = logging.getLogger(__name__)
# A broker that does not respond is soon replaced, or the next sweep tries it again.
_WAIT_MS: Final = 10_000
SWEEPS_AFTER_SECONDS: Final = (0.2, 0.3, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 1.0, 1.0, 2.0, 2.0, 5.0)


def sweep_incarnation(process: ProcessState, options: SinkOptions, incarnation: str, micro_batch: int) -> None:
    """Abort the undecided open transactions of an incarnation that has ended, as far as brokers list them.

    A driver's name stands for all its incarnations.
    """
    try:
        listed = cluster_of(process, options).open_transactions(f"{options.prefix}.", wait_ms=_WAIT_MS)
    except UNLISTED as error:
        logger.info("transactions of lost tasks end at their timeout, because brokers do not list them: %s", error)
        return
    names = [parse_task_id(each) for each in listed]
    for query, run in {
        (name.query, name.run)
        for name in names
        if name is not None and name.prefix == options.prefix and (name.incarnation or "").startswith(incarnation)
    }:
        committer(process, options, query, run).abort((), micro_batch)


def keep_sweeping(options: SinkOptions, incarnation: str, micro_batch: int) -> None:
    """Sweep, in a separate process, what tasks that still run will leave open."""
    try:
        _hand_over(partial(_sweep_now_and_then, options, incarnation, micro_batch, SWEEPS_AFTER_SECONDS))
    except (OSError, ClientStateError) as error:
        logger.warning(
            "micro-batch %d: the abort sweep ends here; transactions that its tasks still open end at their "
            "timeout: %s",
            micro_batch,
            error,
        )


def sweep_at_the_end(options: SinkOptions) -> None:
    """Sweep, in a separate process, what this driver leaves open when it ends without an abort; once for a driver.

    Spark may replace the parent of its Python processes. What waits for the driver's end ends with the earlier one.
    """
    folder, driver = driver_folder(), driver_name()
    # Its end means that the driver has ended, whatever became of the directory.
    parent = process_state().runtime.process.getpid() if is_users_process() else os.getppid()
    mark = local_path("watched", repr((options.client, options.decision_topic, options.prefix, parent)))
    if folder is None or driver is None or mark is None or os.name != "posix":
        return
    sweep = partial(_sweep_now_and_then, options, driver, 0, (0.0, *SWEEPS_AFTER_SECONDS))
    try:
        # First what fails if the driver has ended: nothing would delete the lock.
        mark.touch(exist_ok=False)
        create_lock(folder)
        _hand_over(partial(after_driver_ends, folder, parent, pickle.dumps(for_same_version(sweep))))
    except FileExistsError:
        return
    except (OSError, ClientStateError) as error:
        with suppress(OSError):
            # The next writer tries again.
            mark.unlink()
        logger.warning(
            "nothing watches this driver yet: after SIGTERM or spark.stop(), what its tasks have prepared stays open "
            "until the query is started again or transactionTimeout has passed: %s",
            error,
        )


def _hand_over(call: Callable[[], None]) -> None:
    """Make a call in a separate process, now; raises if none can be started, or if it would not make the call."""
    refuse_replaced()
    # A pipeline of the user waits until all have closed the standard error that the user's own process has. Over Spark
    # Connect that process knows no folder.
    detached = DetachedProcess(is_silent=is_users_process() or driver_folder() is None)
    detached.hand_over(call)
    detached.close()


def _sweep_now_and_then(options: SinkOptions, incarnation: str, micro_batch: int, pauses: Sequence[float]) -> None:
    process = process_state()
    clock = process.runtime.clock
    until, hasty = clock.monotonic() + LIMIT_SECONDS, replace(options, client=impatient(options.client))
    for seconds in pauses:
        clock.sleep(seconds)
        with suppress(EosKafkaError):
            sweep_incarnation(process, hasty, incarnation, micro_batch)
        if clock.monotonic() > until:
            return
