"""The APIs and features of each version of Apache Kafka, according to its own jars, which Maven fetches.

`python -m tests.support.recorded_api_versions` writes the file that `broker_core.wire.kafka_versions` reads. The first
levels of the features are those of a new node, which it starts. A conformance test compares the file with nodes that
run.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

from kafka.protocol.metadata import ApiVersionsRequest

from tests.support.apache_kafka import apache_kafka, fetch_jars
from tests.support.class_archive import java_with
from tests.support.java import SHORT_LIFE
from tests.support.raw_client import RawClient

FILE = Path(__file__).parents[2] / "broker_core" / "wire" / "kafka_versions.json"
# The newest patch of each on 22 November 2026.
PATCHES = ("3.6.2", "3.7.2", "3.8.1", "3.9.2", "4.0.2", "4.1.2", "4.2.2", "4.3.1", "4.4.0")
PARTS = ("apis", "features", "metadata_changes")
_PROGRAM = Path(__file__).with_name("ApiRanges.java")
_DEADLINE_S = 120


def ranges_of(patch: str) -> dict[str, Any]:
    """Return the version ranges by API key and by feature, with what else the file has of a version."""
    answer = subprocess.run(
        [*java_with(fetch_jars(version=patch), *SHORT_LIFE), str(_PROGRAM)],
        capture_output=True,
        text=True,
        timeout=_DEADLINE_S,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    found: dict[str, Any] = json.loads(answer.stdout)
    lowest, highest = found["features"]["metadata.version"]
    found["metadata_changes"] = [level for level in found["metadata_changes"] if lowest < level <= highest]
    return found


def advertised(address: str, version: int = 3) -> Any:
    """Return what a broker answers to ApiVersions."""
    with RawClient(address) as client:
        return client.send(ApiVersionsRequest(client_software_name="t", client_software_version="1"), version)


def first_levels_of(patch: str) -> dict[str, int]:
    """Return the finalized levels of the features of a new node."""
    with apache_kafka(version=patch) as kafka:
        answer = advertised(kafka.bootstrap_servers)
    return {each.name: each.max_version_level for each in answer.finalized_features}


def main() -> None:
    """Write the file, with one line for each part of a version; a feature has its range and its first level."""
    blocks = []
    for patch in PATCHES:
        found, levels = ranges_of(patch), first_levels_of(patch)
        found["features"] = {name: [*each, levels.get(name, 0)] for name, each in found["features"].items()}
        lines = [f'    "{part}": {json.dumps(found[part])}' for part in PARTS]
        blocks.append(f'  "{patch.rpartition(".")[0]}": {{\n' + ",\n".join(lines) + "\n  }")
    FILE.write_text("{\n" + ",\n".join(blocks) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
