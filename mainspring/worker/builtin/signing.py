"""The signature of a request: HMAC-SHA256, with the secret that worker and receiver share.

    X-Mainspring-Timestamp   seconds since 1970: when the request was sent, so that an old one can be refused
    X-Mainspring-Signature   v1=<hex> over timestamp, method, path with query, and body, in this form:

        1767225600 \\n POST \\n /hooks/report?week=1 \\n <body>     (without the spaces)

The path is the one on the request line, percent-encoded as sent. docs/builtin-handlers.md shows how to
verify it.
"""

from __future__ import annotations

import hashlib
import hmac

TIMESTAMP_HEADER = "X-Mainspring-Timestamp"
SIGNATURE_HEADER = "X-Mainspring-Signature"
_VERSION = "v1"


def signature_headers(
    secret: str, *, timestamp: int, method: str, path: bytes, body: bytes
) -> dict[str, str]:
    """The two headers of a signed request."""
    signed = b"\n".join((str(timestamp).encode(), method.encode(), path, body))
    digest = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    return {TIMESTAMP_HEADER: str(timestamp), SIGNATURE_HEADER: f"{_VERSION}={digest}"}
