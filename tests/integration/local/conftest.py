from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainspring.local.postgres_binaries import others_reach


@pytest.fixture(scope="session")
def public_directory() -> Iterator[Path]:
    """A directory that every user can enter; pytest's own are closed to others."""
    candidates = [Path(tempfile.gettempdir()), Path("/var/tmp"), Path("/tmp")]
    base = next(place for place in candidates if place.is_dir() and others_reach(place))
    directory = Path(tempfile.mkdtemp(dir=base, prefix="mainspring-test-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)
