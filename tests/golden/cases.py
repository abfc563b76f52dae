"""The commands of which golden records are kept, and what each record holds."""

from __future__ import annotations

from dataclasses import dataclass

TEXT = "--data corpus --dtype float64"


@dataclass(frozen=True)
class Case:
    """One command on small fixed inputs."""

    command: str
    """Arguments of ``bottleneck``; the last command line of several, each on its own line."""
    keys_only: bool = False
    """Record the types of values instead of the values, and no numbers of a text."""
    rtol: float = 1e-6
    """Relative tolerance of numbers."""
    atol: float = 1e-9
    """Absolute tolerance of numbers, for singular values that are roundoff."""
    out: str = ""
    """Glob of the files written by the command that are recorded."""


CASES = {
    "presets": Case("presets --json -"),
    "preset": Case("presets ptb-mos --json -"),
    "data-list": Case("data list --json -", keys_only=True),
    "data-path": Case("data path ptb"),
    "doctor-run": Case("doctor mos"),
    "eval": Case(f"eval mos {TEXT} --json -"),
    "eval-store": Case("eval mos.zarr --json -"),
    "eval-cache": Case(f"eval softmax {TEXT} --cache --json -"),
    "eval-dynamic": Case(f"eval softmax {TEXT} --dynamic --json -", rtol=1e-5),
    "eval-gpt2": Case("eval gpt2 --data text.txt --context-length 12 --json -", rtol=1e-4),
    "eval-n-gram": Case("eval kn3:corpus --json -"),
    "copy": Case("copy mos --out copied", out="copied/**/*"),
    "dump": Case("dump mos --data corpus --contexts 20 --out out.zarr", out="out.zarr/zarr.json"),
    "rank-run": Case(f"rank softmax {TEXT} --json -"),
    "rank-mos": Case(f"rank mos {TEXT} --json -"),
    "rank-details": Case(f"rank softmax {TEXT} --details", keys_only=True),
    "rank-hilbert": Case("rank hilbert.npy --kind matrix --eps 1e-5 --details", keys_only=True),
    "rank-store": Case("rank mos.zarr --json -"),
    "rank-npy": Case("rank logits.npy --kind logits --json -"),
    "rank-npz": Case("rank arrays.npz:b --kind matrix --json -"),
    "rank-csv": Case("rank matrix.csv --kind matrix --json -"),
    "rank-safetensors": Case("rank arrays.safetensors:a --kind matrix --method dense --json -"),
    "rank-spectrum": Case(
        "rank logits.npy --kind logits --json s.json --save-spectrum s.npz\nreport s.json --out page.html",
        out="page.html",
    ),
    "rank-n-gram": Case("rank kn3:corpus --json -"),
    "rank-gpt2": Case("rank gpt2 --data text.txt --context-length 12 --precise --json -", rtol=1e-4, atol=1e-6),
    "rank-gpt2-extended": Case(
        "rank gpt2 --data text.txt --context-length 12 --extended 12,3 --json -", keys_only=True
    ),
    "rank-gpt2-dry-run": Case("rank gpt2 --data text.txt --context-length 12 --dry-run --json -", keys_only=True),
    "rank-dry-run": Case("rank logits.npy --kind logits --dry-run --json -"),
    "rank-extended": Case(f"rank softmax {TEXT} --extended 12,3 --json -"),
    "rank-hidden-size": Case(f"rank softmax {TEXT} --estimate-hidden-size --json -"),
    "rank-tsqr": Case("rank logits.npy --kind logits --method tsqr --json -"),
    "rank-sketch": Case("rank logits.npy --kind logits --method sketch --width 12 --json -"),
    "rank-several": Case(f"rank softmax other=mos {TEXT} --json -"),
    "rank-table": Case(f"rank softmax other=mos {TEXT} --format csv", keys_only=True),
    "kld": Case(f"kld mos {TEXT} --json -"),
    "kld-pairs": Case("kld mos.zarr --pairs 50 --seed 3 --json -"),
    "kld-several": Case("kld mos.zarr softmax.zarr --json -"),
    "compare": Case(f"compare softmax mos {TEXT} --json -", rtol=1e-4, atol=1e-9),
    "compare-kld": Case("compare llama.cpp/base.kld llama.cpp/model.gguf llama.cpp/q5_0.gguf --json -", keys_only=True),
    "compare-kld-like": Case("compare llama.cpp/base.kld llama.cpp/q5_0.gguf --like-llama-cpp --json -", rtol=1e-4),
    "compare-top-k": Case("compare llama.cpp/answers.jsonl of-151.npy --kind logits --json -"),
    "rank-kld": Case("rank llama.cpp/base.kld --json -"),
    "identify-kld": Case("identify llama.cpp/base.kld llama.cpp/q5_0.gguf --json -", rtol=1e-3),
    "gradient": Case(f"gradient mos {TEXT} --json -"),
    "gradient-softmax": Case(f"gradient softmax {TEXT} --json -"),
    "gradient-gpt2": Case("gradient gpt2 --data text.txt --context-length 12 --json -", rtol=1e-4),
    "argmaxable-gpt2": Case("argmaxable gpt2 --workers 1 --json -"),
    "argmaxable": Case("argmaxable softmax --json -"),
    "head": Case("head gpt2 --json -"),
    "need": Case(f"need softmax {TEXT} --json -", rtol=1e-4),
    "need-train": Case(f"need softmax {TEXT} --ranks 2 --train --save o --json -", keys_only=True, out="o/*"),
    "dump-gpt2": Case(
        "dump gpt2 --data text.txt --context-length 12 --vocab tokenizer --out gpt2.zarr\neval gpt2.zarr --json -",
        rtol=1e-4,
    ),
    "head-run": Case("head mos --json -"),
    "synthetic": Case(
        "synthetic --vocab 8 --dim 2 --models softmax,mos --contexts 12 --seeds 1 --cycles 1 --rounds 1 --processes 1 "
        "--out syn --json -",
        keys_only=True,
        out="syn/**/*.*",
    ),
    "train": Case("train --config tiny.toml --out run --device cpu", rtol=1e-4, out="run/*.json*"),
    "spectrum": Case("spectrum mos.zarr softmax.zarr --out f.svg", out="f.*"),
    "report": Case("report mos.zarr softmax.zarr --pairs 20 --examples 1 --out page.html", out="page.html"),
    "figures": Case(
        "demo --set corpus=corpus --set training.epochs=1 --models softmax --contexts 20 --out demo\n"
        "figures --all --format csv --results demo/reports --out drawn",
        keys_only=True,
        out="d*/*.*",
    ),
    "bench-heads": Case("bench heads --only softmax --shrink 100 --json -", keys_only=True),
    "strict": Case("rank hilbert.npy --kind matrix --eps float32 --strict --json -"),
    "demo": Case(
        "demo --set corpus=corpus --set training.epochs=1 --models mos --contexts 20 --out demo", keys_only=True
    ),
    "failure": Case("rank nowhere"),
    "usage": Case("rank logits.npy --kind letters"),
}
