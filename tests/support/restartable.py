"""A broker that can be restarted on its files, for behavior that depends on loaded state."""

import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Protocol, Self

from broker_core import EmbeddedBroker
from tests.support.apache_kafka import DATA, apache_kafka


class Running(Protocol):
    """A running broker of either kind."""

    @property
    def bootstrap_servers(self) -> str:
        """Return the bootstrap servers."""
        ...


class Restartable:
    """One broker over one folder, through its restarts."""

    def __init__(
        self,
        start: Callable[[Mapping[str, str]], AbstractContextManager[Running]],
        data_folder: Path,
        settings: Mapping[str, str],
    ) -> None:
        self.data_folder = data_folder
        self._start = start
        self._settings = dict(settings)
        self._block = ExitStack()
        self._running: Running | None = None

    @property
    def bootstrap_servers(self) -> str:
        """Return the bootstrap servers; they may change with a restart."""
        assert self._running is not None, "enter the block first"
        return self._running.bootstrap_servers

    def restart(self, **settings: str) -> None:
        """Stop the broker cleanly and start it with some settings changed; `a_b=c` stands for `a.b=c`."""
        self._settings |= {name.replace("_", "."): value for name, value in settings.items()}
        self.stop()
        self._running = self._block.enter_context(self._start(self._settings))

    def restart_without(self, topic: str, partition: int) -> None:
        """Restart the broker, which finds the log of a partition gone, as on a new disk."""
        self.stop()
        [folder] = self.data_folder.rglob(f"{topic}-{partition}")
        shutil.rmtree(folder)
        self.restart()

    def stop(self) -> None:
        """Stop the broker cleanly; its files stay."""
        self._block.close()

    def __enter__(self) -> Self:
        self.restart()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def restartable(kind: str, folder: Path, settings: Mapping[str, str]) -> Restartable:
    """Return the broker of this kind over an empty folder, as a context manager."""
    if kind == "apache":
        return Restartable(lambda changed: apache_kafka(changed, folder), folder / DATA, settings)
    return Restartable(lambda changed: EmbeddedBroker(config=changed, data_dir=folder), folder, settings)
