"""The name under which a driver plans the micro-batches of a stream, until one of them is aborted.

Spark's `abort` passes the messages of the tasks that have finished, and nothing else that names the query or the run.
If no task has finished, the open transactions are found by the incarnation: the writer that plans a micro-batch passes
it to the tasks, they put it into their transactional ids, and the writer that aborts reads it from a file, in the
temporary directory of the driver's JVM. The file is named after the checkpoint, which Spark allows only one query at a
time to use, and passes only if it is an option of `writeStream`. Without it a stream has no incarnation.

Spark starts a query again only after its abort has returned. So no running run has the name of an incarnation that has
ended, and whatever is open under it may be swept. Each begins with the name of its driver, under which everything that
a driver leaves open is found.

Spark gives its Python processes the directory in an environment variable. The user's own process, in which
`spark_eos.write` commits, has another one, which the JVM deletes as well when it ends.
"""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from spark_eos.options.sink import SinkOptions
from spark_eos.runtime import Runtime, process_state, shared_state

_LOCAL_FOLDERS: Final = "SPARK_LOCAL_DIRS"
_OPTION: Final = "checkpointlocation"
# How Spark names the temporary directories of a driver, which it deletes at the driver's end. A user's own value of the
# environment variable names a directory that drivers share.
_FOLDERS_OF_DRIVER: Final = ("blockmgr-", "pyspark-")
_NAME_DIGITS: Final = 12


class _OwnFolder:
    """The driver's directory that the user's own process knows."""

    def __init__(self, _runtime: Runtime) -> None:
        self.path: str | None = None


def use_folder(path: str | None) -> None:
    shared_state().part(_OwnFolder).path = path


def is_users_process() -> bool:
    return shared_state().part(_OwnFolder).path is not None


def new_incarnation() -> str:
    return (driver_name() or "") + process_state().runtime.random.token_hex(_NAME_DIGITS // 2)


def driver_name() -> str | None:
    folder = driver_folder()
    return None if folder is None else hashlib.sha256(folder.encode()).hexdigest()[:_NAME_DIGITS]


def driver_folder() -> str | None:
    """Return the directory that only this driver uses, or None if it has none."""
    folder = _local_folder()
    return folder if Path(folder).name.startswith(_FOLDERS_OF_DRIVER) else None


def checkpoint_of(options: Mapping[str, str]) -> str | None:
    return next((value for name, value in options.items() if name.lower() == _OPTION), None)


def current_incarnation(checkpoint: str | None) -> str | None:
    if left("incarnation", checkpoint) is None:
        leave("incarnation", checkpoint, new_incarnation())
    return left("incarnation", checkpoint)


def end_incarnation(checkpoint: str | None) -> str | None:
    """End the current incarnation of a stream on this driver and return it, or None if it cannot be ended."""
    return take("incarnation", checkpoint)


def doubt_of(options: SinkOptions) -> str:
    """Name the text by which an abort makes the next writer of a query, and of others that write there, check again."""
    # Not what a check has completed.
    return repr((options.client.bootstrap_servers, options.decision_topic, options.prefix, options.topic))


def local_path(kind: str, name: str | None) -> Path | None:
    """Return the path of a file that the processes of this driver share, or None without a name or a directory."""
    folder = _local_folder()
    if not name or not folder:
        return None
    return Path(folder) / f"eos-kafka-{kind}-{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def leave(kind: str, name: str | None, text: str = "") -> None:
    """Leave a text for the processes of this driver, which see all of it or nothing, if it can be written."""
    path = local_path(kind, name)
    if path is not None:
        fresh = path.with_suffix(f".{process_state().runtime.process.getpid()}")
        with suppress(OSError):
            fresh.write_text(text)
            fresh.replace(path)


def left(kind: str, name: str | None) -> str | None:
    """Return the text that a process of this driver left, or None."""
    path = local_path(kind, name)
    try:
        return None if path is None else path.read_text()
    except OSError:
        return None


def is_left(kind: str, name: str) -> bool:
    """Return whether any process of this driver left a text, in the directory of the user's process or of Spark's.

    Spark makes both directories in its first local one, the former below `spark-*` unless YARN gives it one.
    """
    path = local_path(kind, name)
    if path is None:
        return False
    above = path.parent.parent
    roots = [above, above.parent] if above.name.startswith("spark-") else [above]
    beside = ("blockmgr-*", "pyspark-*", "spark-*/pyspark-*")
    return path.exists() or any(any(root.glob(f"{each}/{path.name}")) for root in roots for each in beside)


def take(kind: str, name: str | None) -> str | None:
    """Return the text that a process of this driver left, and delete it; None if it cannot be deleted."""
    path, text = local_path(kind, name), left(kind, name)
    try:
        # Nothing that was left since then.
        if path is not None and text is not None:
            path.unlink()
    except OSError:
        return None
    return text


def _local_folder() -> str:
    own = shared_state().part(_OwnFolder).path
    return own or process_state().runtime.process.environ.get(_LOCAL_FOLDERS, "").split(",")[0]
