"""The command `eos-kafka`."""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Final

from broker_core import __version__
from broker_core.errors import ErrorCode
from broker_core.errors_page import with_address
from broker_core.types import counted
from spark_eos.admin import doctor, output, parsers, timeline, transactions_end, transactions_view, watch
from spark_eos.admin.decision_operator import DecisionOperator, RefusedError, fates_now, operator_name
from spark_eos.admin.inventory import NOT_PERMITTED, UNREADABLE, Entry, read_audit, read_inventory, rests
from spark_eos.admin.output import ExitCode as ExitCode
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.errors import EosKafkaError, OptionError, TopicError
from spark_eos.options.sink import DEFAULT_DECISION_TOPIC
from spark_eos.readable import one_line, printable
from spark_eos.runtime import now_ms
from spark_eos.sink.cluster import KafkaCluster
from spark_eos.sink.decision import Decision, OperatorAction, Restart
from spark_eos.sink.protocol.decision_errors import lost_error
from spark_eos.transactions.judge import name_blocker

# What a shell reports of a program that Ctrl+C ends, and of one whose output has no reader left.
_INTERRUPTED: Final = 130
_UNREAD: Final = 141

_EXAMPLES: Final = """examples:
  eos-kafka watch --bootstrap-server localhost:9092
  eos-kafka timeline orders --out orders.html --bootstrap-server localhost:9092
  eos-kafka transactions find-hanging --all-topics --bootstrap-server localhost:9092
  eos-kafka doctor --topic orders --bootstrap-server localhost:9092

Each command has more with --help, such as eos-kafka transactions find-hanging --help."""


# Options, columns and defaults are as in Apache's `kafka-transactions.sh`, and so is the standard output, byte for
# byte (KIP-664). Findings, announcements and reasons go to the standard error.
_TRANSACTIONS: Final[Mapping[str, Callable[..., int]]] = {
    "list": transactions_view.list_all,
    "describe": transactions_view.describe,
    "describe-producers": transactions_view.describe_producers,
    "find-hanging": transactions_view.find_hanging,
    "abort": transactions_end.abort,
    "force-terminate": transactions_end.force_terminate,
}
# KIP-664 proposed the subcommands as flags.
_FLAGS: Final = {f"--{name}": name for name in (*_TRANSACTIONS, "forceTerminateTransaction")}


def with_subcommand(arguments: Sequence[str]) -> list[str]:
    """Convert one of KIP-664's flags to the subcommand that was released; leave other arguments as they are.

    >>> with_subcommand(["transactions", "--bootstrap-server", "b:9092", "--list"])
    ['transactions', 'list', '--bootstrap-server', 'b:9092']
    """
    flags = [word for word in arguments if word in _FLAGS]
    if list(arguments[:1]) != ["transactions"] or len(flags) != 1:
        return list(arguments)
    return ["transactions", _FLAGS[flags[0]], *(word for word in arguments[1:] if word not in _FLAGS)]


def main(arguments: Sequence[str] | None = None) -> int:
    output.prepare_streams()
    try:
        try:
            return _run(sys.argv[1:] if arguments is None else arguments)
        finally:
            # Python would write the rest after the exit code is chosen.
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough.
        output.discard_rest(sys.stdout)
        return _UNREAD
    except OSError as error:
        if error.errno not in output.WRITE_ERRORS:
            raise
        output.discard_rest(sys.stdout)
        return _failed(f"The output could not be written, and is incomplete: {error}", ExitCode.FAILED)


def _run(given: Sequence[str]) -> int:
    parser = _parser()
    if not given:
        parser.print_help(sys.stderr)
        return ExitCode.USAGE
    chosen = parser.parse_args(with_subcommand(given))
    try:
        if "run" in chosen:
            code: int = chosen.run(chosen)
            return code
        with KafkaClient(parsers.options_of(chosen)) as client:
            done = run(chosen, KafkaCluster(client, chosen.decision_topic))
            if chosen.command == "list":
                # The list ends where a transaction is open.
                for place, reached, end in rests(client, chosen.decision_topic):
                    output.say(output.rest_text(place, reached, end, name_blocker(client, place)))
            return done
    except OptionError as error:
        return _failed(with_address(error), ExitCode.USAGE)
    except RefusedError as error:
        return _failed(with_address(error, f"{error.was_done}: {error}"), ExitCode.NOTHING_DONE)
    except EosKafkaError as error:
        return _failed(with_address(error), ExitCode.FAILED)
    except KeyboardInterrupt:
        return _failed(
            "\nInterrupted. A change that was confirmed may be done in part: repeat the command", _INTERRUPTED
        )


