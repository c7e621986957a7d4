"""Judgements on the ways to the coordinator. Pure."""

from __future__ import annotations

from urllib.parse import urlsplit

from crosstrain.doctor.finding import Finding, Level
from crosstrain.doctor.observations import Answer, Bodies, Box, BucketSeen, Connect, Ranged, Resolved, StoreSeen
from crosstrain.wire.messages import PROTOCOL

MINUTE_MS = 60_000.0
DAY_S = 86_400.0
LOOPBACK = ("127.0.0.1", "::1", "localhost")
MIB = 1 << 20
SMALL_BODY = 1 << 18
"""The smallest part of an upload; a line that does not take it is of no use."""
WHERE_SOMETHING_ANSWERS = {
    "CERTIFICATE_VERIFY_FAILED": "if the certificate is your own, or of a proxy that inspects TLS, name its PEM file in "
    "SSL_CERT_FILE; else correct the address",
    "[SSL": "what listens there does not speak TLS: correct the port, or give http:// where the coordinator is meant itself",
    "RemoteProtocolError": "what listens there does not speak HTTP: correct the port, or give https:// where TLS is expected",
}
"""What to do by the words of an error that came from the other side: there is a network, and something else is wrong."""


def judge_name(seen: Resolved) -> Finding:
    if seen.error:
        advice = "correct the name; where only a proxy resolves names, this does not matter"
        return Finding(Level.WARN, "name", f"{seen.host} does not resolve: {seen.error}", advice)
    return Finding(Level.OK, "name", f"{seen.host} is {', '.join(seen.addresses[:3])}")


def usable(seen: Answer) -> bool:
    """Whether a site could work this way."""
    return seen.coordinator and seen.protocol in (None, PROTOCOL)


def judge_answer(seen: Answer) -> Finding:
    """Whether the coordinator was reached this way, and whether it is one."""
    way = f"through the proxy {seen.proxy}" if seen.proxy else "directly"
    name = "through the proxy" if seen.proxy else "direct"
    if seen.error:
        return Finding(Level.FAIL, name, f"{seen.url} {way}: {seen.error}", _advice_on_silence(seen))
    if not seen.coordinator:
        if seen.problem:
            advice = "give the address of the coordinator that serves, or wait until this one takes over"
            return Finding(Level.WARN, name, f"{seen.url} {way}: HTTP {seen.status}, {seen.problem}", advice)
        return Finding(
            Level.FAIL,
            name,
            f"{seen.url} {way}: HTTP {seen.status}, but no crosstrain coordinator answers there",
            "correct the address or the proxy's access rule; a login page answers like that too",
        )
    version = f", crosstrain {seen.version}" if seen.version else ""
    told = f"{seen.url} {way}: run {seen.run}{version}, round trip {1000 * (seen.seconds or 0):.0f} ms"
    if not usable(seen):
        advice = f"install crosstrain {seen.version or 'as the coordinator has it'} here"
        return Finding(Level.FAIL, name, f"{told}; it speaks protocol {seen.protocol}, this one {PROTOCOL}", advice)
    return Finding(Level.OK, name, told)


def _advice_on_silence(seen: Answer) -> str:
    if seen.proxy:
        return "ask the centre which hosts and ports its proxy lets through"
    for words, advice in WHERE_SOMETHING_ANSWERS.items():
        if words in seen.error:
            return advice
    normal = "normal where compute nodes have no network: a proxy (HTTPS_PROXY) or a relay is the way then"
    if "refused" in seen.error:
        return f"nothing listens there: start `crosstrain coordinator`, or correct the address; {normal}"
    return normal


def judge_connect(seen: Connect) -> Finding:
    name = "CONNECT"
    if seen.allowed is None:
        return Finding(Level.UNKNOWN, name, f"{seen.proxy} did not say whether it makes tunnels: {seen.detail}")
    if seen.allowed:
        return Finding(Level.OK, name, f"{seen.proxy} makes tunnels to the coordinator's port: https:// works")
    return Finding(
        Level.WARN,
        name,
        f"{seen.proxy} makes no tunnel to the coordinator's port ({seen.detail}): https:// does not work there",
        "let the coordinator listen on 443, or ask the centre to allow its port",
    )


def judge_clock(ahead_ms: float) -> Finding:
    """Clocks may differ: no instant of a site's counts. An error of minutes is shown, because certificates and job ends
    are compared with this machine's."""
    sentence = f"the coordinator's clock is {ahead_ms / 1000:+.1f} s from this machine's"
    if abs(ahead_ms) > MINUTE_MS:
        advice = "the run does not mind; certificates and the end of the job are judged by this machine's clock"
        return Finding(Level.WARN, "clock", sentence, advice)
    return Finding(Level.OK, "clock", sentence)


