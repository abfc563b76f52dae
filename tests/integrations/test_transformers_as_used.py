"""Heads under transformers in the states and by the calls that people really have, beside the plain model."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

from softmax_bottleneck.errors import ConfigurationError, OutputError, SourceError
from softmax_bottleneck.integrations.transformers import from_pretrained, output_layer, with_head

from .conftest import GROUPED, IDS, MAMBA, M, make

SMALL = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
BART = {
    "d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "max_position_embeddings": 64,
}  # fmt: skip


LLAMA = transformers.LlamaForCausalLM


def test_the_head_is_used_where_the_plain_model_is_compiled_in_place() -> None:
    model = make("llama")
    model.compile(backend="eager")
    headed = with_head(model, "mos", components=2)
    assert torch.allclose(headed(IDS).logits.exp().sum(-1), torch.ones(()))
    headed(IDS, labels=IDS).loss.backward()
    assert headed.head.contexts.projection.weight.grad is not None


def test_the_head_is_used_after_the_plain_model_has_generated_with_a_static_cache() -> None:
    plain, how = make("llama"), transformers.CompileConfig(backend="eager")
    how._compile_all_devices = True  # transformers compiles by itself on a GPU
    options = {"do_sample": False, "pad_token_id": 0, "max_new_tokens": 4, "cache_implementation": "static"}
    wanted = {"return_dict_in_generate": True, "output_logits": True}
    plain.generate(IDS[:1, :4], compile_config=how, **options)
    headed = with_head(plain, "mos", components=2)
    steps = headed.generate(IDS[:1, :4], compile_config=how, **options, **wanted).logits
    assert torch.allclose(torch.stack(steps).exp().sum(-1), torch.ones(()))


def _with(**attributes: Any) -> Any:
    model = make("llama")
    for name, value in attributes.items():
        setattr(model, name, value)
    return model


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: nn.Linear(8, M), "not a causal language model of transformers; in a plain module"),
        (lambda: _with(is_quantized=True), "LlamaForCausalLM is quantized"),
        (lambda: with_head(make("llama"), "mos"), "has a head already"),
        (lambda: _with(lm_head=nn.Identity()), "output layer of LlamaForCausalLM is Identity, not one linear layer"),
        (lambda: _with(lm_head=type("Linear", (nn.Module,), {"__module__": "peft.tuners.lora.layer"})()),
         r"merge the adapter into a copy of it by copy\.deepcopy\(model\)\.merge_and_unload\(\), or measure it"),
        (lambda: make("BertLMHeadModel", **SMALL, is_decoder=True), "only a layer of the model itself"),
        (lambda: _with(forward=lambda *_, **__: None), "was given another forward pass"),
        (lambda: _with(loss_function=lambda *_, **__: None), "was given another loss function"),
        (lambda: _with(_hf_peft_config_loaded=True), "has an adapter, and only that would be saved"),
        (lambda: [model := make("llama"), nn.utils.parametrizations.weight_norm(model.lm_head)][0],
         "the weight of lm_head is a Tensor, .* or computed from others"),
        (lambda: torch.compile(make("llama"), backend="eager"), "is compiled: give with_head the model before"),
        (lambda: type("Mine", (LLAMA,), {})(LLAMA.config_class(**GROUPED, vocab_size=M)),
         r"not the causal .* configuration \(LlamaForCausalLM\)"),
        (lambda: make("llama").to("meta"), "has no weights on a device"),
        (lambda: make("BartForConditionalGeneration", **BART), r"not the causal language model .* \(none\)"),
        (lambda: make("BartForCausalLM", **{**BART, "is_decoder": True, "is_encoder_decoder": False}),
         "the loss of BartForCausalLM is .* does not shift the labels"),
        (lambda: make("BambaForCausalLM", **GROUPED, **MAMBA, attn_layer_indices=[1], z_loss_coefficient=0.1),
         "the loss of BambaForCausalLM is .* adds a term"),
        (lambda: make("RwkvForCausalLM", hidden_size=8, attention_hidden_size=8, num_hidden_layers=2),
         "the output layer of RwkvForCausalLM is head: only a layer of the model itself, with another name"),
    ],
)  # fmt: skip
def test_models_that_are_refused(make: Any, sentence: str) -> None:
    with pytest.raises((ConfigurationError, SourceError), match=sentence):
        with_head(make(), "mos")


@pytest.mark.parametrize(
    ("head", "settings", "sentence"),
    [
        ("mos", {"vocab_size": 61}, "vocab_size=61 does not fit the model, .* has 60"),
        ("doc", {}, "takes the hidden states of all layers"),
    ],
)
def test_heads_that_are_refused(head: str, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        with_head(make("llama"), head, **settings)


def test_a_short_context_is_enough() -> None:
    plain = make("gpt2", n_positions=4)
    ids = IDS[:, :4]
    assert torch.allclose(with_head(plain, "mos")(ids, labels=ids).loss, plain(ids, labels=ids).loss)


def test_labels_by_their_position_and_logits_on_request(headed: Any) -> None:
    mask = torch.ones_like(IDS)
    assert torch.equal(headed(IDS, mask, None, None, None, IDS).loss, headed(IDS, labels=IDS).loss)
    assert headed(IDS, return_logits=False).logits is None
    headed.return_logits = True
    assert torch.allclose(headed(IDS, labels=IDS).logits, headed(IDS).logits)


@pytest.mark.parametrize("plain", [False, True])
def test_a_dropout_mask_is_of_a_sequence_wherever_log_probabilities_are_made(plain: bool) -> None:
    model = with_head(make("llama"), "mos", components=2, context_dropout=0.5)
    head = output_layer(nn.Linear(8, M), "mos", components=2, context_dropout=0.5) if plain else None
    contexts = (head or model).head.contexts
    nn.init.normal_(contexts.projection.weight)
    dropped: list[Tensor] = []
    contexts.register_forward_hook(lambda module, inputs, output: dropped.append(output == 0))
    if head is not None:
        assert head.train()(torch.randn(3, 12, 8)).shape == (3, 12, M)
    else:
        assert model.train()(IDS).logits.shape == (3, 12, M)
    (mask,) = dropped  # (steps, sequences, components, d)
    assert mask.shape[:2] == (12, 3)
    assert (mask == mask[:1]).all()
    assert not (mask == mask[:, :1]).all()


def test_threads_do_not_mix_their_states(headed: Any) -> None:
    """Each thread's states are kept before any thread takes its own."""
    batches = [IDS[:1, :5], IDS[1:2, :7]]
    expected = [headed(batch).logits for batch in batches]
    kept = threading.Barrier(len(batches), timeout=60)

    def wait(*_: Any) -> None:
        kept.wait()

    headed.lm_head.register_forward_hook(wait)
    with ThreadPoolExecutor(len(batches)) as pool:
        made = [*pool.map(lambda batch: headed(batch).logits, batches)]
    assert all(torch.equal(logits, right) for logits, right in zip(made, expected, strict=True))


