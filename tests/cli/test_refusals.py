"""Commands that cannot be carried out: one sentence, its exit code, nothing printed, and no file or folder made."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest

from softmax_bottleneck import rank
from softmax_bottleneck.cli import explained
from softmax_bottleneck.spectrum import write_spectra

from .conftest import Bottleneck

GRID = "synthetic --processes 1 --vocab 12 --dim 2,3 --contexts 20 --models softmax,lms --seeds 2 --cycles 1 --rounds 0"
REFUSED = [
    ("rank nowhere", 1, "nowhere is not a local folder"),
    ("gradient demo/runs", 1, "give one of demo/runs/lms-plif, demo/runs/moc, demo/runs/mos, demo/runs/softmax"),
    ("rank text.txt", 1, "is a text, not a model: name a model, and give the text with --data"),
    ("rank demo/runs/sofmtax", 1, "; did you mean demo/runs/softmax?"),
    ("rank ptb.zip", 1, "cannot be measured: give"),
    ("rank absent.npy", 1, "the file absent.npy does not exist"),
    ("rank m.csv.gz", 1, "m.csv.gz is compressed: decompress it, by gunzip, and give the file"),
    ("rank absent.zarr", 1, "the store absent.zarr does not exist; 'bottleneck dump RUN --out"),
    (
        "rank demo:logits.zarr",
        1,
        "demo:logits.zarr does not exist: name an array of a group by its path, demo/logits.zarr",
    ),
    ("rank demo/runs/mos --data ids.bin", 1, "np.fromfile('ids.bin', np.uint16)) makes"),
    ("doctor other", 1, "other is a corpus of your own, of whose files no checksum is known"),
    ("rank m.json", 1, "m.json is a saved result, not a model or a matrix"),
    ("rank memory://absent.zarr", 1, "memory://absent.zarr cannot be read (No group"),
    *(
        (f"rank https://x/m{suffix}", 1, "is not a Zarr array or store, all that is read at a URL")
        for suffix in (".npy", ".gguf", ".kld", ".json")
    ),
    ("rank nosuch://bucket/a.zarr", 1, "nosuch://bucket/a.zarr cannot be read (Protocol not known"),
    (
        "rank m.npy --context-length 3",
        1,
        "--context-length does not apply to a file of a matrix (m.npy), which takes --",
    ),
    ("rank m.npy --method tsvd", 2, "unknown method 'tsvd'"),
    ("rank kn3:other --contexts 1000", 1, "contexts must be between 1 and 5, the contexts of"),
    ("rank kn3:other --stride 3", 1, "--stride does not apply to an n-gram model"),
    ("report demo/runs/mos --out page.html --reference m.np", 2, "--reference m.np is not among the sources"),
    ("rank demo/runs/mos --method factored", 1, "use --method auto"),
    ("rank demo/runs/mos --contexts 100000", 1, "--contexts must be between 1 and"),
    ("rank demo/runs/mos --data nothing", 1, "'nothing' is not a corpus"),
    ("rank demo/runs/mos --method dense --max-memory 1KiB", 1, "raise --max-memory"),
    ("rank demo/runs/mos --json nowhere/r.json", 1, "the folder nowhere does not exist"),
    ("rank demo/runs/mos --save-spectrum demo", 1, "cannot write demo: it is a folder; name a file in it"),
    ("rank nowhere --save-spectrum s", 1, "a saved spectrum ends in .npz; name it s.npz"),
    ("rank m.npy --json one.npz --save-spectrum ./one.npz", 1, "one.npz: another result goes there; name another file"),
    ("rank", 2, "Missing argument"),
    ("rnk m.npy", 2, "did you mean 'rank'?"),
    ("rank m.npy --contexts many", 2, "'many' is not a valid whole number"),
    *(
        (line, 2, f"{line.split()[2][2:].replace('-', '_')} must be ")
        for line in (
            "compare m.npy --max-kl -1 m.npy",
            "compare m.npy --min-agreement 1.5 m.npy",
            "compare m.npy --max-ppl-ratio nan m.npy",
            "compare m.npy --temperature 0 m.npy",
            "compare m.npy --examples -1 m.npy",
            "kld m.npy --pairs 1",
            "kld m.npy --seed -1 --pairs 9",
            "need m.npy --ranks 4,0",
            "argmaxable m.npy --limit 0",
            "rank m.npy --eps 2",
        )
    ),
    ("rank m.npy --max-memory lots", 2, "'lots' is not a size; write it as 8GiB"),
    ("rank m.npy --max-memory 5", 2, "5 bytes are too few: did you mean 5GiB?"),
    ("rank m.npy --dry-run --save-spectrum new.npz", 2, "--dry-run measures nothing"),
    ("rank m.npy --device nonsense", 2, "unknown device 'nonsense'; known devices are"),
    ("eval demo/runs/mos --learning-rate 1", 2, "--learning-rate goes with --dynamic"),
    ("rank x=a.npy x=b.npy", 2, "the label 'x' stands for 2 sources"),
    ("kld m.npy --contexts 1", 1, "m.npy has one context, and a divergence is of pairs: measure two"),
    ("kld m.npy --seed 7", 2, "--seed is that of random pairs: give --pairs N as well"),
    ("compare m.npy", 2, "the command takes 2 sources or more, not 1; see 'bottleneck compare --help'"),
    ("compare m.npy 'm.npy --hed W'", 2, "'--help'?); see 'bottleneck compare --help'"),
    ("eval m.npy", 1, "targets=… in Python or token_ids in their file"),
    ("eval demo/runs/mos --data other", 1, "line 2"),
    ("eval demo/runs/mos --contexts 50 --dynamic", 1, "takes a whole split: leave out --contexts"),
    ("eval kn3:other --cache", 1, "cache evaluation takes a run"),
    ("eval demo/runs/mos --dynamic --cache", 2, "one of --dynamic and --cache"),
    ("dump demo/runs/mos --out demo", 1, "does not hold a store"),
    ("spectrum demo/runs/mos --out f.gif", 1, "a figure ends in .png, .pdf, .svg; name it f.gif.png"),
    ("spectrum s.npz --contexts 3 --out o.png", 2, "contexts: saved results were measured before"),
    ("report demo/reports --out page.pdf", 1, "a report ends in .html, .htm; name it page.pdf.html"),
    ("report demo/reports --out demo/reports/page.html", 1, "it is part of what is read, demo/reports"),
    ("report --out page.html", 2, "Missing argument"),
    ("doctor ptb.zip", 1, "neither a run folder"),
    ("doctor damaged", 1, "damaged/config.json is damaged"),
    (f"rank {'L' * 300}=absent.npy", 1, "the file absent.npy does not exist"),
    ("train --out x --set trainig.epochs=3", 1, "did you mean 'training."),
    ("data get everything", 1, "everything"),
    ("data get smolm2", 1, "by its path; did you mean 'smollm2'?"),
    ("presets demo-mso", 1, "; did you mean 'demo-mos'?"),
    ("train --preset mos", 1, " and 71 others; did you mean 'demo-mos'?"),
    ("rank m.npy --norm n.npy", 1, "which takes --kind, --contexts; for hidden states, give --head"),
    ("train --preset demo-mos --out x --set epochs=1", 1, "did you mean 'training.epochs'?"),
    ("train --out x --set head.name=none", 1, "--set: unknown head 'none'"),
    ("train --preset demo-mos --out demo/runs/softmax", 1, "different configuration"),
    ("train --preset ptb-small-nt-asgd-mos --out x", 1, "add --set initial=RUN, with RUN a run of ptb-small-awd-mos"),
    ("train --out x", 2, "give one of --preset NAME, --config FILE and --finetune RUN"),
    ("train --preset demo-mos", 2, "Missing option '--out'"),
    ("demo --models mos,gss", 1, "demo has no model 'gss'; its models are softmax, moc, mos, lms-plif"),
    ("demo --set seed=7", 1, "give their number, at least 1, with --seeds"),
    ("demo --set head.name=gss", 1, "choose them with --family"),
    ("demo --reports demo", 1, "demo/x.json is not a result; name a folder of the demo's reports"),
    ("demo --family ptb-small-nt-asgd", 1, "starts from a run of ptb-small-awd-softmax: give --initial DIR/runs"),
    ("demo --reports demo/reports --contexts 3", 2, "--reports only prints a table: leave out --contexts"),
    ("figures mos-fig-1 --out x", 1, " others; did you mean 'mos-figure-1'?"),
    ("figures --all --results empty --out x", 1, "empty holds no results; 'bottleneck demo'"),
    ("figures --results demo/reports --gallery demo/reports/mos.json", 1, "a gallery ends in .md"),
    ("data get smollm2 --url http://127.0.0.1/x", 2, "read from one --from PATH, and from no --url"),
    ("rank demo/runs/mos --dry-run --plot p.png", 2, "--dry-run measures nothing, so --save-spectrum, --plot"),
    ("eval demo/runs/mos --dynamic --epsilon inf", 1, "needs a finite learning rate and epsilon above 0"),
    ("figures --out x", 2, "give figures, by NAME or with --all"),
    ("figures", 2, "or --readme or --gallery"),
    (f"{GRID} --launcher slurm", 1, "cannot be submitted to Slurm from here"),
    (f"{GRID} --launcher slurm --slurm x", 2, "'x' has no '='"),
    (f"{GRID} --slurm timeout_min=5", 2, "--slurm goes with --launcher slurm"),
    (f"{GRID} --alpha 0", 2, "alpha must lie between"),
    (f"{GRID} --vocab ten", 2, "'ten' is not a list of whole numbers"),
]


@pytest.mark.parametrize(("line", "code", "sentence"), REFUSED, ids=[f"{line}: {said}" for line, _, said in REFUSED])
def test_a_refusal(line: str, code: int, sentence: str, world: Path, bottleneck: Bottleneck) -> None:
    for split in ("train", "valid", "test"):
        (world / "other").mkdir(exist_ok=True)
        Path(f"other/{split}.txt").write_text("w1 w2\nw3 unheard\n", encoding="utf-8")
    Path("empty").mkdir()
    Path("damaged").mkdir()
    Path("damaged/config.json").touch()
    Path("demo/x.json").write_text("{}")
    Path("m.csv.gz").touch()
    Path("ids.bin").write_bytes(b"\0\1\2\3")
    Path("m.json").write_text('{"kind": "perplexity", "version": "0.1.0"}')
    np.save("m.npy", np.log(np.full((5, 4), 0.25)))
    write_spectra(Path("s.npz"), [rank("m.npy").saved_spectrum])
    before = {*world.iterdir()}
    done = bottleneck(*shlex.split(line))
    assert (done.exit_code, done.stdout) == (code, ""), done.stderr
    (error,) = [each for each in done.stderr.splitlines() if each.startswith("Error: ")]
    assert sentence in error
    assert done.stderr.splitlines()[-1] == error
    assert {*world.iterdir()} - {world / "synthetic"} == before


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
        RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"),
    ],
)
def test_out_of_memory_is_a_sentence(error: Exception) -> None:
    code, sentence = explained(error)
    assert (code, sentence.startswith("out of memory: lower --max-memory")) == (1, True)


def test_a_mistake_in_the_code_is_not_hidden() -> None:
    with pytest.raises(RuntimeError, match="a bug"):
        explained(RuntimeError("a bug"))
