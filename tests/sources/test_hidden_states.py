"""Hidden states in files with their output layer, against the same head on the same states in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import transformers
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

import softmax_bottleneck as sb
from softmax_bottleneck import perplexity, rank
from softmax_bottleneck.errors import ConfigurationError, MatrixError, SourceError
from softmax_bottleneck.heads import Softmax
from softmax_bottleneck.integrations.transformers import with_head
from softmax_bottleneck.measure.dumping import dump
from softmax_bottleneck.sources.kinds import open_sources

from .states import D, M, save


@pytest.mark.parametrize("softcap", [None, 5.0])
def test_a_folder_of_files_equals_the_head_on_its_states(text: Any, softcap: float | None, tmp_path: Path) -> None:
    weight, ids, states = text
    how = {**save(tmp_path, weight, ids, states), "scale": 1.5, "softcap": softcap}
    keep = np.r_[0:119, 120:199]  # nothing is known of the token after each file's last
    head = Softmax.of(weight, scale=1.5, soft_cap=softcap)
    expected: Any = {"hidden": states[keep], "targets": ids[keep + 1]}
    source = sb.open(str(tmp_path / "text"), **how)
    assert source.shape == (200, M)
    assert source.entry_warning() == ""
    ours, theirs = rank(source), rank(head, hidden=states)
    np.testing.assert_allclose(ours.spectrum.values, theirs.spectrum.values)
    assert (ours.spectrum.method, ours.rank, ours.bound) == (theirs.spectrum.method, theirs.rank, theirs.bound)
    assert sb.kld(source, pairs=500).kld == pytest.approx(sb.kld(head, pairs=500, hidden=states).kld)
    assert str(perplexity(source)).startswith("verdict  perplexity")
    assert perplexity(source).perplexity == pytest.approx(perplexity(head, **expected).perplexity)


def test_files_are_read_in_the_order_of_their_numbers(text: Any, tmp_path: Path) -> None:
    """A server's script may write 0, 1, …, 10, 11 without zeros before them."""
    weight, ids, states = text
    how = save(tmp_path, weight, ids, states)
    for inside in ("files", "folder/hidden"):
        (tmp_path / inside).mkdir(parents=True)
        for n in range(12):
            arrays = {"hidden_states": states[2 * n : 2 * n + 2].clone(), "token_ids": ids[2 * n : 2 * n + 2].clone()}
            save_file(arrays, tmp_path / inside / f"{n}.safetensors")
    save_file({"weight": weight}, tmp_path / "folder" / "head.safetensors")
    (tmp_path / "folder" / "states.json").write_text('{"format": "softmax-bottleneck states 1", "contexts": 24}')
    expected = F.log_softmax(states[:24] @ weight.T, -1).numpy()
    for source in (sb.open(str(tmp_path / "files"), **how), sb.open(tmp_path / "folder")):
        seen = np.concatenate([block.log_probs for block in source.blocks()])
        np.testing.assert_allclose(seen, expected, atol=1e-4)


def test_padding_is_left_out_and_targets_are_read(text: Any, tmp_path: Path) -> None:
    """Beside files that are not states, and with −100 for a token that is not known, as transformers has it."""
    weight, ids, states = text
    how = save(tmp_path, weight, ids, states)
    for name in (".DS_Store", "README.md", "meta.json"):
        (tmp_path / "text" / name).write_text("{}")
    head, mask = Softmax.of(weight), torch.ones(4, 50, dtype=torch.long)
    mask[1, 30:], mask[3, :20] = 0, 0
    batch = {"hidden_states": states.view(4, 50, D), "token_ids": ids.view(4, 50) * mask, "attention_mask": mask}
    save_file(batch, tmp_path / "batch.safetensors")
    keep = np.r_[0:49, 50:79, 100:149, 170:199]
    padded = sb.open(str(tmp_path / "batch.safetensors"), **how)
    assert padded.shape == (160, M)
    expected = perplexity(head, hidden=states[keep], targets=ids[keep + 1]).perplexity
    assert perplexity(padded).perplexity == pytest.approx(expected)
    targets = ids.roll(-1)
    targets[7] = -100
    for name, rows in (("0", slice(0, 120)), ("1", slice(120, 200))):
        arrays = {"hidden_states": states[rows], "token_ids": ids[rows], "targets": targets[rows]}
        save_file({key: each.clone() for key, each in arrays.items()}, tmp_path / "text" / f"{name}.safetensors")
    keep = np.delete(np.arange(200), 7)
    expected = perplexity(head, hidden=states[keep], targets=targets[keep]).perplexity
    assert perplexity(str(tmp_path / "text"), **how).perplexity == pytest.approx(expected)


