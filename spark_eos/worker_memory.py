"""The garbage collector in Spark's Python workers.

After each task PySpark's daemon makes a worker that it keeps collect all its garbage (`gc.collect()` in
`pyspark/daemon.py`), before that worker can take another task. A full collection looks at every object that a module
has made when it was imported: 75,000 for PySpark, pyarrow, NumPy and pandas, and 30,000 for this package and the
messages of kafka-python. That is 40 and 20 ms of processor time, for each task.

While modules are imported, collections look at the same objects several times and find next to nothing: of the 210 ms
that the imports of a task take, 40 are theirs.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from spark_eos.runtime import Process, ProcessState, Runtime


class _FrozenModules:
    """How many modules a process had loaded when their objects were set aside, 0 before that."""

    def __init__(self, runtime: Runtime) -> None:
        self.is_kept = is_worker_kept(runtime.process)
        self.count = 0


def is_worker_kept(process: Process) -> bool:
    """Say whether Spark gives a process further tasks: `spark.python.worker.reuse`, as it sets it for its daemon."""
    return bool(process.environ.get("SPARK_REUSE_WORKER"))


def spare_modules(process: ProcessState) -> None:
    """Set aside what the modules of this process have made, so that no collection looks at it any more.

    Called as a task begins, and once more when modules have been loaded since: the worker has just collected its
    garbage, so that hardly any is set aside with them. What is set aside is freed as before, but for what is only
    referred to in circles. In a process that Spark does not keep, or did not start, nothing is done.
    """
    frozen = process.part(_FrozenModules)
    if frozen.is_kept and len(sys.modules) > frozen.count:
        gc.freeze()
        frozen.count = len(sys.modules)


@contextmanager
def loading_modules(process: ProcessState) -> Iterator[None]:
    """Import modules without a collection in between, and set aside what they have made."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        spare_modules(process)
    finally:
        if was_enabled:
            gc.enable()
