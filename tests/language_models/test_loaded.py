"""Loaded objects: a model of transformers, a torch module, a head on hidden states. Nothing of theirs changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import softmax_bottleneck as sb
from softmax_bottleneck.errors import ConfigurationError, SourceError
from softmax_bottleneck.heads import build

T, M, d = 300, 60, 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT-2 with d = 12 and a tokenizer of 60 words."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    path = tmp_path_factory.mktemp("gpt2")
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=M, n_embd=12, n_layer=2, n_head=2, n_positions=32, attn_pdrop=0.5)
    model = GPT2LMHeadModel(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    model.save_pretrained(path)
    words = Tokenizer(WordLevel({f"w{n}": n for n in range(M)}, unk_token="w0"))
    words.pre_tokenizer = WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(path)
    return path


@pytest.fixture
def loaded(folder: Path) -> Any:
    """The model, in training mode as in the middle of a training, with one part frozen in evaluation mode."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder).train()
    model.transformer.drop.eval()
    return model


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    """Its tokenizer."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def text() -> str:
    """Two hundred words."""
    return " ".join(f"w{n}" for n in np.random.default_rng(0).integers(1, M, 200))


def _modes(module: nn.Module) -> list[bool]:
    return [part.training for part in module.modules()]


def test_a_loaded_model_is_measured_as_its_folder(
    folder: Path, loaded: Any, tokenizer: Any, text: str, tmp_path: Path
) -> None:
    file = tmp_path / "text.txt"
    file.write_text(text, encoding="utf-8")
    modes, weights = _modes(loaded), {name: each.clone() for name, each in loaded.state_dict().items()}
    ours, theirs = sb.rank(loaded, data=text, tokenizer=tokenizer), sb.rank(folder, data=str(file))
    assert ours.spectrum.method == theirs.spectrum.method == "factored"
    np.testing.assert_array_equal(ours.spectrum.values, theirs.spectrum.values)
    assert (ours.rank, ours.bound) == (theirs.rank, theirs.bound)
    assert sb.kld(loaded, data=text, tokenizer=tokenizer).kld == sb.kld(folder, data=str(file)).kld
    assert _modes(loaded) == modes
    assert all(torch.equal(weights[name], each) for name, each in loaded.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in loaded.parameters())


def test_ids_are_as_good_as_their_text(loaded: Any, tokenizer: Any, text: str) -> None:
    ids = tokenizer(text)["input_ids"]
    forms: list[Any] = [ids, np.array(ids), torch.tensor([ids]), tokenizer(text, return_tensors="pt")]
    expected = sb.rank(loaded, data=text, tokenizer=tokenizer)
    for form in forms:
        np.testing.assert_array_equal(sb.rank(loaded, data=form).spectrum.values, expected.spectrum.values)


@pytest.mark.parametrize("options", [{}, {"context_length": 20, "stride": 20, "batch_size": 4}])
def test_each_row_of_ids_is_a_text_of_its_own(loaded: Any, tokenizer: Any, options: dict[str, Any]) -> None:
    """As for a function: a context does not begin in the row before, and no row predicts the token of the next."""
    ids = torch.randint(M, (6, 20), generator=torch.Generator().manual_seed(0))
    source = sb.open(loaded, data=ids, tokenizer=tokenizer, **options)
    function = sb.open(lambda ids: loaded.eval()(torch.as_tensor(ids)).logits.detach(), data=[ids])
    rows, expected = (np.concatenate([block.log_probs for block in each.blocks()]) for each in (source, function))
    np.testing.assert_allclose(rows, expected.reshape(6, 20, M)[:, :-1].reshape(-1, M), atol=2e-5)
    np.testing.assert_array_equal(source.targets, ids[:, 1:].flatten())
    text = source.first(30).text
    assert text is not None
    assert (text.before(19, 3), text.sentence(19, 1)) == (f"w{ids[1, 0]}", f"w{ids[1, 0]} w{ids[1, 1]} w{ids[1, 2]}")
    assert sb.open(loaded, data=ids[:1]).shape == (19, M)


def test_tokens_that_only_the_input_has() -> None:
    """400 embeddings, 300 rows of output."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(vocab_size=80, n_embd=12, n_layer=1, n_head=2, n_positions=32))
    model.config.tie_word_embeddings, model.lm_head = False, nn.Linear(12, M, bias=False)
    assert sb.rank(model, data=np.arange(80)).spectrum.shape == (63, M)
    assert sb.open(model, data=np.arange(M)).targets is not None
    with pytest.raises(SourceError, match="0 and 79, the last token with an input embedding, not 1 to 80"):
        sb.rank(model, data=np.arange(1, 81))
    model.lm_head = nn.Linear(12, 90, bias=False)
    assert sb.rank(model, data=np.arange(80)).spectrum.shape == (63, 90)


