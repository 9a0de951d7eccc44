"""What a look at something found: a verdict, the facts, and the next step; pure."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from shards.errors import printable


class Verdict(StrEnum):
    """How a check ended."""

    GOOD = "ok"
    WARNING = "warn"
    """It works, but there is something to know."""
    FAILED = "fail"
    """Staging will fail because of this."""
    SKIPPED = "skip"
    """It could not be looked at, because something before it failed or is not there."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    check: str
    """Name of the check, one word or two."""
    verdict: Verdict
    facts: str
    """What was found; one line."""
    advice: str = ""
    """What to do next; empty when there is nothing to do."""
    code: int = 0
    """Exit code that staging would end with because of it."""


def good(check: str, facts: str) -> Finding:
    """A check that passed."""
    return Finding(check, Verdict.GOOD, facts)


def warning(check: str, facts: str, advice: str) -> Finding:
    """A check that passed with something to know."""
    return Finding(check, Verdict.WARNING, facts, advice)


def failed(check: str, facts: str, advice: str, code: int) -> Finding:
    """A check that did not pass."""
    return Finding(check, Verdict.FAILED, facts, advice, code)


def skipped(check: str, facts: str) -> Finding:
    """A check that was not made."""
    return Finding(check, Verdict.SKIPPED, facts)


def exit_code(findings: Sequence[Finding]) -> int:
    """Give the exit code of the first check that failed; 0 when none did."""
    return next((finding.code for finding in findings if finding.verdict is Verdict.FAILED), 0)


def render_text(findings: Sequence[Finding]) -> str:
    """Render for a person; no newline at the end."""
    width = max((len(finding.check) for finding in findings), default=0)
    lines = []
    for finding in findings:
        mark = finding.verdict.upper() if finding.verdict is Verdict.FAILED else finding.verdict.value
        lines.append(f"{mark:<5} {finding.check:<{width}}  {printable(finding.facts)}")
        if finding.advice:
            lines.append(f"{'':<5} {'':<{width}}  → {printable(finding.advice)}")
    num_failed = sum(finding.verdict is Verdict.FAILED for finding in findings)
    num_warnings = sum(finding.verdict is Verdict.WARNING for finding in findings)
    summary = "staging will fail" if num_failed else "nothing stands in the way of staging"
    lines.append(f"{summary}: {len(findings)} checks, {num_failed} failed, {num_warnings} with a warning")
    return "\n".join(lines)


def render_json(findings: Sequence[Finding]) -> str:
    """Render as one JSON object."""
    return json.dumps({"code": exit_code(findings), "findings": [asdict(finding) for finding in findings]})
