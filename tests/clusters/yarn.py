"""YARN with one node, from Hadoop's small cluster for tests, which Maven fetches once."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

from tests.clusters.spark_processes import LEAN, START_DEADLINE_S, running
from tests.support.apache_kafka import fetch_jars

POM = Path(__file__).with_name("yarn-pom.xml")
PROGRAM = Path(__file__).with_name("OneNodeYarn.java")


def hadoop_version() -> str:
    """Return the version that the POM names."""
    version = ElementTree.parse(POM).getroot().findtext(".//{*}hadoop.version")
    assert version
    return version


@contextmanager
def one_node_yarn(folder: Path, spark_home: Path) -> Iterator[Path]:
    """Run YARN; return the folder with its settings (`HADOOP_CONF_DIR`)."""
    conf = folder / "hadoop-conf"
    conf.mkdir()
    jars = os.pathsep.join([f"{fetch_jars(POM, hadoop_version())}/*", f"{spark_home}/jars/*"])
    words = ["java", "-Xmx400m", *LEAN.split(), "--add-opens", "java.base/java.lang=ALL-UNNAMED", "-cp", jars]
    with running([*words, PROGRAM, conf / "yarn-site.xml"], folder, "yarn", {}) as yarn:
        yarn.wait_for(lambda: "YARN is ready" in yarn.log, "YARN starts", START_DEADLINE_S)
        yield conf


def logs_of_containers(folder: Path) -> str:
    """Return what the containers have logged."""
    return "".join(each.read_text(errors="replace") for each in sorted(folder.glob("target/**/stderr")))
