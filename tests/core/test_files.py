"""Files are whole or absent, whatever goes wrong on the way, and tensors in them come back as they were."""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save

from softmax_bottleneck.core import files, tensor_file
from softmax_bottleneck.core.json_file import read_json
from softmax_bottleneck.errors import OutputError


def _raise(number: int) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "the disk is full: free some space or choose another folder"),
        (errno.EDQUOT, "the disk is full"),
        (errno.EROFS, "the place is not writable: name another one"),
        (errno.EACCES, "the place is not writable"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_a_failed_write_leaves_the_old_file(number: int, remedy: str, tmp_path: Path, monkeypatch: Any) -> None:
    file = tmp_path / "file"
    files.write_bytes(file, b"old")
    for place, name in ((Path, "write_bytes"), (os, "fsync"), (Path, "replace")):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, _raise(number))
            with pytest.raises(OutputError, match=f"cannot write {file}: {remedy}"):
                files.write_bytes(file, b"new")
        assert file.read_bytes() == b"old"
        assert list(tmp_path.iterdir()) == [file]
    monkeypatch.setattr(Path, "write_bytes", _raise(number))
    monkeypatch.setattr(Path, "unlink", _raise(errno.EROFS))  # nothing can be tidied
    with pytest.raises(OutputError, match=remedy):
        files.write_bytes(file, b"new")


