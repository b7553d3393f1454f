"""What a supervisor decides, without starting anything: `acceptance/test_up.py` does."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from mainspring.local import procfs
from mainspring.local.processes import Child, Program
from mainspring.local.programs import Fleet, choose_api_address, development
from mainspring.schema.errors import InvalidInput, LocalStackError


def test_who_dies_again_and_again_waits_longer_up_to_a_bound_and_who_stays_begins_anew() -> None:
    child = Child(Program(name="a", arguments=(), status="127.0.0.1:1", stop_seconds=1), Path("a.log"))
    assert [child.pause_seconds(now=1.0) for _ in range(7)] == [0.5, 1, 2, 4, 8, 10, 10]
    assert child.pause_seconds(now=31.0) == 0.5


def test_a_port_that_somebody_else_listens_on_is_not_ours() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert procfs.listens(os.getpid(), port)
        assert not procfs.listens(os.getppid(), port)
        with pytest.raises(LocalStackError, match=f"port {port} for the api is taken"):
            choose_api_address(f"127.0.0.1:{port}")
    assert not procfs.listens(os.getpid(), port)


def test_an_api_address_is_definite_and_on_loopback() -> None:
    assert int(choose_api_address("127.0.0.1:0").rpartition(":")[2]) > 0
    assert choose_api_address("localhost:0").startswith("localhost:")
    for wrong in ("0.0.0.0:0", "nonsense", "192.0.2.1:80"):
        with pytest.raises(InvalidInput):
            choose_api_address(wrong)


def test_every_process_has_a_place_of_its_own_and_the_api_comes_first() -> None:
    groups = Fleet(schedulers=3, workers=2, app="a:b", api="127.0.0.1:0").groups({})
    names = [[program.name for program in group] for group in groups]
    assert names == [["api"], ["scheduler-1", "scheduler-2", "scheduler-3"], ["worker-1", "worker-2"]]
    assert len({program.status for group in groups for program in group}) == 6
    assert list(groups[2][0].arguments) == [
        *("worker", "--grace", "5", "--app", "a:b", "--status", groups[2][0].status)
    ]
    [[_], workers] = Fleet(schedulers=0, workers=1).groups({"MAINSPRING_WORKER_GRACE_SECONDS": "60"})[::2]
    assert "60" in workers[0].arguments
    assert workers[0].stop_seconds > 60


def test_development_has_no_keys_and_nothing_of_a_real_api() -> None:
    given = {
        "MAINSPRING_API_AUTH": "keys",
        "MAINSPRING_API_TLS_CERT": "c",
        "MAINSPRING_SHARDS": "8",
        "A": "b",
    }
    assert development(given) == {"A": "b", "MAINSPRING_API_AUTH": "off"}
