"""The folder in which a broker keeps its files, `data_dir`."""

import os
from collections.abc import Callable

from broker_core.errors import ConfigError
from broker_core.log.write_ahead import WriteAheadStorage
from broker_core.ports import Storage
from broker_core.server.disk import DiskStorage


def open_data_folder(folder: str | os.PathLike[str], at_end: Callable[[Callable[[], None]], object]) -> Storage:
    """Lock the folder, recover what a crash has left, and return its files; `at_end` takes what closes them.

    What `at_end` takes last must be called first, as `ExitStack.callback` does. Raises `ConfigError` if another broker
    uses the folder, or it cannot be created or written.
    """
    try:
        disk = DiskStorage(folder)
    except FileExistsError:
        raise ConfigError(f"{folder} is not a folder: give a folder for the logs, which is created if needed") from None
    except OSError as error:
        raise ConfigError(
            f"cannot create the folder {folder} for the logs: {error.strerror}; give another folder"
        ) from error
    at_end(disk.close)
    try:
        disk.lock()
    except OSError as error:
        # Permissions, a read-only file system, or a network file system without locks.
        raise ConfigError(
            f"cannot write and lock files in {folder}, the folder of the logs: {error.strerror}; give another folder"
        ) from error
    storage = WriteAheadStorage(disk)
    at_end(storage.close)
    return storage
