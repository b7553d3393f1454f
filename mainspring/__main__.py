"""`python -m mainspring`: the command line by the interpreter that is running, wherever its scripts are."""

from __future__ import annotations

from mainspring.cli.main import main

if __name__ == "__main__":
    main()
