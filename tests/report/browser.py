"""The browser that opens pages in tests: one that is there, or one that is installed for them.

``python tests/report/browser.py`` prints where it is, and installs it first where that is needed and possible.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge", "msedge", "chrome")
PROGRAMS = (
    "Google/Chrome/Application/chrome.exe",
    "Chromium/Application/chrome.exe",
    "Microsoft/Edge/Application/msedge.exe",
)
FOLDERS = [os.environ[name] for name in ("PROGRAMFILES", "PROGRAMFILES(X86)", "LOCALAPPDATA") if name in os.environ]
PLACES = [
    *(f"/Applications/{name}.app/Contents/MacOS/{name}" for name in ("Chromium", "Google Chrome", "Microsoft Edge")),
    *(str(Path(folder) / program) for folder in FOLDERS for program in PROGRAMS),
]
"""Where macOS and Windows have browsers."""
MISSING = (
    "the tests of pages need Chromium, Chrome or Edge, and none could be installed: install one (on Debian 'apt-get "
    "install chromium', elsewhere 'playwright install chromium') and run 'make test' again"
)


def find() -> str | None:
    """Return the path of a browser of the system, or of Playwright; ``None`` without one."""
    for program in (*map(shutil.which, NAMES), *PLACES):
        if program and Path(program).exists():
            return program
    with sync_playwright() as started:
        own = started.chromium.executable_path
    return own if Path(own).exists() else None


def install() -> None:
    """Install a browser by Playwright, or where its download is out of reach by apt; both may fail."""
    _run(sys.executable, "-m", "playwright", "install", "chromium")
    if find() is None and shutil.which("apt-get"):
        root = [] if os.geteuid() == 0 else ["sudo", "-n"]
        _run(*root, "apt-get", "update")
        _run(*root, "apt-get", "install", "-y", "--no-install-recommends", "chromium")


def _run(*command: str) -> None:
    try:
        subprocess.run(command, stdout=sys.stderr, check=False, timeout=900)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(error, file=sys.stderr)


def found_or_installed() -> str:
    """Return the path of a browser, installed if there was none; `SystemExit` with a sentence without one."""
    if find() is None:
        print("no browser was found; one is installed for the tests of pages", file=sys.stderr)
        install()
    return find() or sys.exit(MISSING)


if __name__ == "__main__":
    print(found_or_installed())