def test_a_model_without_logits(loaded: Any) -> None:
    """A fused loss: the output layer is bypassed, or its logits are not returned."""
    from transformers.modeling_outputs import CausalLMOutput

    forward = type(loaded).forward
    loaded.forward = lambda **given: CausalLMOutput(logits=None, loss=forward(loaded, **given).logits.sum())
    with pytest.raises(SourceError, match=r"GPT2LMHeadModel has no logits: measure a function .* W\.T, data=batches"):
        sb.rank(loaded, data=np.arange(M))
    body, W = loaded.transformer, loaded.lm_head.weight.detach()
    loaded.forward = lambda input_ids, **given: CausalLMOutput(logits=body(input_ids).last_hidden_state @ W.T)
    with pytest.raises(SourceError, match="measure it through a function"):
        sb.rank(loaded, data=np.arange(M))
    through = sb.rank(lambda ids: (body.eval()(torch.as_tensor(ids))[0] @ W.T).detach(), data=[np.arange(30)[None]])
    assert through.rank.value <= 13


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"data": "a whole text"}, "a text needs the model's tokenizer"),
        ({"data": [0, M]}, f"token ids must lie between 0 and {M - 1}"),
        ({"data": [0.5, 1.0]}, "must be token ids, whole numbers"),
        ({"data": {"input_ids": [[1, 2], [3, 4]], "attention_mask": [[1, 0], [1, 0]]}}, "no token is predicted"),
        ({"data": [1]}, "no token is predicted"),
        ({"data": [[1], [2]]}, "no token is predicted: give texts of at least two tokens"),
        ({"data": "a b c", "tokenizer": 5}, "a int is not a tokenizer"),
    ],
)
def test_what_a_loaded_model_cannot_read(loaded: Any, arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SourceError, match=sentence):
        sb.rank(loaded, **arguments)


def test_a_loaded_model_keeps_its_type(loaded: Any, tokenizer: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"the model is in float32, .*model\.to\(torch\.bfloat16\)"):
        sb.rank(loaded, data=text, tokenizer=tokenizer, dtype="bfloat16")
    half = sb.rank(loaded.to(torch.bfloat16), data=text, tokenizer=tokenizer)
    assert (half.source["body_dtype"], half.eps.dtype) == ("bfloat16", "float32")


