"""What a user writes: `make types` checks that a strict type checker accepts it, but for the two wrong names."""

from pathlib import Path

import numpy as np
import torch
from torch import nn

import softmax_bottleneck as sb
from softmax_bottleneck.integrations import training_statistics
from softmax_bottleneck.training import PRESETS

source: sb.Source = sb.open("runs/mos", contexts=5000, dtype="float64")
report: sb.RankReport = sb.rank(source, max_memory="1GiB", width=100, estimate_hidden_size=True)
value: int = report.rank.value
score: float = sb.perplexity("runs/mos", how="cache", settings={"window": 100}, split="valid").perplexity
divergence: float = sb.kld("runs/mos", pairs=1000, seed=1, split="valid").kld
store: Path = sb.dump("runs/mos", "mos.zarr", device="cpu")
spectrum: sb.Spectrum = sb.singular_values(np.eye(3), method="dense")
rank: int = sb.numerical_rank(spectrum.values, shape=(3, 3), eps="float32").value
sb.rank(nn.Linear(3, 4), hidden=torch.randn(5, 3), targets=[1, 2, 3, 0, 1])
sb.gradient("runs/mos", sample=3).to_frame()
sb.compare("runs/mos", "runs/softmax", examples=3, stride=3).to_dict()
sb.rank("gpt2", context_length=64, stride=32, bos="off")
head: sb.heads.Head = sb.heads.MoS(hidden_size=5, vocab_size=7, components=2)
loss: torch.Tensor = head.nll(torch.randn(2, 5), torch.tensor([1, 2]))
table = sb.frame([report, sb.kld(source)])
never_trained = sb.head("gpt2", revision="main").rows_found.never_trained
sb.head_statistics(nn.Linear(3, 4).weight).weight.energy(0.9)
numbers: dict[str, float] = training_statistics(head, torch.randn(9, 5))
run = sb.checkpoint.load(Path("runs/mos"))
config = PRESETS["demo-mos"].config.replace(training={"epochs": 1})
result: sb.Result = report
reports: sb.RankReports = sb.rank(["MoS=runs/mos", "runs/softmax"], device="cpu")
kept: list[float] = [result.kept for result in sb.gradient(["runs/mos", "runs/softmax"], sample=3)]
latex: str = reports.to_latex(columns=["d", "rank"])
sb.rank("runs/mos", context=3)  # type: ignore[call-overload]
sb.kld("runs/mos", pears=3)  # type: ignore[call-overload]
