"""Settings are refused with the variable and the rule, and never show a secret."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from mainspring.schema.errors import InvalidSetting
from mainspring.settings import (
    KafkaSettings,
    PostgresSettings,
    Settings,
    TlsFiles,
    WorkerSettings,
    describe,
    masked_dsn,
)

WHOLE = {
    "MAINSPRING_POSTGRES_DSN": "postgresql://ada:hunter2@db.example:5432/jobs",
    "MAINSPRING_KAFKA": "k1:9092,[::1]:9093",
    "MAINSPRING_ETCD": "e1:2379",
}


def refused(**changes: str) -> InvalidSetting:
    with pytest.raises(InvalidSetting) as caught:
        Settings.from_environment(WHOLE | {f"MAINSPRING_{name}": value for name, value in changes.items()})
    return caught.value


def test_three_addresses_are_enough() -> None:
    settings = Settings.from_environment(WHOLE)
    assert settings.kafka.brokers == ("k1:9092", "[::1]:9093")
    assert settings.etcd.endpoints == ("e1:2379",)
    assert settings.shards is None
    assert (settings.log.level, settings.log.format) == ("info", "auto")


@pytest.mark.parametrize("missing", sorted(WHOLE))
def test_a_missing_address_is_named(missing: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        Settings.from_environment({name: value for name, value in WHOLE.items() if name != missing})
    assert caught.value.field == missing


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"POSTGRES_DSN": "mysql://x"}, "MAINSPRING_POSTGRES_DSN"),
        ({"POSTGRES_TLS": "yes"}, "MAINSPRING_POSTGRES_TLS"),
        ({"KAFKA": "k1"}, "MAINSPRING_KAFKA"),
        ({"KAFKA": "k1:0"}, "MAINSPRING_KAFKA"),
        ({"KAFKA": "k1:70000"}, "MAINSPRING_KAFKA"),
        ({"KAFKA": "k1:9092,,k2:9092"}, "MAINSPRING_KAFKA"),
        ({"ETCD": "http://e1:2379"}, "MAINSPRING_ETCD"),
        ({"KAFKA_TLS": "1"}, "MAINSPRING_KAFKA_TLS"),
        ({"KAFKA_SASL": "GSSAPI"}, "MAINSPRING_KAFKA_SASL"),
        ({"KAFKA_USERNAME": "ada"}, "MAINSPRING_KAFKA_PASSWORD"),
        ({"ETCD_PASSWORD": "x"}, "MAINSPRING_ETCD_USERNAME"),
        ({"KAFKA_TLS_CA": "/no/such/file"}, "MAINSPRING_KAFKA_TLS_CA"),
        ({"SHARDS": "0"}, "MAINSPRING_SHARDS"),
        ({"SHARDS": "4097"}, "MAINSPRING_SHARDS"),
        ({"SHARDS": "many"}, "MAINSPRING_SHARDS"),
        ({"LOG_LEVEL": "loud"}, "MAINSPRING_LOG_LEVEL"),
        ({"LOG_FORMAT": "xml"}, "MAINSPRING_LOG_FORMAT"),
        ({"POSTGRES_PASSWORD_FILE": "/no/such/file"}, "MAINSPRING_POSTGRES_PASSWORD_FILE"),
    ],
)
def test_a_bad_value_is_refused_by_name(changes: dict[str, str], field: str) -> None:
    assert refused(**changes).field == field


def test_any_secret_may_come_from_a_file(tmp_path: Path) -> None:
    for name in ("POSTGRES_PASSWORD", "KAFKA_PASSWORD", "ETCD_PASSWORD"):
        (tmp_path / name).write_text(f"secret of {name}\n")
    (tmp_path / "dsn").write_text("postgresql://from-file/jobs\n")
    settings = Settings.from_environment(
        {
            "MAINSPRING_POSTGRES_DSN_FILE": str(tmp_path / "dsn"),
            "MAINSPRING_POSTGRES_PASSWORD_FILE": str(tmp_path / "POSTGRES_PASSWORD"),
            "MAINSPRING_KAFKA": "k1:9092",
            "MAINSPRING_KAFKA_USERNAME": "ada",
            "MAINSPRING_KAFKA_PASSWORD_FILE": str(tmp_path / "KAFKA_PASSWORD"),
            "MAINSPRING_ETCD": "e1:2379",
            "MAINSPRING_ETCD_USERNAME": "ada",
            "MAINSPRING_ETCD_PASSWORD_FILE": str(tmp_path / "ETCD_PASSWORD"),
        }
    )
    assert settings.postgres.dsn == "postgresql://from-file/jobs"
    assert settings.postgres.password == "secret of POSTGRES_PASSWORD"
    assert settings.kafka.login is not None
    assert settings.kafka.login.password == "secret of KAFKA_PASSWORD"
    assert settings.etcd.login is not None
    assert settings.etcd.login.password == "secret of ETCD_PASSWORD"


def test_a_secret_given_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("a")
    error = refused(POSTGRES_PASSWORD="b", POSTGRES_PASSWORD_FILE=str(tmp_path / "password"))
    assert error.field == "MAINSPRING_POSTGRES_PASSWORD_FILE"


def test_an_empty_secret_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("\n")
    assert "empty" in refused(POSTGRES_PASSWORD_FILE=str(tmp_path / "password")).rule


def test_nothing_that_is_printed_shows_a_secret() -> None:
    settings = Settings.from_environment(
        WHOLE
        | {
            "MAINSPRING_POSTGRES_PASSWORD": "hunter2",
            "MAINSPRING_KAFKA_USERNAME": "ada",
            "MAINSPRING_KAFKA_PASSWORD": "hunter2",
        }
    )
    described = describe(settings)
    assert "hunter2" not in repr(settings) + repr(described)
    assert described["postgres.dsn"] == "postgresql://ada:***@db.example:5432/jobs"
    assert described["kafka.login.username"] == "ada"
    assert described["kafka.login.password"] == "***"


def test_a_password_in_the_query_of_a_dsn_is_masked() -> None:
    assert masked_dsn("postgresql://db/jobs?user=ada&password=hunter2&sslmode=require") == (
        "postgresql://db/jobs?user=ada&password=***&sslmode=require"
    )


def test_an_unparsable_dsn_is_refused_without_repeating_it() -> None:
    error = refused(POSTGRES_DSN="postgresql://ada:hunter2@[::1/jobs")
    assert "hunter2" not in str(error)


def test_a_client_certificate_needs_its_key(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("-")
    error = refused(KAFKA_TLS_CERT=str(tmp_path / "cert.pem"))
    assert error.field == "MAINSPRING_KAFKA_TLS_KEY"


def test_tls_files_turn_tls_on_and_contradictions_are_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("-")
    authority = {"MAINSPRING_KAFKA_TLS_CA": str(tmp_path / "ca.pem")}
    assert Settings.from_environment(WHOLE | authority).kafka.tls_enabled
    assert refused(KAFKA_TLS="false", KAFKA_TLS_CA=str(tmp_path / "ca.pem")).field == "MAINSPRING_KAFKA_TLS"
    with pytest.raises(InvalidSetting, match="MAINSPRING_POSTGRES_TLS"):
        PostgresSettings(dsn="postgresql://db/jobs", tls=TlsFiles(ca=tmp_path / "ca.pem"))


def test_kafka_configuration_follows_the_settings() -> None:
    plain = KafkaSettings.from_environment(WHOLE)
    assert plain.librdkafka() == {
        "bootstrap.servers": "k1:9092,[::1]:9093",
        "security.protocol": "PLAINTEXT",
    }
    secured = KafkaSettings.from_environment(
        WHOLE
        | {
            "MAINSPRING_KAFKA_TLS": "true",
            "MAINSPRING_KAFKA_USERNAME": "ada",
            "MAINSPRING_KAFKA_PASSWORD": "hunter2",
        }
    ).librdkafka()
    assert secured["security.protocol"] == "SASL_SSL"
    assert secured["sasl.mechanism"] == "SCRAM-SHA-512"
    assert secured["sasl.password"] == "hunter2"


@pytest.mark.parametrize(
    ("mode", "verify", "hostname"),
    [
        ("require", ssl.CERT_NONE, False),
        ("verify-ca", ssl.CERT_REQUIRED, False),
        ("verify-full", ssl.CERT_REQUIRED, True),
    ],
)
def test_postgres_tls_modes_check_what_their_names_say(
    mode: str, verify: ssl.VerifyMode, hostname: bool
) -> None:
    context = PostgresSettings(dsn="postgresql://db/jobs", tls_mode=mode).ssl()
    assert isinstance(context, ssl.SSLContext)
    assert (context.verify_mode, context.check_hostname) == (verify, hostname)


def test_without_a_mode_the_dsn_decides_about_tls() -> None:
    assert PostgresSettings(dsn="postgresql://db/jobs").ssl() is None
    assert PostgresSettings(dsn="postgresql://db/jobs", tls_mode="disable").ssl() is False


def test_a_worker_needs_no_etcd_and_a_scheduler_does() -> None:
    variables = {"MAINSPRING_POSTGRES_DSN": "postgresql://db/jobs", "MAINSPRING_KAFKA": "k:9092"}
    assert WorkerSettings.from_environment(variables).kafka.brokers == ("k:9092",)
    with pytest.raises(InvalidSetting) as refused:
        Settings.from_environment(variables)
    assert refused.value.field == "MAINSPRING_ETCD"
