"""``bottleneck bench training``: a training step of published models beside the same step in plain torch, and of GPT-2
with several output layers beside its own cross entropy, where transformers is installed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from ..core.progress import SILENT, Progress
from ..language_models.backbones import AWDLSTM
from ..language_models.model import LanguageModel
from ..language_models.reading import Batch
from ..training import RunConfig
from ..training import optimizer as optimizers
from ..training.config import parse
from ..training.objective import Objective, accumulate
from ..training.presets import find
from .heads import plain_nll
from .in_turn import RUNS, Goal, Work, in_turn, report

LENGTH, TYPES, TOKENS = 70, 10_000, 929_589
"""Tokens of a segment, of the vocabulary and of the training text of Penn Treebank."""
CASES = {
    "softmax": ("ptb-softmax", 20, False),
    "softmax plain": ("ptb-softmax", 20, True),
    "mos": ("ptb-mos", 12, False),
    "mos plain": ("ptb-mos", 12, True),
    "mos, batch 20": ("ptb-mos", 20, False),
}
"""Preset, columns of the batch, and whether the step is that of `plain_loss`: Softmax and MoS at their published batch
sizes, and MoS at Softmax's, to compare the times of an epoch."""
OPERATIONS = 2.5
"""Ratio of the multiplications of a token: 16.1 million in MoS's LSTMs, 2.6 in its latent vectors and 42 in its output
layer, against 20.2 and 4 million of Softmax."""
OWN = "gpt2, own loss"
GPT2: dict[str, tuple[str, dict[str, Any]]] = {
    OWN: ("", {}),
    "gpt2, softmax": ("softmax", {}),
    "gpt2, mos K=4": ("mos", {"components": 4}),
    "gpt2, lms-plif": ("lms-plif", {}),
}
"""Head and settings of each case of GPT-2 small (Radford et al. 2019, table 2); one has the model's own."""
GOALS = (
    Goal("Softmax: seconds / plain", "softmax", "<=", 1.0, "softmax plain"),
    Goal("MoS: plain seconds / ours", "mos plain", ">=", 1.5, "mos"),
    Goal("MoS, batch 20: epoch / Softmax's", "mos, batch 20", "<=", 1.15 * OPERATIONS, "softmax", "epoch_seconds"),
    Goal("MoS, batch 20: memory / Softmax's", "mos, batch 20", "<=", 1.3, "softmax", "memory_bytes"),
    Goal("GPT-2, Softmax: seconds / own", "gpt2, softmax", "<=", 1.0, OWN),
    Goal("GPT-2, LMS-PLIF: seconds / own", "gpt2, lms-plif", "<=", 1.5, OWN),
)
GPU_GOALS = (
    *GOALS,
    Goal("Softmax: seconds an epoch", "softmax", "<=", 12.0, key="epoch_seconds"),
    Goal("MoS, batch 20: seconds an epoch", "mos, batch 20", "<=", 25.0, key="epoch_seconds"),
)


def bench_training(*, device: str = "cpu", shrink: int = 1, progress: Progress = SILENT) -> dict[str, Any]:
    """Measure the time of a training step of ``ptb-softmax``, ``ptb-mos`` and GPT-2 in float32, each in a process.

    ``shrink`` divides layers, vocabulary and batch. Each case has the last ``loss``, those of Penn Treebank also
    ``epoch_seconds``, the time of an epoch at the rate of a step. Memory includes weights and gradients, but not the
    weights of GPT-2, whose step is a forward and backward pass over 1,024 tokens.
    """
    cases = {
        name: partial(_work, preset=preset, batch_size=columns, plain=plain, device=device, shrink=shrink)
        for name, (preset, columns, plain) in CASES.items()
    }
    rows = in_turn(cases, device=device, runs=RUNS if shrink == 1 else 1, progress=progress)
    for row in rows.values():
        columns = _columns(row["case"]["batch_size"], shrink)
        row["epoch_seconds"] = row["seconds"] * math.ceil(TOKENS / (LENGTH * columns))
    if find_spec("transformers"):
        cases = {name: partial(_gpt2, head=head, device=device, shrink=shrink) for name, (head, _) in GPT2.items()}
        imports = ["transformers.models.gpt2.modeling_gpt2"]
        runs = RUNS if shrink == 1 else 1
        rows |= in_turn(cases, device=device, runs=runs, warm_up=shrink == 1, imports=imports, progress=progress)
    return report(rows, GOALS if device == "cpu" else GPU_GOALS, device=device, shrink=shrink)


