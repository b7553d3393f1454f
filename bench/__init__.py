"""The benchmark harness: `python -m bench <scenario>`, one file per scenario."""
