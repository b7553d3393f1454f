"""The signature, against the page's own way to verify it."""

from __future__ import annotations

import time

from mainspring.worker.builtin.signing import SIGNATURE_HEADER, TIMESTAMP_HEADER, signature_headers
from tests.unit.worker_builtin.runs import python_of_the_page

SECRET = "a secret of some length"
GENUINE = {"secret": SECRET, "method": "POST", "path": "/a?b=%20c", "body": b'{"n":1}'}
is_genuine = python_of_the_page()["is_genuine"]


def signed(age: int = 0) -> dict[str, str]:
    # The present of the test, not of the import: what is old is not genuine.
    timestamp = int(time.time()) - age
    headers = signature_headers(
        SECRET, timestamp=timestamp, method="POST", path=b"/a?b=%20c", body=b'{"n":1}'
    )
    return {name.lower(): value for name, value in headers.items()}


def test_a_signed_request_is_genuine() -> None:
    assert is_genuine(**GENUINE, headers=signed())


def test_whatever_was_changed_is_noticed() -> None:
    for change in (
        {"secret": "another secret of some length"},
        {"method": "PUT"},
        {"path": "/a?b=c"},
        {"body": b'{"n":2}'},
    ):
        assert not is_genuine(**(GENUINE | change), headers=signed())
    headers = signed()
    later = str(int(headers[TIMESTAMP_HEADER.lower()]) + 1)
    assert not is_genuine(**GENUINE, headers=headers | {TIMESTAMP_HEADER.lower(): later})
    assert not is_genuine(**GENUINE, headers=signed() | {SIGNATURE_HEADER.lower(): "v1="})
    assert not is_genuine(**GENUINE, headers={})


def test_an_old_request_is_not_genuine() -> None:
    assert not is_genuine(**GENUINE, headers=signed(age=3600))
