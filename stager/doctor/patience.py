"""Looks that may hang in the kernel, as on a mount that has lost its server, are left behind after a while."""

import threading
from collections.abc import Callable, Iterable

from shardferry.console.exits import EXIT_UNAVAILABLE
from stager.doctor.findings import Finding, failed
from stager.stuck import THREAD_PREFIX

PATIENCE_SECONDS = 90.0
"""For all that is looked at in one area; each step over a network has a shorter limit of its own."""


def collect(
    area: str, check: Callable[[], Iterable[Finding]], patience_seconds: float = PATIENCE_SECONDS
) -> list[Finding]:
    """Collect the findings of an area; what hangs is left behind and becomes a finding.

    Args:
        area: what the finding calls it.
        check: gives the findings, in a thread.
        patience_seconds: how long it may take.
    """
    findings: list[Finding] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            findings.extend(check())  # one by one, so that those before one that hangs are there
        except BaseException as error:  # noqa: BLE001 (raised below, in the caller's thread)
            errors.append(error)

    thread = threading.Thread(target=work, name=f"{THREAD_PREFIX}doctor", daemon=True)
    thread.start()
    thread.join(patience_seconds)
    if errors:
        raise errors[0]
    if thread.is_alive():
        return [
            *findings,
            failed(
                area,
                f"no answer within {patience_seconds:.0f} s after the checks above",
                "a mount that has lost its server hangs like this: look with ls, and at dmesg",
                EXIT_UNAVAILABLE,
            ),
        ]
    return findings
