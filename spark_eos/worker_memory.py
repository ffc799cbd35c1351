"""The garbage collector in Spark's Python workers.

After each task PySpark's daemon makes a worker that it keeps collect all its garbage (`gc.collect()` in
`pyspark/daemon.py`), before that worker can take another task. A full collection visits every object that modules
created when they were imported: 75,000 for PySpark, pyarrow, NumPy and pandas, and 30,000 for this package and the
messages of kafka-python. That takes 40 and 20 ms of CPU time for each task.

While modules are imported, collections visit the same objects several times and find almost nothing: of the 210 ms that
the imports of a task take, 40 are theirs.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from spark_eos.runtime import Process, ProcessState, Runtime


class _FrozenModules:
    """How many modules a process had loaded when their objects were frozen, 0 before that."""

    def __init__(self, runtime: Runtime) -> None:
        self.is_kept = is_worker_kept(runtime.process)
        self.count = 0


def is_worker_kept(process: Process) -> bool:
    """Return whether Spark reuses a process for further tasks (`spark.python.worker.reuse` of its daemon)."""
    return bool(process.environ.get("SPARK_REUSE_WORKER"))


def spare_modules(process: ProcessState) -> None:
    """Freeze the objects of this process's modules, so that collections skip them.

    Called when a task begins, and again when more modules have been loaded: the worker has just collected its garbage,
    so hardly any is frozen with them. Frozen objects are freed as before, except those in reference cycles. In a
    process that Spark does not reuse, or did not start, nothing is done.
    """
    frozen = process.part(_FrozenModules)
    if frozen.is_kept and len(sys.modules) > frozen.count:
        gc.freeze()
        frozen.count = len(sys.modules)


@contextmanager
def loading_modules(process: ProcessState) -> Iterator[None]:
    """Import modules without a collection in between, and freeze the objects they create."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        spare_modules(process)
    finally:
        if was_enabled:
            gc.enable()
