"""A check for a Java version that is new enough for Spark and Apache Kafka.

`python -m tests.support.java` prints the problem and exits with 1 if there is one; the Makefile runs it.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache

MINIMUM_VERSION = 17
# Options of a JVM for a short run on few cores: compile less, collect garbage with one thread.
SHORT_LIFE = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def temporary_files() -> str:
    """Return the option with which a JVM has its temporary files where Python has them."""
    return f"-Djava.io.tmpdir={tempfile.gettempdir()}"


def java_command(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the `java` that Spark starts: that of JAVA_HOME, else the one on the PATH."""
    home = environ.get("JAVA_HOME")
    if home:
        return shutil.which(os.path.join(home, "bin", "java"))
    return shutil.which("java", path=environ.get("PATH"))


def parse_version(banner: str) -> int | None:
    """Return the major version in the output of `java -version`; `1.8.0_352` counts as 8."""
    found = re.search(r'version "(?:1\.)?(\d+)', banner)
    return int(found.group(1)) if found else None


@cache
def _banner(command: str) -> str:
    answer = subprocess.run(
        [command, "-version"], capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL
    )
    return answer.stderr + answer.stdout


def java_problem(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return one sentence about the problem with this machine's Java, or None."""
    command = java_command(environ)
    where = "JAVA_HOME" if environ.get("JAVA_HOME") else "the PATH"
    if command is None:
        return f"Java is missing: no java found in {where}; install Java {MINIMUM_VERSION} or newer, or set JAVA_HOME."
    try:
        version = parse_version(_banner(command))
    except (OSError, subprocess.TimeoutExpired) as failure:
        return f"Java does not run: {command} -version failed ({failure}); install Java {MINIMUM_VERSION} or newer."
    if version is None:
        return f"Java does not say its version: {command} -version; install Java {MINIMUM_VERSION} or newer."
    if version < MINIMUM_VERSION:
        return (
            f"Java is too old: {command} is version {version}; "
            f"install Java {MINIMUM_VERSION} or newer, or set JAVA_HOME."
        )
    return None


if __name__ == "__main__":
    sys.exit(java_problem())
