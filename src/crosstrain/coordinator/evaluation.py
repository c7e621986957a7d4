"""Generation 0 from the first site, and the held-out measure of every generation from one site each."""

from __future__ import annotations

from crosstrain.coordinator import publisher, sessions
from crosstrain.coordinator.damage import require_intact
from crosstrain.coordinator.service import Service
from crosstrain.domain.events import EventKind
from crosstrain.domain.ids import Digest, Generation, Instant, SessionId, SiteName
from crosstrain.domain.plural import counted
from crosstrain.errors import IntegrityError, Refused
from crosstrain.outer.delta import summarize_delta
from crosstrain.storage import run_store
from crosstrain.storage.delta_file import DeltaFile
from crosstrain.wire import messages


def take_initial(service: Service, session: SessionId, weights: Digest, now: Instant) -> messages.Accepted:
    """Publishes generation 0. Once there is one, a second is not looked at.

    Raises:
        Refused: the blob is not there, is no float32 safetensors file, or is not finite.
    """
    with service.database.read() as connection:
        sessions.require_open_session(connection, session)
        known = run_store.newest_generation(connection)
    if known is not None:
        return messages.Accepted(reason="there is a generation 0 already")
    if not service.objects.has(weights):
        raise Refused(f"Blob {weights[:12]} is not here.", "upload the weights first", kind="missing-blob")
    try:
        with DeltaFile(service.objects.path(weights), "fp32") as file:
            types = {entry.dtype for entry in file.entries}
            finite = summarize_delta(file.pieces()).finite
    except IntegrityError as error:
        require_intact(service, weights)
        raise Refused(f"The weights cannot be read: {error.message}", error.hint, kind="wrong-file") from error
    if types != {"F32"} or not finite:
        raise Refused(
            f"Generation 0 must be finite float32, found {', '.join(sorted(types))}{'' if finite else ', not finite'}.",
            "check `model` in RUN.toml",
            kind="wrong-file",
        )
    record = publisher.publish_initial(service, weights, now)
    service.wake.set()
    return messages.Accepted(reason=f"generation {record.number} is {record.master[:12]}")


def take_measure(
    service: Service, session: SessionId, request: messages.EvaluationRequest, now: Instant
) -> messages.Accepted:
    """Keeps the held-out measure of a generation; the first one counts.

    Raises:
        Refused: there is no such generation.
    """
    generation = Generation(request.generation)
    with service.database.write() as connection:
        site = SiteName(sessions.require_open_session(connection, session))
        newest = run_store.newest_generation(connection)
        if newest is None or generation > newest.number:
            raise Refused(
                f"There is no generation {generation}.", "ask for work", kind="unknown-generation", status=404
            )
        if run_store.evaluation(connection, generation) is not None:
            return messages.Accepted(reason=f"generation {generation} was measured before")
        loss = request.nll / request.tokens
        run_store.add_evaluation(connection, generation, site, loss, request.tokens, now)
        text = f"held-out loss {loss:.4f} over {counted(request.tokens, 'token')}"
        run_store.log(connection, EventKind.EVALUATED, text, now, site=site, session=session, generation=generation)
    return messages.Accepted(reason=text)
