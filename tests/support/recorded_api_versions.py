"""The APIs and features of each version of Apache Kafka, according to its own jars, which Maven fetches.

`python -m tests.support.recorded_api_versions` writes the file that `broker_core.wire.kafka_versions` reads. A
conformance test compares it with a node that runs.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.support.apache_kafka import fetch_jars
from tests.support.java import java_command

FILE = Path(__file__).parents[2] / "broker_core" / "wire" / "kafka_versions.json"
PATCHES = ("3.6.2", "3.7.2", "3.8.1", "3.9.2", "4.0.2", "4.1.2", "4.2.2", "4.3.1", "4.4.0")
_PROGRAM = Path(__file__).with_name("ApiRanges.java")
_DEADLINE_S = 120


def ranges_of(patch: str) -> dict[str, Any]:
    """Return the version ranges by API key, and by feature."""
    answer = subprocess.run(
        [str(java_command()), "-cp", str(fetch_jars(version=patch) / "*"), str(_PROGRAM)],
        capture_output=True,
        text=True,
        timeout=_DEADLINE_S,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def main() -> None:
    """Write the file, with one line for the APIs and one for the features of each version."""
    blocks = []
    for patch in PATCHES:
        found = ranges_of(patch)
        lines = [f'    "{part}": {json.dumps(found[part])}' for part in ("apis", "features")]
        blocks.append(f'  "{patch.rpartition(".")[0]}": {{\n' + ",\n".join(lines) + "\n  }")
    FILE.write_text("{\n" + ",\n".join(blocks) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