class Bigram(nn.Module):
    """ids (B, L) → logits (B, L, M), with dropout that evaluation mode switches off."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.drop = nn.Embedding(M, d), nn.Dropout(0.5)
        self.out = nn.Linear(d, M, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        logits: Tensor = self.out(self.drop(self.body(ids)))
        return logits


class WithLogits(Bigram):
    """The same, in an object as transformers returns it."""

    def forward(self, ids: Tensor) -> Any:
        from transformers.modeling_outputs import CausalLMOutput

        return CausalLMOutput(logits=super().forward(ids))


@pytest.mark.parametrize("make", [Bigram, WithLogits])
def test_a_torch_module_with_its_loader(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    model, ids = make().double().train(), torch.randint(M, (40, 8))
    modes = _modes(model)
    data = torch.utils.data.TensorDataset(ids)
    loader = torch.utils.data.DataLoader(data, batch_size=7)
    report = sb.rank(model, data=loader)
    assert (report.rank.value, report.rank_centered.value) == (d + 1, d)
    assert report.spectrum.shape == (320, M)
    assert _modes(model) == modes
    mappings = [{"input_ids": batch, "attention_mask": torch.ones_like(batch)} for batch in ids.split(7)]
    np.testing.assert_array_equal(sb.rank(model, data=mappings).spectrum.values, report.spectrum.values)
    padded = [{"input_ids": ids, "attention_mask": torch.arange(8).expand(40, 8) < 5}]
    np.testing.assert_array_equal(
        sb.singular_values(model, data=padded).values, sb.singular_values(model, data=[ids[:, :5]]).values
    )


@pytest.mark.parametrize("name", ["softmax", "moc", "mos", "sigsoftmax", "lms-plif"])
def test_a_head_on_hidden_states(name: str) -> None:
    torch.manual_seed(0)
    head, H = build(name, hidden_size=d, vocab_size=M).train(), torch.randn(T, d)
    with torch.no_grad():
        expected = sb.rank(head.eval().log_prob(H))
    found = sb.rank(head.train(), hidden=H)
    assert head.training
    assert found.spectrum.method == ("factored" if name in ("softmax", "moc") else "dense")
    np.testing.assert_allclose(found.spectrum.values, expected.spectrum.values, atol=1e-4)
    assert found.bound["raw"] == head.rank_bound.raw
    blocks = sb.rank(head, hidden=(rows.numpy() for rows in H.split(41)))
    np.testing.assert_allclose(blocks.spectrum.values, found.spectrum.values, rtol=1e-6, atol=1e-6)


def test_an_ordinary_output_layer() -> None:
    torch.manual_seed(0)
    layer, H = nn.Linear(d, M), torch.randn(T, d)
    report = sb.rank(layer, hidden=H)
    assert (report.rank.value, report.rank_centered.value, report.spectrum.method) == (d + 2, d + 1, "factored")
    assert (report.bound["raw"], report.embedding_size) == (d + 2, d)
    ids = torch.randint(M, (T,))
    kept = sb.gradient(layer, hidden=H, targets=ids).kept
    G = torch.softmax(layer(H), -1).detach() - nn.functional.one_hot(ids, M)
    C = (layer.weight - layer.weight.mean(0)).detach()
    assert kept == pytest.approx(float((G @ torch.linalg.qr(C)[0]).norm() / G.norm()), rel=1e-5)
    narrow = sb.rank(layer.bfloat16(), hidden=H.bfloat16())
    assert (narrow.rank_centered.value, narrow.eps.dtype) == (d + 1, "float32")


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        ({}, ConfigurationError, r"a Linear is measured on hidden states: give hidden=H, of shape \(T, hidden_size\)"),
        ({"hidden": torch.randn(3, 4)}, SourceError, r"the head takes hidden states \(T, 5\).* of shape \(3, 4\)"),
        ({"hidden": [[1, 2]]}, SourceError, "hidden states"),
        ({"hidden": torch.full((3, 5), torch.nan)}, SourceError, "hold NaN or infinity"),
        ({"hidden": (torch.randn(2, 3, 5),) * 4}, SourceError, r"a tuple of 4 tensors .* such as hidden_states\[-1\]"),
        ({"hidden": torch.randn(4, 2, 3, 5)}, SourceError, "more than three dimensions, .*: give the last layer"),
        ({"hidden": torch.randn(3, 5), "targets": []}, SourceError, "targets must be 3 token ids .* not 0$"),
        ({"hidden": torch.randn(3, 5), "targets": [0.5, 1, 2]}, SourceError, "targets must be whole token ids"),
        ({"hidden": torch.randn(3, 5), "targets": ["a"]}, SourceError, "targets must be token ids, one for each"),
        ({"hidden": {"last_hidden_state": torch.randn(2, 3, 5)}}, SourceError, "a dict .* give its last_hidden_state"),
        ({"hidden": torch.randn(3, 5), "targets": [1]}, SourceError, "targets must be 3 token ids"),
        ({"hidden": torch.randn(3, 5), "data": "ptb"}, ConfigurationError, "data does not apply to an output layer"),
    ],
)
def test_what_a_head_needs(arguments: dict[str, Any], error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        sb.rank(nn.Linear(d, M), **arguments)
