"""The process: how it starts, how it refuses to, how it stops; TLS; what it says of itself."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.acceptance.api.conftest import MAINSPRING, PATIENCE, ApiProcess, StartApi

DAILY = {"name": "daily", "schedule": "@daily"}


def events(api: ApiProcess, name: str) -> list[Any]:
    lines = [line for line in api.log.read_text().splitlines() if line.startswith("{")]
    return [event for event in map(json.loads, lines) if event["event"] == name]


def wait_for(fact: Any, what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not fact():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_finishes_the_request_under_way_and_exits_0(
    start_api: StartApi, admin_key: str, number: signal.Signals
) -> None:
    api, released = start_api().ready(), threading.Event()
    answers: list[httpx.Response] = []

    def lines() -> Iterator[bytes]:
        yield b'{"handler":"a","schedule":"@daily"}\n'
        released.wait(PATIENCE)
        yield b'{"handler":"b","schedule":"@daily"}\n'

    def send() -> None:
        headers = {"Authorization": f"Bearer {admin_key}", "Content-Type": "application/x-ndjson"}
        url = f"{api.url()}/api/v1/jobs:batch"
        answers.append(httpx.post(url, content=lines(), headers=headers, timeout=PATIENCE))

    sender = threading.Thread(target=send)
    sender.start()
    wait_for(lambda: under_way(api) >= 2, "the batch is under way, beside the look at it")
    api.child.send_signal(number)
    wait_for(lambda: not listens(api), "it listens no more")
    assert api.child.poll() is None
    released.set()
    sender.join(PATIENCE)
    assert answers[0].text.endswith('{"summary":{"created":2,"refused":0}}\n')
    assert api.ended() == 0
    assert [len(events(api, name)) for name in ("api_started", "api_stopping", "api_stopped")] == [1, 1, 1]


def test_a_request_that_does_not_end_is_cut_off_after_the_grace(start_api: StartApi, admin_key: str) -> None:
    api = start_api(API_GRACE_SECONDS="1").ready()
    with socket.create_connection(("127.0.0.1", api.port)) as connection:
        head = (
            "POST /api/v1/jobs:batch HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-ndjson\r\n"
            f"Authorization: Bearer {admin_key}\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        connection.sendall(head.encode())
        wait_for(lambda: under_way(api) >= 2, "the batch is under way, beside the look at it")
        api.child.send_signal(signal.SIGTERM)
        assert api.ended() == 0


def under_way(api: ApiProcess) -> float:
    return metrics(api)["mainspring_api_requests_under_way"]


def listens(api: ApiProcess) -> bool:
    try:
        socket.create_connection(("127.0.0.1", api.port), timeout=5).close()
    except OSError:
        return False
    return True


def metrics(api: ApiProcess) -> dict[str, float]:
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(httpx.get(f"{api.url()}/metrics").text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0) + sample.value
    return found


def test_what_it_counts_and_says(start_api: StartApi, admin_key: str) -> None:
    api = start_api().ready()
    headers = {"Authorization": f"Bearer {admin_key}"}
    for number in range(2):
        body = {"handler": f"h{number}", "schedule": "@daily"}
        assert httpx.post(f"{api.url()}/api/v1/jobs", json=body, headers=headers).status_code == 201
    assert httpx.get(f"{api.url()}/api/v1/jobs/nobody", headers=headers).status_code == 404
    assert metrics(api)["mainspring_api_jobs_registered_total"] == 2
    text = httpx.get(f"{api.url()}/metrics").text
    assert 'route="/api/v1/jobs/{job}",status="404"' in text
    served = events(api, "request_served")
    assert {(event["method"], event["route"], event["status"]) for event in served} == {
        ("POST", "/api/v1/jobs", 201),
        ("GET", "/api/v1/jobs/{job}", 404),
    }
    assert all(event["key"].startswith("admin-") and event["tenant"] == "default" for event in served)
    assert admin_key not in api.log.read_text()
    assert "keys_are_off" not in api.log.read_text()


def test_without_keys_it_says_so_and_serves_nobody_but_this_machine(start_api: StartApi) -> None:
    api = start_api(API_AUTH="off").ready()
    assert events(api, "keys_are_off")[0]["level"] == "warning"
    url = f"{api.url()}/api/v1/jobs"
    assert httpx.get(url).status_code == 200
    for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
        assert httpx.get(url, headers=headers).status_code == 403
    assert httpx.get(url, headers={"Origin": api.url()}).status_code == 200
    assert httpx.post(url, content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415


@pytest.mark.parametrize(
    ("variables", "options", "name"),
    [
        ({"API_AUTH": "off"}, ("--address", "0.0.0.0:0"), "MAINSPRING_API_AUTH"),
        ({"API_ADDRESS": "nowhere"}, (), "MAINSPRING_API_ADDRESS"),
        ({"SHARDS": "3"}, (), "3 shards"),
    ],
)
def test_it_refuses_to_start(
    front_database: str, variables: dict[str, str], options: tuple[str, ...], name: str
) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")}
    environment |= {f"MAINSPRING_{name}": value for name, value in variables.items()}
    done = subprocess.run(
        [MAINSPRING, "api", *options],
        env=environment | {"MAINSPRING_POSTGRES_DSN": front_database},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode in (1, 2)
    assert name in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_one_line(start_api: StartApi, api: ApiProcess) -> None:
    second = start_api("--address", f"127.0.0.1:{api.port}")
    assert second.ended() == 2
    assert second.log.read_text().splitlines()[-1].startswith("mainspring: MAINSPRING_API_ADDRESS")


def test_tls(start_api: StartApi, admin_key: str, tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    make_certificate(certificate, key)
    api = start_api(API_TLS_CERT=str(certificate), API_TLS_KEY=str(key))
    trust = ssl.create_default_context(cafile=str(certificate))
    api.ready("https", verify=trust)
    with httpx.Client(verify=trust, headers={"Authorization": f"Bearer {admin_key}"}) as client:
        assert client.get(f"{api.url('https')}/api/v1/jobs").status_code == 200
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{api.url('http')}/healthz")
    key.write_text("no key")
    broken = start_api(API_TLS_CERT=str(certificate), API_TLS_KEY=str(key))
    assert broken.ended() == 2
    assert "MAINSPRING_API_TLS_CERT" in broken.log.read_text().splitlines()[-1]


def make_certificate(certificate: Path, key: Path) -> None:
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
            ),
            *("-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )


def test_metrics_are_for_loopback_unless_they_are_open(start_api: StartApi) -> None:
    closed = start_api("--address", "0.0.0.0:0")
    wait_for(lambda: bool(events(closed, "api_started")), "it has started")
    port = events(closed, "api_started")[0]["address"].rpartition(":")[2]
    refused = httpx.get(f"http://127.0.0.1:{port}/metrics")
    assert (refused.status_code, refused.json()["status"]) == (403, 403)
    opened = start_api("--address", "0.0.0.0:0", API_METRICS="open")
    wait_for(lambda: bool(events(opened, "api_started")), "it has started")
    port = events(opened, "api_started")[0]["address"].rpartition(":")[2]
    assert httpx.get(f"http://127.0.0.1:{port}/metrics").status_code == 200


def test_a_client_may_send_everything_before_it_reads_and_memory_stays_flat(
    start_api: StartApi, admin_key: str
) -> None:
    """Far more answers than any buffer holds: who waited for them to be taken would wait for ever."""
    api, lines = start_api().ready(), 150_000
    line = b'{"handler":"h","schedule":"@daily","max_retries":-1}\n'
    body = line * (lines - 1) + b'{"handler":"h","schedule":"@daily"}\n'
    highest = resident(api)
    with socket.create_connection(("127.0.0.1", api.port), timeout=PATIENCE) as connection:
        head = (
            "POST /api/v1/jobs:batch HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-ndjson\r\n"
            f"Authorization: Bearer {admin_key}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        connection.sendall(head.encode())
        for start in range(0, len(body), 500_000):
            connection.sendall(body[start : start + 500_000])
        highest = max(highest, resident(api))
        received, tail = 0, b""
        while piece := connection.recv(1 << 16):
            received, tail = received + len(piece), (tail + piece)[-200:]
            if received % 50 == 0:
                highest = max(highest, resident(api))
    assert f'{{"summary":{{"created":1,"refused":{lines - 1}}}}}'.encode() in tail
    assert received > 30_000_000
    assert max(highest, resident(api)) < 200


def resident(api: ApiProcess) -> float:
    status = Path(f"/proc/{api.child.pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS:"))
