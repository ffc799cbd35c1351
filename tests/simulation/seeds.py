"""The seeds that once failed, each with a description."""

from pathlib import Path

KEPT: list[tuple[int, str]] = [
    (int(seed), story.strip())
    for line in (Path(__file__).parent / "seeds.txt").read_text(encoding="utf-8").splitlines()
    if line.strip() and not line.startswith("#")
    for seed, _, story in [line.partition(" ")]
]
