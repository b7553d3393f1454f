"""Which shard a job belongs to: the same answer in every process, version and language, for ever.

    shard = splitmix64(job_id) mod N

`splitmix64` is the output function of the generator of that name (Steele, Lea, Flood 2014) for the seed
`job_id`. It is a bijection of 64-bit integers that changes about half of the output's bits for each bit of
input, so consecutive ids, which bulk registration produces, land evenly. Python's own `hash()` of an
integer is the integer, and that of a string differs from process to process: neither would do.
docs/schema.md has test vectors for other implementations.

Whoever needs another number drawn from the job's id (a jitter, say) must not take `splitmix64(job_id) mod M`:
jobs of one shard share that value's remainder modulo N, so their jitters would share theirs modulo gcd(M, N).
Mix a constant of your own into the id first.
"""

from __future__ import annotations

from mainspring.schema.errors import InvalidInput

DEFAULT_SHARDS = 64
MAXIMUM_SHARDS = 4096

_MASK = 0xFFFF_FFFF_FFFF_FFFF


def splitmix64(value: int) -> int:
    """The first output of the splitmix64 generator seeded with `value`."""
    mixed = (value + 0x9E37_79B9_7F4A_7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58_476D_1CE4_E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D0_49BB_1331_11EB) & _MASK
    return mixed ^ (mixed >> 31)


def shard_of(job_id: int, shards: int) -> int:
    """The shard, 0 to shards - 1, of a job."""
    return splitmix64(job_id) % shards


def check_shards(shards: int) -> int:
    """The number of shards, if a cluster can have it."""
    if not 1 <= shards <= MAXIMUM_SHARDS:
        raise InvalidInput("shards", f"{shards} is not in 1–{MAXIMUM_SHARDS}")
    return shards
