"""What Spark pickles on the driver and unpickles in tasks, with a check of the package on both sides.

The data source, readers and writers are pickled by name and attributes. In a Python without this package, or with
another version of it, unpickling them fails with an error that names neither, or succeeds and fails later. So they are
pickled inside another pickle, which a function opens after it has compared the versions. That function is pickled with
its code, because the Python that unpickles it may lack this module.

The number of a version is not enough. Two builds of one version may have other fields, and a frozen class with slots is
pickled as the list of its values: in the other build, each value would go to the field of the same place, in silence.
So the contents of all modules are compared, the broker core's included: this package pickles types of it.
"""

import os
import pickle
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from broker_core import __version__

# Here, because what refuses a changed module must import none.
from spark_eos import errors

_BUILD: Final = " (build "
_PACKAGES: Final = ("spark_eos", "broker_core")


class _Module(NamedTuple):
    """A module's file, with what changes when it is replaced."""

    name: str
    path: str
    size: int
    modified_ns: int
    changed_ns: int


class _OwnFiles:
    """The modules of this package as they are when a process imports it: they may be replaced while it runs.

    It sees each import, also those in functions, and lets through the modules of this build. A process that imports
    nothing more can go on.
    """

    def __init__(self) -> None:
        try:
            self._modules: Mapping[str, _Module] = {each.name: each for each in _modules()}
            self._checksum = _checksum(self._modules.values())
            self.version = f"{__version__}{_BUILD}{self._checksum})"
        except OSError:
            # In an archive, or while files are being replaced.
            self._modules, self._checksum = {}, ""
            self.version = __version__

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        """Raise `ClientStateError` for a module of this package that is not this build's; the others find it."""
        if fullname.partition(".")[0] in _PACKAGES:
            known = self._modules.get(fullname) or self._modules.get(f"{fullname}.__init__")
            try:
                is_own = known is not None and _module(known.name, known.path, os.stat(known.path)) == known
            except OSError:
                is_own = False
            if not is_own:
                self.refuse_replaced()

    def refuse_replaced(self) -> None:
        """Raise `ClientStateError` if files were replaced; what cannot be read for another reason is no sign of it."""
        if not self._checksum:
            return
        try:
            modules = {each.name: each for each in _modules()}
            if modules == self._modules or (checksum := _checksum(modules.values())) == self._checksum:
                # The same files may have been written again.
                self._modules = modules
                return
            found = f"build {checksum} is there"
        except (FileNotFoundError, NotADirectoryError):
            found = "a part of it is missing"
        except OSError:
            return
        raise errors.ClientStateError(
            f"The files of eos-kafka were replaced while a process used them: it has imported version {self.version}, "
            f"and {found} now",
            checked=", ".join(_folders()),
            remedy="Start the application again; a query goes on from its checkpoint",
        )


def _folders() -> tuple[str, str]:
    return os.path.dirname(__file__), sys.modules["broker_core"].__path__[0]


def _modules() -> Iterator[_Module]:
    own, core = _folders()
    yield from _modules_in(own, "spark_eos")
    yield from _modules_in(core, "broker_core")


def _modules_in(folder: str, package: str) -> Iterator[_Module]:
    """Find the modules of a package and of its packages; other folders have no modules."""
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    if all(entry.name != "__init__.py" for entry in found):
        return
    for entry in found:
        stem, suffix = os.path.splitext(entry.name)
        if not stem.isidentifier():
            continue
        if suffix == ".py":
            yield _module(f"{package}.{stem}", entry.path, entry.stat())
        elif not suffix and entry.is_dir():
            yield from _modules_in(entry.path, f"{package}.{stem}")


def _module(name: str, path: str, status: os.stat_result) -> _Module:
    return _Module(name, path, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _checksum(modules: Iterable[_Module]) -> str:
    """Return the checksum of the names and contents; 200 files take some milliseconds."""
    checksum = 0
    for module in modules:
        file = os.open(module.path, os.O_RDONLY)
        try:
            checksum = zlib.crc32(os.read(file, module.size), zlib.crc32(repr(module[:1]).encode(), checksum))
        finally:
            os.close(file)
    return f"{checksum:08x}"


_OWN_FILES: Final = _OwnFiles()
sys.meta_path.insert(0, _OWN_FILES)
refuse_replaced: Final = _OWN_FILES.refuse_replaced
OWN_VERSION: Final = _OWN_FILES.version


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
                f"Remedy: install the same wheel of eos-kafka {version.partition(' ')[0]} with its dependencies in the "
                "Python environment of the driver and of all executors, or send that environment with "
                "spark.archives; --py-files is not enough"
            ) from problem

    return open_sent


def opened(version: str, sent: bytes) -> object:
    """Return the object that the driver pickled; raise `ClientStateError` if the driver has another version."""
    if version != OWN_VERSION:
        import platform

        sides = (("driver", version), ("task", OWN_VERSION))
        without = [f"the {side} has no build" for side, one in sides if _BUILD not in one]
        reason = f"; {' and '.join(without)}: the files are in an archive, or could not be read" if without else ""
        raise errors.ClientStateError(
            f"The driver has version {version} of eos-kafka, and a task has version {OWN_VERSION}",
            checked=f"{__file__}, imported by {sys.executable} on {platform.node()}{reason}",
            remedy="Install the same wheel in the Python environment of the driver and of all executors, and start "
            "the application again",
        )
    kind, state = pickle.loads(sent)
    received = object.__new__(kind)
    received.__dict__.update(state, is_received=True)
    return received


def for_same_version(call: Callable[[], None]) -> Callable[[], None]:
    """Return a call that can be pickled, and that a process with another version replaces with a warning."""
    return partial(_call_in, OWN_VERSION, pickle.dumps(call))


def _call_in(version: str, call: bytes) -> None:
    if version == OWN_VERSION:
        pickle.loads(call)()
        return
    import logging

    logging.getLogger(__name__).warning(
        "what a process with version %s of eos-kafka has left open is not ended here, where the version is %s; readers "
        "wait until the application is started again, or for transactionTimeout",
        version,
        OWN_VERSION,
    )
