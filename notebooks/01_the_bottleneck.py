# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The bottleneck, in a world of three words
#
# You will learn
#
# * what the set $F(A)$ is: all the logits that give the same probabilities;
# * why a softmax with embedding size $d$ is limited by the *rank* of those logits;
# * what it looks like when it fails, and how a mixture of softmaxes (MoS) gets out.
#
# Everything follows Yang, Dai, Salakhutdinov and Cohen, *Breaking the Softmax Bottleneck* (2018), "the MoS paper".

# %%
import numpy as np
import torch
from matplotlib import pyplot as plt

import softmax_bottleneck as sb

torch.manual_seed(0)
WORDS = ["dog", "cat", "fish"]

# %% [markdown]
# ## The truth: $P^*$
#
# Our language has three words and five contexts. Each row of $P^*$ is the true distribution of the next word in one
# context. A distribution over three words is a point in a triangle: a corner means that one word is certain, the
# middle that all three are equally likely.

# %%
P = np.array(
    [
        [0.80, 0.15, 0.05],  # about a dog
        [0.05, 0.15, 0.80],  # about a fish
        [0.47, 0.06, 0.47],  # about a dog or a fish, but no cat
        [0.34, 0.32, 0.34],  # about anything
        [0.20, 0.12, 0.68],
    ]
)
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 3**0.5 / 2]])


def draw_triangle(ax, title):
    """Draw the triangle of all distributions over the three words."""
    ax.fill(*CORNERS.T, facecolor="#f4f4f4", edgecolor="0.4", zorder=0)
    for word, (x, y) in zip(WORDS, CORNERS):
        ax.annotate(word, (x, y), xytext=(0, 6 if y else -16), textcoords="offset points", ha="center")
    ax.set(title=title, aspect="equal")
    ax.set_axis_off()
    ax.margins(0.1)


figure, ax = plt.subplots(figsize=(4, 3.6), layout="constrained")
draw_triangle(ax, "five contexts, each a distribution")
ax.scatter(*(P @ CORNERS).T, color="black", zorder=3)
plt.show()

# %% [markdown]
# ## From $P^*$ to $F(A)$
#
# A softmax turns logits into probabilities, and it does not see a constant that is added to a whole row. With
# $A = \log P^*$, *all* logits that give $P^*$ are therefore
#
# $$F(A) = \{A + \lambda 1^\top : \lambda \in \mathbb{R}^T\}.$$

# %%
A = np.log(P)
shifted = sb.theory.row_shift(A, [5.0, -1.0, 0.0, 2.0, 3.0])
print("same probabilities:", np.allclose(torch.softmax(torch.tensor(shifted), -1), P))
print("in F(A):", sb.theory.is_member(shifted, A))

# %% [markdown]
# The members of $F(A)$ have different ranks, but they differ by at most one. The smallest is reached when each row's
# mean is subtracted. `sb.rank` reports both as the *raw* and the *row-centred* rank.

# %%
smallest = sb.theory.minimal_rank(A)
report = sb.rank(A)
print("raw rank", smallest.raw_rank, "- smallest rank in F(A)", smallest.rank)
print("sb.rank says", report.rank.value, "and", report.rank_centered.value)

# %% [markdown]
# ## A softmax that cannot fit it
#
# An output layer with embedding size $d$ has logits $H W^\top$ with $H \in \mathbb{R}^{T \times d}$ and
# $W \in \mathbb{R}^{M \times d}$. Their rank is at most $d$. So $d = 2$ suffices here, and $d = 1$ cannot:
# whichever numbers $H$ and $W$ hold, at least one of the contexts below comes out wrong.

# %%
for d in (1, 2):
    verdict = sb.theory.expressible(A, d)
    print(f"d = {d}: expressible {verdict.expressible}", f"contexts in conflict {verdict.contexts}" if d == 1 else "")

# %% [markdown]
# Let us try anyway, with hidden states that are free to be anything (so only the output layer limits the fit).


