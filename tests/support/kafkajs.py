"""kafkajs, the client for Node, installed once."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.support.apache_kafka import CACHE, FETCH_DEADLINE_S, Unavailable

VERSION = "2.2.4"


def fetch_kafkajs() -> Path:
    """Return the folder into which npm has installed kafkajs, after an installation if necessary."""
    folder = CACHE / f"kafkajs-{VERSION}"
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise Unavailable(f"Node is missing: no {program} on the PATH to run kafkajs with; install Node and npm.")
    if folder.is_dir():
        return folder
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="fetching-") as fetching:
        command = [
            "npm",
            "install",
            "--prefix",
            f"{fetching}/kafkajs",
            "--no-audit",
            "--no-fund",
            "--no-package-lock",
            "--ignore-scripts",
            f"kafkajs@{VERSION}",
        ]
        try:
            answer = subprocess.run(
                command, capture_output=True, text=True, timeout=FETCH_DEADLINE_S, check=False, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(
                f"npm did not fetch kafkajs {VERSION} within {FETCH_DEADLINE_S} s; check the network."
            ) from None
        if answer.returncode:
            reason = answer.stderr.strip().splitlines() or ["no reason given"]
            raise Unavailable(f"npm could not fetch kafkajs {VERSION}: {reason[0]}")
        try:
            # One rename makes the whole set visible at once, so that a killed installation leaves no partial set.
            os.rename(f"{fetching}/kafkajs", folder)
        except OSError:
            if not folder.is_dir():
                raise
    return folder
