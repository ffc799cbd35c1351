"""What the parsers of all commands share: errors that name the nearest option, and one rule for changes."""

import argparse
import difflib
import math
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import Final, NoReturn

_CHOICES: Final = re.compile(r"invalid choice: '(?P<given>[^']*)' \(choose from (?P<choices>.*)\)")


class CommandParser(argparse.ArgumentParser):
    """A parser whose errors have the usage of the command at hand, and the nearest name for a mistyped one."""

    _given: Sequence[str] = ()

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse as every parser does, but refuse at once what this command does not know.

        Otherwise the outermost parser refuses it, with the usage of `eos-kafka`.
        """
        self._given = list(sys.argv[1:] if args is None else args)
        chosen, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._near(unknown)}")
        return chosen, unknown

    def error(self, message: str) -> NoReturn:
        """Print the usage and the message, and exit with 2."""
        wrong = _CHOICES.search(message)
        if wrong is not None:
            # The value of a mistyped option stands where a command is expected.
            before = takewhile(lambda each: each != wrong["given"], self._given)
            message += self._near(before) or _nearest(wrong["given"], re.findall(r"[\w-]+", wrong["choices"]))
        super().error(message)

    def _near(self, words: Iterable[str]) -> str:
        names = [each.partition("=")[0] for each in words if each.startswith("--")]
        known = self._option_string_actions
        shown = [name for name, action in known.items() if action.help != argparse.SUPPRESS]
        return "".join(_nearest(each, shown) for each in names if each not in known)


def _nearest(given: str, names: Iterable[str]) -> str:
    found = difflib.get_close_matches(given, list(names), n=1)
    return f"; did you mean {found[0]}?" if found else ""


def seconds(least: float) -> Callable[[str], float]:
    """Parse a finite number of seconds."""

    def read(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not least <= number < math.inf:
            raise argparse.ArgumentTypeError(f"{text} is not a number of seconds of at least {least:g}")
        return number

    return read


def positive(text: str) -> int:
    """Parse a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1")
    return int(text)


# Changes.


def add_confirmation_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that changes something: it shows its plan, and acts only if it is confirmed."""
    parser.add_argument(
        "--yes",
        action="store_true",
        help="carry out the plan; without it the command shows the plan, and asks at a terminal",
    )
    # From when only some commands showed their plan first.
    parser.add_argument("--dry-run", action="store_true", help=argparse.SUPPRESS)


def is_confirmed(chosen: argparse.Namespace, ask: Callable[[], str] | None = None) -> bool:
    """Return whether to carry out the plan that was shown; say what to do if not."""
    if chosen.dry_run:
        _say("--dry-run is not needed any more: without --yes, a command changes nothing unless you confirm its plan.")
    elif chosen.yes:
        return True
    elif ask is not None or (sys.stdin.isatty() and sys.stderr.isatty()):
        print("Carry this out? [y/N] ", end="", file=sys.stderr, flush=True)
        try:
            if (ask or sys.stdin.readline)().strip().lower() in ("y", "yes"):
                return True
        except KeyboardInterrupt:
            _say("")
    _say("Nothing was changed. Repeat the command with --yes to carry this out.")
    return False


def _say(text: str) -> None:
    print(text, file=sys.stderr)
