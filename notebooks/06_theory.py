# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The theorems, as functions
#
# You will learn to ask, of small output layers where everything can be seen,
#
# * which tokens can *never* be the most probable one, whatever the context;
# * which tokens a model at its optimum *proves* to be possible;
# * why the least cross entropy equals a maximum entropy (duality);
# * what the rank of whole continuations says that the rank of single tokens does not.
#
# Every function of `sb.theory` names its theorem and returns what proves its answer.

# %%
import numpy as np
from matplotlib import pyplot as plt

import softmax_bottleneck as sb

# %% [markdown]
# ## Argmaxability
#
# A token is the argmax of some context vector $h$ unless its embedding lies in the convex hull of the others (Demeter
# et al. 2020; Grivas et al. 2022). In two dimensions one can look at it.

# %%
rng = np.random.default_rng(1)
W = rng.standard_normal((12, 2)) * [1.5, 1.0]
report = sb.theory.unargmaxable(W)
never = report.unargmaxable
print("never the argmax:", never)

figure, ax = plt.subplots(figsize=(5, 4), layout="constrained")
can = np.setdiff1d(np.arange(len(W)), never)
hull = can[np.argsort(np.arctan2(*(W[can] - W[can].mean(0)).T))]
ax.fill(*W[hull].T, facecolor="#eef3fb", edgecolor="tab:blue")
ax.scatter(*W[can].T, color="tab:blue", label="argmax of some h")
ax.scatter(*W[never].T, color="tab:red", marker="x", label="of none")
for token in can:
    h = report.contexts[token] / np.linalg.norm(report.contexts[token])
    ax.annotate("", W[token] + 0.5 * h, W[token], arrowprops={"arrowstyle": "->", "color": "0.5"})
ax.set(title="Each arrow is an h that chooses its token", aspect="equal")
ax.margins(0.2)
ax.legend(loc="lower right", fontsize="small")
plt.show()

# %% [markdown]
# Each answer has a proof. For a token that can win, it is the context vector and the margin; for one that cannot, the
# weights of the others that make it up:

# %%
certificate = report.certificates[int(never[0])]
print("token", never[0], "lies at", W[never[0]].round(6))
print(
    "tokens",
    certificate.tokens,
    "weighted by",
    certificate.weights.round(3),
    "lie at",
    (certificate.weights @ W[certificate.tokens]).round(6),
)

# %% [markdown]
# In more dimensions almost every token is on the hull. This is why a bottleneck of this kind is rare in practice:

# %%
for d in (2, 3, 5, 8, 12):
    found = sb.theory.unargmaxable(np.random.default_rng(0).standard_normal((300, d)))
    print(f"d = {d:2}: {len(found.unargmaxable):3} of 300 tokens are never the argmax")

# %% [markdown]
# ## Two modes at once
#
# A softmax cannot make just any *pair* of tokens the two most probable ones. If four embeddings form a parallelogram,
# $w_a + w_b = w_c + w_d$, neither diagonal can be the two modes (Chang and McCallum 2022): think of *king + woman =
# queen + man*.

