"""Random faults over random traffic; what happened is recorded first and judged afterwards, as etcd does it.

    traffic    random operations on jobs, each with the time before it was sent and after it was answered
    faults     random faults, each with its begin and end
    watch      what Postgres committed of jobs and timers, and what every shard's mark said, all along
    history    everything that is known once all is quiet
    model      what must have happened, what may have, and nothing else
    validate   the judgement: pure functions over history and model
    campaign   one run: all of the above in order

`python -m tests.robustness --minutes 60 --seed 7` runs until the time is over (`make soak MINUTES=60`). A
short one is part of `make test`. A seed fixes what is done and in which order; what the machine makes of it
differs, so a run that fails keeps everything it knew.
"""
