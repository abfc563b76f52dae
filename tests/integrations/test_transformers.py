"""Heads under transformers: the loss before the first step, training, generation, and folders."""

from __future__ import annotations

import copy
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional as F

import softmax_bottleneck as sb
from softmax_bottleneck.errors import ConfigurationError, SourceError
from softmax_bottleneck.hugging_face.headed import MODEL_TYPE
from softmax_bottleneck.integrations.transformers import from_pretrained, output_layer, with_head

from ..hugging_face.conftest import write_tokenizer
from .conftest import GROUPED, IDS, MAMBA, TIED, M, d, make

STARTS = [
    ("softmax", {}),
    ("mos", {"components": 4}),
    ("mos", {"components": 2, "context_rank": 3}),
    ("lms-plif", {"knots": 500}),
]


def _train(model: Any, steps: int = 3) -> list[float]:
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-2), []
    for _ in range(steps):
        loss = model(IDS, labels=IDS).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(
    ("name", "head", "settings"),
    [("gpt2", *each) for each in STARTS] + [(name, *STARTS[1]) for name in ("llama", "qwen2", "mamba")],
)
def test_a_head_starts_as_the_models_own_softmax(name: str, head: str, settings: dict[str, Any]) -> None:
    model = make(name)
    keys, headed = list(model.state_dict()), with_head(model, head, **settings)
    with torch.no_grad():
        own, ours = model(IDS, labels=IDS), headed(IDS, labels=IDS, return_logits=True)
    torch.testing.assert_close(ours.loss, own.loss, rtol=1e-6, atol=0)
    torch.testing.assert_close(ours.logits, torch.log_softmax(own.logits, -1), rtol=2e-6, atol=2e-6)
    assert list(model.state_dict()) == keys
    assert isinstance(model.get_output_embeddings(), nn.Linear)
    assert (headed.get_input_embeddings().weight is headed.head.weight) == (name in TIED)


@pytest.mark.parametrize("name", ["gpt2", "llama", "mamba"])
def test_train_generate_save_load_rank(name: str, tmp_path: Path) -> None:
    headed = with_head(make(name), "mos", components=3)
    losses = _train(headed)
    assert losses[2] < losses[0]
    prompt, settings = IDS[:, :5], {"max_new_tokens": 6, "pad_token_id": 0, "attention_mask": torch.ones(3, 5).long()}
    greedy = headed.generate(prompt, do_sample=False, **settings)
    assert torch.equal(greedy, headed.generate(prompt, do_sample=False, use_cache=False, **settings))
    assert torch.equal(greedy[:, 5], headed(prompt).logits[:, -1].argmax(-1))
    assert headed.generate(prompt, num_beams=3, **settings).shape == (3, 11)
    headed.save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} <= {
        "config.json", "generation_config.json", "model.safetensors"
    }  # fmt: skip
    loaded = from_pretrained(tmp_path)
    assert torch.equal(loaded(IDS).logits, headed(IDS).logits)
    assert (loaded.get_input_embeddings().weight is loaded.head.weight) == (name in TIED)
    rows = next(iter(sb.open(loaded, data=IDS[0], context_length=11, stride=11).blocks())).log_probs
    torch.testing.assert_close(torch.from_numpy(rows), headed(IDS[:1]).logits[0, :11].detach(), rtol=1e-5, atol=1e-5)
    ids = torch.randint(M, (400,), generator=torch.Generator().manual_seed(1))
    report = sb.rank(loaded, data=ids, context_length=64, stride=64)
    assert report.bound["raw"] is None
    assert report.rank_centered.high > d
    plain = sb.rank(with_head(make(name), "softmax"), data=ids, context_length=64, stride=64)
    assert plain.rank.value <= plain.bound["raw"] <= d + 1


