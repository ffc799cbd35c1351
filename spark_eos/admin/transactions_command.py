"""The command `eos-kafka transactions`: Kafka's own `kafka-transactions.sh`, with reasons (KIP-664).

Options, columns and defaults are those of Apache's tool, so that scripts move over unchanged: the standard output has
what it prints, to the byte. What was found, what is about to be done and why goes to the standard error.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Final

from broker_core import __version__
from broker_core.types import LONGEST_STRING_BYTES
from spark_eos.admin import transactions_end, transactions_view
from spark_eos.admin.properties import options_of
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.transaction_admin import TransactionAdmin
from spark_eos.errors import OptionError

AREA: Final = "transactions"

_FORCE_TERMINATE: Final = "force-terminate"
_CAMEL_CASE: Final = "forceTerminateTransaction"
_NAMES: Final = ("list", "describe", "describe-producers", "find-hanging", "abort", _FORCE_TERMINATE, _CAMEL_CASE)
# KIP-664 drew the subcommands as flags.
_FLAGS: Final = {f"--{name}": name for name in _NAMES}
_DEFAULT_LIMIT_MINUTES: Final = 15
_EXIT_CODES: Final = (
    "Exit codes: 0 done (find-hanging: nothing hangs); 1 failed, see the message; 2 wrong usage; 3 nothing was done: "
    "refused, or --dry-run; 5 find-hanging has found something."
)


def with_subcommand(arguments: Sequence[str]) -> list[str]:
    """Turn one of KIP-664's flags into the subcommand that was shipped; all other arguments stay as they are.

    >>> with_subcommand(["transactions", "--bootstrap-server", "b:9092", "--list"])
    ['transactions', 'list', '--bootstrap-server', 'b:9092']
    """
    flags = [word for word in arguments if word in _FLAGS]
    if list(arguments[:1]) != [AREA] or len(flags) != 1:
        return list(arguments)
    return [AREA, _FLAGS[flags[0]], *(word for word in arguments[1:] if word not in _FLAGS)]


def add_parser(areas: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser of `eos-kafka`."""
    text = "find, explain and abort transactions as kafka-transactions.sh does"
    parser = areas.add_parser(
        AREA, help=text, description=f"{text.capitalize()}.", epilog=_EXIT_CODES, allow_abbrev=False
    )
    parser.add_argument("-v", "--version", action="version", version=f"eos-kafka {__version__}")
    _add_reach(parser)
    parser.set_defaults(bootstrap_server=None, command_config=None, output="table", run=run)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_views(commands)
    _add_find_hanging(commands)
    _add_ends(commands)


