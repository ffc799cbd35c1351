"""The command `eos-kafka console` and its options."""

import argparse
from pathlib import Path

from spark_eos.admin.parsers import Commands, add_command, add_decision_topic_option
from spark_eos.errors import OptionError


def add_parser(areas: Commands) -> None:
    parser = add_command(
        areas,
        "console",
        "serve a live page about the transactions of a cluster, on this machine only",
        more="The address that the command prints contains a token: who has it can open the page.",
    )
    parser.add_argument(
        "--port", type=_port, default=0, metavar="N", help="the port on 127.0.0.1 (default: one that is free)"
    )
    add_decision_topic_option(parser, "decisionTopic of the sink's queries")
    parser.add_argument(
        "--requests-per-second",
        type=_rate,
        default=20.0,
        metavar="N",
        help="how many requests all brokers together get in a second, at most (default: %(default)g)",
    )
    parser.add_argument(
        "--allow-changes",
        action="store_true",
        help="offer to end transactions and decisions; without it the page only shows",
    )
    parser.add_argument("--by", metavar="NAME", help="your name for audit records (default: user@host)")
    parser.add_argument(
        "--once", action="store_true", help="write the pages to the folder of --out instead of serving them, and end"
    )
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="the folder for --once; it is created")
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    if chosen.once != (chosen.out is not None):
        raise OptionError("--once and --out belong together", remedy="Give both, or neither")
    if chosen.once and chosen.allow_changes:
        raise OptionError("--allow-changes has no meaning with --once", remedy="Leave out one of them")
    if chosen.once:
        from spark_eos.admin.console.static_pages import write_once

        return write_once(chosen)
    try:
        from spark_eos.admin.console.server import serve
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise OptionError(
            f"The console needs the package {error.name}, which is not installed",
            remedy="Run `pip install '.[console]'` in a clone of eos-kafka. --once needs no further package",
        ) from error
    return serve(chosen)


def _port(text: str) -> int:
    number = int(text)
    if not 0 <= number < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text} is not a port")
    return number


def _rate(text: str) -> float:
    rate = float(text)
    if not 1 <= rate <= 10_000:
        raise argparse.ArgumentTypeError(f"{text} is not a number of requests from 1 to 10000")
    return rate
