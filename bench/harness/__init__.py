"""What the scenarios share: the machine they ran on, and the summary of repeated measurements."""