def _failed(text: str, code: int) -> int:
    output.say(printable(parsers.in_words_of_the_command(text)))
    return code


def _run_transactions(chosen: argparse.Namespace) -> int:
    with KafkaClient(parsers.options_of(chosen)) as client:
        code: int = chosen.action(chosen, client, now_ms(client.runtime.clock))
        return code


def run(chosen: argparse.Namespace, cluster: KafkaCluster) -> int:
    if chosen.command == "list":
        entries, has_topic = _newest(cluster, chosen)
        listed = output.list_document(entries)
        rows = [{**each, **(each["decision"] or {}), **each["fates"]} for each in listed]
        output.write(chosen, output.list_table(entries), listed, output.LIST_COLUMNS, rows)
        hidden = [each.problem for each in entries if each.state == NOT_PERMITTED or each.undescribed]
        if hidden:
            output.say(printable(f"{counted(len(hidden), 'decision')} without the state of transactions: {hidden[0]}"))
        if damaged := [each.problem for each in entries if each.state == UNREADABLE]:
            output.say(printable(f"{counted(len(damaged), 'record')} cannot be read as a decision: {damaged[0]}"))
        # A query that is named has written.
        is_wanted = chosen.prefix is not None or chosen.query is not None
        return ExitCode.FAILED if hidden or (is_wanted and not has_topic) else ExitCode.DONE
    entries = read_inventory(cluster, chosen.decision_topic, chosen.prefix, chosen.query)
    decision = _decision(entries, chosen)
    if chosen.command == "show":
        undescribed = entries[0].undescribed
        fates = fates_now(cluster, decision, undescribed)
        audit = read_audit(cluster, chosen.decision_topic, decision.prefix, decision.query)
        text, document = output.show_text(decision, fates, audit), output.show_document(decision, fates, audit)
        output.write(chosen, text, document, output.SHOW_COLUMNS, output.show_csv(fates, document))
        if undescribed:
            output.say(printable(f"{entries[0].problem}. Its fate is what the log shows."))
        return ExitCode.FAILED if undescribed else ExitCode.DONE
    return _intervene(chosen, cluster, decision)


def _newest(cluster: KafkaCluster, chosen: argparse.Namespace) -> tuple[list[Entry], bool]:
    """Return the newest decisions, and whether there is a topic: the first query to write creates it."""
    try:
        return read_inventory(cluster, chosen.decision_topic, chosen.prefix, chosen.query, waits=False), True
    except TopicError as error:
        is_missing = error.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not is_missing or chosen.decision_topic != DEFAULT_DECISION_TOPIC:
            # A name that was given may be mistyped.
            raise
        output.say(
            f"There is no topic {chosen.decision_topic!r}: no query has written yet, it was deleted, or the principal "
            "may not DESCRIBE it."
        )
        return [], False


def _intervene(chosen: argparse.Namespace, cluster: KafkaCluster, decision: Decision) -> int:
    operator = DecisionOperator(
        cluster, chosen.decision_topic, chosen.by, chosen.reason, chosen.watch_seconds, chosen.query_is_dead
    )
    restart = Restart(chosen.restart) if chosen.command == "abort" else None
    plan = operator.plan(decision, OperatorAction(chosen.command), restart)
    # The plan is where the question is; a program, or a file, gets only the result.
    steps = [f"  - {one_line(step)}" for step in plan.steps()]
    output.say("\n".join([f"About to {chosen.command} on {chosen.bootstrap_server}:", *steps]))
    if not parsers.is_confirmed(chosen):
        return ExitCode.NOTHING_DONE
    outcome = operator.carry_out(plan)
    settled, problems = outcome
    in_part = settled.committed if plan.action is OperatorAction.ABORT and restart is Restart.REWRITE else ()
    complete = settled.took_effect if plan.action is OperatorAction.COMPLETE else not (in_part or settled.pending)
    document = {
        "action": chosen.command,
        "restart": restart,
        "done": complete,
        "decision": output.decision_document(settled.decision),
        "problems": list(problems),
        **{name: len(getattr(settled, name)) for name in output.OUTCOMES},
    }
    row = {**output.decision_document(settled.decision), **document}
    output.write(chosen, str(outcome), document, output.RESULT_COLUMNS, [row])
    for text in problems if complete else (*problems, with_address(lost_error(settled))):
        output.say(printable(text))
    return ExitCode.DONE if complete and not problems else ExitCode.DONE_IN_PART