def test_the_last_state_of_a_file_counts_where_no_target_is_needed(text: Any, tmp_path: Path) -> None:
    weight, ids, states = text
    how = save(tmp_path, weight, ids, states)
    keep = np.r_[0:119, 120:199]
    np.save(tmp_path / "student.npy", (states + 0.1).numpy())
    teacher, student = str(tmp_path / "text"), str(tmp_path / "student.npy")
    heads: Any = [sb.open(Softmax.of(weight), hidden=each) for each in (states, states + 0.1)]
    assert sb.compare(teacher, student, **how).statistics["kl"] == sb.compare(*heads).statistics["kl"]
    known = [sb.open(Softmax.of(weight), hidden=states[keep], targets=ids[keep + 1])] * 2
    both = sb.compare(teacher, teacher, **how)
    assert both.statistics["reference_perplexity"] == sb.compare(*known).statistics["reference_perplexity"]
    assert sb.gradient(teacher, **how).kept == pytest.approx(sb.gradient(known[0]).kept)
    assert sb.need(teacher, **how).to_dict()["contexts"] == sb.need(known[0]).to_dict()["contexts"]
    store = tmp_path / "s.zarr"
    dump(teacher, store, **how)
    assert (sb.rank(store).contexts, perplexity(store).tokens) == (200, 198)
    assert perplexity(store).perplexity == pytest.approx(perplexity(known[0]).perplexity)


def lists(rows: Any, kind: Any) -> Any:
    return pa.array(list(rows), pa.list_(kind))


