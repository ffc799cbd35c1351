"""The command `eos-kafka transactions`: Kafka's own `kafka-transactions.sh`, with reasons (KIP-664).

Options, columns and defaults are the same as in Apache's tool, and so is the standard output, byte for byte. Findings,
announcements and reasons go to the standard error. Only `abort` and `force-terminate` want a `--yes` in a script.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from broker_core import __version__
from broker_core.types import LONGEST_STRING_BYTES
from spark_eos.admin import transactions_end, transactions_view
from spark_eos.admin.output import TABLE, ExitCode, add_output_options
from spark_eos.admin.parsers import Commands, add_command, add_confirmation_options, options_of, positive
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.producer_scan import DEFAULT_MAX_IN_FLIGHT
from spark_eos.client.transaction_admin import TransactionAdmin

AREA: Final = "transactions"

_FORCE_TERMINATE: Final = "force-terminate"
_CAMEL_CASE: Final = "forceTerminateTransaction"
_NAMES: Final = ("list", "describe", "describe-producers", "find-hanging", "abort", _FORCE_TERMINATE, _CAMEL_CASE)
# KIP-664 proposed the subcommands as flags.
_FLAGS: Final = {f"--{name}": name for name in _NAMES}
_EXIT_CODES: Final = (ExitCode.DONE, ExitCode.FAILED, ExitCode.USAGE, ExitCode.NOTHING_DONE, ExitCode.HANGING_FOUND)


def with_subcommand(arguments: Sequence[str]) -> list[str]:
    """Convert one of KIP-664's flags to the subcommand that was released; leave other arguments as they are.

    >>> with_subcommand(["transactions", "--bootstrap-server", "b:9092", "--list"])
    ['transactions', 'list', '--bootstrap-server', 'b:9092']
    """
    flags = [word for word in arguments if word in _FLAGS]
    if list(arguments[:1]) != [AREA] or len(flags) != 1:
        return list(arguments)
    return [AREA, _FLAGS[flags[0]], *(word for word in arguments[1:] if word not in _FLAGS)]


def add_version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-v", "--version", action="version", version=f"eos-kafka {__version__}")


def add_parser(areas: Commands) -> None:
    parser = _add(areas, AREA, "find, explain and abort transactions as kafka-transactions.sh does")
    add_version(parser)
    parser.set_defaults(output=TABLE, color="auto", run=run)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_views(commands)
    _add_find_hanging(commands)
    _add_ends(commands)


def run(chosen: argparse.Namespace) -> int:
    with KafkaClient(options_of(chosen)) as client:
        code: int = chosen.action(chosen, TransactionAdmin(client), time.time_ns() // 1_000_000)
        return code


def _add(commands: Commands, name: str, text: str, **settings: Any) -> argparse.ArgumentParser:
    parser = add_command(commands, name, text, codes=_EXIT_CODES, allow_abbrev=False, **settings)
    add_output_options(parser, "the table of kafka-transactions.sh, or JSON or CSV with reasons", may_be_earlier=True)
    return parser


def _add_views(commands: Commands) -> None:
    listing = _add(commands, "list", "list all transactional ids with their states")
    listing.set_defaults(action=transactions_view.list_all)
    listing.add_argument(
        "--duration-filter",
        type=_number(64),
        metavar="MS",
        help="only transactions that have run longer than this (brokers from Kafka 3.8 on)",
    )
    listing.add_argument(
        "--transactional-id-pattern",
        type=_name,
        metavar="RE2",
        help="only ids that match this expression as a whole (brokers from Kafka 4.1 on)",
    )
    _add_broker(listing, "only ids that this broker coordinates")
    listing.add_argument(
        "--state", action="append", default=[], metavar="STATE", help="only ids in this state; may be repeated"
    )
    listing.add_argument(
        "--producer-id",
        action="append",
        default=[],
        type=_number(64),
        metavar="ID",
        help="only the id with this producer id; may be repeated",
    )
    describe = _add(commands, "describe", "show the state, the producer and the partitions of one transactional id")
    describe.set_defaults(action=transactions_view.describe)
    describe.add_argument("--transactional-id", type=_name, required=True, metavar="ID", help="the transactional id")
    text = "show the producers that a partition knows, and where their open transactions begin"
    producers = _add(commands, "describe-producers", text)
    producers.set_defaults(action=transactions_view.describe_producers)
    _add_broker(producers, "ask this replica instead of the leader")
    _add_partition(producers)


def _add_find_hanging(commands: Commands) -> None:
    parser = _add(
        commands,
        "find-hanging",
        "find transactions that no coordinator will end",
        more="Give --topic, --broker-id or --all-topics. The command prints what ends each of them.",
    )
    parser.set_defaults(action=transactions_view.find_hanging)
    _add_broker(parser, "search the replicas of this broker, internal topics included")
    parser.add_argument("--topic", type=_name, metavar="TOPIC", help="search this topic")
    parser.add_argument("--partition", type=_number(32), metavar="N", help="search only this partition of the topic")
    parser.add_argument(
        "--max-transaction-timeout",
        type=int,
        default=15,
        metavar="MINUTES",
        help="leave out of the table hanging transactions whose last record is not older than this; use the brokers' "
        "transaction.max.timeout.ms "
        "(default: %(default)s)",
    )
    parser.add_argument("--all-topics", action="store_true", help="search all partitions of the cluster")
    add_in_flight_option(parser)
    parser.add_argument("--explain", action="store_true", help="also explain why other open transactions do not hang")


def _add_ends(commands: Commands) -> None:
    abort = _add(
        commands,
        "abort",
        "abort a hanging transaction in one partition",
        more="Name it by --start-offset, which find-hanging prints, or by --producer-id with both epochs. The command "
        "refuses a transaction that its coordinator will end: force-terminate ends those.",
    )
    abort.set_defaults(action=transactions_end.abort)
    _add_partition(abort)
    abort.add_argument("--start-offset", type=int, metavar="OFFSET", help="the first offset of the transaction")
    abort.add_argument(
        "--producer-id",
        type=_number(64),
        metavar="ID",
        help="the producer id, instead of --start-offset",
    )
    abort.add_argument("--producer-epoch", type=_number(16), metavar="EPOCH", help="required with --producer-id")
    abort.add_argument("--coordinator-epoch", type=_number(32), metavar="EPOCH", help="required with --producer-id")
    abort.add_argument(
        "--force",
        action="store_true",
        help="write the marker without any check: this partition may then end differently from the other partitions "
        "of the transaction, and an epoch that is too high fences the transactional id for good",
    )
    abort.add_argument(
        "--commit",
        action="store_true",
        help="write a commit marker instead, for a transaction that its coordinator has committed",
    )
    terminate = _add(
        commands,
        _FORCE_TERMINATE,
        "abort the open transaction of a transactional id and fence its producer",
        aliases=[_CAMEL_CASE],
        more="Use it when the producer is dead and readers cannot wait for the timeout of the transaction.",
    )
    terminate.set_defaults(action=transactions_end.force_terminate)
    terminate.add_argument(
        "--transactional-id", "--transactionalId", type=_name, required=True, metavar="ID", help="the transactional id"
    )
    terminate.add_argument("--force", action="store_true", help="accept a transactional id of the eos-kafka sink")
    for parser in (abort, terminate):
        add_confirmation_options(parser)


def _add_broker(parser: argparse.ArgumentParser, text: str) -> None:
    """Add the option that names a broker; KIP-664 has the short form, and Apache's tool the long one."""
    parser.add_argument("--broker-id", "--broker", type=_number(32), metavar="N", help=text)


def _add_partition(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", type=_name, required=True, metavar="TOPIC", help="the topic")
    parser.add_argument("--partition", type=_number(32), required=True, metavar="N", help="the partition")


def add_in_flight_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-in-flight",
        type=positive,
        default=DEFAULT_MAX_IN_FLIGHT,
        metavar="N",
        help="how many requests may wait for a response of the same broker; each names up to 500 partitions "
        "(default: %(default)s)",
    )


def _name(text: str) -> str:
    """Parse a value that Kafka sends as a string; for any other the library would fail, or retry forever."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{text!r} is not text in UTF-8") from None
    if size > LONGEST_STRING_BYTES:
        raise argparse.ArgumentTypeError(f"{size} bytes are more than the {LONGEST_STRING_BYTES} of a string in Kafka")
    return text


def _number(bits: int) -> Callable[[str], int]:
    """Parse a number that Kafka sends in so many bits; for a larger one the library would fail, or wait forever."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if not -(1 << bits - 1) <= number < 1 << bits - 1:
            raise argparse.ArgumentTypeError(f"{text} is more than the {bits} bits that Kafka has for it")
        return number

    return read
