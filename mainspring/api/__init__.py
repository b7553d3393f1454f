"""The HTTP API: jobs, runs, dead letters, keys; under /api/v1, described by /openapi.json.

**Who is authoritative.** Postgres, for everything. The API keeps nothing: any number of processes behind
any balancer are one API, and one that is killed loses nothing that it has answered. It knows no rule of a
job: a body is read as JSON and handed to `mainspring.registry`, which every other way in uses too. It talks
neither to Kafka nor to etcd; that a job was changed reaches leaders and workers through the change feed.

**What a request passes**, in this order: its path (middleware), its key and its tenant's rate (access: 401,
429), the key's role (403), its body within the limit (reading: 413, 415, 400), then the registry, which
judges fields (422), the key's handlers (403), the quota (429) and what exists (404, 409, 412), all in the
transaction of the change. One table says which error is which status: `problems`.

**What it costs in statements.** One for the key. A read: one or two more. A change: those that the
registry's methods name, and one each for the audit row, the tenant's quota and the payload's schema; with
an Idempotency-Key three more. A batch: per chunk of 5,000 lines one COPY, the same three, and no statement
per line. A list: the page and its count, exact to 10,000; beyond that the planner is asked instead of
counting on.

**Who changed what.** The audit row is written in the transaction of the change: there is no change without
one, and none about a change that did not happen. Every query is scoped by the tenant of the key; another
tenant's things do not exist.

**What each failure does.**

    Postgres is away        503 with Retry-After; /readyz says so, /healthz stays good. Whether a change
                            under way has happened is not known: with an Idempotency-Key, send it again
    the client goes away    a change under way is done or undone as a whole; a batch ends after a whole chunk
    the answer is lost      with an Idempotency-Key the same request gets the same answer and happens once
    two change one job      one after the other; If-Match lets the second hear of it (412)
    SIGTERM                 requests under way are finished within the grace; exit 0
    SIGKILL                 as if each connection had broken
    a defect                500 without its traceback, which the log has; the process goes on

Where to read: `app` (what is put together), `routes/` (one file a subject), `access`, `idempotency`,
`batch`, `explain`, `forecast`, `payloads`, `problems`, `job_schema` and `documents` (what the OpenAPI
document says), `process`.
"""
