from __future__ import annotations

from pathlib import Path

import pytest

from mainspring.local import LocalStack
from mainspring.local.outside import ETCD, KAFKA, POSTGRES, Part, outside_variables
from mainspring.schema.errors import InvalidInput, InvalidSetting

DSN = "postgresql://somebody@db.example:5432/jobs"


def test_a_part_whose_address_is_set_is_outside_with_all_its_variables() -> None:
    kafka = {"MAINSPRING_KAFKA": "k:9092", "MAINSPRING_KAFKA_USERNAME": "u", "MAINSPRING_KAFKA_PASSWORD": "p"}
    everything = {**kafka, "MAINSPRING_POSTGRES_DSN": DSN, "PATH": "/bin"}
    assert outside_variables(KAFKA, everything) == kafka
    assert outside_variables(POSTGRES, everything) == {"MAINSPRING_POSTGRES_DSN": DSN}
    assert outside_variables(ETCD, everything) == {}


def test_an_address_in_a_file_counts(tmp_path: Path) -> None:
    (tmp_path / "dsn").write_text(DSN)
    found = {"MAINSPRING_POSTGRES_DSN_FILE": str(tmp_path / "dsn")}
    assert outside_variables(POSTGRES, found) == found


@pytest.mark.parametrize("part", [POSTGRES, KAFKA, ETCD])
def test_an_empty_address_counts_as_not_set(part: Part) -> None:
    assert outside_variables(part, {part.variable: ""}) == {}


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("MAINSPRING_POSTGRES_PASSWORD", "MAINSPRING_POSTGRES_DSN"),
        ("MAINSPRING_KAFKA_TLS", "MAINSPRING_KAFKA"),
        ("MAINSPRING_ETCD_USERNAME", "MAINSPRING_ETCD"),
    ],
)
def test_what_belongs_to_an_outside_server_is_refused_without_its_address(name: str, needs: str) -> None:
    with pytest.raises(InvalidSetting, match=f"^{name}: is set without {needs}; set both") as refused:
        LocalStack(environment={name: "true"})
    assert refused.value.field == name


def test_a_setting_that_has_nothing_to_do_with_the_way_in_needs_no_address() -> None:
    LocalStack(environment={"MAINSPRING_ETCD_PREFIX": "/elsewhere/", "MAINSPRING_KAFKAESQUE": "x"})


def test_an_address_that_cannot_be_one_is_refused_before_anything_starts() -> None:
    with pytest.raises(InvalidSetting, match="MAINSPRING_KAFKA: 'nonsense' is not host:port"):
        LocalStack(environment={"MAINSPRING_KAFKA": "nonsense"})


@pytest.mark.parametrize(("brokers", "etcd"), [(2, 1), (0, 1), (1, 2), (1, 5)])
def test_a_cluster_has_one_member_or_three(brokers: int, etcd: int) -> None:
    with pytest.raises(InvalidInput, match="is not one of"):
        LocalStack(brokers=brokers, etcd=etcd, environment={})


def test_named_ports_must_differ_and_exist() -> None:
    with pytest.raises(InvalidInput, match=r"kafka-3 30002, etcd-1 30002: two servers cannot share one"):
        LocalStack(brokers=3, kafka_port=30000, etcd_port=30002, environment={})
    with pytest.raises(InvalidInput, match=r"kafka-2 65536, kafka-3 65537: not in 1–65535"):
        LocalStack(brokers=3, kafka_port=65535, environment={})


def test_the_named_port_of_an_outside_part_means_nothing() -> None:
    LocalStack(kafka_port=30000, etcd_port=30000, environment={"MAINSPRING_KAFKA": "k:9092"})
