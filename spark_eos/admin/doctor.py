"""The command `eos-kafka doctor`: whether sink, source and tool will work with a cluster, and what to do."""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Final

from broker_core.types import counted
from spark_eos.admin.doctor_checks import examine
from spark_eos.admin.doctor_findings import CheckResult, Finding
from spark_eos.admin.output import PLAIN, TABLE, ExitCode, Painter, Style, write
from spark_eos.admin.parsers import in_words_of_the_command, options_of
from spark_eos.admin.rights import Examination
from spark_eos.readable import printable

_VERDICT_WIDTH: Final = max(map(len, CheckResult))
_STYLES: Final[Mapping[CheckResult, tuple[Style, ...]]] = {
    CheckResult.OK: (Style.GREEN,),
    CheckResult.NOTE: (),
    CheckResult.WARNING: (Style.YELLOW,),
    CheckResult.PROBLEM: (Style.RED, Style.BOLD),
    CheckResult.SKIPPED: (),
}


def run(chosen: argparse.Namespace) -> int:
    examined = Examination(
        options_of(chosen, longest_wait_ms=10_000),
        chosen.prefix,
        chosen.decision_topic,
        tuple(chosen.topic),
        tuple(chosen.role or ("sink", "source")),
        chosen.read_only,
        chosen.allow_decision_retention,
        chosen.trial_topic,
    )
    words = in_words_of_the_command
    found = (replace(each, found=words(each.found), remedy=words(each.remedy)) for each in examine(examined))
    findings = _shown(found, chosen)
    return ExitCode.PROBLEM_FOUND if any(each.verdict is CheckResult.PROBLEM for each in findings) else ExitCode.DONE


def _shown(findings: Iterable[Finding], chosen: argparse.Namespace) -> list[Finding]:
    if chosen.output != TABLE:
        found = list(findings)
        rows = [asdict(each) for each in found]
        write(chosen, "", rows, ("check", "verdict", "found", "remedy"), rows)
        return found
    painter = Painter(sys.stdout, chosen.color)
    found = []
    for each in findings:
        print(finding_text(each, painter), flush=True)
        found.append(each)
    counts = Counter(each.verdict for each in found)
    problems, warnings = counts[CheckResult.PROBLEM], counts[CheckResult.WARNING]
    print(f"\n{counted(len(found), 'check')}: {problems} with a problem, {warnings} with a warning.")
    return found


def finding_text(finding: Finding, painter: Painter = PLAIN) -> str:
    """Format a finding as one line, and a second one with the remedy.

    >>> print(finding_text(Finding("topic lines", CheckResult.PROBLEM, "does not exist", "Create it")))
    problem  topic lines: does not exist
             -> Create it
    """
    verdict = painter.paint(f"{finding.verdict.value:<{_VERDICT_WIDTH}}", *_STYLES[finding.verdict])
    first = f"{verdict}  {printable(f'{finding.check}: {finding.found}')}"
    return f"{first}\n{'':<{_VERDICT_WIDTH}}  -> {printable(finding.remedy)}" if finding.remedy else first