def _decision(entries: Sequence[Entry], chosen: argparse.Namespace) -> Decision:
    if not entries:
        raise RefusedError(
            f"No decision found for query {chosen.query!r} with transactionalIdPrefix {chosen.prefix!r}",
            checked=f"Read all records of {chosen.decision_topic}",
            remedy="Run `eos-kafka decisions list` to list the decisions, with the query's transactionalIdPrefix as "
            "--prefix and its decisionTopic as --decision-topic. If it died before its first decision, a restart "
            "aborts what it left open; without one, `eos-kafka transactions force-terminate --force` aborts each id",
        )
    if entries[0].decision is None:
        raise RefusedError(entries[0].problem)
    return entries[0].decision


@cache
def _parser() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = parsers.CommandParser(
        prog="eos-kafka",
        description="Inspect Kafka transactions and repair incomplete commits.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    version = f"eos-kafka {__version__}"
    parser.add_argument("-v", "--version", action="version", version=version)
    parsers.add_cluster_options(parser)
    parser.set_defaults(bootstrap_server=None, command_config=None, profile=None, timeout_seconds=None)
    parser.set_defaults(output=output.TABLE, color="auto")
    areas = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")
    transactions = parsers.add_command(areas, "transactions", run=_run_transactions)
    transactions.add_argument("-v", "--version", action="version", version=version)
    commands = transactions.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, action in _TRANSACTIONS.items():
        parsers.add_command(commands, f"transactions {name}", action=action)
    drawing = parsers.add_command(areas, "timeline", run=timeline.run)
    parsers.add_options(drawing.add_mutually_exclusive_group(), "timeline, reach")
    parsers.add_command(areas, "watch", run=watch.run)
    parsers.add_command(areas, "doctor", run=doctor.run)
    parsers.add_command(areas, "console", run=_run_console)
    decisions = parsers.add_command(areas, "decisions")
    commands = decisions.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in ("list", "show"):
        parsers.add_command(commands, f"decisions {name}")
    for name in ("complete", "abort"):
        parsers.add_command(commands, f"decisions {name}", by=operator_name())
    _add_completion(areas, parser)
    return parser


def _run_console(chosen: argparse.Namespace) -> int:
    if chosen.once != (chosen.out is not None):
        raise OptionError("--once and --out belong together", remedy="Give both, or neither")
    if chosen.once and chosen.allow_changes:
        raise OptionError("--allow-changes has no meaning with --once", remedy="Leave out one of them")
    if chosen.once:
        from spark_eos.admin.console.documents import write_once

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


_SCRIPTS: Final = {
    "bash": "~/.local/share/bash-completion/completions/eos-kafka",
    "zsh": "a file _eos-kafka in a folder of $fpath",
    "fish": "~/.config/fish/completions/eos-kafka.fish",
}


def _add_completion(areas: parsers.Commands, root: argparse.ArgumentParser) -> None:
    """Add the command that prints a script for the shell, made by shtab from `root`, the parser of `eos-kafka`."""
    text = "print a script that completes commands and options in your shell"
    places = "; ".join(f"for {shell} to {place}" for shell, place in _SCRIPTS.items())
    parser = areas.add_parser(
        "completion",
        help=text,
        description=f"{text.capitalize()}. Write it to a file that your shell reads when it starts: {places}. Needs "
        "the extra cli.",
        epilog=output.exit_codes(ExitCode.DONE, ExitCode.USAGE),
    )
    parser.add_argument("shell", choices=tuple(_SCRIPTS), metavar="SHELL", help="bash, zsh or fish")
    parser.set_defaults(run=partial(_print_completion, root))


def _print_completion(root: argparse.ArgumentParser, chosen: argparse.Namespace) -> int:
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