def test_the_output_layer_called_alone_makes_log_probabilities(headed: Any) -> None:
    """As code that reads the layers in between does."""
    assert torch.equal(headed.lm_head(headed.model(IDS).last_hidden_state), headed(IDS).logits)


def test_what_cannot_be_saved_or_loaded_is_said(tmp_path: Path, headed: Any) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="a file stands where a folder is needed"):
        headed.save_pretrained(tmp_path / "file")
    with pytest.raises(ConfigurationError, match="variant gives the weights a name that is not read"):
        headed.save_pretrained(tmp_path / "new", variant="fp16")
    headed.save_pretrained(tmp_path / "new")
    assert type(headed.config) is transformers.LlamaConfig
    assert "bottleneck_head" not in headed.config.to_dict()
    again = from_pretrained(tmp_path / "new", local_files_only=True, trust_remote_code=False, weights_only=True)
    assert torch.equal(again(IDS).logits, headed(IDS).logits)
    with pytest.raises(ConfigurationError, match="subfolder cannot be chosen here"):
        from_pretrained(tmp_path / "new", subfolder="x")
    with pytest.raises(ConfigurationError, match="device_map offloads the head"):
        from_pretrained(
            tmp_path / "new", device_map={"model": "cpu", "lm_head": "disk"}, offload_folder=tmp_path / "offloaded"
        )
    headed._hf_peft_config_loaded = True
    with pytest.raises(ConfigurationError, match="saves only the adapter"):
        headed.save_pretrained(tmp_path / "new")


def test_a_head_keeps_its_loss_and_its_place(headed: Any) -> None:
    with pytest.raises(ConfigurationError, match="this model has a head"):
        headed.set_output_embeddings(nn.Linear(8, M, bias=False))
    headed.set_output_embeddings(headed.get_output_embeddings())
    headed.loss_function = lambda *_, **__: torch.zeros(())
    assert headed(IDS).logits.shape == (3, 12, M)
    with pytest.raises(ConfigurationError, match="the loss is the head's own"):
        headed(IDS, labels=IDS)


@pytest.mark.parametrize("frozen", [True, False])
def test_a_frozen_bias_stays_frozen(frozen: bool) -> None:
    plain = make("PhiForCausalLM", **{key: size for key, size in GROUPED.items() if key != "num_key_value_heads"})
    headed = with_head(plain.requires_grad_(not frozen), "softmax")
    assert {weight.requires_grad for weight in headed.head.parameters()} == {not frozen}
