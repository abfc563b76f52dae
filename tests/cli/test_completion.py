"""Completion with the tab key: the line of docs/completion.md, in a real bash and from the command itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "completion.md").read_text(encoding="utf-8")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A search path that begins with the command, so that no other installation answers."""
    command = tmp_path / "bottleneck"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m softmax_bottleneck "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    return {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}


def _run(command: list[str], environment: dict[str, str]) -> str:
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("bottleneck ra", "rank"),
        ("bottleneck rank --rul", "--rule"),
        ("bottleneck rank --rule pr", "press"),
        ("bottleneck train --preset demo-s", "demo-softmax"),
        ("bottleneck bench heads --only mos,lms-p", "mos,lms-plif"),
        ("bottleneck rank x --data wiki", "wikitext-2"),
    ],
)
def test_words_are_completed(words: str, expected: str, environment: dict[str, str]) -> None:
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_BOTTLENECK_COMPLETE": "bash_complete"}
    assert f"plain,{expected}" in _run(["bottleneck"], {**environment, **asked}).splitlines()


@pytest.mark.parametrize("words", ["bottleneck rank my", "bottleneck eval my", "bottleneck compare a my"])
def test_a_source_is_completed_as_a_file(words: str, environment: dict[str, str]) -> None:
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_BOTTLENECK_COMPLETE": "bash_complete"}
    assert _run(["bottleneck"], {**environment, **asked}) == "file,my\n"


def test_bash_completes_after_the_documented_line(environment: dict[str, str]) -> None:
    [line] = re.findall(r"\| bash .*\| `(.+)` \|", PAGE)
    bash = shutil.which("bash")
    assert bash is not None
    script = (
        f"{line}; COMP_WORDS=(bottleneck synth); COMP_CWORD=1; _bottleneck_completion bottleneck synth bottleneck; "
    )
    assert _run([bash, "-c", script + 'echo "${COMPREPLY[@]}"'], environment).strip() == "synthetic"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_a_script(shell: str, environment: dict[str, str]) -> None:
    assert f"_BOTTLENECK_COMPLETE={shell}_source bottleneck" in PAGE
    script = _run(["bottleneck"], {**environment, "_BOTTLENECK_COMPLETE": f"{shell}_source"})
    assert "bottleneck" in script
