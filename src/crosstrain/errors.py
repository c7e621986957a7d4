"""The exception tree. Every message says what was expected, what was found, and what to do.

    CrosstrainError
    ├── UsageError            2  the command line, RUN.toml or an input file is wrong
    ├── EnvironmentFault      3  port in use, read-only directory, full disk, missing program
    ├── Unreachable           4  the coordinator did not answer before the deadline
    ├── Refused               5  the coordinator answered no, with a reason (RFC 9457 problem)
    ├── IntegrityError        6  bytes or records that contradict their digest or each other
    ├── Diverged              7  a loss or a gradient stopped being finite
    └── Superseded            8  a newer coordinator, session or relay took over

The number is the process's exit code; 0 is success and 1 is "the answer is no" (an audit that found problems).
"""

from __future__ import annotations


class CrosstrainError(Exception):
    """Base of all errors meant for people.

    Attributes:
        message: what was expected and what was found, one or two sentences.
        hint: what to do about it; printed on a line of its own.
    """

    exit_code = 70

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} (hint: {self.hint})" if self.hint else self.message


class UsageError(CrosstrainError):
    """The command line, the run file or an input file is not what the command needs."""

    exit_code = 2


class EnvironmentFault(CrosstrainError):
    """This machine cannot do it: port in use, read-only directory, full disk, missing program."""

    exit_code = 3


class Unreachable(CrosstrainError):
    """The other side did not answer in time."""

    exit_code = 4


class Refused(CrosstrainError):
    """The coordinator answered no.

    Attributes:
        status: HTTP status of the answer.
        kind: machine-readable name of the reason, for example ``corpus-mismatch``.
    """

    exit_code = 5

    def __init__(self, message: str, hint: str = "", *, kind: str = "refused", status: int = 409) -> None:
        super().__init__(message, hint)
        self.kind = kind
        self.status = status


class IntegrityError(CrosstrainError):
    """Bytes or records contradict their digest, their header or each other."""

    exit_code = 6


class Diverged(CrosstrainError):
    """A loss or a gradient stopped being finite; the weights held are not to be used."""

    exit_code = 7


class Superseded(CrosstrainError):
    """A newer session of this site, a newer coordinator of this run, or a newer relay of this mailbox took over."""

    exit_code = 8