def _columns(batch_size: int, shrink: int) -> int:
    return max(1, batch_size // shrink)


def _work(*, shrink: int, **case: Any) -> Work:
    """Return a function that runs a step and returns its loss; the first call makes the model."""
    _step(shrink=200, **case)()
    step = cache(lambda: _step(shrink=shrink, **case))
    return lambda: {"loss": float(step()())}


def _step(*, preset: str, batch_size: int, plain: bool, device: str, shrink: int) -> Callable[[], Tensor]:
    """Return one step of a preset on random text: loss, backward, clipping and update; it returns the loss."""
    config, types, columns = shrunk(find(preset).config, shrink), max(2, TYPES // shrink), _columns(batch_size, shrink)
    torch.manual_seed(0)
    settings = config.training.optimizer
    with torch.device(device):
        model = LanguageModel(config.model, vocab_size=types)
        ids = torch.randint(types, (LENGTH + 1, columns))
    inputs, targets = ids[:-1], ids[1:]
    objective = Objective(model, mixed=config.training.precision == "bfloat16")
    state = model.backbone.initial_state(columns)
    optimizer = optimizers.build(settings, model.parameters(), model.head.parameter_settings())

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        if plain:
            loss = plain_loss(model, inputs, targets)
            loss.backward()
        else:
            loss = accumulate(objective, Batch(inputs, targets), state, columns=None)[0]
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        optimizer.step()
        return loss.detach()

    return step


def _gpt2(*, head: str, device: str, shrink: int) -> Work:
    """Make a model of GPT-2's shape, and return its step."""
    from transformers import GPT2Config, GPT2LMHeadModel

    from ..integrations.transformers import with_head

    torch.manual_seed(0)
    layers, heads, vocab = (12, 12, 50_257) if shrink == 1 else (1, 2, 50_257 // shrink)
    sizes: dict[str, Any] = {"n_embd": 8 * max(1, 96 // shrink), "n_positions": 1024 // shrink, "vocab_size": vocab}
    with torch.device(device):
        model: Any = GPT2LMHeadModel(GPT2Config(**sizes, n_layer=layers, n_head=heads)).eval()  # without dropout
        ids = torch.randint(vocab, (1, sizes["n_positions"]))
    if head:
        model = with_head(model, head, **dict(GPT2.values())[head])

    def step() -> dict[str, float]:
        model.zero_grad()
        loss = model(ids, labels=ids, use_cache=False).loss
        loss.backward()
        return {"loss": float(loss.detach())}

    return step


def shrunk(config: RunConfig, by: int) -> RunConfig:
    """Return a configuration with its layers divided by ``by``."""
    values = config.model_dump(mode="json")
    backbone, head = values["model"]["backbone"], values["model"]["head"]
    backbone["hidden_sizes"] = [max(2, size // by) for size in backbone["hidden_sizes"]]
    backbone["embedding_size"] = head["embedding_size"] = max(2, head["embedding_size"] // by)
    return parse(values, where="a smaller preset")


def plain_loss(model: LanguageModel, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean loss of a segment by torch's own LSTM and dropout, and the loss as the papers print it.

    Args:
        model: model with an AWD-LSTM; its activations are not penalized.
        inputs: int64, (L, B).
        targets: int64, (L, B).
    """
    assert isinstance(model.backbone, AWDLSTM)
    config = model.backbone.config
    between = [config.dropout_hidden] * (len(config.hidden_sizes) - 1)
    hidden = F.dropout(model.backbone.embedding(inputs), config.dropout_input, model.training)
    for layer, probability in zip(model.backbone.layers, [*between, config.dropout_output], strict=True):
        weights = F.dropout(layer.get_parameter("weight_hh_l0"), config.weight_drop, model.training)
        raw, _ = functional_call(layer, {"weight_hh_l0": weights}, (hidden,))
        hidden = F.dropout(raw, probability, model.training)
    return plain_nll(model.head, hidden.flatten(0, 1), targets.flatten())
