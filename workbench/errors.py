"""The error tree.

WorkbenchError
├── SetupError      fix your input or settings; trying again will not help (exit code 2)
│   ├── DataError       a file, a row, an id
│   ├── JudgeSetupError an unknown judge, a missing key variable
│   └── RunMismatch     a run directory made with another configuration
├── RunError        the work itself failed
│   ├── JudgeError      one call to a judge failed, with its reason
│   ├── BudgetError     the budget refuses the next call
│   ├── StoreError      the ledger cannot be written or read
│   └── ReplayMiss      a replay needs a call that was never recorded
"""

from __future__ import annotations

from workbench.schema import Reason


class WorkbenchError(Exception):
    """Base of all errors raised on purpose; its text is one sentence that says what to do next."""


class SetupError(WorkbenchError):
    """Fix your input; trying again will not help."""


class DataError(SetupError):
    """A file, a row or an id is not as it must be."""


class JudgeSetupError(SetupError):
    """A judge is unknown or not configured."""


class RunMismatch(SetupError):
    """A run directory was made with another configuration."""


class RunError(WorkbenchError):
    """The work itself failed."""


class JudgeError(RunError):
    """One call to a judge failed.

    ``reason`` is one of schema.Reason; ``retryable`` says whether the transport layer may try again;
    ``retry_after`` is the wait in seconds that the server asked for.
    """

    def __init__(self, reason: Reason, detail: str = "", *, retryable: bool = False, retry_after: float | None = None) -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason: Reason = reason
        self.detail = detail
        self.retryable = retryable
        self.retry_after = retry_after


class BudgetError(RunError):
    """The budget refuses the next call."""


class StoreError(RunError):
    """The ledger cannot be written or read."""


class ReplayMiss(RunError):
    """A replay needs a call that was never recorded."""
