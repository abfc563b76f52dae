"""How much memory there is to take, with and without a limit on the process."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from softmax_bottleneck.core.machine import free_memory

HUGE = 2**63 - 4096
"""What version 1 says where there is no limit."""


def _place(root: Path, groups: str, files: dict[str, dict[str, str]]) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups, encoding="utf-8")
    for group, contents in files.items():
        folder = root / "sys/fs/cgroup" / group
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in contents.items():
            (folder / name).write_text(text, encoding="utf-8")
    return root


def _first(limit: int, used: int, files: int) -> dict[str, str]:
    stat = f"cache 7\ninactive_file 1\nactive_file 1\ntotal_inactive_file {files - 5}\ntotal_active_file 5\n"
    return {"memory.limit_in_bytes": f"{limit}\n", "memory.usage_in_bytes": f"{used}\n", "memory.stat": stat}


def _second(limit: str, used: int, files: int) -> dict[str, str]:
    stat = f"anon 7\ninactive_file {files - 5}\nactive_file 5\n"
    return {"memory.max": f"{limit}\n", "memory.current": f"{used}\n", "memory.stat": stat}


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("4:memory:/job/7\n1:cpu:/\n0::/\n", {"memory/job/7": _first(900, 500, 30), "memory": _first(HUGE, 9, 9)}, 430),
        ("4:memory:/job/7\n", {"memory/job/7": _first(900, 500, 30), "memory/job": _first(600, 550, 20)}, 70),
        ("4:memory:/docker/abc\n", {"memory": _first(900, 500, 0)}, 400),  # a container sees its own group as the root
        ("0::/job/7\n", {"job/7": _second("max", 500, 30), "job": _second("800", 500, 30)}, 330),
        ("0::/\n", {".": _second("800", 500, 0)}, 300),
        ("0::/\n", {".": _second("800", 900, 50)}, 0),  # over its limit
        ("4:memory:/job/7\n", {"memory/job/7": _first(HUGE, 5, 0)}, None),
        ("0::/job\n", {"job": _second("max", 5, 0)}, None),
        ("3:cpu:/job\n", {"memory/job": _first(9, 5, 0)}, None),
        ("0::/elsewhere\n", {}, None),
    ],
)
def test_limits_of_control_groups(
    groups: str, files: dict[str, dict[str, str]], expected: int | None, tmp_path: Path
) -> None:
    """Without a limit (``None``) it is the machine's."""
    free = free_memory(_place(tmp_path, groups, files))
    assert free == (expected if expected is not None else pytest.approx(psutil.virtual_memory().available, rel=0.2))


def test_here_it_is_no_more_than_the_machine_has(tmp_path: Path) -> None:
    assert 0 < free_memory() <= psutil.virtual_memory().total
    assert free_memory(tmp_path) == pytest.approx(psutil.virtual_memory().available, rel=0.2)  # no Linux
