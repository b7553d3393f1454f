"""The first program of every child: ties its life to the parent's, then becomes the server.

    python -I -S launcher.py PARENT_PID USER_ID GROUP_ID PROGRAM ARGUMENT…    (ids may be "-": no switch)

It runs between fork and exec in a process of its own, because the steps have an order that must not break:

1. Switch the user first: the kernel forgets the parent-death signal when credentials change.
   The switch happens here and not in Popen, since the other user may be unable to read this interpreter
   (one below /root, say), while the root that starts this file can.
2. Ask for SIGKILL when the parent goes. The kernel's "parent" is the *thread* that forked, see
   `process.Spawner`.
3. Look whether the parent is still there: one that died before step 2 sends no signal any more.
4. Become the program. The parent-death signal survives exec.

Python ignores SIGPIPE, and ignored signals are inherited, so the default is put back before the exec.
Imported by nobody; uses the standard library only, so that it starts in milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def become(user: int, group: int) -> None:
    try:
        os.setgroups([])
        os.setgid(group)
        os.setuid(user)
    except OSError as error:
        sys.exit(f"root cannot become the user {user} here: {error.strerror}")


def launch(parent: int, user: str, group: str, argv: list[str]) -> None:
    if user != "-":
        become(int(user), int(group))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit(f"the parent-death signal cannot be set: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        sys.exit("the parent is gone")
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        os.execv(argv[0], argv)  # noqa: S606
    except OSError as error:
        sys.exit(f"{argv[0]} cannot be started: {error.strerror}")


if __name__ == "__main__":
    launch(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])
