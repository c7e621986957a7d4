"""What the doctor makes of what was seen, without looking at anything."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crosstrain.cli.doctor import lines_of
from crosstrain.config import ModelSection, RunConfig
from crosstrain.doctor import judge_machine, judge_network, need
from crosstrain.doctor.choice import Seen, choose
from crosstrain.doctor.examine import Report, circumstances, judge_settings, settings_of
from crosstrain.doctor.finding import Finding, Level
from crosstrain.doctor.observations import (
    Answer,
    Bodies,
    Box,
    BucketSeen,
    Connect,
    Disk,
    Machine,
    Ranged,
    Resolved,
    StoreSeen,
)
from crosstrain.domain.timeouts import Circumstances, derive
from crosstrain.wire.mailbox import Pulse
from crosstrain.wire.messages import PROTOCOL

MIB = 1 << 20
GB = 10**9
URL = "https://coordinator.example.org"
PROXY = "http://proxy.example.org:3128"
GOOD = Answer(URL, coordinator=True, status=200, seconds=0.1, run="first", version="0.1.0", protocol=PROTOCOL)
DOWN = Answer(URL, error="ConnectTimeout")
PULSE = Pulse(relay="1", beat=4, host="login1", url=URL)
MACHINE = Machine("node7", 64, None, "Slurm job 12", ("sbatch",), True, ("reno", "cubic", "bbr"), ())
DISK = Disk("coordinator.dir", "/data/run", "ext4", "/data", 900 * GB, 10**7, True)


def seen(answer: Answer = GOOD, **parts: object) -> Seen:
    found: dict[str, object] = {"bodies": Bodies(16 * MIB, rate=5e6), "ranged": Ranged(206, "bytes 0-9/10", 10, 8e6)}
    return Seen(answer, **{**found, **parts})  # type: ignore[arg-type]


def levels(findings: tuple[Finding, ...]) -> dict[str, Level]:
    return {finding.name: finding.level for finding in findings}


def test_a_good_machine_is_ok() -> None:
    assert set(levels(judge_machine.judge_machine(MACHINE)).values()) == {Level.OK}


@pytest.mark.parametrize(
    ("change", "name", "level"),
    [
        ({"bbr": False, "congestion": ("reno", "cubic")}, "congestion control", Level.WARN),
        ({"bbr": False, "congestion": None}, "congestion control", Level.UNKNOWN),
        ({"missing": ("torch",)}, "trainer", Level.WARN),
        ({"processes": 100}, "processes", Level.WARN),
        ({"schedulers": ()}, "scheduler", Level.OK),
    ],
)
def test_what_a_machine_lacks_is_told(change: dict[str, object], name: str, level: Level) -> None:
    found = {finding.name: finding for finding in judge_machine.judge_machine(replace(MACHINE, **change))}  # type: ignore[arg-type]
    assert found[name].level is level
    assert level is Level.OK or found[name].advice or level is Level.UNKNOWN


@pytest.mark.parametrize(
    ("change", "name", "level"),
    [
        ({}, "coordinator.dir", Level.OK),
        ({"kind": "lustre"}, "coordinator.dir", Level.FAIL),
        ({"kind": ""}, "coordinator.dir", Level.UNKNOWN),
        ({"free_bytes": GB}, "coordinator.dir room", Level.FAIL),
        ({"free_bytes": 30 * GB}, "coordinator.dir room", Level.WARN),
        ({"free_bytes": None}, "coordinator.dir room", Level.UNKNOWN),
        ({"free_inodes": 3}, "coordinator.dir files", Level.FAIL),
        ({"free_inodes": None}, "coordinator.dir files", Level.OK),
        ({"writable": False}, "coordinator.dir", Level.FAIL),
    ],
)
def test_a_disk_is_judged_by_kind_room_and_files(change: dict[str, object], name: str, level: Level) -> None:
    findings = judge_machine.judge_disk(replace(DISK, **change), 20 * GB, 100, database=True, per=10 * GB)  # type: ignore[arg-type]
    assert level in {finding.level for finding in findings if finding.name == name}


def test_a_network_file_system_is_right_for_a_site() -> None:
    disk = replace(DISK, setting="site.dir", kind="lustre")
    assert set(levels(judge_machine.judge_disk(disk, GB, 100, database=False)).values()) == {Level.OK}


@pytest.mark.parametrize(
    ("answer", "level", "words"),
    [
        (GOOD, Level.OK, "run first, crosstrain 0.1.0, round trip 100 ms"),
        (DOWN, Level.FAIL, "directly: ConnectTimeout"),
        (replace(DOWN, proxy=PROXY, error="403 Forbidden"), Level.FAIL, f"through the proxy {PROXY}: 403"),
        (Answer(URL, status=200), Level.FAIL, "HTTP 200, but no crosstrain coordinator answers there"),
        (Answer(URL, status=503, problem="This is a standby."), Level.WARN, "HTTP 503, This is a standby."),
        (replace(GOOD, protocol=PROTOCOL + 1, version="9.0"), Level.FAIL, f"it speaks protocol {PROTOCOL + 1}"),
    ],
)
def test_an_answer_is_judged_by_who_gave_it(answer: Answer, level: Level, words: str) -> None:
    finding = judge_network.judge_answer(answer)
    assert finding.level is level
    assert words in finding.sentence
    assert level is Level.OK or finding.advice


def test_a_refused_connection_sends_to_the_coordinator_and_silence_to_the_proxy() -> None:
    refused = replace(DOWN, error="ConnectError: [Errno 111] Connection refused")
    assert "start `crosstrain coordinator`" in judge_network.judge_answer(refused).advice
    assert "crosstrain coordinator" not in judge_network.judge_answer(DOWN).advice


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("ConnectError: [SSL: WRONG_VERSION_NUMBER] wrong version number", "does not speak TLS"),
        ("ConnectError: [SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate", "SSL_CERT_FILE"),
        ("RemoteProtocolError: Server disconnected without sending a response.", "does not speak HTTP"),
    ],
)
def test_where_something_else_answers_the_advice_is_not_about_a_missing_network(error: str, advice: str) -> None:
    found = judge_network.judge_answer(replace(DOWN, error=error)).advice
    assert advice in found and "no network" not in found


@pytest.mark.parametrize(
    ("finding", "level", "words"),
    [
        (judge_network.judge_name(Resolved("a", ("10.0.0.1",))), Level.OK, "a is 10.0.0.1"),
        (judge_network.judge_name(Resolved("a", error="not known")), Level.WARN, "does not resolve: not known"),
        (judge_network.judge_connect(Connect(PROXY, True)), Level.OK, "makes tunnels"),
        (
            judge_network.judge_connect(Connect(PROXY, False, "403 Access violation")),
            Level.WARN,
            "403 Access violation",
        ),
        (judge_network.judge_connect(Connect(PROXY, None, "timed out")), Level.UNKNOWN, "timed out"),
        (judge_network.judge_clock(1500.0), Level.OK, "+1.5 s"),
        (judge_network.judge_clock(-200_000.0), Level.WARN, "-200.0 s"),
        (judge_network.judge_certificate(90 * 86400.0, URL), Level.OK, "ends in 90 days"),
        (judge_network.judge_certificate(3 * 86400.0, URL), Level.WARN, "ends in 3 days"),
        (judge_network.judge_certificate(None, "http://a"), Level.WARN, "has no TLS"),
        (judge_network.judge_certificate(None, "http://127.0.0.1:1"), Level.OK, "does not leave this machine"),
        (judge_network.judge_certificate(None, URL), Level.UNKNOWN, "could not be read"),
        (judge_network.judge_held(replace(GOOD, held=True, silent_s=3)), Level.OK, "stays"),
        (judge_network.judge_held(replace(GOOD, held=False, silent_s=3)), Level.OK, "silent for 3 s is cut"),
        (judge_network.judge_held(GOOD), Level.UNKNOWN, "not tried"),
        (judge_network.judge_bodies(Bodies(16 * MIB, rate=5e6)), Level.OK, "16 MiB pass at 5.0 MB/s"),
        (judge_network.judge_bodies(Bodies(MIB, 4 * MIB, "HTTP 413")), Level.WARN, "4 MiB do not (HTTP 413)"),
        (judge_network.judge_bodies(Bodies(0, MIB >> 2, "HTTP 413")), Level.FAIL, "0 MiB pass"),
        (judge_network.judge_ranged(Ranged(206, "bytes 0-9/10", 10, 5e6)), Level.OK, "honoured (bytes 0-9/10)"),
        (judge_network.judge_ranged(Ranged(200)), Level.FAIL, "HTTP 200 came"),
        (judge_network.judge_ranged(Ranged()), Level.UNKNOWN, "no generation yet"),
        (judge_network.judge_ranged(Ranged(error="ReadError")), Level.UNKNOWN, "ReadError"),
        (judge_network.judge_box(Box("/box", "lustre", pulse=PULSE, moved=True)), Level.OK, "login1 serves it"),
        (judge_network.judge_box(Box("/box", pulse=PULSE)), Level.WARN, "shows no sign of life"),
        (judge_network.judge_box(Box("/box")), Level.WARN, "no relay was ever there"),
        (judge_network.judge_box(Box("/box", error="It is open to others.")), Level.FAIL, "open to others"),
        (
            judge_network.judge_box(Box("/box", pulse=PULSE.model_copy(update={"trouble": "refused"}), moved=True)),
            Level.WARN,
            f"does not reach {URL}: refused",
        ),
    ],
)
def test_a_finding_says_what_was_seen(finding: Finding, level: Level, words: str) -> None:
    assert finding.level is level
    assert words in finding.sentence


PROXIED = replace(GOOD, proxy=PROXY)
LIVE_BOX = Box("/scratch/box", pulse=PULSE, moved=True)


@pytest.mark.parametrize(
    ("ways", "box", "way"),
    [
        ([seen()], None, "direct"),
        ([seen(), seen(PROXIED)], None, "direct"),
        ([seen(DOWN), seen(PROXIED)], LIVE_BOX, "proxy"),
        ([seen(DOWN)], LIVE_BOX, "relay"),
        ([seen(DOWN)], Box("/scratch/box", pulse=PULSE), None),
        ([seen(DOWN)], Box("/scratch/box"), None),
        ([seen(DOWN)], None, None),
        ([seen(bodies=Bodies())], LIVE_BOX, "relay"),
        ([seen(ranged=Ranged(200))], None, None),
        ([seen(ranged=Ranged())], None, "direct"),
        ([seen(replace(GOOD, protocol=PROTOCOL + 1))], None, None),
        ([seen(replace(GOOD, coordinator=False))], None, None),
    ],
)
def test_the_first_way_that_works_is_chosen(ways: list[Seen], box: Box | None, way: str | None) -> None:
    found = choose(ways, box)
    assert (found.way if found else None) == way


def test_a_choice_says_what_to_write() -> None:
    proxied = choose([seen(DOWN), seen(PROXIED)], None)
    assert proxied is not None
    assert (proxied.lines, proxied.shell) == (("[site]", f'url = "{URL}"'), (f"export HTTPS_PROXY={PROXY}",))
    relayed = choose([], LIVE_BOX)
    assert relayed is not None
    assert relayed.lines == ("[site]", 'url = "mailbox:/scratch/box"')
    past = choose([seen(), seen(PROXIED)], None)
    assert past is not None
    assert past.shell == ("export NO_PROXY=coordinator.example.org",)


def test_parameters_are_those_of_the_published_model() -> None:
    # Qwen/Qwen3-0.6B: 28 layers of width 1,024, 16 and 8 heads of 128, tied; 596,049,920 parameters by its safetensors index.
    assert need.parameters(ModelSection(vocab_size=151936)) == 596_049_920
    assert need.parameters(ModelSection(vocab_size=151936, tie_word_embeddings=False)) == 596_049_920 + 151936 * 1024


def test_needs_grow_with_sites_and_types() -> None:
    few = RunConfig.model_validate({"model": {"vocab_size": 1000}})
    many = RunConfig.model_validate({"model": {"vocab_size": 1000}, "sites": {"a": {}, "b": {}, "c": {}}})
    count = need.parameters(few.model)
    assert need.round_bytes(few) == 12 * count
    assert need.round_bytes(many) == 16 * count
    assert need.site_bytes(few) == 34 * count
    packed = RunConfig.model_validate({"model": {"vocab_size": 1000}, "wire": {"compress": "planes"}})
    assert (need.round_bytes(packed), need.site_bytes(packed)) == (16 * count, 38 * count)


def test_settings_that_are_too_short_are_told_with_the_value_to_set() -> None:
    config = RunConfig.model_validate({"model": {"vocab_size": 1000}, "round": {"cutoff_s": 100.0}})
    table = derive(Circumstances(round_s=1800.0, block_s=100.0, download_bytes=GB, upload_bytes=GB, rate=10e6))
    found = {finding.name: finding for finding in judge_settings(table, settings_of(config, table))}
    assert found.keys() == {"round.cutoff_s", "round.drain_s", "lease.join_patience_s", "site.margin_s"}
    assert found["round.cutoff_s"].advice.startswith("cutoff_s = ")
    assert found["round.drain_s"].sentence.startswith("60 s are set, 230 s are needed")


@pytest.mark.parametrize(
    ("seen", "level"),
    [
        (StoreSeen(), Level.UNKNOWN),
        (StoreSeen("https://s3.example.org", 206), Level.OK),
        (StoreSeen("https://s3.example.org", 403), Level.WARN),
        (StoreSeen("https://s3.example.org", error="ConnectTimeout"), Level.WARN),
    ],
)
def test_store_that_is_out_of_reach_costs_the_short_way_alone(seen: StoreSeen, level: Level) -> None:
    found = judge_network.judge_store(seen)
    assert (found.level, bool(found.advice)) == (level, level is Level.WARN)
    assert (seen.error or seen.url) in found.sentence


@pytest.mark.parametrize(
    ("seen", "level"),
    [
        (BucketSeen("s3://runs/x"), Level.OK),
        (BucketSeen("s3://runs/x", tried=False), Level.UNKNOWN),
        (BucketSeen("s3://runs/x", error="The object store s3://runs/x/ refuses.", hint="see ..."), Level.FAIL),
    ],
)
def test_bucket_that_refuses_is_told_with_its_reason(seen: BucketSeen, level: Level) -> None:
    found = judge_network.judge_bucket(seen)
    assert (found.level, bool(found.advice)) == (level, level is not Level.OK)
    assert (seen.error or seen.name) in found.sentence


def test_the_text_is_wrapped_to_the_terminal_and_nowhere_else() -> None:
    found = Finding(Level.WARN, "direct", "word " * 30, "advice " * 20)
    report = Report(
        (found,), None, derive(circumstances(RunConfig(model=ModelSection(vocab_size=16)), 1800.0, 1e6, 0.1))
    )
    wrapped, whole = lines_of(report, {}, 80), lines_of(report, {})
    assert max(map(len, wrapped)) <= 80 < max(map(len, whole))
    assert " ".join(" ".join(wrapped).split()) == " ".join(" ".join(whole).split())
