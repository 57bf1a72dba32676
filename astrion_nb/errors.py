"""The error tree of the package.

Every error a person can meet derives from :class:`AstrionError` and says in one line what is
wrong, where, and what to do. This module knows no I/O and no Jupyter: an error carries its own
one-line rendering, which IPython asks for by name.

::

    AstrionError
    ├── ConfigError            a setting, flag, key or file is wrong
    │   └── NoModelError       no model is configured
    ├── RoleError              a role file or role id is wrong
    │   └── RoleFileError      … with file and line
    ├── EnvelopeError          text that is not one of the six envelopes, or a field that cannot stand in one
    ├── ConversationError      a stored conversation
    │   ├── ConversationNotFound
    │   ├── ConversationLocked another process holds it
    │   └── ConversationBroken a file cannot be read (file and place are named)
    ├── StorageError           a write, flush or rename failed
    ├── TeamError              a request the team refuses
    │   ├── TeamBusy           a team is already running
    │   ├── AgentNotFound      no such agent (the candidates are named)
    │   ├── AgentTerminated    the agent is terminated for good
    │   ├── QuestionError      unknown, answered, expired or foreign question
    │   ├── WouldDeadlock      the wait would close a cycle
    │   ├── NobodyToAnswer     a question needs a person and none can act here
    │   ├── BudgetExceeded     turns, tokens or cost are used up
    │   └── RunFailed          a run ended in failure (carries the result)
    ├── ModelError             a model request failed
    │   ├── ModelUnreachable   connection, DNS, timeout
    │   ├── ModelRefused       401, 403, 404, other 4xx: trying again will not help
    │   ├── ModelBusy          429 (carries Retry-After)
    │   ├── ModelBroken        5xx, or a stream that ended without an end
    │   ├── ContextOverflow    the prompt is longer than the model's context
    │   ├── ContentFiltered    the provider withheld the answer
    │   └── EmptyAnswer        nothing to report, twice
    ├── ToolError              a tool refuses its arguments or cannot do its work
    ├── ReplayError            a cassette cannot be used as asked
    │   └── ReplayMiss         the recording holds something else
    └── ScriptError            a scripted model met a call or an unused step it did not expect
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .printable import one_field

if TYPE_CHECKING:
    from .messages import Usage


def failure_text(error: BaseException) -> str:
    """Return what a failed call of somebody's function is said to have failed of, whatever its error does.

    One of ours speaks for itself; one that is no ``Exception`` would have ended more than the call.
    """
    if isinstance(error, AstrionError):
        return str(error)
    name = type(error).__name__
    try:
        said = f"{name}: {error}"
    except Exception:
        said = f"{name}: (it has no text: its __str__ fails)"
    return said if isinstance(error, Exception) else f"the tool ended itself ({said.removesuffix(': ')})"


def _encodable(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class AstrionError(Exception):
    """Base of every error that a user of the package can meet.

    Parameters
    ----------
    message : str
        One line: what is wrong, where, what to do. A lone surrogate, which an endpoint or a file's name may
        bring, becomes U+FFFD: a front end drops an error that UTF-8 cannot hold.
    """

    def __init__(self, *said: object) -> None:
        super().__init__(*(_encodable(item) if isinstance(item, str) else item for item in said))

    def __str__(self) -> str:
        return one_field(super().__str__())

    def _render_traceback_(self) -> list[str]:
        """Return the lines IPython prints instead of a traceback: one line, no frames."""
        return [f"{type(self).__name__}: {self}"]


class ConfigError(AstrionError):
    """A setting, flag, environment variable or configuration file is wrong."""


class NoModelError(ConfigError):
    """No model is configured and none can be used by default."""


class RoleError(AstrionError):
    """A role id, role field or role file is wrong."""


class RoleFileError(RoleError):
    """A role file cannot be used.

    Parameters
    ----------
    message : str
        What is wrong and what to do.
    file : str
        Name of the file (not its absolute path when it lies in the agents directory).
    line : int, optional
        Line, counted from 1, where the fault begins.
    """

    def __init__(self, message: str, *, file: str, line: int | None = None) -> None:
        place = file if line is None else f"{file}, line {line}"
        super().__init__(f"{place}: {message}")
        self.file = file
        self.line = line


class EnvelopeError(AstrionError):
    """A text is not an envelope, or a value cannot stand in one."""


class ConversationError(AstrionError):
    """A stored conversation cannot be used as asked."""


class ConversationNotFound(ConversationError):
    """There is no conversation of that id."""


class ConversationLocked(ConversationError):
    """Another process has the conversation open."""


class ConversationBroken(ConversationError):
    """A file of a conversation cannot be read; the message names file and place."""


class StorageError(AstrionError):
    """A write, flush or rename failed; what was on disk before is unchanged."""


class TeamError(AstrionError):
    """The team refuses a request."""


class TeamBusy(TeamError):
    """A team is running already."""


class AgentNotFound(TeamError):
    """No agent answers to that id or name."""


class AgentTerminated(TeamError):
    """The agent has been terminated and cannot be addressed any more."""


class QuestionError(TeamError):
    """A question id is unknown, answered, expired, or not this agent's to answer."""


class WouldDeadlock(TeamError):
    """The wait asked for would close a cycle of waits."""


class NobodyToAnswer(TeamError):
    """A question needs a person, and no person can act here."""


class BudgetExceeded(TeamError):
    """The turns, tokens or cost allowed to the team or an agent are used up."""


class RunFailed(TeamError):
    """A run of the team ended in failure.

    Parameters
    ----------
    message : str
        The cause in one line.
    result : object, optional
        The :class:`~astrion_nb.app.result.TeamResult` of the failed run.
    """

    def __init__(self, message: str, result: object = None) -> None:
        super().__init__(message)
        self.result = result


class ModelError(AstrionError):
    """A request to a model failed.

    Parameters
    ----------
    message : str
        What the endpoint said, without keys or headers.
    status : int, optional
        HTTP status.
    retry_after : float, optional
        Seconds that the endpoint asks to wait.

    Attributes
    ----------
    partial : str
        Text that had come before the failure.
    usage : Usage or None
        Tokens that the failed request cost, when the endpoint told.
    """

    retryable = False
    partial: str = ""
    usage: Usage | None = None

    def __init__(self, message: str, *, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class ModelUnreachable(ModelError):
    """The endpoint could not be reached or did not answer in time."""

    retryable = True


class ModelRefused(ModelError):
    """The endpoint refused the request; trying it again will not help."""


class ModelBusy(ModelError):
    """The endpoint asks to slow down (429)."""

    retryable = True


class ModelBroken(ModelError):
    """The endpoint failed (5xx), or its stream ended without an end."""

    retryable = True


class ContextOverflow(ModelError):
    """The prompt is longer than the model's context."""


class ContentFiltered(ModelError):
    """The provider withheld the answer."""


class EmptyAnswer(ModelError):
    """The model had nothing to say, also after it was asked again."""


class ToolError(AstrionError):
    """A tool refuses its arguments or cannot do its work; the model gets this as the result."""


class ReplayError(AstrionError):
    """A cassette cannot be used as asked."""


class ReplayMiss(ReplayError):
    """The recording does not hold what is asked of it."""


class ScriptError(AstrionError):
    """A scripted model met a call it did not expect, or has unused steps."""
