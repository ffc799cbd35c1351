"""What Spark pickles on the driver and unpickles in tasks, with a check of the package on both sides.

The data source, readers and writers are pickled by name and attributes. In a Python without this package, or with
another version of it, unpickling them fails with an error that names neither, or succeeds and fails later. So they are
pickled inside another pickle, which a function opens after it has compared the versions. That function is pickled with
its code, because the Python that unpickles it may lack this module.

The number of a version is not enough. Two builds of one version may have other fields, and a frozen class with slots is
pickled as the list of its values: in the other build, each value would go to the field of the same place, in silence.
"""

import os
import pickle
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from broker_core import __version__


def version_in(folder: str) -> str:
    """Return the version of this package in a folder, with a checksum of its modules' names and sizes.

    Without the checksum in an archive, and while files are being replaced.
    """
    try:
        return f"{__version__} (build {zlib.crc32(repr(sorted(_modules(folder, ''))).encode()):08x})"
    except OSError:
        return __version__


def _modules(folder: str, package: str) -> Iterator[tuple[str, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            name = f"{package}.{entry.name}"
            if name.endswith(".py"):
                yield name, entry.stat().st_size
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from _modules(entry.path, name)


# That of the files as they are when this process imports the package: they may be replaced while it runs.
_FOLDER: Final = os.path.dirname(__file__)
OWN_VERSION: Final = version_in(_FOLDER)


class SentToTasks:
    """A base of the classes whose objects Spark sends to tasks; only cloudpickle, which Spark uses, can pickle them."""

    # Whether another process made the object and sent it here.
    is_received = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the object with the version of this package, and with what checks it first."""
        # Untyped.
        from pyspark import cloudpickle

        dumps: Any = cloudpickle.dumps
        return _opener(), (OWN_VERSION, dumps((type(self), self.__getstate__())))


def _opener() -> Callable[[str, bytes], object]:
    # Local functions are pickled with their code, and this one imports all that it uses.
    def open_sent(version: str, sent: bytes) -> object:
        try:
            from spark_eos.sent_to_tasks import opened

            return opened(version, sent)
        except ImportError as problem:
            import platform
            import sys

            raise ImportError(
                f"A task cannot import eos-kafka, and the driver has version {version}: {type(problem).__name__}: "
                f"{problem}. Checked: Python {sys.version.split()[0]} at {sys.executable} on {platform.node()}. "
                f"Remedy: install eos-kafka {version} with its dependencies in the Python environment of the driver "
                "and of all executors, or send that environment with spark.archives; --py-files is not enough"
            ) from problem

    return open_sent


def opened(version: str, sent: bytes) -> object:
    """Return the object that the driver pickled; raise `ClientStateError` if the driver has another version."""
    if version != OWN_VERSION:
        import platform

        from spark_eos.errors import ClientStateError

        raise ClientStateError(
            f"The driver has version {version} of eos-kafka, and a task has version {OWN_VERSION}",
            checked=f"{__file__}, imported by {sys.executable} on {platform.node()}",
            remedy="Install the same version in the Python environment of the driver and of all executors, and start "
            "the application again",
        )
    with importing_own_version():
        kind, state = pickle.loads(sent)
    received = object.__new__(kind)
    received.__dict__.update(state, is_received=True)
    return received


@contextmanager
def importing_own_version() -> Iterator[None]:
    """Import modules; raise `ClientStateError` if they come from another build than those that were imported before.

    A process that imports nothing more can go on.
    """
    count = len(sys.modules)
    try:
        yield
    except ImportError:
        _refuse_replaced_files()
        raise
    if len(sys.modules) > count:
        _refuse_replaced_files()


def _refuse_replaced_files() -> None:
    if (found := version_in(_FOLDER)) != OWN_VERSION:
        from spark_eos.errors import ClientStateError

        raise ClientStateError(
            f"The files of eos-kafka were replaced while a process used them: it has imported version {OWN_VERSION}, "
            f"and version {found} is there now",
            checked=_FOLDER,
            remedy="Start the application again; a query goes on from its checkpoint",
        )


def for_same_version(call: Callable[[], None]) -> Callable[[], None]:
    """Return a call that can be pickled and does nothing in a process with another version."""
    return partial(_call_in, OWN_VERSION, pickle.dumps(call))


def _call_in(version: str, call: bytes) -> None:
    if version == OWN_VERSION:
        pickle.loads(call)()
