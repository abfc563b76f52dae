"""What each command prints, writes and exits with."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import Result

from softmax_bottleneck.cli.options import Memory

Bottleneck = Callable[..., Result]


def _json(done: Result) -> dict[str, object]:
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def test_rank_agrees_between_run_store_and_matrix(world: Path, bottleneck: Bottleneck) -> None:
    assert bottleneck("dump", "demo/runs/mos", "--out", "mos.zarr").exit_code == 0
    import zarr

    np.save("mos.npy", zarr.open_group("mos.zarr", mode="r")["log_probs"][:])
    reports = [_json(bottleneck("rank", source, "--json", "-")) for source in ("demo/runs/mos", "mos.zarr", "mos.npy")]
    run, store, matrix = (report["rank"] for report in reports)
    assert run == store
    # Of the matrix nobody knows the precision: a far larger drop than that at the tolerance may widen its interval.
    for key in ("value", "tolerance", "sigma_1", "sigma_next"):
        assert run[key] == matrix[key]  # type: ignore[index]
    assert [report["eps"]["assumed"] for report in reports] == [False, False, True]  # type: ignore[index]
    assert len({report["eps"]["dtype"] for report in reports}) == 1  # type: ignore[index]


def test_a_saved_spectrum_keeps_its_tolerance_and_bound(world: Path, bottleneck: Bottleneck) -> None:
    assert bottleneck("rank", "demo/runs/softmax", "--save-spectrum", "s.npz").exit_code == 0
    drawn = bottleneck("spectrum", "s.npz", "demo/runs/softmax", "--out", "f.pdf", "--style", "icml", "--log")
    assert drawn.exit_code == 0, drawn.stderr
    table = pd.read_csv("f.csv")
    saved, measured = (table[table["model"] == name].reset_index(drop=True) for name in ("s", "softmax"))
    pd.testing.assert_frame_equal(saved.drop(columns="model"), measured.drop(columns="model"))
    assert saved.groupby("part")["bound"].first().to_dict() == {"raw": 6, "row-centred": 5}
    bottleneck("spectrum", "s.npz", "--out", "g.svg", "--part", "raw")
    assert set(pd.read_csv("g.csv")["part"]) == {"raw"}


def test_strict_exits_with_three_only_when_indeterminate(world: Path, bottleneck: Bottleneck) -> None:
    size = np.arange(12)
    np.save("hilbert.npy", 1.0 / (size[:, None] + size + 1))
    np.save("clear.npy", np.random.default_rng(0).normal(size=(3, 9)))
    assert bottleneck("rank", "hilbert.npy", "--kind", "matrix", "--eps", "float32", "--strict").exit_code == 3
    assert bottleneck("rank", "hilbert.npy", "--kind", "matrix", "--eps", "float32").exit_code == 0
    assert bottleneck("rank", "clear.npy", "--kind", "matrix", "--strict").exit_code == 0


def test_eval_agrees_with_training(world: Path, bottleneck: Bottleneck) -> None:
    values = _json(bottleneck("eval", "demo/runs/moc", "--json", "-"))
    last = Path("demo/runs/moc/metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1]
    assert values["perplexity"] == pytest.approx(json.loads(last)["test_perplexity"], rel=1e-6)


def test_eval_refuses_a_corpus_that_changed(world: Path, tmp_path: Path, bottleneck: Bottleneck) -> None:
    text = tmp_path / "text"
    text.mkdir()
    for split in ("train", "valid", "test"):
        (text / f"{split}.txt").write_text("w1 w2 w3\n" * 9, encoding="utf-8")
    few = ["--set", "training.epochs=1", "--set", "training.batch_size=2", "--set", f"corpus={text}"]
    assert bottleneck("train", "--preset", "demo-softmax", "--out", "run", *few).exit_code == 0
    (text / "test.txt").write_text("w3 w2 w1\n" * 9, encoding="utf-8")
    for command in ("eval", "rank", "kld"):
        done = bottleneck(command, "run")
        assert done.exit_code == 1
        assert "its text has changed" in done.stderr
        assert bottleneck(command, "run", "--data", str(text)).exit_code == 0


def test_demo_writes_what_it_says(world: Path, bottleneck: Bottleneck) -> None:
    done = bottleneck("demo", "--out", "new")
    assert done.exit_code == 0, done.stderr
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()]
    assert rows[0][0] == "model"
    assert [row[0] for row in rows[2:]] == ["softmax", "moc", "mos", "lms-plif"]
    # Two epochs on random words leave singular values near the tolerance: the interval may be shown.
    ranks = [[row[4], *(cell.rpartition("(")[2].rstrip(")") for cell in row[5:7])] for row in rows[2:5]]
    assert ranks[:2] == [["6 (5)", "6", "5"]] * 2
    assert ranks[2][0] == "none"
    assert int(ranks[2][1]) > 6
    for name in ("cdf.png", "cdf.pdf", "cdf.csv", "reports/mos.json", "runs/lms-plif/COMPLETE"):
        assert (Path("new") / name).stat().st_size > 0
    assert "  bottleneck spectrum YOUR_LOGITS.npy --kind logits --out yours.pdf\n" in done.stderr
    assert bottleneck("demo", "--out", "new").stdout == done.stdout
    part = bottleneck("demo", "--models", "mos, softmax,", "--out", "new").stdout.splitlines()
    assert [re.sub(" +", " ", line) for line in part[2:]] == [
        re.sub(" +", " ", line) for line in done.stdout.splitlines() if re.match(r"\| (softmax|mos) ", line)
    ]
    assert "1.0 KiB allowed: raise --max-memory" in bottleneck("demo", "--out", "new", "--max-memory", "1KiB").stderr
    assert "demo has no model 'gss'; its models are softmax, moc, mos, lms-plif" in (
        bottleneck("demo", "--models", "mos,gss").stderr
    )
    assert "known families are demo, ptb-small" in bottleneck("demo", "--family", "huge").stderr
    assert "give their number, at least 1, with --seeds" in bottleneck("demo", "--set", "seed=7").stderr
    assert "choose them with --family" in bottleneck("demo", "--set", "head.name=gss").stderr
    assert "holds no reports" in bottleneck("demo", "--reports", "new").stderr


def test_demo_of_seeds_with_adaptive_scores(world: Path, bottleneck: Bottleneck) -> None:
    options = ["--out", "two", "--seeds", "2", "--adaptive", "--contexts", "60", "--set", "training.epochs=1"]
    done = bottleneck("demo", *options)
    assert done.exit_code == 0, done.stderr
    assert "± " in done.stdout
    names = sorted(head + seed for head in ("softmax", "moc", "mos", "lms-plif") for seed in ("", "-1"))
    assert sorted(path.stem for path in Path("two/reports").glob("*.json")) == names
    report = json.loads(Path("two/reports/mos-1.json").read_text(encoding="utf-8"))
    assert (report["seed"], report["report"]["contexts"]) == (1, 60)
    settings = json.loads(Path("two/runs/mos-1/config.json").read_text(encoding="utf-8"))
    assert (settings["seed"], settings["training"]["epochs"]) == (1, 1)
    assert "adaptive" not in report
    report = json.loads(Path("two/reports/mos.json").read_text(encoding="utf-8"))
    # The same numbers as of the command; dynamic evaluation has one λ for all heads, that of MoS on Penn Treebank.
    for how, given in (("dynamic", ["--decay", "0.075"]), ("cache", [])):
        alone = _json(bottleneck("eval", "two/runs/mos", f"--{how}", *given, "--json", "-"))
        assert report["adaptive"][how] == alone["perplexity"] != report["test_perplexity"]
        assert report["adaptive"]["settings"][how].items() <= alone["settings"].items()
    assert report["machine"]["cores"] == os.cpu_count()
    assert bottleneck("demo", "--reports", "two/reports").stdout == done.stdout
    one = bottleneck("demo", "--out", "one", "--contexts", "60", "--set", "training.epochs=1")
    assert one.exit_code == 0, one.stderr
    assert Path("one/cdf.csv").read_bytes() == Path("two/cdf.csv").read_bytes()  # of seed 0
    assert Path("one/runs/mos/model.safetensors").read_bytes() == Path("two/runs/mos/model.safetensors").read_bytes()


def test_demo_that_starts_from_another(world: Path, bottleneck: Bottleneck) -> None:
    """Each run from the weights of its own name and seed."""
    short = ["--contexts", "60", "--set", "training.epochs=1"]
    for seed in ("", "-1"):
        for head in ("softmax", "moc", "mos", "lms-plif"):
            shutil.copytree(f"demo/runs/{head}", f"first/{head}{seed}")
    done = bottleneck("demo", "--out", "next", "--initial", "first", "--seeds", "2", *short)
    assert done.exit_code == 0, done.stderr
    for name in ("softmax", "mos-1"):
        config = json.loads(Path(f"next/runs/{name}/config.json").read_text(encoding="utf-8"))
        assert config["initial"] == str(world / "first" / name)
    before, after = (Path(f"{folder}/mos/metrics.jsonl").read_text("utf-8") for folder in ("first", "next/runs"))
    best = min(json.loads(line)["valid_loss"] for line in before.splitlines()[:-1])
    assert json.loads(after.splitlines()[0])["valid_loss"] == pytest.approx(best, rel=1e-5)
    shutil.rmtree("first/moc")
    assert "there is no run folder" in bottleneck("demo", "--out", "other", "--initial", "first", *short).stderr


def test_presets_that_start_from_another(world: Path, bottleneck: Bottleneck) -> None:
    done = bottleneck("demo", "--family", "ptb-small-nt-asgd", "--out", "new")
    assert done.exit_code == 1
    assert "starts from a run of ptb-small-awd-softmax: give --initial DIR/runs" in done.stderr
    preset = "ptb-small-nt-asgd-mos"
    done = bottleneck("train", "--preset", preset, "--out", "new")
    assert done.exit_code == 1
    assert "add --set initial=RUN, with RUN a run of ptb-small-awd-mos" in done.stderr
    assert not Path("new").exists()
    listed = {
        row["name"]: row["command"] for row in _json(bottleneck("presets", "ptb-small-*mos", "--json", "-"))["presets"]
    }
    assert listed[preset].startswith(f"bottleneck train --preset {preset} --set initial=runs/ptb-small-awd-mos --out ")
    assert "initial" not in listed["ptb-small-awd-mos"]
    assert bottleneck("train", "--preset", preset, "--set", "initial=demo/runs/mos", "--out", "new").exit_code == 0


def test_the_commands_to_try_next_are_found(
    world: Path, bottleneck: Bottleneck, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `make demo`, the command lies in a virtual environment that is not activated."""
    monkeypatch.setattr(sys, "argv", [".venv/bin/bottleneck"])
    shutil.copytree("demo/runs", "my demo/runs")
    for path, program in (("", ".venv/bin/bottleneck"), (str(world / "bin"), "bottleneck")):
        monkeypatch.setenv("PATH", path)
        command = world / "bin/bottleneck"
        command.parent.mkdir(exist_ok=True)
        command.touch(mode=0o755)
        done = bottleneck("demo", "--out", "my demo", "--contexts", "20")
        assert f"\n  {program} rank 'my demo'/runs/lms-plif\n" in done.stderr


