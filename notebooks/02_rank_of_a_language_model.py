# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The rank of a language model
#
# You will learn
#
# * how to train small language models on the built-in corpus, without a download;
# * how to read a rank report: the bound, the tolerance, the margin, the certificate;
# * why a rank without a margin says little.
#
# The four output layers are Softmax; MoC, a mixture of contexts; MoS, a mixture of softmaxes; and LMS-PLIF, a softmax
# over a learned increasing function of the logits (LMS: linear monotonic softmax; PLIF: piecewise linear increasing
# function; Ganea et al. 2019).

# %%
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import seaborn
from matplotlib import pyplot as plt

import softmax_bottleneck as sb

folder = Path(mkdtemp())
HEADS = ["softmax", "moc", "mos", "lms-plif"]
looks = plt.cycler(color=seaborn.color_palette("colorblind", 4)) + plt.cycler(linestyle=["-", "--", "-.", ":"])
plt.rc("axes", prop_cycle=looks)

# %% [markdown]
# ## Train four output layers
#
# The presets `demo-*` train an LSTM (long short-term memory network) on the text of Python's own documentation:
# $M = 2{,}649$ words, embedding size $d = 24$. They take six epochs; one is enough here, because a bound from algebra
# holds for every choice of weights.

# %%
runs = {}
for name in HEADS:
    config = sb.training.PRESETS[f"demo-{name}"].config.replace(training={"epochs": 1})
    runs[name] = sb.training.fit(config, folder / name)
    print(f"{name:9} validation perplexity {runs[name].valid_perplexity:.1f}")

# %% [markdown]
# ## Measure
#
# `sb.rank` runs the model over the test split, forms the matrix of log-probabilities $A$ block by block (one row a
# context, one column a token), and decomposes it. We take 1,200 contexts to be quick.

# %%
reports = {
    name: sb.rank(run.path, contexts=1200, method="factored" if name in ("softmax", "moc") else "gram")
    for name, run in runs.items()
}
reports["softmax"]

# %% [markdown]
# The Softmax's rank is exactly its bound: $d$ directions of the hidden states, one for the output bias, one for the
# log-partition $\log Z$, which is $d + 2 = 26$; row-centred, without the last, 25. MoC mixes the hidden states *before*
# the softmax, so it has the same bound. The other two have none.

# %%
table = sb.frame(reports.values(), full=True)
table.index = HEADS
table[
    [
        "bound.raw",
        "rank.low",
        "rank.value",
        "rank.high",
        "rank_centered.low",
        "rank_centered.value",
        "rank_centered.high",
        "rank.determinate",
    ]
]

# %% [markdown]
# ## The spectra
#
# A rank is one number read off a whole spectrum. Here are all singular values, over the largest. The dashed line is the
# tolerance, and the band covers tolerances ten times larger and smaller.

# %%
sb.RankReports(report.named(name) for name, report in reports.items()).plot()
plt.show()

# %% [markdown]
# Softmax and MoC fall off a **cliff** at 26: ten or a thousand times more tolerance gives the same rank. MoS and
# LMS-PLIF slide down a **slope**: wherever you put the tolerance, it cuts somewhere.
#
# ## What the tolerance does
#
# Press's rule counts the singular values above the roundoff that is expected of a matrix of this size,
# $\frac12 \sqrt{T + M + 1}\, \sigma_1 \varepsilon$, with the $\varepsilon$ of the least precise step that made the
# numbers. NumPy's rule is $\max(T, M)\, \sigma_1 \varepsilon$, far larger.

# %%
factors = np.logspace(-2, 3, 200)
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for name, report in reports.items():
    ranks = [np.count_nonzero(report.spectrum.values > factor * report.rank.tolerance) for factor in factors]
    ax.loglog(factors, ranks, label=f"{name}: {report.rank}")
ax.axvspan(0.1, 10, color="0.9", zorder=0)
ax.set(xlabel="tolerance over Press's", ylabel="rank", title="In the grey band, a determinate rank is flat")
ax.legend(fontsize="small")
plt.show()

# %%
table[["rank_by_rule.press", "rank_by_rule.numpy", "rank_by_rule.gap"]]

# %% [markdown]
# ## Why a rank needs a margin
#
# A report therefore holds an interval, `low` to `high`, for tolerances ten times larger and smaller. `determinate`
# means that the interval is one number. For MoS the raw rank is *indeterminate*: an honest report is an interval. The
# row-centred rank is usually firmer, because the raw matrix has one huge singular value, along the vector of all ones,
# that makes the tolerance large and hides directions behind it.

# %%
figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
for place, report in enumerate(reports.values()):
    for offset, rank, marker in ((-0.12, report.rank, "o"), (0.12, report.rank_centered, "s")):
        ax.hlines(place + offset, rank.low, rank.high, color=f"C{place}", linewidth=3, alpha=0.4)
        ax.plot(rank.value, place + offset, marker, color=f"C{place}")
ax.set_yticks(range(len(HEADS)), HEADS)
ax.invert_yaxis()
ax.set(xscale="log", xlabel="rank (circle: raw, square: row-centred) and its interval")
plt.show()

# %% [markdown]
# ## The certificate
#
# No decomposition is taken at its word. The sum of the squared singular values must equal the squared Frobenius norm
# of the matrix, which is summed apart while the rows stream by.

# %%
table[["method", "certificate.frobenius_relative_error", "certificate.error"]]

# %% [markdown]
# **Next:** [what each way of breaking the bottleneck does to the spectrum](03_breaking_it.ipynb).
