"""A real Postgres, Kafka and etcd on this machine, without containers: for development, demos and tests.

    async with LocalStack() as stack:                   # a throw-away; a directory keeps the data
        settings = Settings.from_environment(os.environ | stack.environment())
        await stack.brokers[0].kill()                   # every member can fail alone
        await stack.brokers[0].start()

`stack.py` has the whole, `member.py` what one server can do, `process.py` why no server outlives its parent;
`postgres_binaries.py`, `java.py`, `jars.py` and `etcd.py` say where the programs come from, `outside.py` what
somebody else's servers change. Production uses none of this.
"""

from __future__ import annotations

from mainspring.local.stack import LocalStack

__all__ = ["LocalStack"]
