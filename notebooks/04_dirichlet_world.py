# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A world where the truth is known
#
# You will learn
#
# * how random distributions replace a language, so that only the output layer limits the fit;
# * how well each layer finds the *mode*, the most probable token, and how far it stays from the truth;
# * what given embeddings allow, with a certificate: whether a miss is theirs or that of the context vectors.
#
# The experiment is that of Ganea, Gelly, Bécigneul and Severyn, *Breaking the Softmax Bottleneck via Learnable
# Monotonic Pointwise Non-linearities* (2019), "the LMS paper" (linear monotonic softmax), section 5.1.

# %%
from pathlib import Path
from tempfile import mkdtemp

import torch
from matplotlib import pyplot as plt

import softmax_bottleneck as sb

# %% [markdown]
# ## Contexts drawn at random
#
# Each context's true distribution over $M$ tokens is drawn from a symmetric Dirichlet distribution. Its concentration
# $\alpha$ says how peaked the draws are: with small $\alpha$ a few tokens hold almost everything, as in language.

# %%
figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
for alpha in (0.01, 0.1, 1.0):
    draws = sb.synthetic.sample_dirichlet_log_probs(500, 100, alpha, torch.Generator().manual_seed(0)).exp()
    ordered = draws.sort(descending=True).values
    ax.semilogy(range(1, 101), ordered.median(0).values, label=f"α = {alpha}")
ax.set(xlabel="tokens by probability", ylabel="median probability", ylim=(1e-9, 2))
ax.set_title("Smaller α: fewer tokens share the probability")
ax.legend()
plt.show()

# %% [markdown]
# The draws are independent, so their matrix of log-probabilities has full rank, and the distributions are far apart.
# The expected pairwise divergence (KL, Kullback and Leibler's) is known: $(M-1)/(M\alpha)$.

# %%
sample = sb.synthetic.sample_dirichlet_log_probs(400, 100, 0.1, torch.Generator().manual_seed(0)).double()
sample = torch.log_softmax(sample, -1)
print("rank", sb.rank(sample).rank, "of", min(sample.shape))
divergence = sb.pairwise_kld(sample.numpy())
print(f"pairwise KL {divergence.kld:.2f} nats, expected {sb.synthetic.expected_pairwise_kl(100, 0.1):.2f}")

# %% [markdown]
# ## Fit three output layers
#
# Every context gets a vector of its own, free to be anything; together with the embeddings it is fitted by gradient
# descent. So nothing but the layer stands between the model and the truth. `bottleneck synthetic` does the same on the
# command line, with as many contexts as in the paper.

# %%
cells = sb.synthetic.grid(
    ["softmax", "mos", "lms"], [0.1], [100], [2, 5, 10], 1, contexts=200, fit=sb.synthetic.FitConfig(rounds=4)
)
results = sb.synthetic.run_grid(cells, Path(mkdtemp()), processes=1)
summary = sb.synthetic.summarize(results)
summary[["dim", "model", "mode_match", "kl", "best_kl", "largest_gap", "seconds"]].round(3)

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for metric, ax, label in zip(("mode_match", "kl"), axes, ("contexts whose modes match", "KL from the truth (nats)")):
    for model, rows in summary.groupby("model", sort=False):
        ax.plot(rows["dim"], rows[metric], "o-", label=model)
    ax.set(xlabel="embedding size D", ylabel=label)
softmax = summary[summary["model"] == "softmax"]
axes[1].plot(softmax["dim"], softmax["best_kl"], "kx", markersize=9, label="softmax, best for its W")
axes[1].legend()
plt.show()

# %% [markdown]
# A learned monotonic function (`lms`) finds modes with far fewer dimensions; mixing softmaxes (`mos`) brings the
# divergence down at more dimensions.
#
# ## What given embeddings allow
#
# Did the softmax fail because its embeddings allow no more, or because gradient descent stopped too early? For fixed
# embeddings the best context vector is a convex problem. It is solved by Newton's method until the *duality gap*
# proves that no better one exists: the crosses above, with `largest_gap` in nats. The fit lies on them. Other
# embeddings may still do better: fits from other seeds show by how much.
#
# The same for any embeddings of your own, here a random matrix:

# %%
W = torch.randn(100, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
best = sb.theory.attainable(sample, W)
print(f"least mean KL {best.kl.mean():.4f} nats, proved to within {best.gap.max():.1e} in {best.steps} Newton steps")

# %% [markdown]
# And a bound that holds for *every* choice of embeddings: no softmax with embedding size $d$ has log-probabilities
# nearer to the truth, in the Frobenius norm, than the singular values beyond $d$ allow (LMS paper, theorem 1, where the
# right side must be squared).

# %%
spectrum = sb.singular_values(sample)
sizes = range(1, 100)
bound = [sb.theory.frobenius_lower_bound(spectrum.centered, d, centered=True) for d in sizes]
figure, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
ax.plot(sizes, bound)
ax.set(xlabel="embedding size d", ylabel="least ‖log P − log Q‖ (nats)", title="No softmax lies below this line")
plt.show()
half = bound[0] / 2
print(
    f"for half of the error at d = 1, {half:.0f} nats, d must be at least",
    sb.theory.recommended_embedding_size(spectrum.centered, half, centered=True),
)

# %% [markdown]
# **Next:** [measure a model of your own](05_your_own_model.ipynb).
