"""The commands that a message tells its reader to run, exactly as `eos-kafka` takes them.

Each is quoted for a shell.
"""

import shlex
from dataclasses import dataclass
from typing import Self

from broker_core.types import CONSUMER_OFFSETS_TOPIC, TopicPartition
from spark_eos.options.client import ClientOptions

# A secured cluster is reached with a file of properties, which only the operator has.
_CONFIG_PLACEHOLDER = "client.properties"


@dataclass(frozen=True, slots=True)
class OperatorCommands:
    """Commands for one cluster; `command_config` is the file that says how to get in, None where none is needed.

    >>> OperatorCommands(("broker:9092",)).abort(TopicPartition("orders", 3), 17)
    'eos-kafka transactions --bootstrap-server broker:9092 abort --topic orders --partition 3 --start-offset 17'
    """

    bootstrap_servers: tuple[str, ...]
    command_config: str | None = None

    @classmethod
    def of(cls, options: ClientOptions) -> Self:
        """Spell them for the cluster that a client talks to; a secured one needs the operator's own file."""
        open_to_all = options.security_protocol == "PLAINTEXT"
        return cls(options.bootstrap_servers, None if open_to_all else _CONFIG_PLACEHOLDER)

    def abort(self, topic_partition: TopicPartition, first_offset: int, *, commit: bool = False) -> str:
        """End one transaction in one partition, by where it begins there, as its coordinator decided."""
        fate = ("--commit",) if commit else ()
        return self._line("abort", *_place(topic_partition), "--start-offset", str(first_offset), *fate)

    def force_terminate(self, transactional_id: str) -> str:
        """Have the coordinator abort all that a transactional id has open, and fence its producer."""
        # With a space the id would be taken for an option where it begins with a dash.
        return self._line("force-terminate", f"--transactional-id={transactional_id}")

    def find_hanging(self, topic: str) -> str:
        """Look for hanging transactions in a topic."""
        return self._line("find-hanging", "--topic", topic)

    def find_hanging_offsets(self) -> str:
        """Look for hanging transactions that hold offsets of consumer groups back."""
        return self.find_hanging(CONSUMER_OFFSETS_TOPIC)

    def _line(self, *words: str) -> str:
        reach = ["--bootstrap-server", ",".join(self.bootstrap_servers)]
        if self.command_config is not None:
            reach += ["--command-config", self.command_config]
        return shlex.join(["eos-kafka", "transactions", *reach, *words])


def _place(topic_partition: TopicPartition) -> tuple[str, ...]:
    return "--topic", topic_partition.topic, "--partition", str(topic_partition.partition)
