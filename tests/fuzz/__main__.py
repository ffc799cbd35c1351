"""The fuzzer, guided by coverage: `python -m tests.fuzz --seconds 60`, or `--target recovery`.

Each target runs in a separate process under libFuzzer (atheris), with limits of memory and of time per input. An input
that raises an undeclared exception is kept, and the command that feeds it again is printed.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

_LIMIT_MB = 1024
_INPUT_SECONDS = 10
_MAX_INPUT_BYTES = 4096
_RUNS = re.compile(rb"stat::number_of_executed_units:\s*(\d+)")
_CRASHED = re.compile(rb"Test unit written to (\S+)")


def main() -> int:
    """Return 0 if every input was accepted or refused as declared."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=30, help="duration for each target")
    parser.add_argument("--target", action="append", help="target to run; by default all")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()), help="folder for failing inputs")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="feed one input to one target")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    arguments, for_libfuzzer = parser.parse_known_args()
    if arguments.inside:
        return _fuzz_inside(arguments.inside, for_libfuzzer)
    from tests.fuzz.targets import BY_NAME

    names = arguments.target or list(BY_NAME)
    if arguments.replay:
        print("accepted" if BY_NAME[names[0]].try_one(arguments.replay.read_bytes()) else "refused")
        return 0
    total, failed = 0, 0
    for name in names:
        runs, finding = _fuzz(name, arguments.seconds, arguments.keep)
        total += runs
        failed += finding is not None
        print(f"{name}: {runs:,} inputs" + (f"; FAILED, kept as {finding}" if finding else ""), flush=True)
        if finding:
            print(f"  again: python -m tests.fuzz --target '{name}' --replay {finding}", flush=True)
    print(f"{total:,} inputs, {failed} of {len(names)} targets failed")
    return 1 if failed else 0


def _fuzz(name: str, seconds: int, keep: Path) -> tuple[int, str | None]:
    from tests.fuzz.targets import BY_NAME

    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        for number, data in enumerate(BY_NAME[name].seeds()):
            (Path(folder) / f"seed-{number}").write_bytes(data)
        command = [
            sys.executable,
            "-m",
            "tests.fuzz",
            "--inside",
            name,
            folder,
            f"-max_total_time={seconds}",
            "-print_final_stats=1",
            f"-rss_limit_mb={_LIMIT_MB}",
            f"-timeout={_INPUT_SECONDS}",
            f"-max_len={_MAX_INPUT_BYTES}",
            f"-artifact_prefix={keep}/{name.replace(' ', '-')}-",
            "-verbosity=0",
        ]
        answer = subprocess.run(command, capture_output=True, check=False, env=os.environ)
    output = answer.stdout + answer.stderr
    runs = _RUNS.search(output)
    crashed = _CRASHED.search(output)
    if crashed or answer.returncode:
        sys.stderr.write(output.decode(errors="replace")[-4000:])
    count = int(runs[1]) if runs else 0
    return count, (crashed[1].decode() if crashed else "nothing, see above") if crashed or answer.returncode else None


def _fuzz_inside(name: str, for_libfuzzer: list[str]) -> int:
    import atheris

    with atheris.instrument_imports(include=["broker_core", "spark_eos"]):
        from tests.fuzz.targets import BY_NAME
    target = BY_NAME[name]
    # The creation of the seeds must not count towards the time of the first input.
    target.seeds()
    atheris.Setup([sys.argv[0], *for_libfuzzer], target.try_one)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
