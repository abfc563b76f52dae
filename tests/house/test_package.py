"""The package map, the name guard, lazy imports, and the built wheel."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FOLDERS = {"softmax_bottleneck": "bottleneck", "softmax_bottleneck.cli": "cli", "softmax_bottleneck.figures": "figures"}


def _python(code: str, *options: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *options, "-c", code], cwd=cwd, capture_output=True, text=True, check=False)


def test_the_listed_packages_are_the_folders_on_disk() -> None:
    found = []
    for package, folder in FOLDERS.items():
        for file in (ROOT / folder).rglob("__init__.py"):
            found.append(".".join([package, *file.parent.relative_to(ROOT / folder).parts]))
    assert sorted(SETTINGS["tool"]["setuptools"]["packages"]) == sorted(found)
    assert all(
        (file.parent / "__init__.py").exists() for folder in FOLDERS.values() for file in (ROOT / folder).rglob("*.py")
    )
    assert SETTINGS["tool"]["setuptools"]["package-dir"] == FOLDERS


def test_the_source_folder_refuses_to_be_the_other_bottleneck() -> None:
    done = _python("import bottleneck", cwd=ROOT)
    assert done.returncode != 0
    assert done.stderr.strip().splitlines()[-1].startswith("ImportError: This folder is the source of the package")


def test_pandas_and_seaborn_import_at_the_repository_root() -> None:
    # pandas looks for PyPI's Bottleneck and would find this repository's folder. The one filter is seaborn's own:
    # it reads a pandas option that pandas 3 deprecates.
    done = _python(
        "import sys, warnings, pandas; assert sys.path[0] == ''; import seaborn;print(pandas.Series([1.0, 3.0]).std())",
        "-W",
        "error",
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1.414")


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = (
        "import sys, softmax_bottleneck; "
        "print([m for m in ('torch', 'matplotlib', 'numpy', 'zarr', 'pandas') if m in sys.modules])"
    )
    assert _python(code).stdout.strip() == "[]"


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    import softmax_bottleneck

    assert set(softmax_bottleneck.__all__) <= set(dir(softmax_bottleneck))
    with pytest.raises(AttributeError, match="nonsense"):
        _ = softmax_bottleneck.nonsense


def test_constraints_pin_every_dependency_exactly() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in lines if "==" in line}
    extras = SETTINGS["project"]["optional-dependencies"]
    wanted = [*SETTINGS["project"]["dependencies"], *extras["test"], *extras["notebooks"], *extras["docs"]]
    names = {item.split(">")[0].split("[")[0].lower() for item in wanted}
    assert names - {"softmax-bottleneck"} <= pinned
    assert "torch==2.13.0" in lines


def test_the_lowest_versions_are_the_lower_bounds() -> None:
    lines = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8").splitlines()
    lowest = dict(line.split("==") for line in lines if "==" in line and "  # needed by" not in line)
    bounds = dict(item.split(">=") for item in SETTINGS["project"]["dependencies"])
    assert lowest.keys() == bounds.keys()
    for name, bound in bounds.items():
        assert re.fullmatch(rf"{re.escape(bound)}(\.0)*", lowest[name]), name


def test_the_version_is_written_once() -> None:
    import softmax_bottleneck

    assert SETTINGS["project"]["dynamic"] == ["version"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {softmax_bottleneck.__version__}\n" in citation


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built wheel in an empty environment; its dependencies are lent by this one."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True)
    environment = folder / "venv"
    venv.create(environment, with_pip=False)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(environment), "platbase": str(environment)}))
    install = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python")]
    [wheel] = folder.glob("*.whl")
    subprocess.run([*install, "install", "--quiet", "--no-deps", str(wheel)], check=True, capture_output=True)
    # A folder named in a .pth file is searched last, and .pth files inside it are not read: the editable install
    # of this checkout stays out.
    (site / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return environment


def test_the_wheel_holds_every_module_and_its_command_answers(installed: Path, tmp_path: Path) -> None:
    code = (
        "import importlib, pkgutil, softmax_bottleneck as sb\n"
        "names = [m.name for m in pkgutil.walk_packages(sb.__path__, 'softmax_bottleneck.')]\n"
        "for name in names:\n"
        "    if not name.endswith('__main__'): importlib.import_module(name)\n"
        "print(sb.__file__, *names, sep='\\n')"
    )
    python = installed / "bin" / "python"
    done = subprocess.run([python, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    place, *names = done.stdout.splitlines()
    assert place.startswith(str(installed))
    assert {"softmax_bottleneck.cli.rank", "softmax_bottleneck.figures.spectra"} <= set(names)
    assert (Path(place).parent / "py.typed").exists()
    for command in ([installed / "bin" / "bottleneck"], [python, "-m", "softmax_bottleneck"]):
        done = subprocess.run([*command, "--version"], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout.strip().startswith("bottleneck, version ")


def test_nothing_large_is_committed() -> None:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if done.returncode != 0:
        pytest.fail("this test needs a git checkout")
    files = [ROOT / os.fsdecode(name) for name in done.stdout.split(b"\0") if name]
    assert [str(file) for file in files if file.exists() and file.stat().st_size > 1_000_000] == []