def test_a_folder_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "run", tmp_path / "file"):
        with pytest.raises(OutputError, match=f"cannot write {path}: a file stands where a folder is needed"):
            files.make_folder(path)
    with pytest.raises(OutputError, match="a file stands where a folder is needed"):
        files.write_bytes(tmp_path / "file" / "name", b"new")


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_its_target_is_replaced(there: bool, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "target", tmp_path / "link"
    if there:
        target.write_bytes(b"old")
    link.symlink_to("folder/target")
    files.write_bytes(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert [*target.parent.iterdir()] == [target]


def test_an_error_inside_the_block_is_passed_on(tmp_path: Path) -> None:
    def work() -> None:
        with files.replacing(tmp_path / "file") as temporary:
            temporary.write_bytes(b"half")
            raise KeyError("not about files")

    with pytest.raises(KeyError, match="not about files"):
        work()
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from softmax_bottleneck.core import files

with files.replacing(Path(sys.argv[1])) as temporary:
    temporary.write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_kill_leaves_is_removed_by_the_next_write_of_the_file(tmp_path: Path) -> None:
    file, other = tmp_path / "file.json", tmp_path / ".file.json.mine.part"
    file.write_bytes(b"old")
    other.touch()
    assert subprocess.run([sys.executable, "-c", KILLED, str(file)], timeout=60).returncode == -9
    assert file.read_bytes() == b"old"
    (leftover,) = set(tmp_path.iterdir()) - {file, other}
    assert leftover.read_bytes() == b"half"
    assert files.unfinished(tmp_path) == files.unfinished(tmp_path, "file.json") == [leftover]
    assert files.unfinished(tmp_path, "other") == files.unfinished(tmp_path / "missing") == []
    files.write_bytes(tmp_path / "other", b"1")
    assert leftover.exists()
    files.write_bytes(file, b"new")
    assert {*tmp_path.iterdir()} == {file, other, tmp_path / "other"}


def test_two_writers_do_not_disturb_each_other(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with files.replacing(file) as first:
        first.write_bytes(b"first")
        files.write_bytes(file, b"second")
    assert file.read_bytes() == b"first"
    assert [*tmp_path.iterdir()] == [file]


@pytest.mark.parametrize("mode", [0o600, 0o444, 0o664, None])
def test_the_mode_is_kept(mode: int | None, tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    file = tmp_path / "file"
    if mode is not None:
        file.touch()
        file.chmod(mode)
    files.write_bytes(file, b"new")
    assert stat.S_IMODE(file.stat().st_mode) == (mode or stat.S_IMODE((tmp_path / "plain").stat().st_mode))


def test_a_link_at_the_temporary_name_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No name can be known beforehand; if one were, the file behind a link of that name would stay."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    monkeypatch.setattr("secrets.token_hex", lambda size: "0" * 2 * size)
    (tmp_path / f".file.{'0' * 16}.part").symlink_to(victim)
    files.write_bytes(tmp_path / "file", b"new")
    assert victim.read_bytes() == b"mine"
    assert not (tmp_path / "file").is_symlink()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: Path(path).symlink_to("/dev/zero")])
def test_only_regular_files_are_read(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "file")
    for read in (files.open_file, files.sha256_file, lambda path: read_json(path, error=OutputError, remedy="")):
        with pytest.raises((OSError, OutputError), match=r"it is a (folder|pipe|device), not a file"):
            read(tmp_path / "file")


def test_the_data_is_on_disk_before_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def note_fsync(descriptor: int) -> None:
        events.append("flush folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "flush file")
        fsync(descriptor)

    def note_replace(self: Path, target: Path) -> Path:
        events.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "replace", note_replace)
    folder = tmp_path / "folder"
    folder.mkdir()
    files.write_bytes(folder / "file", b"data")
    assert events == ["flush file", "rename", "flush folder"]


def test_json_is_utf8_ends_with_a_newline_and_has_no_nan(tmp_path: Path) -> None:
    value = {"name": "Zoë", "list": [1, 2.5, None, True]}
    files.write_json(tmp_path / "file", value)
    text = (tmp_path / "file").read_text(encoding="utf-8")
    assert json.loads(text) == value
    assert "Zoë" in text
    assert text.endswith("}\n")
    for number in (math.nan, math.inf):
        with pytest.raises(ValueError, match="not JSON compliant"):
            files.write_json(tmp_path / "other", {"loss": number})
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_only_one_process_is_in_a_folder(tmp_path: Path) -> None:
    with files.only_process(tmp_path) as alone:
        assert alone
        with files.only_process(tmp_path) as second:
            assert not second
        with files.only_process(tmp_path) as third:  # the second has not freed what it did not have
            assert not third
    with files.only_process(tmp_path) as again:
        assert again


def test_a_file_system_without_locks_knows_of_no_other_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", _raise(errno.ENOLCK))
    with files.only_process(tmp_path) as alone:
        assert alone


TENSORS = {
    "matrix": torch.arange(6.0).reshape(2, 3),
    "strided": torch.arange(6.0).reshape(2, 3).T,
    "half": torch.ones(3, dtype=torch.bfloat16),
    "scalar": torch.tensor(3, dtype=torch.int64),
    "empty": torch.empty(0, 4),
    "flags": torch.tensor([True, False]),
}
ABOUT = {"loss": 0.1 + 0.2, "rows": [1, None, "ü"]}


def test_tensors_and_numbers_come_back(tmp_path: Path) -> None:
    data = tensor_file.pack(TENSORS, key="state", about=ABOUT)
    assert data == tensor_file.pack(dict(reversed(TENSORS.items())), key="state", about=ABOUT)
    (tmp_path / "file").write_bytes(data)
    tensors, about = tensor_file.read(tmp_path / "file", key="state")
    assert about == ABOUT
    assert tensors.keys() == TENSORS.keys()
    assert all(torch.equal(tensors[name], tensor) for name, tensor in TENSORS.items())
    assert all(tensors[name].dtype == tensor.dtype for name, tensor in TENSORS.items())


def test_another_file_of_tensors_is_refused(tmp_path: Path) -> None:
    for data in (b"", save({"a": torch.ones(2)}), save({"a": torch.ones(2)}, metadata={"state": '{"step": 3}'})):
        (tmp_path / "file").write_bytes(data)
        with pytest.raises(tensor_file.DAMAGE):
            tensor_file.read(tmp_path / "file", key="state")
