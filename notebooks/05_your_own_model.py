# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Measure your own model
#
# You will learn how to measure
#
# * a language model loaded with Hugging Face's `transformers` (extra `hf`);
# * any PyTorch module from token ids to logits, and any function;
# * any array, and an output layer with hidden states of your own;
#
# and how to put the result into a paper, as a figure and a LaTeX table.

# %%
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import torch
from matplotlib import pyplot as plt

import softmax_bottleneck as sb

_ = torch.manual_seed(0)

# %% [markdown]
# ## A Hugging Face model
#
# To need no download, this notebook makes a small GPT-2 with random weights, and a tokenizer of whole words. For a real
# one write `AutoModelForCausalLM.from_pretrained("gpt2")` and its `AutoTokenizer`; everything below stays the same.

# %%
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

corpus = sb.corpora.load("python-docs")
text = " ".join(corpus.vocabulary.decode(corpus.split("test")[:6000]))
words = Tokenizer(models.WordLevel(unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
words.train_from_iterator([text], trainers.WordLevelTrainer(show_progress=False))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>")

model = GPT2LMHeadModel(
    GPT2Config(
        vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=2, n_positions=128, bos_token_id=None, eos_token_id=None
    )
)
with torch.no_grad():  # random weights of a size at which the model's predictions differ from context to context
    for parameter in model.parameters():
        parameter.add_(0.2 * torch.randn_like(parameter))

# %%
report = sb.rank(model, data=text, tokenizer=tokenizer)
report

# %% [markdown]
# GPT-2 has no output bias, so the bound is $d + 1 = 33$, and $d = 32$ row-centred. The model is left as it was: its
# mode, its gradients and its type are not changed.
#
# Other measurements take the same arguments. The expected divergence between the predictions of two contexts:

# %%
sb.kld(model, data=text, tokenizer=tokenizer, contexts=500)

# %% [markdown]
# And the share of the loss gradient at the logits that the output layer passes on to the hidden states (Godey and
# Artzi 2026):

# %%
sb.gradient(model, data=text, tokenizer=tokenizer, contexts=500)

# %% [markdown]
# ## Any PyTorch module, any function
#
# A module that maps token ids (B, L) to logits (B, L, M) is measured on the batches of a data loader. Here is one with
# a *mixture of softmaxes* on top, whose output are log-probabilities.


# %%
class Bigram(torch.nn.Module):
    """Predict the next token from the current one."""

    def __init__(self, head):
        super().__init__()
        self.body, self.head = torch.nn.Embedding(300, 16), head

    def forward(self, ids):
        return self.head.log_prob(self.body(ids))


ids = torch.randint(300, (40, 25))
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(ids), batch_size=8)
sizes = {"hidden_size": 16, "vocab_size": 300}
modules = {
    "softmax": Bigram(sb.heads.Softmax(**sizes)),
    "mos": Bigram(sb.heads.MoS(**sizes, components=4)),
    "lms-plif": Bigram(sb.heads.build("lms-plif", **sizes, knots=1000)),
}
with torch.no_grad():
    for parameter in (parameter for module in modules.values() for parameter in module.body.parameters()):
        parameter.mul_(3)
reports = {name: sb.rank(module, data=loader) for name, module in modules.items()}
for name, found in reports.items():
    print(f"{name:9} rank {found.rank}, row-centred {found.rank_centered}")

# %% [markdown]
# A function works as well, such as a call to a server that returns logits: `sb.rank(function, data=batches,
# vocab_size=M)`.
#
# ## Any array
#
# `kind` says what the numbers are: `"log-probs"` (the default, which is checked: each row must sum to 1), `"logits"`
# (normalized first), or `"matrix"` (taken as it is).

# %%
rng = np.random.default_rng(0)
logits = rng.standard_normal((500, 6)) @ rng.standard_normal((6, 80))
found = sb.rank(logits, kind="logits")
print(found.rank, "- six directions and the log-partition")

# %% [markdown]
# The type of the numbers matters. Rounded to bfloat16, the matrix has full rank *as numbers*. The report recognizes
# the rounding and does not mistake it for directions of the model:

# %%
rounded = torch.tensor(logits).to(torch.bfloat16).float().numpy()
coarse = sb.rank(rounded, kind="logits")
print(coarse.rank, "|", coarse.eps.dtype, "| NumPy on the same numbers:", np.linalg.matrix_rank(rounded))

# %% [markdown]
# Hidden states and an output layer that you have already are the quickest: no T × M matrix is formed.

# %%
layer, hidden = torch.nn.Linear(32, 5000), torch.randn(2000, 32)
print(sb.rank(layer, hidden=hidden).rank, "= 32 + the bias + the log-partition")

# %% [markdown]
# ## A figure and a table for a paper
#
# `report.plot(log=False)` draws the percentage of singular values above a share of the largest (figure 1 of Yang et al.
# 2018 shows the percentage below) into axes of your own.

# %%
with plt.rc_context({"font.size": 8, "font.family": "serif"}):
    figure, ax = plt.subplots(figsize=(3.25, 2.2), layout="constrained")
    for name, found in reports.items():
        found.plot(ax, label=name, log=False)
    ax.set(xlim=(1e-10, 2), xticks=[1e-9, 1e-6, 1e-3, 1])
    ax.legend(frameon=False)
    figure.savefig(Path(mkdtemp()) / "cdf.pdf")
    plt.show()

# %% [markdown]
# `sb.table` writes several reports as LaTeX, Markdown or CSV (comma-separated values); `sb.frame` returns them as a
# pandas table.

# %%
print(sb.table([found.named(name) for name, found in reports.items()], format="latex"))

# %% [markdown]
# **Next:** [the theorems, as functions](06_theory.ipynb).
