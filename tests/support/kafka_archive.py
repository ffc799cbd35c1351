"""Archives of the classes that Apache Kafka and its tools load, for the hundred JVMs of `make conformance`.

`python -m tests.support.kafka_archive` makes them, once for each version and Java. Without them, JVMs start as usual.
"""

import subprocess

from tests.support.apache_kafka import JVM, Unavailable, apache_kafka, fetch_jars
from tests.support.class_archive import archive_of, java_with, keep, writing
from tests.support.clients import make_topic, make_transactional_producer, send, unique, values_to_end
from tests.support.java import java_problem
from tests.support.java_tools import JVM as TOOL_JVM
from tests.support.java_tools import TOOLS_POM


def main() -> None:
    """Run what most tests run, in JVMs that write the classes they have loaded, unless there are archives."""
    if java_problem():
        return
    server, tools = fetch_jars(), fetch_jars(TOOLS_POM)
    wanted = {jars: archive for jars in (server, tools) if (archive := archive_of(jars)) and not archive.exists()}
    if not wanted:
        return
    print("Archiving the classes of Apache Kafka in .cache: a quarter of a minute, once.", flush=True)
    with apache_kafka(jvm=[*JVM, *(writing(wanted[server]) if server in wanted else ())]) as kafka:
        topic, producer = make_topic(kafka), make_transactional_producer(kafka, unique("id"))
        producer.begin_transaction()
        send(producer, topic, [b"value"])
        producer.commit_transaction()
        assert values_to_end(kafka, topic) == [b"value"]
        if tools in wanted:
            words = ["--bootstrap-server", kafka.bootstrap_servers, "list"]
            java = java_with(tools, *TOOL_JVM, *writing(wanted[tools]))
            subprocess.run(
                [*java, "org.apache.kafka.tools.TransactionsCommand", *words], check=True, capture_output=True
            )
    for jars, archive in wanted.items():
        keep(archive, jars)


if __name__ == "__main__":
    try:
        main()
    except Unavailable as problem:
        print(problem)
