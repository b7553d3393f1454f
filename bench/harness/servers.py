"""Which servers a scenario ran on: their versions, and the settings on which its numbers hang."""

from __future__ import annotations

import asyncio
import json
import urllib.request

import asyncpg
import confluent_kafka

from bench.harness.cluster import JAVA_OPTIONS, SHARDS, Cluster
from bench.harness.topics import PARTITIONS
from mainspring.local.jars import LIST

_SETTINGS = ("server_version", "fsync", "synchronous_commit", "shared_buffers", "max_wal_size")


async def describe_servers(cluster: Cluster) -> dict[str, str]:
    """By name, for the result; every part answers for itself, except Kafka, whose protocol does not tell."""
    connection = await asyncpg.connect(cluster.settings.postgres.dsn)
    try:
        found = {name: await connection.fetchval(f"SHOW {name}") for name in _SETTINGS}
    finally:
        await connection.close()
    version = found.pop("server_version")
    return {
        "postgres": ", ".join((version.split()[0], *(f"{name} {value}" for name, value in found.items()))),
        "kafka": f"{_kafka_version()}, {PARTITIONS} partitions, acks all, {JAVA_OPTIONS}",
        "etcd": await asyncio.to_thread(_etcd_version, cluster.settings.etcd.endpoints[0]),
        "librdkafka": str(confluent_kafka.libversion()[0]),
        "shards": str(SHARDS),
    }


def _kafka_version() -> str:
    """Of the broker that the local stack runs."""
    lines = LIST.read_text().splitlines()
    return next(line.split()[0].rpartition(":")[2] for line in lines if ":kafka_2.13:" in line)


def _etcd_version(endpoint: str) -> str:
    with urllib.request.urlopen(f"http://{endpoint}/version", timeout=10) as answer:
        return str(json.load(answer)["etcdserver"])
