"""The promise of the command line: a known exit code, one sentence, no file changed, no number of damaged input."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from softmax_bottleneck.cli import main

PROMISED = {0, 1, 2, 3, 130, 143}
"""Exit codes of all commands."""
_NOT_FOR_PEOPLE = re.compile(r"Traceback|pydantic|0x[0-9a-f]{6,}|\[type=|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    stdout: str
    stderr: str
    escaped: BaseException | None = None
    """Exception that left the command."""


def snapshot(folder: Path) -> dict[Path, bytes | str]:
    """Return the content of every file under a folder, and the target of every link."""
    return {
        path: str(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def run(arguments: Sequence[str]) -> Outcome:
    """Run the command in this process."""
    done = CliRunner().invoke(main, list(arguments), prog_name="bottleneck")
    escaped = None if isinstance(done.exception, SystemExit) else done.exception
    return Outcome(done.exit_code, done.stdout, done.stderr, escaped)


def check(outcome: Outcome, *, codes: Sequence[int] = (1,)) -> str:
    """Check the promise; return the sentence.

    Args:
        outcome: of a command.
        codes: exit codes that are right for these arguments.
    """
    if outcome.escaped is not None:
        raise AssertionError(f"the command let an error escape: {outcome.escaped!r}") from outcome.escaped
    assert outcome.code in PROMISED
    assert outcome.code in codes, (outcome.code, outcome.stdout, outcome.stderr)
    assert not _NOT_FOR_PEOPLE.search(outcome.stdout.replace("\n", "")), outcome.stdout
    lines = outcome.stderr.splitlines()
    assert not any(_NOT_FOR_PEOPLE.search(line) for line in lines), outcome.stderr
    if outcome.code not in (1, 2):
        return ""
    assert outcome.stdout == "" or outcome.code == 2  # a group without its command shows its help
    assert lines, "there is no sentence"
    assert lines[-1].startswith("Error: "), outcome.stderr
    assert sum(line.startswith("Error: ") for line in lines) == 1
    return lines[-1].removeprefix("Error: ")


def check_kept(before: Mapping[Path, bytes | str], folder: Path) -> None:
    """Check that every file that was there has its content still."""
    after = snapshot(folder)
    changed = [str(path.relative_to(folder)) for path, content in before.items() if after.get(path) != content]
    assert not changed, f"changed: {changed}"
