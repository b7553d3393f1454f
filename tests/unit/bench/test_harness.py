"""The pieces that scenarios share."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

from bench.harness.environment import Environment, _commit, _cpu_model
from bench.harness.summary import Summary


def test_the_environment_names_machine_interpreter_and_code() -> None:
    environment = Environment.capture()
    assert environment.cores == len(os.sched_getaffinity(0))
    assert platform.python_version() in environment.python
    text = "\n".join(environment.lines())
    assert environment.cpu in text
    assert environment.platform in text


def test_the_cpu_is_the_first_model_the_kernel_names(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel\t\t: 17\nmodel name\t: Fast: 9000\n\nmodel name\t: Slow\n")
    assert _cpu_model(cpuinfo) == "Fast: 9000"


def test_a_kernel_that_names_no_model_falls_back_to_the_platform(tmp_path: Path) -> None:
    fallback = platform.processor() or platform.machine()
    assert _cpu_model(tmp_path / "absent") == fallback


def test_outside_git_there_is_no_commit(tmp_path: Path) -> None:
    assert _commit(tmp_path) is None
    assert _commit(tmp_path / "absent") is None


def test_an_untracked_file_makes_the_commit_dirty(tmp_path: Path) -> None:
    identity = ["-c", "user.name=bench", "-c", "user.email=bench@example.invalid"]
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    subprocess.run(
        ["git", *identity, "commit", "--quiet", "--allow-empty", "--no-gpg-sign", "-m", "one"],
        cwd=tmp_path,
        check=True,
    )
    clean = _commit(tmp_path)
    assert clean is not None
    assert len(clean) == 12
    (tmp_path / "new.py").touch()
    assert _commit(tmp_path) == f"{clean}-dirty"


def test_a_summary_is_the_median_with_its_extremes() -> None:
    assert Summary.of([30, 1000, 20]) == Summary(median=30, low=20, high=1000)
    assert str(Summary.of([30, 1000, 20])) == "30 (20–1,000)"
    assert str(Summary.of([3.14])) == "3.1 (3.1–3.1)"
    assert Summary.of([]) is None
