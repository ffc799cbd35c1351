"""The `eos-kafka` commands that messages recommend, ready to run.

Each is quoted for a shell.
"""

import shlex
from dataclasses import dataclass
from typing import Final, Self

from broker_core.types import CONSUMER_OFFSETS_TOPIC, TopicPartition
from spark_eos.options.client import ClientOptions
from spark_eos.readable import one_line

# A secured cluster needs a properties file, which only the operator has.
_CONFIG_PLACEHOLDER = "client.properties"


@dataclass(frozen=True, slots=True)
class OperatorCommands:
    """Commands for one cluster; `command_config` is the properties file for a secured one, or None.

    >>> OperatorCommands(("broker:9092",)).abort(TopicPartition("orders", 3), 17)
    'eos-kafka transactions --bootstrap-server broker:9092 abort --topic orders --partition 3 --start-offset 17'
    """

    bootstrap_servers: tuple[str, ...]
    command_config: str | None = None

    @classmethod
    def of(cls, options: ClientOptions) -> Self:
        """Return the commands for the cluster of a client; a secured one needs the operator's own file."""
        open_to_all = options.security_protocol == "PLAINTEXT"
        return cls(options.bootstrap_servers, None if open_to_all else _CONFIG_PLACEHOLDER)

    def abort(
        self, topic_partition: TopicPartition, first_offset: int, *, commit: bool = False, is_forced: bool = False
    ) -> str:
        """Return the command that ends one transaction in one partition, named by its first offset."""
        more = [option for option, is_given in (("--force", is_forced), ("--commit", commit)) if is_given]
        return self._line("abort", *_place(topic_partition), "--start-offset", str(first_offset), *more)

    def force_terminate(self, transactional_id: str) -> str:
        """Return the command that has the coordinator abort a transactional id's transaction and fence its producer."""
        # After a space, an id that begins with a dash would be parsed as an option.
        return self._line("force-terminate", f"--transactional-id={transactional_id}")

    def show_decision(self, prefix: str, query: str) -> str:
        """Return the command that shows the newest decision of a query, and the state of its transactions."""
        return self.decisions("show", prefix, query)

    def decisions(self, command: str, prefix: str, query: str, *more: str) -> str:
        """Return a command about the newest decision of a query; `more` names a topic other than the default one."""
        return self._line(command, f"--prefix={prefix}", f"--query={query}", *more, area="decisions")

    def find_hanging(self, topic: str) -> str:
        return self._line("find-hanging", *_topic(topic))

    def find_hanging_offsets(self) -> str:
        """Return the command that finds hanging transactions that block offsets of consumer groups."""
        return self.find_hanging(CONSUMER_OFFSETS_TOPIC)

    def _line(self, *words: str, area: str = "transactions") -> str:
        reach = ["--bootstrap-server", ",".join(self.bootstrap_servers)]
        if self.command_config is not None:
            reach += ["--command-config", self.command_config]
        return " ".join(map(_quoted, ["eos-kafka", area, *reach, *words]))


# Where the address of the cluster is not known.
FOR_ANY_CLUSTER: Final = OperatorCommands(("HOST:PORT",))


def _place(topic_partition: TopicPartition) -> tuple[str, ...]:
    return *_topic(topic_partition.topic), "--partition", str(topic_partition.partition)


def _topic(name: str) -> tuple[str, ...]:
    # As with ids: the name of a topic may begin with a dash, too.
    return (f"--topic={name}",) if name.startswith("-") else ("--topic", name)


def _quoted(word: str) -> str:
    """Quote a word for a shell; with control characters in the form that bash, zsh and ksh read."""
    shown = one_line(word)
    if shown == word:
        return shlex.quote(word)
    # Each escape of `one_line` is one of a byte; a character beyond ASCII has several.
    return "$'" + "".join(_escaped(character) for character in word) + "'"


def _escaped(character: str) -> str:
    if one_line(character) != character:
        return "".join(f"\\x{byte:02x}" for byte in character.encode())
    return f"\\{character}" if character in "\\'" else character
