"""The names of the settings of Apache Kafka's clients: a committed list, and the list in the jar.

`python -m tests.support.kafka_setting_names` writes the committed list from the jar.
"""

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.support.apache_kafka import Unavailable, fetch_jars
from tests.support.class_archive import java_with
from tests.support.java import SHORT_LIFE, java_problem

LIST = Path(__file__).with_name("kafka-setting-names.txt")
_DEADLINE_S = 120
_PROGRAM = """
public class Names {
    static void print(String client, java.util.Set<String> names) {
        for (String name : names) System.out.println(client + " " + name);
    }
    public static void main(String[] arguments) {
        print("producer", org.apache.kafka.clients.producer.ProducerConfig.configNames());
        print("consumer", org.apache.kafka.clients.consumer.ConsumerConfig.configNames());
        print("admin", org.apache.kafka.clients.admin.AdminClientConfig.configNames());
    }
}
"""


def committed_names() -> Mapping[str, frozenset[str]]:
    """Return the clients that have each setting, from the committed list."""
    lines = (line.split() for line in LIST.read_text(encoding="utf-8").splitlines())
    return {name: frozenset(clients) for name, *clients in lines}


def names_in_jar() -> Mapping[str, frozenset[str]]:
    """Return the clients that have each setting, from Apache Kafka; raise `Unavailable` without Java or Maven."""
    problem = java_problem()
    if problem:
        raise Unavailable(problem)
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "Names.java")
        program.write_text(_PROGRAM, encoding="utf-8")
        answer = subprocess.run(
            [*java_with(fetch_jars(), *SHORT_LIFE), str(program)],
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S,
            check=False,
        )
    assert answer.returncode == 0, answer.stderr
    found: dict[str, set[str]] = {}
    for client, name in (line.split() for line in answer.stdout.splitlines()):
        found.setdefault(name, set()).add(client)
    return {name: frozenset(clients) for name, clients in found.items()}


def main() -> None:
    """Write the committed list."""
    order = ("producer", "consumer", "admin")
    lines = (
        " ".join((name, *(client for client in order if client in clients)))
        for name, clients in sorted(names_in_jar().items())
    )
    LIST.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