FORMS: dict[str, Callable[[Any, Any], dict[str, Any]]] = {
    "lists": lambda h, ids: {"hidden_states": lists(h, pa.float32()), "token_ids": ids},
    "half floats": lambda h, ids: {"hidden_states": lists(h.astype("f2"), pa.float16()), "token_ids": ids},
    "fixed size": lambda h, ids: {"hidden_states": pa.FixedSizeListArray.from_arrays(h.ravel(), D), "token_ids": ids},
    "a row a text": lambda h, ids: {
        "hidden_states": [h[:120].tolist(), h[120:].tolist()],
        "token_ids": [ids[:120].tolist(), ids[120:].tolist()],
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_states_in_the_columns_of_a_table(form: str, text: Any, tmp_path: Path) -> None:
    weight, ids, states = text
    np.save(tmp_path / "w.npy", weight.numpy())
    pq.write_table(pa.table(FORMS[form](states.numpy(), ids.numpy())), tmp_path / "h.parquet")
    source = sb.open(str(tmp_path / "h.parquet"), head=str(tmp_path / "w.npy"))
    expected = sb.open(Softmax.of(weight), hidden=states.half() if "half" in form else states)
    np.testing.assert_array_equal(next(source.blocks()).log_probs, next(expected.blocks()).log_probs)
    last = [119, 199] if form == "a row a text" else [199]
    np.testing.assert_array_equal(source.targets, np.where(np.isin(np.arange(200), last), -1, ids.roll(-1)))


@pytest.mark.parametrize("kind", [">f4", ">f8", "longdouble", "f2", "float8_e4m3fn"])
def test_types_that_torch_does_not_compute_in(kind: str, text: Any, tmp_path: Path) -> None:
    weight, ids, states = text
    if kind.startswith("float8"):
        states = states.to(torch.float8_e4m3fn)
        save_file({"hidden_states": states, "token_ids": ids}, tmp_path / "h.safetensors")
        save_file({"w": weight}, tmp_path / "w.safetensors")
    else:
        states = states.numpy().astype(kind)
        np.savez(tmp_path / "h.npz", hidden_states=states, token_ids=ids.numpy().astype(">i8"))
        np.savez(tmp_path / "w.npz", w=weight.numpy().astype(kind))
        weight = torch.from_numpy(weight.numpy().astype(kind).astype("f4"))
    suffix = ".safetensors" if kind.startswith("float8") else ".npz"
    source = sb.open(str(tmp_path / f"h{suffix}"), head=str(tmp_path / f"w{suffix}"))
    wide = states.float() if isinstance(states, Tensor) else torch.from_numpy(states.astype("f4"))
    expected = sb.open(Softmax.of(weight), hidden=wide)
    np.testing.assert_allclose(next(source.blocks()).log_probs, next(expected.blocks()).log_probs, atol=1e-5)


@pytest.mark.parametrize(
    "other",
    [lambda array: array[::-1].copy()[::-1], lambda array: array.astype(">f4"), lambda array: array.astype("g")],
)
def test_arrays_in_memory_that_torch_does_not_take(other: Callable[..., Any], text: Any) -> None:
    """With negative strides, in the other byte order, or in long double."""
    weight, _, states = (each.numpy() for each in text)
    ours, expected = (rank(Softmax.of(text[0]), hidden=each) for each in (other(states), states))
    np.testing.assert_allclose(ours.spectrum.values, expected.spectrum.values, rtol=1e-6)
    assert sb.head(other(weight)).verdict == sb.head(weight).verdict


@pytest.mark.parametrize(
    ("states", "told"),
    [
        (np.zeros((9, D), "U3"), "must hold real numbers, not <U3"),
        (np.zeros((9, D), "M8[s]"), "must hold real numbers, not datetime64"),
        (np.zeros((9, D), [("a", "f4")]), "must hold real numbers, not"),
        (np.zeros((9, D), "V2"), "bfloat16 without its type"),
        (np.zeros((9, D), complex), "must hold real numbers, not complex128"),
        (np.float32(3), "must be an array, not one number"),
        ({"hidden_states": [[1.0] * D, [1.0]]}, "the lists of a column must have one length"),
        ({"hidden_states": [[1.0] * D, None]}, "the lists of a column must have one length"),
        ({"hidden_states": ["a", "b"]}, "must hold real numbers, not <U1"),
        ({"hidden_states": [[1.0] * D] * 2, "token_ids": ["a", "b"]}, "token_ids in .* must be whole numbers .* text"),
    ],
)
def test_arrays_and_columns_that_are_not_states(states: Any, told: str, tmp_path: Path) -> None:
    np.save(right := tmp_path / "right.npy", np.ones((9, D), np.float32))
    if is_table := isinstance(states, dict):
        pq.write_table(pa.table(states), wrong := tmp_path / "wrong.parquet")
    else:
        np.save(wrong := tmp_path / "wrong.npy", states)
    for source, head in [(wrong, right)] + [(right, wrong)] * (not is_table):
        with pytest.raises(SourceError, match=told):
            rank(str(source), head=str(head))


@pytest.mark.parametrize("beta", [False, True])
def test_the_final_norm(text: Any, beta: bool, tmp_path: Path) -> None:
    weight, _, states = text
    gamma = torch.linspace(0.5, 2, D)
    arrays = {"ln.weight": gamma, **({"ln.bias": torch.ones(D)} if beta else {}), "w": weight}
    save_file(arrays, tmp_path / "m.safetensors")
    np.save(tmp_path / "h.npy", 5 * states.numpy())
    model = str(tmp_path / "m.safetensors")
    normalized = (
        F.layer_norm(5 * states, (D,), gamma, torch.ones(D)) if beta else F.rms_norm(5 * states, (D,), gamma, 1e-6)
    )
    (block,) = sb.open(str(tmp_path / "h.npy"), head=f"{model}:w", norm=f"{model}:ln.weight").blocks()
    np.testing.assert_allclose(block.log_probs, F.log_softmax(normalized @ weight.T, 1), atol=1e-5)


@pytest.mark.parametrize(
    "config",
    [
        transformers.GemmaConfig(num_key_value_heads=2, head_dim=4),  # multiplies by 1 + weight
        transformers.CohereConfig(num_key_value_heads=2, logit_scale=1.0),  # a LayerNorm without a bias
        transformers.GPTNeoXConfig(),  # a LayerNorm whose bias is in another file
    ],
)
def test_the_final_norm_of_a_model_s_folder(config: Any, text: Any, tmp_path: Path) -> None:
    weight, _, states = text
    config.update({"vocab_size": M, "hidden_size": D, "num_hidden_layers": 1, "num_attention_heads": 2})
    model: Any = transformers.AutoModelForCausalLM.from_config(config)
    name, norm = next(pair for pair in model.named_modules() if pair[0].endswith(("l.norm", "final_layer_norm")))
    for parameter in norm.parameters():
        parameter.data = torch.linspace(0.2, 1.5, D)
    arrays = {"states": states, "w": weight, **{f"{name}.{key}": value for key, value in norm.state_dict().items()}}
    for key, value in arrays.items():
        save_file({key: value}, tmp_path / f"{key}.safetensors")
    config.save_pretrained(tmp_path)
    how = {"head": f"{tmp_path}/w.safetensors", "norm": f"{tmp_path}/{name}.weight.safetensors:{name}.weight"}
    (block,) = sb.open(str(tmp_path / "states.safetensors"), **how).blocks()
    expected = F.log_softmax(norm(states).detach() @ weight.T, 1)
    np.testing.assert_allclose(block.log_probs, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("config", "settings"),
    [
        (transformers.LlamaConfig, {"tie_word_embeddings": True}),
        (transformers.GraniteConfig, {"logits_scaling": 4.0}),  # divides
        (transformers.CohereConfig, {"logit_scale": 0.3}),  # multiplies
        (transformers.Gemma2Config, {"final_logit_softcapping": 5.0, "head_dim": 4, "num_key_value_heads": 2}),
        (transformers.PhiConfig, {}),  # a bias
    ],
)
def test_a_whole_model_is_given_as_head_and_norm(config: Any, settings: Any, text: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes = {"vocab_size": M, "hidden_size": D, "intermediate_size": D, "num_hidden_layers": 1}
    model: Any = transformers.AutoModelForCausalLM.from_config(config(num_attention_heads=2, **sizes, **settings))
    for parameter in model.parameters():
        parameter.data.uniform_(-1, 1)
    model.save_pretrained(tmp_path / "model")
    names = [name for name, _ in model.named_modules() if name.endswith(("model.norm", "final_layernorm"))]
    before: list[Tensor] = []
    model.get_submodule(names[0]).register_forward_hook(lambda _, inputs, __: before.append(inputs[0]))
    ids = text[1][:40]
    with torch.no_grad():
        logits = model(ids[None]).logits[0]
    save_file({"hidden_states": before[0][0], "token_ids": ids}, tmp_path / "h.safetensors")
    model_folder = str(tmp_path / "model")
    (block,) = sb.open(str(tmp_path / "h.safetensors"), head=model_folder, norm=model_folder).blocks()
    np.testing.assert_allclose(block.log_probs, logits.log_softmax(1), atol=1e-5)


def test_a_model_that_is_given_as_head_names_the_tokens(tmp_path: Path) -> None:
    model = str(Path(__file__).parents[1] / "fixtures" / "llama.cpp" / "model.gguf")
    size = sb.head(model).embedding_size
    save_file({"hidden_states": torch.randn(9, size), "token_ids": torch.arange(97, 106)}, tmp_path / "h.safetensors")
    source = sb.open(str(tmp_path / "h.safetensors"), head=model)
    assert source.text.tokenizer.names([97]) == sb.open(model, data="the red " * 40).text.tokenizer.names([97])
    assert perplexity(source).tokens == 8


def test_another_head_of_a_model_than_a_softmax_is_refused(text: Any, tmp_path: Path) -> None:
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=M, n_embd=D, n_layer=1, n_head=2))
    with_head(model, "mos", components=2).save_pretrained(tmp_path / "mos")
    save_file({"hidden_states": text[2]}, tmp_path / "h.safetensors")
    with pytest.raises(SourceError, match="is not a softmax layer: measure the model itself"):
        rank(str(tmp_path / "h.safetensors"), head=str(tmp_path / "mos"))


@pytest.mark.parametrize("layout", ["a text", "four texts", "layers"])
def test_a_batch_is_several_texts_and_the_last_layer_counts(layout: str, text: Any, tmp_path: Path) -> None:
    weight, ids, states = text
    batch = 4 if layout == "four texts" else 1
    arrays = {"hidden_states": states.view(batch, -1, D), "token_ids": ids.view(batch, -1)}
    if layout == "layers":
        arrays = {"hidden_states": torch.stack([torch.zeros_like(states), states], 1), "token_ids": ids}
    save_file(arrays, tmp_path / "h.safetensors")
    np.save(tmp_path / "w.npy", weight.numpy())
    keep = np.flatnonzero(np.arange(1, 201) % (200 // batch))
    expected = perplexity(Softmax.of(weight), hidden=states[keep], targets=ids[keep + 1])
    ours = perplexity(str(tmp_path / "h.safetensors"), head=str(tmp_path / "w.npy"))
    assert ours.perplexity == pytest.approx(expected.perplexity)


ZEROS = torch.zeros(9, D)


@pytest.mark.parametrize(
    ("states", "options", "told"),
    [
        (torch.zeros(9, 5), {}, r"have 5 dimensions, and W has 8 columns"),
        (torch.zeros(9, 2, D), {}, r"may be those of layers, \(T, L, d\), or of texts"),
        (ZEROS.long(), {}, "must be real numbers in this shape, not torch.int64"),
        (ZEROS, {"token_ids": torch.zeros(4).long()}, "must be 9 whole numbers"),
        (ZEROS, {"token_ids": torch.full((9,), M)}, "must be 9 token ids from 0 to"),
        (ZEROS, {"bias": "w.npy"}, r"the bias, \(M,\), must be"),
        (ZEROS, {"norm": "h.safetensors:norm"}, "there is no 'norm'"),
        (ZEROS, {"head": "none.npy"}, "the file none.npy does not exist"),
        (ZEROS, {"head": "w.txt"}, "must be a file of arrays: .npy"),
        (ZEROS, {"head": "w.pt"}, "is a sparse, quantized or empty tensor"),
        (ZEROS, {"bias": "b.npy"}, "must hold finite numbers, and −∞ only for tokens"),
        *((ZEROS, {"scale": value}, "have a size between 1e-30 and 1e30") for value in (np.nan, 1e308, 0.0)),
        *((ZEROS, {"softcap": value}, "1e30, and the cap must") for value in (np.inf, -1)),
    ],
)
def test_arrays_that_do_not_fit(states: Any, options: Any, told: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    ids = {"token_ids": options["token_ids"]} if "token_ids" in options else {}
    save_file({"hidden_states": states, **ids}, "h.safetensors")
    np.save("w.npy", np.ones((M, D), np.float32))
    torch.save(torch.eye(M, D).to_sparse(), "w.pt")
    np.save("b.npy", np.full(M, np.nan, np.float32))
    Path("w.txt").write_text("1 2", encoding="utf-8")
    for measure in (rank, sb.need):
        with pytest.raises((ConfigurationError, SourceError, MatrixError), match=told):
            measure("h.safetensors", **{"head": "w.npy", **({} if ids else options)})


@pytest.mark.parametrize("b", [np.nan, np.inf])
def test_an_output_bias_is_finite_or_a_mask(b: float, tmp_path: Path) -> None:
    np.save(place := tmp_path / "b.npy", np.array([b, *[0.0] * (M - 1)], np.float32))
    layer = torch.nn.Linear(D, M)
    for measure in (sb.head, sb.argmaxable):
        with pytest.raises(SourceError, match="bias of an output layer must hold finite numbers, and −∞ only for"):
            measure(layer.weight.detach(), bias=str(place))
    with torch.no_grad():
        layer.bias[0] = b
    with pytest.raises(SourceError, match="bias of an output layer must hold finite numbers, and −∞ only for"):
        rank(layer, hidden=torch.randn(9, D))


@pytest.mark.parametrize("make", [torch.nn.Linear, sb.heads.Softmax, sb.heads.Sigsoftmax])
@pytest.mark.parametrize("w", [np.nan, np.inf, -np.inf])
def test_damaged_rows_of_an_output_layer_are_named(w: float, make: Any) -> None:
    layer = make(D, M)
    with torch.no_grad():
        layer.weight[7, 1] = w
    for measure in (rank, sb.kld, sb.need):
        with pytest.raises(SourceError, match="row 7 of W holds a number that is not finite"):
            measure(layer, hidden=torch.randn(9, D))


def test_a_head_belongs_to_the_hidden_states_alone(text: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside them an n-gram model, a store or a run is what it is without ``head``."""
    head, words = save(tmp_path, *text), [f"w{number}" for number in range(M - 1)]
    monkeypatch.chdir(tmp_path)
    Path("corpus").mkdir()
    for split in ("train", "valid", "test"):
        Path(f"corpus/{split}.txt").write_text(" ".join(words * 4), encoding="utf-8")
    kinds = [source.description["kind"] for source in open_sources(["text", "kn2:corpus"], {**head})]
    assert kinds == ["head", "ngram"]
    with pytest.raises(ConfigurationError, match=r"^head does not apply to a Hugging Face model \(none\)"):
        rank("none", **head)