def test_the_loss_is_the_cross_entropy_of_the_log_probabilities() -> None:
    headed = with_head(make("gpt2"), "mos", components=3)
    _train(headed)
    labels = IDS.clone()
    labels[:, :4] = -100
    log_probs = headed(IDS).logits[:, :-1]
    expected = F.cross_entropy(log_probs.flatten(0, 1), labels[:, 1:].flatten(), reduction="sum")
    counted = int((labels[:, 1:] != -100).sum())
    found = headed(IDS, labels=labels)
    assert found.logits is None
    torch.testing.assert_close(found.loss, expected / counted)
    ignored = labels.masked_fill(labels == -100, 7)
    twice = F.cross_entropy(log_probs.flatten(0, 1), ignored[:, 1:].flatten(), ignore_index=7)
    torch.testing.assert_close(headed(IDS, labels=ignored, ignore_index=7).loss, twice)
    torch.testing.assert_close(headed(IDS, labels=labels, num_items_in_batch=7).loss, expected / 7)
    torch.testing.assert_close(headed(IDS, labels=labels, num_items_in_batch=torch.tensor(7)).loss, expected / 7)
    shifted = headed(IDS, labels=IDS, shift_labels=F.pad(labels[:, 1:], (0, 1), value=-100), return_dict=False)
    torch.testing.assert_close(shifted[0], expected / counted)


EXPERTS = {**GROUPED, "num_local_experts": 2, "output_router_logits": True}
ONE = {"num_attention_heads": 1, "num_experts_per_tok": 1, "kv_channels": 4}


@pytest.mark.parametrize(
    ("name", "settings", "head", "own"),
    [
        ("CohereForCausalLM", {**GROUPED, "logit_scale": 0.25}, "mos", {}),
        ("GraniteForCausalLM", {**GROUPED, "logits_scaling": 3.0}, "softmax", {}),
        ("MixtralForCausalLM", EXPERTS, "softmax", {}),  # the weight of its router's loss has two names
        ("JetMoeForCausalLM", {**EXPERTS, **ONE}, "softmax", {}),
        ("FalconH1ForCausalLM", {**GROUPED, **MAMBA, "mamba_d_ssm": 16}, "softmax", {}),  # some buffers have no file
        ("gpt2", {}, "mos", {"components": 2, "embedding_size": 5}),  # it starts anew
    ],
)
def test_scales_and_losses_of_routers_are_kept_and_saved(
    name: str, settings: dict[str, Any], head: str, own: dict[str, Any], tmp_path: Path
) -> None:
    model = make(name, **settings)
    headed = with_head(model, head, **own)
    assert headed.head.weight.shape == (M, own.get("embedding_size", d))
    if not own:
        torch.testing.assert_close(headed(IDS, labels=IDS).loss, model(IDS, labels=IDS).loss, rtol=2e-6, atol=0)
    headed.save_pretrained(tmp_path)
    assert torch.equal(from_pretrained(tmp_path)(IDS).logits, headed(IDS).logits)


def test_a_scale_between_a_layer_norm_and_its_softmax_keeps_the_bound() -> None:
    model = make("CohereForCausalLM", **GROUPED, logit_scale=0.3)
    bounds = [sb.rank(each, data=IDS).bound for each in (model, with_head(model, "softmax"))]
    assert bounds[0] == bounds[1]
    assert "LayerNorm" in bounds[0]["why"]


def test_a_soft_cap_is_kept_by_a_softmax_alone() -> None:
    model = make("Gemma2ForCausalLM", **GROUPED, head_dim=4, final_logit_softcapping=0.5)
    torch.testing.assert_close(with_head(model, "softmax")(IDS, labels=IDS).loss, model(IDS, labels=IDS).loss)
    with pytest.raises(ConfigurationError, match=r"caps its logits at 0.5, and mos would lose the cap"):
        with_head(model, "mos")


def _gradients(model: Any, run: Callable[..., Any]) -> tuple[Tensor, list[Tensor]]:
    model.zero_grad()
    loss = run(IDS, labels=IDS).loss
    loss.backward()
    return loss.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]


