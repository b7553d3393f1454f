"""The timing wheel: what is due, second by second, for at least the next twenty-four hours.

A shard leader arms one entry per cadence or timer and once a second asks for what has become due. The wheel
answers in order of the due second and, inside one second, in order of insertion. It is pure: it has no
clock (time is the whole unix second the caller gives to `advance`), does no input or output, and imports
nothing of ours.

**Two ideas.** First, entries are kept in *buckets*, one per distinct due second, and only seconds travel
through the wheel: a midnight of 500,000 entries moves from level to level as one number. Second, the levels
are aligned to the clock: a second waits at the finest level whose whole turn it shares with now.

    level      slot    what waits there                                   slots used, now = 10:15:30
    overdue            seconds at or before now                           no ring, a set without a bound
    seconds    1 s     later seconds of the current minute                31 … 59
    minutes    1 min   later minutes of the current hour                  16 … 59
    hours      1 h     the next 24 hours                                  11 … 23, then 0 … 10

The current hour has left the hours ring, so its slot is free for the same hour of tomorrow: all 24 slots
serve the future. The *horizon*, the last second of the last of them, is therefore always between 24 and 25
hours away. Alignment gives the order for nothing: every second in the seconds ring is earlier than every
one in the minutes ring, and those are earlier than the hours. And because a second has exactly one bucket,
however long ago it was opened and wherever it has travelled since, a late insert simply goes behind the
earlier ones: no sequence numbers, no sorting of entries.

**A worked example.** Unix second 0 was a midnight, so the numbers read as a clock. A report is due at
02:03:05, second 2 × 3600 + 3 × 60 + 5 = 7385, and is armed at midnight. It is not of this minute, nor of
this hour: it waits in slot 7385 // 3600 % 24 = 2 of the hours.

    >>> wheel: Wheel[str, str] = Wheel(now=0)
    >>> wheel.insert("report", 7385, "the report")
    >>> wheel
    <Wheel now=0 entries=1 seconds waiting: overdue=0 seconds=0 minutes=0 hours=1>

At 02:00:00 its hour begins, and the slot is emptied: second 7385 shares the hour 2 with now, but not the
minute, and so moves down to slot 7385 // 60 % 60 = 3 of the minutes. This is a *cascade*.

    >>> wheel.advance(7200)
    []
    >>> wheel
    <Wheel now=7200 entries=1 seconds waiting: overdue=0 seconds=0 minutes=1 hours=0>

At 02:03:00 its minute begins, and it moves down to slot 7385 % 60 = 5 of the seconds.

    >>> wheel.advance(7380)
    []
    >>> wheel
    <Wheel now=7380 entries=1 seconds waiting: overdue=0 seconds=1 minutes=0 hours=0>
    >>> wheel.next_due()
    7385

An urgent timer for the same second arrives now. It joins the bucket behind the report. Five seconds later
the bucket is due, and it belongs to the caller from then on.

    >>> wheel.insert("timer 9", 7385, "a retry")
    >>> wheel.advance(7385)
    [Bucket(due=7385, entries={'report': 'the report', 'timer 9': 'a retry'})]
    >>> wheel.next_due() is None
    True

Had the leader slept from midnight until 05:00, one `advance(18000)` would have done: slots that lie wholly
in the past are emptied straight into the answer, and only the slot that contains the new now is sorted into
finer ones.

**The edges.**

- One live entry per key. Inserting a key again *re-times* it: the old entry is replaced, and the new one
  goes behind those already waiting in its second, even when the second is the same.
- An entry that is already due when inserted is not lost: the next `advance`, even to the same now, returns
  it, under the second it was due, before everything later. `next_due` answers that second, so it may lie
  before now.
- Beyond the horizon: `insert` raises `BeyondHorizon` and changes nothing; an entry under the same key stays
  as it was. An exception and not a returned flag, because a flag forgotten is a job lost. Who expects it
  compares with `horizon` first; the horizon only ever grows.
- Time never goes back: `advance` to a second before now raises `TimeWentBack` and changes nothing.
- Both are `ValueError`s and stand apart from the tree of `mainspring.schema.errors`: the wheel imports
  nothing of ours, and either one is a mistake of its caller, not of a user.
- One owner at a time: the wheel has no locks.

**Cost.** n is the number of entries, s of distinct seconds among those concerned.

    insert     O(1): two dictionary writes; a second's first entry also opens its bucket and places it
    remove     O(1): two dictionary deletes; a second's last entry also takes it from its slot
    advance    O(n due) to forget the keys, O(s log s) to order the seconds that were taken from one slot, and
               O(s) for those that move down: each second moves at most twice in its life. Empty slots cost
               nothing, for a bitmap per level says which are occupied, so a gap of days costs what is in it
    next_due   O(s) in the first occupied slot: 1 in the seconds, at most 60 in the minutes and 3,600 in the
               hours (some 45 µs), and the distinct seconds that are overdue
    memory     O(n + s): a key in the index and a key with its entry in the bucket, no object per entry.
               Measured in docs/performance.md, beside a plain dictionary of lists and `heapq`
"""

from mainspring.wheel.errors import BeyondHorizon, TimeWentBack
from mainspring.wheel.wheel import Bucket, Wheel

__all__ = ["BeyondHorizon", "Bucket", "TimeWentBack", "Wheel"]