def judge_certificate(seconds: float | None, url: str) -> Finding:
    if seconds is None:
        if url.startswith("https:"):
            return Finding(Level.UNKNOWN, "certificate", "it could not be read")
        if urlsplit(url).hostname in LOOPBACK:
            return Finding(Level.OK, "certificate", f"{url} has no TLS, and does not leave this machine")
        advice = "put a proxy with TLS in front of the coordinator, see docs/guides/tls.md"
        return Finding(Level.WARN, "certificate", f"{url} has no TLS: whoever is on the way reads and writes", advice)
    sentence = f"valid, ends in {seconds / DAY_S:.0f} days"
    if seconds < 14 * DAY_S:
        return Finding(Level.WARN, "certificate", sentence, "renew it before the run is over")
    return Finding(Level.OK, "certificate", sentence)


def judge_held(seen: Answer) -> Finding:
    name = "idle connection"
    if seen.held is None:
        return Finding(Level.UNKNOWN, name, "it was not tried")
    if seen.held:
        return Finding(Level.OK, name, f"a connection that is silent for {seen.silent_s:g} s stays")
    sentence = f"a connection that is silent for {seen.silent_s:g} s is cut"
    return Finding(Level.OK, name, sentence, "nothing to do: every request makes its own if it must")


def judge_bodies(seen: Bodies) -> Finding:
    name = "request bodies"
    if seen.refused is None:
        rate = f" at {seen.rate / 1e6:.1f} MB/s" if seen.rate else ""
        return Finding(Level.OK, name, f"{seen.largest / MIB:g} MiB pass{rate}")
    sentence = f"{seen.largest / MIB:g} MiB pass, {seen.refused / MIB:g} MiB do not ({seen.why})"
    if seen.largest < SMALL_BODY:
        return Finding(Level.FAIL, name, sentence, "ask for bodies of 1 MiB or more, or use a relay")
    advice = "parts of uploads shrink by themselves; they are faster if larger bodies are allowed"
    return Finding(Level.WARN, name, sentence, advice)


def judge_ranged(seen: Ranged) -> Finding:
    name = "byte ranges"
    if seen.error:
        return Finding(Level.UNKNOWN, name, f"the download was not done: {seen.error}")
    if seen.status is None:
        return Finding(Level.UNKNOWN, name, "there is no generation yet to fetch a part of")
    if seen.status == 206:
        rate = f", {seen.length / MIB:.1f} MiB at {seen.rate / 1e6:.1f} MB/s" if seen.rate else ""
        return Finding(Level.OK, name, f"honoured ({seen.content_range}){rate}")
    sentence = f"a part was asked for, HTTP {seen.status} came"
    return Finding(Level.FAIL, name, sentence, "a proxy on the way drops `Range`; have it pass it on")


def judge_store(seen: StoreSeen) -> Finding:
    name = "object store"
    if not seen.url:
        return Finding(Level.UNKNOWN, name, "weights go past the coordinator, but there are none yet to try that with")
    if seen.status == 206:
        return Finding(Level.OK, name, f"weights go past the coordinator: {seen.url} gives them")
    advice = "weights go through the coordinator then; ask the centre to let its host through"
    why = seen.error or f"HTTP {seen.status}"
    return Finding(Level.WARN, name, f"{seen.url} is out of reach: {why}", advice)


def judge_bucket(seen: BucketSeen) -> Finding:
    name = "bucket"
    if not seen.tried:
        sentence = f"{seen.name} was not tried: there is no boto3 here, or no credentials"
        return Finding(Level.UNKNOWN, name, sentence, "needed on the coordinator's machine alone")
    if seen.error:
        return Finding(Level.FAIL, name, seen.error, seen.hint)
    return Finding(Level.OK, name, f"{seen.name} can be listed, written, read and cleared")


def judge_box(seen: Box) -> Finding:
    name = "mailbox"
    start = f"start `crosstrain relay --mailbox {seen.directory}` with --url on a node with network"
    if seen.error:
        return Finding(Level.FAIL, name, seen.error, "see docs/guides/firewall.md")
    place = f"{seen.directory} works" + (f" on {seen.kind}" if seen.kind else "")
    if seen.pulse is None:
        return Finding(Level.WARN, name, f"{place}, but no relay was ever there", start)
    if seen.pulse.ended or not seen.moved:
        what = "ended" if seen.pulse.ended else "shows no sign of life"
        return Finding(Level.WARN, name, f"{place}; the relay on {seen.pulse.host} {what}", start)
    if seen.pulse.trouble:
        sentence = f"{place}; the relay on {seen.pulse.host} does not reach {seen.pulse.url}: {seen.pulse.trouble}"
        return Finding(Level.WARN, name, sentence, "run `crosstrain doctor` where the relay runs")
    return Finding(Level.OK, name, f"{place}; the relay on {seen.pulse.host} serves it, to {seen.pulse.url}")
