"""Standard output, a file, a collector: real ones, also when they are stuck, full or gone."""

from __future__ import annotations

import io
import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.sdk.resources import Resource
from pydantic import SecretStr

from gateway.decisions.reader import InvalidRecord, read_records
from gateway.decisions.sinks import FileSink, OtlpSink
from gateway.settings import DecisionLogSettings, TelemetrySettings
from gateway.telemetry.providers import open_telemetry
from policies.snapshot import Snapshot
from tests.gateway.decisions.made import facts, finished, log, refused, tally
from tests.gateway.telemetry.collector import collector
from tests.ports import free_port


def plain(value: AnyValue) -> Any:
    """An OTLP value as plain JSON."""
    match value.WhichOneof("value"):
        case "kvlist_value":
            return {one.key: plain(one.value) for one in value.kvlist_value.values}
        case "array_value":
            return [plain(one) for one in value.array_value.values]
        case None:
            return None
        case kind:
            return getattr(value, kind)


def told(body: bytes) -> list[Any]:
    request = ExportLogsServiceRequest.FromString(body)
    return list(request.resource_logs[0].scope_logs[0].log_records)


def test_one_request_reaches_all_three_sinks_as_the_same_record(
    snapshot: Snapshot, tmp_path: Path
) -> None:
    """The body of the log record, the line of the file and of standard output are one record."""
    out, file = io.StringIO(), tmp_path / "deep" / "decisions.jsonl"
    record = finished(facts(snapshot, tally=tally(snapshot, [5], [6])))
    with collector() as (address, bodies):
        telemetry = open_telemetry(
            TelemetrySettings(otlp_endpoint=address, access_log=False),
            instance="test",
            decision_log=DecisionLogSettings(stdout=True, file=file, otlp=True),
            out=out,
        )
        telemetry.recorder.record(record)
        telemetry.close()
    (sent,) = [one for body in bodies["/v1/logs"] for one in told(body)]
    line = file.read_text()
    assert out.getvalue() == line
    assert plain(sent.body) == json.loads(line)
    (found,) = read_records(line.splitlines())
    assert (found.units.returned, found.units.denied) == (1, 1)
    assert sent.event_name == "audience-gateway.decision"
    assert sent.trace_id.hex() == found.trace_id
    assert sent.severity_text == "warning"
    assert sent.time_unix_nano == record.began_ns + record.duration_ns


def test_masks_and_drops_of_the_settings_reach_every_sink(
    snapshot: Snapshot, tmp_path: Path
) -> None:
    file = tmp_path / "decisions.jsonl"
    with collector() as (address, bodies):
        telemetry = open_telemetry(
            TelemetrySettings(otlp_endpoint=address, access_log=False),
            instance="test",
            decision_log=DecisionLogSettings(
                file=file, otlp=True, mask=["claims"], drop=["trace_id"], mask_key=SecretStr("k")
            ),
        )
        telemetry.recorder.record(finished(facts(snapshot)))
        telemetry.close()
    (sent,) = [one for body in bodies["/v1/logs"] for one in told(body)]
    body = plain(sent.body)
    assert body == json.loads(file.read_text())
    assert "trace_id" not in body
    assert sent.trace_id == b""
    assert all(one.startswith("~") for one in body["claims"])


def test_the_file_is_appended_to_and_its_owners_alone(snapshot: Snapshot, tmp_path: Path) -> None:
    """Who asked for what is nobody else's; a second start goes on where the first one ended."""
    file = tmp_path / "decisions.jsonl"
    for _ in range(2):
        telemetry = open_telemetry(
            TelemetrySettings(access_log=False),
            instance="test",
            decision_log=DecisionLogSettings(file=file),
        )
        telemetry.recorder.record(finished(facts(snapshot)))
        telemetry.close()
    assert len(list(read_records(file.read_bytes().splitlines()))) == 2
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_line_that_was_cut_short_spoils_no_other(snapshot: Snapshot, tmp_path: Path) -> None:
    """A crash or a full disk in the middle of a line: it is ended, and the reader can go on."""
    file = tmp_path / "decisions.jsonl"
    file.write_text('{"schema": "audience-gat')
    sink = FileSink(file, queue_max=10)
    written = log(sink)
    written.add(finished(facts(snapshot)))
    sink.close(timeout_s=20)
    lines = file.read_text().splitlines()
    with pytest.raises(InvalidRecord):
        list(read_records(lines))
    faults: list[InvalidRecord] = []
    assert len(list(read_records(lines, faults=faults.append))) == 1
    assert [one.line for one in faults] == [1]


