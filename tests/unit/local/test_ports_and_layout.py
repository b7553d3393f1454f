from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainspring.local.layout import Layout
from mainspring.local.ports import free_port, is_free, require_free
from mainspring.schema.errors import LocalStackError
from tests.unit.local.listener import listening


@pytest.fixture
def taken() -> Iterator[int]:
    with listening() as port:
        yield port


def test_a_port_with_a_listener_is_not_free(taken: int) -> None:
    assert not is_free(taken)


def test_a_free_port_lies_below_those_of_outgoing_connections() -> None:
    lowest_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    port = free_port()
    assert is_free(port)
    assert port < max(lowest_outgoing, 16001)


def test_a_free_port_is_none_of_those_to_avoid(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([20001, 20002])
    monkeypatch.setattr("random.randrange", lambda *_: next(drawn))
    monkeypatch.setattr("mainspring.local.ports.is_free", lambda _: True)
    assert free_port(avoid=[20001]) == 20002


def test_a_named_port_that_is_taken_is_refused_with_its_number(taken: int) -> None:
    with pytest.raises(LocalStackError, match=f"port {taken} for postgres is taken"):
        require_free("postgres", taken)


def test_a_port_that_may_not_be_had_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = PermissionError(errno.EACCES, "Permission denied")
    monkeypatch.setattr("mainspring.local.ports._obstacle", lambda _: refusal)
    with pytest.raises(LocalStackError, match=r"port 80 for etcd-1 cannot be had \(Permission denied\)"):
        require_free("etcd-1", 80)


def test_a_named_port_is_kept_like_any_other(tmp_path: Path) -> None:
    port = free_port()
    layout = Layout()
    layout.reserve({"kafka-1": port})
    assert layout.port("kafka-1") == port
    layout.save(tmp_path)
    assert Layout.load(tmp_path).port("kafka-1") == port


def test_a_named_port_is_taken_away_from_the_member_that_had_it() -> None:
    port = free_port()
    layout = Layout(ports={"postgres": port})
    layout.reserve({"kafka-1": port})
    assert layout.port("kafka-1") == port
    assert layout.port("postgres") != port


def test_a_refused_reservation_changes_nothing(taken: int) -> None:
    layout = Layout(ports={"etcd-1": 20000})
    with pytest.raises(LocalStackError):
        layout.reserve({"postgres": 20000, "kafka-1": taken})
    assert layout.ports == {"etcd-1": 20000}


def test_ports_are_remembered_between_starts(tmp_path: Path) -> None:
    layout = Layout()
    port = layout.port("postgres")
    layout.save(tmp_path)
    assert Layout.load(tmp_path).port("postgres") == port


def test_a_remembered_port_that_was_taken_is_replaced(taken: int) -> None:
    layout = Layout(ports={"kafka-1": taken})
    port = layout.port("kafka-1")
    assert port != taken
    assert layout.ports == {"kafka-1": port}


def test_a_port_known_to_other_members_is_never_replaced(taken: int) -> None:
    with pytest.raises(LocalStackError, match=f"port {taken}, by which the other members know etcd-2-peer"):
        Layout(ports={"etcd-2-peer": taken}).port("etcd-2-peer", fixed=True)


def test_data_of_one_broker_is_not_started_with_three(tmp_path: Path) -> None:
    layout = Layout()
    layout.settle("brokers", 1, tmp_path)
    layout.settle("brokers", 1, tmp_path)
    with pytest.raises(LocalStackError, match="was made with --brokers 1; start it with --brokers 1"):
        layout.settle("brokers", 3, tmp_path)


def test_a_damaged_layout_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "layout.json").write_text("{")
    with pytest.raises(LocalStackError, match="to start empty"):
        Layout.load(tmp_path)


def test_the_layout_can_be_read_by_its_owner_alone(tmp_path: Path) -> None:
    Layout().save(tmp_path)
    assert (tmp_path / "layout.json").stat().st_mode & 0o077 == 0
