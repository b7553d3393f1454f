"""The edge to etcd: a small v3 client of our own (docs/decisions/0002 says why) and a lease kept alive.

    async with EtcdClient(settings) as client:
        keeper = LeaseKeeper(settings)
        await keeper.start()
        won = await client.transact(
            compare=[Compare.absent(key)], success=[Put(key, me, keeper.lease_id)], failure=[Get(key)]
        )

**Who is authoritative.** etcd says who holds a key and whether a lease lives. This process only *believes*,
and for how long it may is counted on its own monotonic clock. A lease can never prove exclusion: between the
look at the clock and the act the process may stop for a minute. So nothing is safe because of what is here;
Postgres fences with the epoch (docs/decisions/0007). A fault in this package can cost availability, not
correctness.

**Trust.** `LeaseKeeper` renews every third of the time to live. An answered renewal is believed for the life
that etcd promised, counted from when the renewal was *sent* (etcd began to count later than that), less a
sixth as a margin for clocks that run differently. `trusted_until` is that moment and `is_trusted()` compares
it with now. Three states, and no way back from the last:

    start() ──▶ trusted ◀──────▶ in doubt        stop() ends it from everywhere
                   └──────▶ lost ◀──┘

    trusted     the last answered renewal has not run out
    in doubt    it has; the lease may live or not
    lost        etcd said, to a renewal, that the lease is gone

In doubt, the keeper goes on asking, forever, and if the lease lived, trust returns with the same lease and
all its keys. Lost is final: the keys are deleted, the keeper never trusts again, `lost` is set, and whoever
wants to go on makes another keeper and takes everything anew under another lease. One keeper is one lease, so
that who took a shard under a lease cannot mistake the next lease for it. The keeper never declares the lease
lost on its own judgement, because only etcd deletes the keys.

**What each failure does.**

    a member is killed           the next is asked: reads and renewals notice nothing, a watch resumes at its
                                 last revision; of a write under way the outcome is unknown (below)
    a member hangs or is cut     the same after a deadline: renewals half a second, calls two, watches four
    etcd's leader dies           calls wait for the next one, 1 to 3 s; trust may run out for a moment; the
                                 new leader gives every lease its full life again
    all of etcd away for 30 s    calls raise EtcdUnavailable, watches wait, trust runs out after 2.5 s. Then,
                                 if etcd had stopped: it begins the lives of its leases anew, ours is still
                                 there, trust returns. If it went on without us: the lease is gone, lost
    this process is stopped      on waking, trust has run out before anybody can ask, since the clock went on;
    for 10 s                     the next renewal hears that the lease is gone: lost
    the machine is suspended     the monotonic clock stands still too, and trust is believed for too long; it
                                 is Postgres that refuses the old epoch
    the event loop is busy       nothing: the keeper has its own thread and connections
    the interpreter is held      trust may run out, and returns with the next renewal
    etcd revokes the lease       heard with the next renewal, within a second: lost
    login or roles change        a fresh token is fetched; if that is refused, EtcdRefused, and trust runs out
    history is compacted,        the watch raises HistoryLost: read again, watch from there
    etcd replaced or restored

**Lost answers.** Reads, grants, renewals and revocations are repeated until a member answers, for about six
seconds. `put`, `delete` and `transact` are not: as soon as one may have reached etcd, a lost answer raises
EtcdUnavailable with `maybe_applied` set. Read again, and let the `Compare` of the next transaction decide.

`methods.py` has the calls, `wire.proto` their messages (`make proto` generates `wire_pb2.py`), `caller.py`
deadlines and failover, `connections.py` channels and TLS, `session.py` the login, `failures.py` the errors.
"""

from __future__ import annotations

from mainspring.etcd.client import EtcdClient
from mainspring.etcd.lease import LeaseKeeper
from mainspring.etcd.transactions import (
    Compare,
    Delete,
    Get,
    Operation,
    OperationResult,
    Put,
    Range,
    TransactionResult,
)
from mainspring.etcd.values import Event, KeyValue, Lease, Snapshot, WatchBatch

__all__ = [
    "Compare",
    "Delete",
    "EtcdClient",
    "Event",
    "Get",
    "KeyValue",
    "Lease",
    "LeaseKeeper",
    "Operation",
    "OperationResult",
    "Put",
    "Range",
    "Snapshot",
    "TransactionResult",
    "WatchBatch",
]