def test_doctor_sees_processes_that_crowd_each_other(
    world: Path, bottleneck: Bottleneck, monkeypatch: pytest.MonkeyPatch
) -> None:
    advice = "parallel measurements slow each other down"
    monkeypatch.setattr("softmax_bottleneck.cli.environment.cores", lambda: 4)
    for load, threads, says in ((9.0, 4, True), (9.0, 2, False), (3.0, 4, False)):
        monkeypatch.setattr("psutil.getloadavg", lambda load=load: (load, 0.0, 0.0))
        monkeypatch.setattr("torch.get_num_threads", lambda threads=threads: threads)
        assert (advice in bottleneck("doctor").stdout) is says


def test_an_interrupted_rank_says_what_is_kept(
    world: Path, bottleneck: Bottleneck, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("softmax_bottleneck.measure.computing.measure", interrupted)
    done = bottleneck("rank", "demo/runs/mos")
    assert done.exit_code == 130
    assert done.stderr.startswith("interrupted; no singular values are kept")


def test_doctor_finds_damage(world: Path, bottleneck: Bottleneck) -> None:
    assert "a complete run: mos head" in bottleneck("doctor", "demo/runs/mos").stdout
    bottleneck("dump", "demo/runs/mos", "--out", "mos.zarr")
    assert "a complete store" in bottleneck("doctor", "mos.zarr").stdout
    chunk = Path("mos.zarr/log_probs/c/0/0")
    data = bytearray(chunk.read_bytes())
    data[100] ^= 1
    chunk.write_bytes(bytes(data))
    done = bottleneck("doctor", "mos.zarr")
    assert done.exit_code == 1
    assert "chunk 0 of mos.zarr" in done.stderr
    assert bottleneck("doctor", "ptb.zip").exit_code == 1


def test_data(world: Path, bottleneck: Bottleneck) -> None:
    listed = _json(bottleneck("data", "list", "--json", "-"))["corpora"]
    assert {row["name"]: row["available"] for row in listed}["ptb"] is False  # type: ignore[attr-defined]
    assert "bottleneck data get ptb" in bottleneck("data", "path", "ptb").stderr
    place = bottleneck("data", "get", "ptb", "--from", "ptb.zip").stdout.strip()
    assert bottleneck("data", "path", "ptb").stdout.strip() == place
    assert (Path(place) / "train.txt").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["rank", "nowhere"], "nowhere is not a local folder"),
        (["rank", "demo"], "holds no run"),
        (["rank", "ptb.zip"], "cannot be measured: give"),
        (["rank", "demo/runs/mos", "--method", "factored"], "use --method auto"),
        (["rank", "demo/runs/mos", "--contexts", "100000"], "--contexts must be between 1 and"),
        (["rank", "demo/runs/mos", "--data", "nothing"], "is no corpus"),
        (["rank", "demo/runs/mos", "--eps", "float8"], "eps must be one of"),
        (["rank", "demo/runs/mos", "--method", "dense", "--max-memory", "1KiB"], "raise --max-memory"),
        (["dump", "demo/runs/mos", "--out", "ptb.zip/store.zarr"], "cannot write"),
        (["dump", "demo/runs/mos", "--out", "demo"], "holds no store"),
        (["spectrum", "demo/runs/mos", "--out", "f.gif"], "png, pdf, svg"),
        (["train", "--preset", "huge", "--out", "x"], "unknown preset 'huge'"),
        (["train", "--preset", "demo-mos", "--out", "x", "--set", "training.speed=9"], "unknown key 'training.speed'"),
        (["train", "--preset", "demo-mos", "--out", "x", "--set", "model.head.name=none"], "unknown head 'none'"),
        (["train", "--out", "x", "--set", "head.name=none"], "--set: unknown head 'none'"),
        (["train", "--preset", "demo-mos", "--out", "demo/runs/softmax"], "different configuration"),
        (["train", "--preset", "demo-mos", "--out", "x", "--resume"], "there is no run folder"),
        (["train", "--preset", "demo-mos", "--out", "ptb.zip/x"], "cannot write"),
        (["train", "--config", "nothing.json", "--out", "x"], "cannot read the configuration nothing.json"),
        (["data", "get", "everything"], "is no corpus that can be downloaded"),
        (["rank", "demo/runs/mos", "--json", "nowhere/r.json"], "there is no folder nowhere"),
        (["rank", "demo/runs/mos", "--save-spectrum", "nowhere/s.npz"], "there is no folder nowhere"),
        (["rank", "demo/runs/mos", "--save-spectrum", "demo"], "cannot write demo: it is a folder; name a file in it"),
        (["rank", "demo/runs/mos", "--save-spectrum", "s.txt"], "a spectrum's file ends in .npz; name it s.txt.npz"),
        (["rank", "nowhere", "--save-spectrum", "s"], "a spectrum's file ends in .npz; name it s.npz"),
        (["spectrum", "demo/runs/mos", "--out", "nowhere/f.png"], "there is no folder nowhere"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_sentence_and_exit_one(
    arguments: list[str], says: str, world: Path, bottleneck: Bottleneck
) -> None:
    done = bottleneck(*arguments)
    assert done.exit_code == 1
    assert done.stdout == ""
    [line] = [line for line in done.stderr.splitlines() if not line.startswith("dumping")]
    assert line.startswith("Error: ")
    assert says in line


def test_a_token_outside_the_vocabulary_is_named_with_file_and_line(world: Path, bottleneck: Bottleneck) -> None:
    other = Path("other")
    other.mkdir()
    for split in ("train", "valid", "test"):
        (other / f"{split}.txt").write_text("w1 w2\nw3 unheard\n", encoding="utf-8")
    done = bottleneck("eval", "demo/runs/mos", "--data", "other")
    assert done.exit_code == 1
    assert "line 2" in done.stderr
    assert "'unheard'" in done.stderr


def test_interrupted_training_says_so_and_continues(world: Path, folder_corpus: Path) -> None:
    settings = {"corpus": str(folder_corpus), "training": {"epochs": 500, "save_every": 5, "batch_size": 4}}
    Path("c.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "softmax_bottleneck", "train", "--config", "c.json", "--out", "run"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        deadline = time.monotonic() + 60
        while not list(Path("run/trainer_state").glob("step-*")) and time.monotonic() < deadline:
            assert process.poll() is None
            time.sleep(0.05)
        process.terminate()
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 143
    (state,) = Path("run/trainer_state").glob("step-*.safetensors")
    step = int(state.stem.removeprefix("step-"))
    stopped = f"interrupted; training stopped at step {step:,} of "
    assert errors.strip().splitlines()[-1].startswith(stopped)


def test_sizes_are_read_with_their_units() -> None:
    read = Memory()
    assert [read.convert(text, None, None) for text in ("8GiB", "500 MB", "1024", "1.5kib")] == [
        8 * 2**30,
        500_000_000,
        1024,
        1536,
    ]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MemoryError(), 1),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), 1),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), 1),
    ],
)
def test_out_of_memory_is_a_sentence(
    error: Exception, code: int, world: Path, bottleneck: Bottleneck, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("softmax_bottleneck.measure.rank", fails)
    done = bottleneck("rank", "demo/runs/mos")
    assert done.exit_code == code
    assert done.stderr.startswith("Error: out of memory: lower --max-memory")


def test_other_runtime_errors_are_not_swallowed(
    world: Path, bottleneck: Bottleneck, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("softmax_bottleneck.measure.rank", fails)
    assert isinstance(bottleneck("rank", "demo/runs/mos").exception, RuntimeError)
