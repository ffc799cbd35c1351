"""The form of a commit message: `python -m tests.support.commit_subject FILE`, or of the last commit without a file.

`.venv/bin/pre-commit install` runs this for every commit, and `make commit-msg` for the last one.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

MOST_CHARACTERS: Final = 60
_FORM: Final = re.compile(r"(?P<places>[a-z0-9_.-]+(?:, [a-z0-9_.-]+)*): (?P<summary>\S.*?)(?: \(mechanical\))?")
# A summary names an act. These words begin a noun clause, or say what happened.
_NO_VERB: Final = re.compile(
    "a|all|an|any|both|each|every|its?|more|no|one|only|some|that|the|their|these|this|those|wh(at|en|ere|ich|o|y)"
    # Other forms of verbs, but for verbs that look like one.
    "|(?!(embed|exceed|feed|need|seed|shed|speed)$).*ed|(?!(bring|ring)$).*ing|(?!focus$).*[^s]s"
)
_REVERT: Final = re.compile(r'(?:Revert|Reapply) "|fixup! |squash! ')


def problems_of(message: str) -> list[str]:
    """Return what is wrong with a commit message.

    >>> problems_of("docs: the options of the sink")
    ["begin the summary with a verb in the imperative, not with 'the'"]
    """
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject = lines[0] if lines else ""
    if _REVERT.match(subject):
        return []
    found = []
    if len(subject) > MOST_CHARACTERS:
        found.append(f"the subject has {len(subject)} characters, and {MOST_CHARACTERS} are allowed")
    if lines[1:] and lines[1].strip():
        found.append("leave the second line empty")
    form = _FORM.fullmatch(subject)
    if form is None:
        return [*found, "write `package: imperative summary`, such as `broker_core: derive checks from declarations`"]
    if form["summary"].endswith("."):
        found.append("end the subject without a full stop")
    word = form["summary"].split()[0].lower()
    if _NO_VERB.fullmatch(word):
        found.append(f"begin the summary with a verb in the imperative, not with {word!r}")
    return found


def main(arguments: list[str]) -> int:
    """Check the message in a file, or the message of the last commit."""
    if arguments:
        message = Path(arguments[0]).read_text(encoding="utf-8")
    else:
        log = ["git", "log", "-1", "--format=%B"]
        message = subprocess.run(log, capture_output=True, text=True, check=True).stdout
    found = problems_of(message)
    for each in found:
        print(f"commit message: {each}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
