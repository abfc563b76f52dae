"""What `make test` does on a machine without a browser."""

from __future__ import annotations

import pytest

import browser


def test_a_browser_is_installed_or_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Playwright is asked first, then apt, and only where nothing is found."""
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(browser, "find", lambda: "/usr/bin/x" if ("apt-get", "update") in commands[-2:] else None)
    monkeypatch.setattr(browser, "_run", lambda *command: commands.append(command[-4:]))
    monkeypatch.setattr(browser.os, "geteuid", lambda: 0)
    monkeypatch.setattr(browser.shutil, "which", lambda name: name if name == "apt-get" else None)
    assert browser.found_or_installed() == "/usr/bin/x"
    assert [command[-1] for command in commands] == ["chromium", "update", "chromium"]
    assert browser.found_or_installed() == "/usr/bin/x"
    assert len(commands) == 3
    monkeypatch.setattr(browser, "find", lambda: None)
    with pytest.raises(SystemExit, match="need Chromium, Chrome or Edge, and none could be installed: install one"):
        browser.found_or_installed()
