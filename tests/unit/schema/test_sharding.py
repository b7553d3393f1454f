"""The shard of a job: pinned by vectors, even over the ids that registration produces."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.schema.errors import InvalidInput
from mainspring.schema.ids import MAXIMUM_ID
from mainspring.schema.sharding import DEFAULT_SHARDS, MAXIMUM_SHARDS, check_shards, shard_of, splitmix64

# 0, 1 and 1234567 are seeds whose outputs other implementations of splitmix64 publish.
VECTORS = {
    0: 0xE220_A839_7B1D_CDAF,
    1: 0x910A_2DEC_8902_5CC1,
    1_234_567: 0x599E_D017_FB08_FC85,
    2**32: 0xC42C_5A1A_A382_0138,
    MAXIMUM_ID: 0x2A67_D755_2E03_9EA7,
}


@pytest.mark.parametrize(("seed", "output"), VECTORS.items())
def test_the_hash_never_changes(seed: int, output: int) -> None:
    assert splitmix64(seed) == output


def test_consecutive_outputs_are_those_of_the_generator() -> None:
    # The generator adds the golden ratio to its state before each output: five known ones for 1234567.
    outputs = [splitmix64(1234567 + k * 0x9E3779B97F4A7C15) for k in range(5)]
    assert outputs == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


@given(st.integers(1, MAXIMUM_ID), st.integers(1, MAXIMUM_SHARDS))
def test_a_shard_is_one_of_the_shards(job_id: int, shards: int) -> None:
    assert 0 <= shard_of(job_id, shards) < shards


@pytest.mark.parametrize("shards", [2, 3, 7, 64, 100, 1000])
@pytest.mark.parametrize("step", [1, 2, 64, 65_536, 4096 * 4096])
def test_ids_in_a_row_land_evenly(shards: int, step: int) -> None:
    start = random.Random(shards * step).randrange(1, MAXIMUM_ID // 2)
    draws = 200 * shards
    counts = Counter(shard_of(start + k * step, shards) for k in range(draws))
    expected = draws / shards
    distance = sum((counts[shard] - expected) ** 2 / expected for shard in range(shards))
    assert distance < chi_squared_bound(shards - 1)


def chi_squared_bound(freedom: int) -> float:
    """What a fair hash exceeds three times in a million (Wilson and Hilferty's approximation)."""
    spread = 2 / (9 * freedom)
    return freedom * (1 - spread + 4.5 * math.sqrt(spread)) ** 3


def test_one_bit_of_the_id_changes_about_half_of_the_hash() -> None:
    generator = random.Random(1)
    changed = []
    for _ in range(2000):
        job_id = generator.randrange(1, MAXIMUM_ID)
        changed.append((splitmix64(job_id) ^ splitmix64(job_id ^ (1 << generator.randrange(63)))).bit_count())
    assert 31 < sum(changed) / len(changed) < 33


@pytest.mark.parametrize("shards", [1, DEFAULT_SHARDS, MAXIMUM_SHARDS])
def test_a_cluster_can_have_this_many_shards(shards: int) -> None:
    assert check_shards(shards) == shards


@pytest.mark.parametrize("shards", [-1, 0, MAXIMUM_SHARDS + 1])
def test_a_cluster_cannot_have_this_many_shards(shards: int) -> None:
    with pytest.raises(InvalidInput, match=f"^shards: {shards} is not in 1–4096$"):
        check_shards(shards)