# %%
king, woman, queen, man = square = np.array([[1.0, 1.0], [0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
print("parallelograms:", sb.theory.parallelograms(square).tokens)
for pair in ([0, 1], [0, 2]):
    print("tokens", pair, "can be the two modes:", sb.theory.separation(square, pair).possible)

# %% [markdown]
# ## Proved support
#
# Where a context vector is a minimum of the cross entropy, $W^\top p^* = W^\top \hat p$: the truth is one of the
# distributions with the same mean embedding. A token that is positive in *all* of them is proved to be possible
# (Finlayson et al. 2024).

# %%
W = np.array([[0.0], [1.0], [2.0]])
support = sb.theory.provably_supported([0.1, 0.2, 0.7], W)
print("proved:", support.tokens, "with probability at least", support.least.round(3))

# %% [markdown]
# ## Duality
#
# For fixed embeddings, the least cross entropy over all context vectors *equals* the largest entropy among the
# distributions with the same mean embedding (LMS paper, Ganea et al. 2019, theorem 2). Each side bounds the other, and
# the gap between them proves how good a solution is.

# %%
P = np.array([0.5, 0.1, 0.15, 0.25])
W = rng.standard_normal((4, 2))
best = sb.theory.best_context_vector(P, W)
print(f"least cross entropy {best.value[0]:.8f}, its dual bound {best.dual[0]:.8f}, gap {best.gap[0]:.1e}")

axis = np.linspace(-3, 3, 121)
grid = best.h[0] + np.stack(np.meshgrid(axis, axis), -1)
logits = grid @ W.T
cross_entropy = np.logaddexp.reduce(logits, -1) - logits @ P
figure, ax = plt.subplots(figsize=(5, 4), layout="constrained")
contours = ax.contourf(grid[..., 0], grid[..., 1], cross_entropy, levels=20, cmap="Blues")
ax.plot(*best.h[0], "r*", markersize=12)
figure.colorbar(contours, label="cross entropy (nats)")
ax.set(title="convex: one minimum over h", xlabel="h₁", ylabel="h₂")
plt.show()

# %% [markdown]
# Where the truth has zeros, the optimum may lie at infinity; the function says so, and in which direction.

# %%
edge = sb.theory.best_context_vector([0.0, 0.0, 1.0], [[0.0], [1.0], [2.0]])
print("attained:", edge.attained, "value:", edge.value, "direction:", edge.recession)

# %% [markdown]
# ## Functions and ranks
#
# Applying a power to every entry of a matrix of rank $d$ raises its rank at most to $\binom{d+p-1}{p}$, and there are
# matrices that reach it (LMS paper, theorem 5). Ranks of whole numbers are computed exactly.

# %%
for p in (1, 2, 3):
    example = sb.theory.power_rank_example(12, 12, 2, p)
    powers = [[entry**p for entry in row] for row in example]
    print(f"p = {p}: bound {sb.theory.power_rank_bound(12, 12, 2, p)}, attained {sb.theory.exact_rank(powers)}")

# %% [markdown]
# ## Extended logits
#
# The rank of $\log P$ is about *one* next token. The extended logit matrix has a column for each history and a row for
# each future and next token, so its rank says on how few features of the history whole continuations depend (Golowich,
# Liu and Shetty 2026). A hidden Markov model with three states, where the future depends on the history through three
# numbers, shows the difference.

# %%
states, tokens = 3, 30
move = rng.dirichlet(np.ones(states), states)
emit = rng.dirichlet(0.3 * np.ones(tokens), states)


def markov(ids):
    """Return the logits of the next token of a hidden Markov model: (B, L) -> (B, tokens)."""
    belief = np.full((len(ids), states), 1 / states)
    for column in np.asarray(ids).T:
        belief = belief * emit[:, column].T
        belief = belief @ move / belief.sum(1, keepdims=True)
    return np.log(belief @ emit)


def unrelated(ids):
    """Return logits that are drawn anew for every sequence of ids."""
    return np.stack([np.random.default_rng([*row.tolist(), 1]).standard_normal(tokens) for row in np.asarray(ids)])


histories = [rng.integers(0, tokens, 4) for _ in range(60)]
futures = [rng.integers(0, tokens, n) for n in (0, 1, 1, 2, 2, 2)]
figure, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
for name, model in (("hidden Markov model, 3 states", markov), ("unrelated predictions", unrelated)):
    source = sb.extended_logits(model, histories, futures, vocab_size=tokens)
    structure = sb.measure.extended_structure(source)
    ax.semilogy(structure.values / structure.values[0], label=name)
    kl = ", ".join(f"r = {r}: {kl:.3f}" for r, kl in zip(structure.ranks, structure.kl))
    print(f"{name}: mean KL (nats) of the best approximation of rank {kl}")
ax.set(xlabel="index", ylabel="σ / σ₁", title="Extended logit matrices of 60 histories", ylim=(1e-6, 2))
ax.legend()
plt.show()

# %% [markdown]
# Low rank has a use, or a risk: LinGen of the same paper continues a prompt without giving it to the model. It writes
# the prompt's logits after a few futures as a combination of those of unrelated prompts, and then samples from the same
# combination. Here the last of the 60 histories is the prompt. The page *A pretrained model* has it on SmolLM2.

# %%
for name, model in (("hidden Markov model, 3 states", markov), ("unrelated predictions", unrelated)):
    source = sb.extended_logits(model, histories, futures, vocab_size=tokens)
    generated = sb.measure.linear_generation(source, length=10)
    print(f"{name}: KL to the model's own next-token distributions {generated.kl.mean():.4f} nats a token")
