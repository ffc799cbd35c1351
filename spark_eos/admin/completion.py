"""The command `eos-kafka completion`: a script for the shell that completes commands and options, by shtab."""

import argparse
from collections.abc import Iterator
from functools import partial

from spark_eos.admin.output import ExitCode, exit_codes
from spark_eos.errors import OptionError

_PLACES = {
    "bash": "~/.local/share/bash-completion/completions/eos-kafka",
    "zsh": "a file _eos-kafka in a folder of $fpath",
    "fish": "~/.config/fish/completions/eos-kafka.fish",
}


def add_parser(areas: "argparse._SubParsersAction[argparse.ArgumentParser]", root: argparse.ArgumentParser) -> None:
    """Add the command to the parser of `eos-kafka`, which is `root`."""
    text = "print a script that completes commands and options in your shell"
    places = "; ".join(f"for {shell} to {place}" for shell, place in _PLACES.items())
    parser = areas.add_parser(
        "completion",
        help=text,
        description=f"{text.capitalize()}. Write it to a file that your shell reads when it starts: {places}. Needs "
        "the extra cli.",
        epilog=exit_codes(ExitCode.DONE, ExitCode.USAGE),
    )
    parser.add_argument("shell", choices=tuple(_PLACES), metavar="SHELL", help="bash, zsh or fish")
    parser.set_defaults(run=partial(run, root))


def run(root: argparse.ArgumentParser, chosen: argparse.Namespace) -> int:
    """Print the script."""
    try:
        import shtab
    except ImportError as error:
        raise OptionError(
            f"The scripts are made by a library that is not installed: {error.name}",
            remedy="Run `pip install '.[cli]'` in a clone of eos-kafka",
        ) from error
    for action in _actions(root):
        if action.metavar == "FILE":
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(root, shell=chosen.shell))
    return ExitCode.DONE


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from _actions(each)