def test_a_disk_that_takes_a_part_loses_the_rest_and_says_how_many(
    snapshot: Snapshot, tmp_path: Path
) -> None:
    """The system's own limit on a file's size stands for a full disk: a child process, so that
    no other test meets it."""
    done = subprocess.run(
        [sys.executable, "-c", _FULL, str(tmp_path / "decisions.jsonl")],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    whole, lost, told_lost = map(int, done.stdout.split())
    assert 0 < whole < 20
    assert whole + lost == 20
    assert told_lost == lost


_FULL = """
import resource, signal, sys
from pathlib import Path
from gateway.decisions.reader import read_records
from gateway.decisions.sinks import FileSink
from policies.snapshot import load
from tests.gateway.decisions.made import facts, finished, log
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, hard))
sink, made = FileSink(Path(sys.argv[1]), queue_max=100), facts(load())
written = log(sink)
for _ in range(20):
    written.add(finished(made))
sink.flush(timeout_s=20)
lost = sink.lost
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
written.add(finished(made))
sink.close(timeout_s=20)
lines = Path(sys.argv[1]).read_text().splitlines()
found = list(read_records(lines, faults=lambda fault: None))
print(len(found) - 1, lost, found[-1].dropped)
"""


def test_a_file_that_cannot_be_written_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        open_telemetry(
            TelemetrySettings(access_log=False),
            instance="test",
            decision_log=DecisionLogSettings(file=tmp_path / "taken"),
        )


def test_a_collector_that_is_gone_costs_no_request_and_is_counted(snapshot: Snapshot) -> None:
    """Refused connections: records are lost, counted, and told by the next that arrives."""
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}/v1/logs"
    sink = OtlpSink(endpoint, resource=Resource({}), queue_max=10, timeout_s=1)
    written = log(sink)
    for _ in range(3):
        written.add(finished(facts(snapshot)))
    assert sink.flush(timeout_s=20)
    assert (sink.lost, written.lost) == (3, 3)
    with collector(port) as (_, bodies):
        written.add(finished(facts(snapshot)))
        assert sink.flush(timeout_s=20)
        (sent,) = told(bodies["/v1/logs"][0])
    assert plain(sent.body)["dropped"] == 3
    sink.close(timeout_s=5)


def test_what_became_of_the_records_is_among_the_metrics(
    snapshot: Snapshot, tmp_path: Path
) -> None:
    telemetry = open_telemetry(
        TelemetrySettings(access_log=False),
        instance="test",
        decision_log=DecisionLogSettings(
            file=tmp_path / "decisions.jsonl", sample_ratio=0.0, rate_max=1
        ),
    )
    telemetry.recorder.record(finished(facts(snapshot)))
    for _ in range(3):
        telemetry.recorder.record(refused())
    telemetry.close()
    text = telemetry.counters.text()
    for name, count in (
        ("written", 1),
        ("sampled_out", 1),
        ("rate_limited", 2),
        ("defective", 0),
        ("lost", 0),
    ):
        assert f"\ngateway_decision_log_{name} {count}\n" in text


def test_without_a_sink_there_is_no_log() -> None:
    telemetry = open_telemetry(
        TelemetrySettings(access_log=False), instance="test", decision_log=DecisionLogSettings()
    )
    telemetry.close()
    assert "decision_log" not in telemetry.counters.text()
