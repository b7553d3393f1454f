"""docs/lifecycle.md names what the code knows: every state, every outcome with its byte, and no others."""

from __future__ import annotations

import re

from mainspring.schema.states import BORN_FINAL, Outcome, State
from tests.unit.schema.documentation import rows

STATES = ("state", "what it means", "where it is seen")


def test_every_state_and_every_outcome_has_a_row_and_nothing_else_has() -> None:
    named = [state for state, _, _ in rows(*STATES, page="lifecycle.md")]
    assert sorted(named) == sorted({*State, *(outcome.word for outcome in Outcome)})


def test_the_bytes_are_those_that_are_stored() -> None:
    seen = {
        state: re.search(r"the byte (\d+)", where) for state, _, where in rows(*STATES, page="lifecycle.md")
    }
    codes = {state: int(found[1]) for state, found in seen.items() if found is not None}
    assert codes == {outcome.word: outcome.value for outcome in Outcome}


def test_what_is_born_final_is_said_to_be_never_executed() -> None:
    meanings = {state: meaning for state, meaning, _ in rows(*STATES, page="lifecycle.md")}
    born = {state for state, meaning in meanings.items() if meaning.startswith("never executed")}
    assert born == {outcome.word for outcome in BORN_FINAL}