# torch's own compiler looks at gradients that are not there.
@pytest.mark.filterwarnings("ignore:The .grad attribute", "ignore::DeprecationWarning")
@pytest.mark.parametrize("limit", [8, 1])  # from the limit on, the compiler leaves functions as they are
def test_what_frameworks_do_with_a_model_changes_no_gradient(limit: int, tmp_path: Path) -> None:
    """Compilation, gradient checkpointing, DistributedDataParallel, and autocast to its roundoff."""
    headed = with_head(make("llama", num_hidden_layers=1), "mos", components=2)
    _train(headed)
    headed.train()
    expected = _gradients(headed, headed)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(_gradients(headed, headed)[0], expected[0], rtol=2e-2, atol=0)
    torch.compiler.reset()
    with torch._dynamo.config.patch(recompile_limit=limit):
        compiled = torch.compile(headed, backend="eager")
        torch.testing.assert_close(_gradients(headed, compiled), expected)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        parallel = nn.parallel.DistributedDataParallel(headed)
        torch.testing.assert_close(_gradients(headed, parallel), expected)
    finally:
        torch.distributed.destroy_process_group()
    # transformers 5.12 has the method under its older name.
    getattr(headed, "activation_checkpointing_enable", headed.gradient_checkpointing_enable)()
    torch.testing.assert_close(_gradients(headed, headed), expected)


def test_a_trainer_trains_and_continues(tmp_path: Path) -> None:
    def trainer(steps: int, head: str = "mos") -> Any:
        data: Any = [{"input_ids": row, "labels": row} for row in IDS.repeat(4, 1)]
        settings = transformers.TrainingArguments(
            output_dir=str(tmp_path), max_steps=steps, per_device_train_batch_size=2, report_to=[], save_steps=2,
            use_cpu=True, disable_tqdm=True, logging_strategy="no", gradient_accumulation_steps=2, learning_rate=1e-2,
        )  # fmt: skip
        model = make("gpt2", attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0)
        model = with_head(model, head, components=2) if head else model
        return transformers.Trainer(model=model, args=settings, train_dataset=data, eval_dataset=data[:3])

    whole = trainer(4)
    whole.train()
    weights = {key: value.clone() for key, value in whole.model.state_dict().items()}
    continued = trainer(4)
    continued.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    torch.testing.assert_close(continued.model.state_dict(), weights)
    saved = from_pretrained(tmp_path / "checkpoint-4")
    assert torch.equal(saved(IDS).logits, whole.model.eval()(IDS).logits)
    shapes: list[Any] = []
    whole.compute_metrics = lambda prediction: shapes.append(prediction.predictions.shape) or {}
    whole.model.return_logits = True  # which metrics need
    whole.evaluate()
    assert shapes == [(3, 12, M)]
    assert trainer(1).evaluate()["eval_loss"] == pytest.approx(trainer(1, head="").evaluate()["eval_loss"], rel=1e-6)


class NanoGPT(nn.Module):
    """The end of a nanoGPT model, tied to its embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.wte, self.lm_head = nn.Embedding(M, d), nn.Linear(d, M, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.lm_head(self.wte(ids))
        return logits, F.cross_entropy(logits.view(-1, M), targets.view(-1))


def test_a_plain_module_in_one_line() -> None:
    model = NanoGPT()
    before = model(IDS, IDS)[1]
    model.lm_head = output_layer(model.lm_head, "mos", components=4)  # type: ignore[assignment]
    torch.testing.assert_close(model(IDS, IDS)[1], before)
    assert model.lm_head.weight is model.wte.weight
    model(IDS, IDS)[1].backward()
    head: Any = model.lm_head
    torch.testing.assert_close(head.head.nll(model.wte(IDS), IDS), before)
    with pytest.raises(ConfigurationError, match=r"a Embedding is not the nn.Linear"):
        output_layer(model.wte, "mos")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a head and a tokenizer, and a text."""
    path = tmp_path_factory.mktemp("headed")
    headed = with_head(make("qwen2"), "mos", components=3)
    _train(headed)
    headed.save_pretrained(path)
    write_tokenizer(path)
    ids = torch.randint(M, (300,), generator=torch.Generator().manual_seed(3))
    (path / "text.txt").write_text(" ".join(f"w{n}" for n in ids.tolist()))
    return path


