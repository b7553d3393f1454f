"""The scheduler under faults: real processes and signals, the real stack; record first, judge after."""
