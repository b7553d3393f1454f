"""Workers: claim what is due, execute it, write down how it ended; and the SDK for handlers.

    from mainspring.worker import Mainspring

    app = Mainspring()

    @app.handler("send-report")
    async def send_report(context):
        ...

Where to read: `claiming` (the page on what is durable when), `executing`, `reporting`, `heartbeat`, `life`
(how these go together), `process`. For users: `app`, `context`, `signals`, `testing`; docs/handlers.md.
"""

from __future__ import annotations

from mainspring.worker.app import Handler, Mainspring
from mainspring.worker.context import Context
from mainspring.worker.signals import Cancel, NotRetryable, Retry

__all__ = ["Cancel", "Context", "Handler", "Mainspring", "NotRetryable", "Retry"]