def run(chosen: argparse.Namespace) -> int:
    """Run one parsed command."""
    if chosen.bootstrap_server is None:
        raise OptionError("--bootstrap-server is missing", remedy="Give HOST:PORT, several with commas")
    options = options_of(chosen.bootstrap_server, chosen.command_config)
    with KafkaClient(options) as client, TransactionAdmin(client) as admin:
        code: int = chosen.action(chosen, admin, time.time_ns() // 1_000_000)
        return code


def _add_reach(parser: argparse.ArgumentParser) -> None:
    """Add what Apache's tool takes before the subcommand only and people write after it; the last one counts."""
    unset = argparse.SUPPRESS
    parser.add_argument("--bootstrap-server", default=unset, metavar="HOST:PORT", help="several with commas (required)")
    parser.add_argument(
        "--command-config",
        default=unset,
        metavar="FILE",
        help="properties of the Java client, for TLS and SASL among others",
    )
    parser.add_argument(
        "--output",
        default=unset,
        choices=("table", "json"),
        help="the table of Apache's tool, or JSON with the reasons (default: table)",
    )


def _add(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    text: str,
    action: object,
    *aliases: str,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        aliases=aliases,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        epilog=_EXIT_CODES,
        allow_abbrev=False,
    )
    _add_reach(parser)
    parser.set_defaults(action=action)
    return parser


def _add_views(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    listing = _add(commands, "list", "list all transactional ids with their states", transactions_view.list_all)
    listing.add_argument(
        "--duration-filter", type=_number(64), metavar="MS", help="only those that run longer than this"
    )
    listing.add_argument(
        "--transactional-id-pattern", type=_name, metavar="RE2", help="only ids that match as a whole (Kafka 4.1)"
    )
    describe = _add(commands, "describe", "describe one transactional id", transactions_view.describe)
    describe.add_argument("--transactional-id", type=_name, required=True, metavar="ID")
    producers = _add(
        commands,
        "describe-producers",
        "describe the producers that a partition knows",
        transactions_view.describe_producers,
    )
    producers.add_argument("--broker-id", type=_number(32), metavar="N", help="ask this replica and not the leader")
    _add_partition(producers)


def _add_find_hanging(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _add(
        commands, "find-hanging", "find transactions that no coordinator will ever end", transactions_view.find_hanging
    )
    parser.add_argument("--broker-id", type=_number(32), metavar="N", help="look at this broker's replicas")
    parser.add_argument(
        "--topic", type=_name, help="look at this topic; internal ones are looked at only if named here"
    )
    parser.add_argument("--partition", type=_number(32), metavar="N", help="look at this partition of the topic only")
    parser.add_argument(
        "--max-transaction-timeout",
        type=int,
        default=_DEFAULT_LIMIT_MINUTES,
        metavar="MINUTES",
        help="leave transactions in peace whose last record is not older; give the brokers' transaction.max.timeout.ms "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--explain", action="store_true", help="give the reasons for open transactions that do not hang, too"
    )


def _add_ends(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    abort = _add(commands, "abort", "abort a hanging transaction in one partition", transactions_end.abort)
    _add_partition(abort)
    abort.add_argument("--start-offset", type=int, metavar="OFFSET", help="where it begins in the partition")
    abort.add_argument("--producer-id", type=_number(64), metavar="ID", help="name it by its producer, for old brokers")
    abort.add_argument("--producer-epoch", type=_number(16), metavar="EPOCH", help="needed with --producer-id")
    abort.add_argument("--coordinator-epoch", type=_number(32), metavar="EPOCH", help="needed with --producer-id")
    abort.add_argument(
        "--force",
        action="store_true",
        help="abort it although its coordinator will end it, or cannot be asked: an outcome of its own "
        "in this partition, other than in the transaction's other ones perhaps",
    )
    abort.add_argument(
        "--commit",
        action="store_true",
        help="write a commit marker, for a transaction whose coordinator has committed it",
    )
    terminate = _add(
        commands,
        _FORCE_TERMINATE,
        "have the coordinator abort what a transactional id has open, and fence its producer",
        transactions_end.force_terminate,
        _CAMEL_CASE,
    )
    terminate.add_argument("--transactional-id", "--transactionalId", type=_name, required=True, metavar="ID")
    terminate.add_argument("--force", action="store_true", help="even if it is named like one of the eos-kafka sink's")
    for parser in (abort, terminate):
        parser.add_argument("--dry-run", action="store_true", help="only say what would be done")


def _add_partition(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", type=_name, required=True)
    parser.add_argument("--partition", type=_number(32), required=True, metavar="N")


def _name(text: str) -> str:
    """Read what Kafka sends as a string; over any other the library would fail, or try for ever."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{text!r} is not text in UTF-8") from None
    if size > LONGEST_STRING_BYTES:
        raise argparse.ArgumentTypeError(f"{size} bytes are more than the {LONGEST_STRING_BYTES} of a string in Kafka")
    return text


def _number(bits: int) -> Callable[[str], int]:
    """Read a number that Kafka sends in so many bits; on a larger one the library would fail, or wait for ever."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if not -(1 << bits - 1) <= number < 1 << bits - 1:
            raise argparse.ArgumentTypeError(f"{text} is more than the {bits} bits that Kafka has for it")
        return number

    return read
