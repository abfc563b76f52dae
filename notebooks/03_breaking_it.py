# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Breaking it, and what that is worth
#
# You will learn
#
# * what a mixture (MoS), Sigsoftmax and a piecewise linear increasing function (PLIF) each do to the spectrum;
# * that a *random* function on the logits of a finished model raises its rank as well;
# * that a high rank is room, and room is not quality.

# %%
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import seaborn
import torch
from matplotlib import pyplot as plt
from torch.nn.functional import logsigmoid

import softmax_bottleneck as sb

_ = torch.manual_seed(0)
seaborn.set_palette("colorblind")

# %% [markdown]
# ## One trained Softmax, taken apart
#
# We train one small model and keep its context vectors $H$ and output embeddings $W$. Then we change only what happens
# to the logits $x = HW^\top + b$.

# %%
config = sb.training.PRESETS["demo-softmax"].config.replace(training={"epochs": 2})
run = sb.training.fit(config, Path(mkdtemp()) / "softmax")
source = sb.open(run.path, contexts=1200)
hidden = torch.cat(list(source.hidden(source.ranges())))  # what the LSTM gives for each context
targets = torch.as_tensor(source.targets)
with torch.no_grad():
    H = source.head.scores(hidden).linear.contexts  # the context vectors, projected to the embedding size
    logits = H @ source.head.weight.T + source.head.bias
print(f"{len(H):,} contexts, d = {H.shape[1]}, {logits.shape[1]:,} tokens")


# %%
def measured(logits):
    """Return the rank report and the perplexity of a softmax over these logits."""
    log_prob = torch.log_softmax(logits, -1)
    perplexity = torch.exp(-log_prob[torch.arange(len(targets)), targets].mean()).item()
    return sb.rank(log_prob.numpy(), eps="float32", method="gram"), perplexity


def draw_spectra(reports):
    """Draw the singular values over the largest, with the tolerance, and each rank in the legend."""
    sb.RankReports(report.named(f"{name}: {report.rank}") for name, report in reports.items()).plot()
    plt.show()


# %% [markdown]
# ## Three functions on the same logits
#
# * Softmax: $f(x) = x$. Rank at most $d + 2$.
# * Sigsoftmax (Kanai et al. 2018): $f(x) = x + \log\sigma(x)$. For very negative $x$ it is almost the line $2x$, so it
#   is only a nonlinearity where logits are near zero. The same logits, moved by a constant, show this.
# * PLIF (Ganea et al. 2019): a piecewise linear increasing function with thousands of pieces. Here its slopes are
#   **random and frozen**: nothing is learned.

# %%
random_plif = sb.heads.build("lms-plif", hidden_size=24, vocab_size=10, knots=10_000).function
with torch.no_grad():
    results = {
        "softmax": measured(logits),
        "sigsoftmax": measured(logits + logsigmoid(logits)),
        "sigsoftmax, logits − 8": measured(logits - 8 + logsigmoid(logits - 8)),
        "random PLIF": measured(random_plif(logits)),
    }
draw_spectra({name: report for name, (report, _) in results.items()})

# %%
for name, (report, perplexity) in results.items():
    print(
        f"{name:24} rank {report.rank!s:>22}   row-centred {report.rank_centered!s:>22}   perplexity {perplexity:7.1f}"
    )

# %% [markdown]
# The random PLIF has by far the largest rank of the four. It has not learned anything, and its perplexity is *worse*
# than that of the Softmax it was put on. Both statements are about the same matrix. (Sigsoftmax's perplexity is high
# because these logits were not trained for it: for negative logits its slope is 2.)
#
# ## A mixture of softmaxes
#
# MoS mixes probabilities: $\log \sum_k \pi_k \exp(\cdot)$ of $K$ linear functions is not linear. We can see what the
# number of components does without any training, on random weights with $d = 8$ and the same context vectors; one
# component is a softmax.

# %%
mixtures = {}
for components in (1, 2, 5, 15):
    head = sb.heads.MoS(hidden_size=24, vocab_size=1000, embedding_size=8, components=components)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.normal_(0, 1)
    mixtures[f"K = {components}"] = sb.rank(head, hidden=H, method="dense")
draw_spectra(mixtures)

# %% [markdown]
# ## A high rank does not mean better predictions
#
# How much room is needed? Take the trained Softmax and give it a PLIF whose slopes deviate from 1 by more and more
# noise. The rank grows by orders of magnitude while the predictions hardly change, and then they get worse.

# %%
levels = [0.0, 0.01, 0.03, 0.1, 0.3, 1.0]
curve = []
for noise in levels:
    torch.manual_seed(1)
    plif = sb.heads.build("lms-plif", hidden_size=24, vocab_size=10, knots=10_000, noise=noise).function
    with torch.no_grad():
        report, perplexity = measured(plif(logits))
    curve.append((report.rank.low, report.rank.value, report.rank.high, perplexity))
low, value, high, perplexity = np.array(curve).T

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
left.fill_between(range(len(levels)), low, high, alpha=0.25)
left.semilogy(range(len(levels)), value, "o-")
left.set(title="rank, with its interval", xlabel="noise of the slopes", xticks=range(len(levels)), xticklabels=levels)
right.plot(range(len(levels)), perplexity, "o-")
right.set(title="perplexity", xlabel="noise of the slopes", xticks=range(len(levels)), xticklabels=levels)
plt.show()

# %% [markdown]
# So a rank answers one question: *could* this output layer express a distribution of high rank? Whether it expresses
# a *good* one is what perplexity and the divergences tell. A comparison of heads needs both.
#
# **Next:** [a world where the truth is known](04_dirichlet_world.ipynb).
