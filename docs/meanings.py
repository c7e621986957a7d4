"""What the reference pages say about names that the code does not explain in words; `generate.py` checks them against it."""

from __future__ import annotations

from crosstrain.coordinator.sessions import FIELD_HELP
from crosstrain.domain.events import EventKind

ROUTES = {
    "POST /v1/sessions": "Open a session of a site; older sessions of the site are over.",
    "POST /v1/sessions/{session}/beat": "Renew the session's lease, report phase and progress, hear what is urgent.",
    "POST /v1/sessions/{session}/next": "Ask what to do; leases blocks if the answer is `train`.",
    "POST /v1/sessions/{session}/initial": "Name the uploaded weights of generation 0.",
    "POST /v1/sessions/{session}/evaluation": "Report the held-out measure of a generation.",
    "POST /v1/sessions/{session}/end": "Leave; leases still held are given back.",
    "POST /v1/leases/{token}/contribution": "Contribute the uploaded delta of a lease.",
    "POST /v1/leases/{token}/release": "Give a lease back untrained.",
    "GET /v1/placement/plan": "Which jobs to submit where, when the run would be done, and why.",
    "GET /v1/placement/waits": "Forecasts of waits, with the record of past error.",
    "POST /v1/placement/{site}/reports": "What a collector saw of a site's queue; the same report counts once.",
    "GET /v1/status": "One snapshot of the run.",
    "GET /v1/blobs/{digest}": "The bytes of a blob; `Range` is honoured.",
    "HEAD /v1/blobs/{digest}": "Whether a blob is there, and its size.",
    "GET /v1/blobs/{digest}/received": "Which bytes of a blob are held, and whether it is whole.",
    "POST /v1/blobs/{digest}/parts": "Where what is missing of a blob of `total` bytes may be put, past the coordinator; begins that.",
    "POST /v1/blobs/{digest}/complete": "All parts were put there: verify the blob. Not yet `whole` means that this is under way, ask again.",
    "PUT /v1/blobs/{digest}": "A part of an upload, at `offset` of `total` bytes: in any order, several at once, more than once.",
}

PROBLEMS = {
    "contributed-already": "The lease was contributed before, with another content.",
    "coordinator-fault": "The coordinator's disk is full or read-only, or its database server is gone; clients repeat the request.",
    "coordinator-superseded": "Another coordinator serves this run now; clients repeat the request.",
    "error": "An error without a kind of its own.",
    "fenced": "The lease belongs to another session: a newer one of this site took over.",
    "http": "No such path or method.",
    "integrity": "Bytes that do not have the digest or size announced.",
    "malformed": "The request does not fit its model; the detail names the field.",
    "missing-blob": "The blob that is named was not uploaded.",
    "part-too-large": "A part of an upload has more bytes than one request may have.",
    "parts-missing": "Not all parts of an upload are there; ask which are missing.",
    "range-not-satisfiable": "Nothing of the range that was asked for is in the blob.",
    "standby": "Another coordinator serves the run; this one waits to take over. The detail says since when and why.",
    "dropped": "The delta of the lease that is followed (`round.overlap`) was accepted and then lost; nothing follows it.",
    "refused-too-often": "Three contributions of the session in a row were refused for what they held; it gets no more work.",
    "superseded": "The session is over: a newer one of this site took over, or it left.",
    "unknown-generation": "There is no such generation.",
    "unknown-lease": "There is no such lease.",
    "unknown-session": "There is no such session.",
    "verifying": "Another request is verifying this upload; ask again.",
    "version-mismatch": "The site speaks another version of the protocol.",
    "wrong-file": "The blob is no readable safetensors file of the type expected.",
    "wrong-model": "The delta's tensors are not those of the model.",
    **{f"{name.replace('_', '-')}-mismatch": f"`{name}` differs: {hint}." for name, hint in FIELD_HELP.items()},
}

JUDGEMENTS = {
    "lease-over": "The lease is not live any more.",
    "stale-base": "Another generation is current, or the round is closed.",
    "not-finite": "The delta or the training loss holds NaN or infinity.",
    "norm": "The delta's norm is more than `round.norm_limit` times the running median.",
    "wrong-base": "Not the generation of the lease.",
    "wrong-blocks": "No block, or more than were leased.",
    "wrong-windows": "Not the windows that so many blocks have.",
    "wrong-tokens": "No token, or more than the windows have.",
    "wrong-steps": "No step, or more than windows.",
}

EVENTS = {
    EventKind.GRANTED: "Blocks were leased.",
    EventKind.EXPIRED: "Nothing was heard of the holder's progress for its time to live.",
    EventKind.RELEASED: "The holder gave blocks back, left, was superseded, or the round closed without it.",
    EventKind.REFUSED: "The contribution was refused; its blocks are available again.",
    EventKind.SHED: "The holder gave up the farther half of what it had not trained, for a site without work.",
    EventKind.CONTRIBUTED: "The contribution was accepted.",
    EventKind.MERGED: "The generation with the blocks' training was published.",
    EventKind.DROPPED: "A contribution was dropped: its delta could not be read any more when the round was to be merged.",
    EventKind.COORDINATOR_STARTED: "A coordinator took the run over.",
    EventKind.SESSION_OPENED: "A site registered.",
    EventKind.SESSION_ENDED: "A site left.",
    EventKind.ROUND_CLOSED: "The contributions of a round were frozen; the merge began.",
    EventKind.PUBLISHED: "A generation was published.",
    EventKind.EVALUATED: "A generation was measured on held-out text.",
    EventKind.EPOCH_OPENED: "The corpus was merged to its last block; the next pass began.",
    EventKind.FINISHED: "The run is over.",
}

OTHER_EXITS = {
    0: "Success.",
    1: "The answer is no (`crosstrain audit` found problems, `crosstrain doctor` no way, `crosstrain submit` an item that cannot be submitted), or a bug that printed a traceback.",
    130: "Interrupted by Ctrl-C.",
    141: "The reader of the output went away, for example `head`.",
}
