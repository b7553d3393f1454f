"""`mainspring demo`, which is `make demo`: everything on a throw-away stack, and a judge of it.

    samples    the jobs, one of every kind, and in words what each is for
    app        their handlers, which run in real workers
    api        the few questions that the demo asks, all of them over HTTP as anybody could
    watching   once a second: what the API says, as one picture
    view       the picture as lines, and a terminal that shows them
    takeover   a leader is killed, somebody takes its shards: who, and after how long
    facts      everything the judge may know
    judging    what was promised beside what happened: pure
    summary    the judgement in words
    stage      the course of it all

**Who is authoritative.** The schedule, for what should have happened: the judge works out every instant in
the window by itself. The run history in Postgres, read through the API, for what did happen. Counters and the
picture on the screen prove nothing. And a second witness: each handler writes a line into a journal when it
is called, so a run that was executed twice cannot hide behind one row of history.

**The window** begins when the last sample is registered and ends with `--seconds`, or with Ctrl-C. What was
due in it has a minute to be in the books; then it is judged, and the exit code is the judgement.

**When something fails**: a process that dies comes back (`mainspring/local/processes.py`), and what it cost
shows in the judgement. An API that does not answer leaves the picture as it was. A server that ends, ends
the demo.
"""

from __future__ import annotations