# %%
def fit(head, *, steps=1500):
    """Fit a head and one free hidden state for each context to P*; return the hidden states and each context's KL."""
    target = torch.tensor(P, dtype=torch.float32)
    hidden = torch.randn(len(P), head.hidden_size, requires_grad=True)
    optimizer = torch.optim.Adam([hidden, *head.parameters()], lr=0.03)
    for _ in range(steps):
        optimizer.zero_grad()
        divergence = (target * (target.log() - head.log_prob(hidden))).sum(-1)
        divergence.mean().backward()
        optimizer.step()
    return hidden.detach(), divergence.detach().numpy()


softmax = sb.heads.Softmax(hidden_size=1, vocab_size=3, bias=False)
hidden, divergence = fit(softmax)
print("KL divergence of each context, in nats:", divergence.round(3))

# %% [markdown]
# As the one number $h$ runs through all values, $\mathrm{softmax}(W h)$ runs along **one curve** through the
# triangle. Every prediction of the model lies on it. The red lines lead from the truth to the prediction.


# %%
def draw_fit(ax, head, hidden, title):
    """Draw the truth, the predictions, and a line between the two for each context."""
    draw_triangle(ax, title)
    with torch.no_grad():
        predicted = head.log_prob(hidden).exp().numpy() @ CORNERS
    true = P @ CORNERS
    for start, end in zip(true, predicted):
        ax.plot(*np.stack([start, end]).T, color="tab:red", zorder=2)
    ax.scatter(*true.T, color="black", zorder=3, label="truth")
    ax.scatter(*predicted.T, facecolor="white", edgecolor="tab:red", zorder=4, label="model")


h = torch.linspace(-40, 40, 2001)[:, None]
with torch.no_grad():
    curve = softmax.log_prob(h).exp().numpy() @ CORNERS

figure, ax = plt.subplots(figsize=(4, 3.6), layout="constrained")
ax.plot(*curve.T, color="tab:blue", label="all that d = 1 can say")
draw_fit(ax, softmax, hidden, "Softmax, d = 1")
ax.legend(loc="upper left", fontsize="small", frameon=False)
plt.show()

# %% [markdown]
# ## Two ways out
#
# **More dimensions.** With $d = 2$ the set of all predictions is the whole triangle. For a real vocabulary of
# $M = 10{,}000$ words this would need $d = 9{,}999$.
#
# **A mixture.** Two softmaxes with $d = 1$ share the embeddings $W$, and their *probabilities* are mixed. Each mixture
# lies on a chord between two points of the curve, so the chords fill an area, although $d$ is still 1. "A dog or a
# fish, but no cat" is such a mixture: no point of the curve, but half way between two of them.

# %%
two = sb.heads.Softmax(hidden_size=2, vocab_size=3, bias=False)
mos = sb.heads.MoS(hidden_size=4, vocab_size=3, embedding_size=1, components=2, bias=False)
figure, axes = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
for ax, head, title in zip(axes, (two, mos), ("Softmax, d = 2", "MoS, d = 1, two components")):
    hidden, divergence = fit(head)
    draw_fit(ax, head, hidden, f"{title}\nmean KL {abs(divergence.mean()):.4f} nats")
plt.show()

# %% [markdown]
# In rank terms: the mixture's log-probabilities have more directions than its embedding size allows a softmax.

# %%
probes = torch.randn(200, 4)
single = sb.heads.Softmax(hidden_size=4, vocab_size=50, embedding_size=1, bias=False)
mixture = sb.heads.MoS(hidden_size=4, vocab_size=50, embedding_size=1, components=2, bias=False)
for name, head in (("Softmax", single), ("MoS", mixture)):
    report = sb.rank(head, hidden=probes)
    print(f"{name:8} d = 1, M = 50: bound {report.bound['raw']}, measured rank {report.rank}")

# %% [markdown]
# **Next:** [the rank of a trained language model](02_rank_of_a_language_model.ipynb).
