"""The contract: identifiers, states, messages, errors, migrations and named queries.

A leaf: every other package may import this one, and it imports only the clock.
"""
