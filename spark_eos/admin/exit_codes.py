"""Say how a command ended, for scripts; one number means one thing in every area of `eos-kafka`."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Say how a command ended."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOTHING_DONE = 3
    DONE_IN_PART = 4
    HANGING_FOUND = 5