def test_a_saved_folder_is_measured_as_the_loaded_model(folder: Path) -> None:
    text = str(folder / "text.txt")
    saved = sb.rank(str(folder), data=text)
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    loaded = sb.rank(from_pretrained(folder), data=text, tokenizer=tokenizer)
    assert saved.rank_centered == loaded.rank_centered
    assert saved.to_dict()["source"]["head"] == "mos"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"format": 3, "version": "9.9"}, r"has format 3, .* reads format 2: it was written by version 9.9"),
        ({"head": "other"}, "unknown head 'other'"),
        ({"head": 5}, "head"),
        ({"surplus": 1}, "cannot be read .* save the model again"),
        ({"scale": None}, "scale"),
        ({"scale": float("nan")}, "scale"),
        ({"tied_to": "model.norm.weight"}, "tied_to is 'model.norm.weight', not"),
        ({"tied_to": "(a+)+$"}, "tied_to is"),
        ({"layer": "config"}, "layer is 'config', not 'lm_head'"),
        ({"settings": {"hidden_size": 9, "vocab_size": M}}, "settings.hidden_size is 9, not 8"),
    ],
)
def test_saved_heads_that_are_refused(folder: Path, tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["bottleneck_head"] |= change
    (tmp_path / "config.json").write_text(json.dumps(config))
    shutil.copy(folder / "model.safetensors", tmp_path)
    for load in (from_pretrained, transformers.AutoModelForCausalLM.from_pretrained):
        with pytest.raises(SourceError, match=sentence):
            load(tmp_path)


def test_the_auto_classes_load_the_head(folder: Path) -> None:
    expected = from_pretrained(folder)(IDS).logits
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    torch.testing.assert_close(model(IDS).logits, expected.double(), rtol=1e-4, atol=1e-4)
    assert type(model.config) is transformers.Qwen2Config
    config = transformers.AutoConfig.from_pretrained(folder, hidden_act="relu")
    assert (config.hidden_size, config.hidden_act, config.model_type) == (d, "relu", MODEL_TYPE)
    assert transformers.AutoModelForCausalLM.from_config(config).head.components == 3
    text = transformers.pipeline("text-generation", model=str(folder))
    prompt = {"max_new_tokens": 3, "do_sample": False, "return_full_text": False}
    (answer,) = text("w1 w2 w3", **prompt)
    with torch.no_grad():
        ids = from_pretrained(folder).generate(torch.tensor([[1, 2, 3]]), max_new_tokens=3, do_sample=False)
    assert answer["generated_text"].split() == [f"w{number}" for number in ids[0, 3:].tolist()]


def test_without_this_package_loading_fails_and_names_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(transformers.CONFIG_MAPPING._extra_content, MODEL_TYPE)  # what importing the package adds
    with pytest.raises(ValueError, match=f"`{MODEL_TYPE}` but Transformers does"):
        transformers.AutoModelForCausalLM.from_pretrained(folder)


@pytest.mark.parametrize(("name", "tokens"), [("gpt2", 70), ("llama", 40), ("llama", 70), ("llama", M)])
def test_the_vocabulary_can_be_resized(name: str, tokens: int, tmp_path: Path) -> None:
    headed = with_head(make(name), "mixtape", components=4)
    _train(headed)
    before = headed(IDS % 40).logits.detach()
    with torch.no_grad():
        assert headed.resize_token_embeddings(tokens) is headed.get_input_embeddings()
    assert headed.head.weight.shape == (tokens, d)
    assert headed.config.vocab_size == tokens
    assert (headed.get_input_embeddings().weight is headed.head.weight) == (name in TIED)
    common, after = min(M, tokens), headed(IDS % 40).logits.detach()
    shift = after[..., :common] - before[..., :common]  # of the log-partition alone
    torch.testing.assert_close(shift, shift[..., :1].expand_as(shift), rtol=0, atol=2e-5)
    headed(IDS % 40, labels=IDS % 40).loss.backward()
    headed.save_pretrained(tmp_path)
    assert torch.equal(from_pretrained(tmp_path)(IDS % 40).logits, headed(IDS % 40).logits)
    assert headed.resize_token_embeddings(tokens, pad_to_multiple_of=10) is headed.get_input_embeddings()
    headed.resize_token_embeddings(pad_to_multiple_of=64)
    assert headed.head.vocab_size == (64 if tokens <= 64 else 128)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # asked for by peft
def test_low_rank_adapters(tmp_path: Path) -> None:
    """Nothing of the head is trained, unless ``modules_to_save`` names the output layer."""
    headed = with_head(make("llama"), "mos", components=2)
    modules = ["q_proj", "v_proj"]
    adapted = peft.get_peft_model(copy.deepcopy(headed), peft.LoraConfig(target_modules=modules))
    assert not [name for name, each in adapted.named_parameters() if each.requires_grad and "head" in name]
    _train(adapted)
    assert torch.equal(adapted.get_output_embeddings().head.weight, headed.head.weight)
    settings = peft.LoraConfig(target_modules=modules, modules_to_save=["lm_head"])
    adapted = peft.get_peft_model(copy.deepcopy(headed), settings)
    losses = _train(adapted)
    assert losses[2] < losses[0]
    assert sb.rank(adapted, data=IDS).source["head"] == "mos"
    trained = adapted.get_output_embeddings().head
    assert not torch.equal(trained.contexts.projection.weight, headed.head.contexts.projection.weight)
    adapted.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(copy.deepcopy(headed), tmp_path)
    assert torch.equal(again.eval()(IDS).logits, adapted.eval()(IDS).logits)
    merged = adapted.merge_and_unload()
    merged.save_pretrained(tmp_path / "merged")
    torch.testing.assert_close(from_pretrained(tmp_path / "merged")(IDS).logits, again(IDS).logits)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # asked for by peft
def test_an_output_layer_that_an_adapter_trains_is_measured_as_it_is_now() -> None:
    """PEFT keeps it beside the model's own, for each adapter."""
    adapted = peft.get_peft_model(
        make("llama"), peft.LoraConfig(target_modules=["q_proj"], modules_to_save=["lm_head"])
    )
    wrapper = adapted.get_output_embeddings()
    with torch.no_grad():
        wrapper.modules_to_save["default"].weight[:, 2:] = 0
    assert sb.rank(adapted, data=IDS).rank_centered.value == 2
    with adapted.disable_adapter():
        assert sb.rank(adapted, data=IDS).rank_centered.value == 8
    adapted.add_adapter("other", peft.LoraConfig(target_modules=["q_proj"]))
    adapted.set_adapter("other")
    assert sb.rank(adapted, data=IDS).rank_centered.value == 8


def test_a_folder_without_a_head_or_with_other_settings(folder: Path, tmp_path: Path) -> None:
    """A plain model that is saved over a head is noticed."""
    headed = shutil.copytree(folder, tmp_path / "headed")
    from_pretrained(headed).save_pretrained(headed)
    make("qwen2").save_pretrained(headed)
    with pytest.raises(SourceError, match="has no head of this package"):
        from_pretrained(headed)
    shutil.copytree(folder, headed, dirs_exist_ok=True)
    (headed / "generation_config.json").write_text("[]")
    with pytest.raises(SourceError, match="transformers cannot load"):
        from_pretrained(headed)


def test_a_copy_is_independent() -> None:
    headed = with_head(make("gpt2"), "lms-plif", knots=100)
    again = pickle.loads(pickle.dumps(headed))
    assert torch.equal(again(IDS, labels=IDS).loss, headed(IDS, labels=IDS).loss)
    copied = copy.deepcopy(headed)
    _train(copied)
    assert not torch.equal(copied.head.function.v, headed.head.function.v)
    assert copied.get_input_embeddings().weight is copied.head.weight
