"""The requests of a site, typed. One object per connection: the heartbeat has its own."""

from __future__ import annotations

from crosstrain.domain.ids import SessionId, Token
from crosstrain.wire import messages
from crosstrain.wire.client import ControlClient


class SiteApi:
    """What a site asks of the coordinator; every method may raise `Refused`, `Superseded` or `Unreachable`.

    Args:
        deadline_s: how long requests are retried, until it is set anew.
    """

    def __init__(self, control: ControlClient, deadline_s: float) -> None:
        self._control = control
        self._deadline = control.deadline(deadline_s)

    @property
    def deadline_s(self) -> float:
        """Seconds that are left for all that follows; the agent sets it to the time left in its job. It runs on, so that what
        takes several requests and transfers ends when the first of them alone would have had to."""
        return self._deadline.left_s

    @deadline_s.setter
    def deadline_s(self, seconds: float) -> None:
        self._deadline = self._control.deadline(seconds)

    @property
    def rtt_ms(self) -> float:
        return self._control.rtt_ms

    @property
    def trouble(self) -> str:
        """Why the coordinator is not reached right now; empty if it is."""
        return self._control.trouble

    def register(self, request: messages.RegisterRequest, deadline_s: float) -> messages.RegisterReply:
        return self._control.post("sessions", request, messages.RegisterReply, deadline_s)

    def beat(self, session: SessionId, request: messages.BeatRequest, deadline_s: float) -> messages.BeatReply:
        return self._control.post(f"sessions/{session}/beat", request, messages.BeatReply, deadline_s)

    def next_work(self, session: SessionId, request: messages.NextRequest) -> messages.NextReply:
        return self._control.post(f"sessions/{session}/next", request, messages.NextReply, self.deadline_s)

    def initial(self, session: SessionId, request: messages.InitialRequest) -> messages.Accepted:
        return self._control.post(f"sessions/{session}/initial", request, messages.Accepted, self.deadline_s)

    def evaluation(self, session: SessionId, request: messages.EvaluationRequest) -> messages.Accepted:
        return self._control.post(f"sessions/{session}/evaluation", request, messages.Accepted, self.deadline_s)

    def end(self, session: SessionId, reason: str, deadline_s: float) -> messages.Accepted:
        request = messages.EndRequest(reason=reason)
        return self._control.post(f"sessions/{session}/end", request, messages.Accepted, deadline_s)

    def contribute(self, token: Token, request: messages.ContributionRequest) -> messages.ContributionReply:
        path = f"leases/{token}/contribution"
        return self._control.post(path, request, messages.ContributionReply, self.deadline_s)

    def release(self, token: Token, session: SessionId, reason: str) -> messages.Accepted:
        request = messages.ReleaseRequest(session=session, reason=reason)
        return self._control.post(f"leases/{token}/release", request, messages.Accepted, self.deadline_s)

    def close(self) -> None:
        self._control.close()
