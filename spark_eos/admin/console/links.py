"""The addresses of pages, relative to the overview: of the live console, or of files."""

from typing import Protocol, TypeVar
from urllib.parse import urlencode

from broker_core.types import TopicPartition

Name = TypeVar("Name")


class Links(Protocol):
    """The addresses of pages; None where there is no page."""

    def partition(self, topic_partition: TopicPartition) -> str | None:
        """Return the address of a partition's timeline."""

    def transaction(self, transactional_id: str) -> str | None:
        """Return the address of a transactional id's page."""

    def query(self, prefix: str, query: str) -> str | None:
        """Return the address of a query's page."""


class LiveLinks:
    """The addresses under which the server has every page."""

    def partition(self, topic_partition: TopicPartition) -> str:
        """Return the address of a partition's timeline."""
        return "partition?" + urlencode({"topic": topic_partition.topic, "partition": topic_partition.partition})

    def transaction(self, transactional_id: str) -> str:
        """Return the address of a transactional id's page."""
        return "transaction?" + urlencode({"id": transactional_id})

    def query(self, prefix: str, query: str) -> str:
        """Return the address of a query's page."""
        return "query?" + urlencode({"prefix": prefix, "query": query})


class FileLinks:
    """The files of a folder; only as many pages as fit have one."""

    def __init__(self, most_pages: int) -> None:
        self.partitions: dict[TopicPartition, str] = {}
        self.transactions: dict[str, str] = {}
        self.queries: dict[tuple[str, str], str] = {}
        self._most = most_pages

    def close(self) -> None:
        """Name no further files."""
        self._most = 0

    def partition(self, topic_partition: TopicPartition) -> str | None:
        """Return the file of a partition's timeline."""
        return self._file(self.partitions, topic_partition, "partition")

    def transaction(self, transactional_id: str) -> str | None:
        """Return the file of a transactional id's page."""
        return self._file(self.transactions, transactional_id, "transaction")

    def query(self, prefix: str, query: str) -> str | None:
        """Return the file of a query's page."""
        return self._file(self.queries, (prefix, query), "query")

    def _file(self, files: dict[Name, str], name: Name, kind: str) -> str | None:
        if name not in files and len(files) < self._most:
            # Numbers: names of topics and ids may contain anything.
            files[name] = f"{kind}-{len(files) + 1}.html"
        return files.get(name)
