"""Folders, weights, texts and names that cannot be measured, and the one sentence for each."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from attacks.damage import flip
from softmax_bottleneck import argmaxable, head, rank
from softmax_bottleneck.errors import ConfigurationError, CorpusError, SourceError
from softmax_bottleneck.hugging_face.loading import quiet
from softmax_bottleneck.hugging_face.text import read_text
from softmax_bottleneck.sources import open_source

from .conftest import GROUPED, Architecture, Open, Save, change_weights


@pytest.fixture
def folder(save: Save) -> Path:
    """A GPT-2 to spoil."""
    return save("gpt2")


def change_config(folder: Path, **values: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **values}))


def pickle_weights(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def shard(folder: Path, whole: str = "model.safetensors") -> None:
    """Cut the weights into two files, pickled ones for another name."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    stem, suffix = whole.split(".")
    places = {name: f"{stem}-0000{1 + n % 2}-of-00002.{suffix}" for n, name in enumerate(sorted(tensors))}
    for file in set(places.values()):
        part = {name: tensor for name, tensor in tensors.items() if places[name] == file}
        torch.save(part, folder / file) if suffix == "bin" else save_file(part, folder / file, {"format": "pt"})
    (folder / f"{whole}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


def write_numbers(folder: Path, dtype: torch.dtype, *names: str) -> None:
    """Store some tensors, or all of them, as another type."""
    change_weights(folder, lambda t: t.update({name: (50 * t[name]).to(dtype) for name in names or list(t)}))


def write_slow_tokenizer(folder: Path, vocabulary: dict[str, int]) -> None:
    """A tokenizer in Python, whose ids are whatever its vocabulary says."""
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "CTRLTokenizer"}')
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n")


def forget_words(folder: Path) -> None:
    """A tokenizer that knows no word of the text."""
    whole = json.loads((folder / "tokenizer.json").read_text())
    whole["model"]["vocab"] = {"word": 0, "<unk>": 1}
    (folder / "tokenizer.json").write_text(json.dumps(whole))


def name_shards(folder: Path, old: str, new: str) -> None:
    """Let the index name other shards."""
    index = folder / "model.safetensors.index.json"
    index.write_text(index.read_text().replace(old, new))


def leave_parts(folder: Path, part: str) -> None:
    """Put the file of one process of a training in the place of the weights."""
    (folder / "model.safetensors").unlink()
    (folder / part).parent.mkdir(exist_ok=True)
    (folder / part).write_bytes(b"")
    (folder / "optimizer.bin").write_bytes(b"")


def rename_weights(folder: Path, prefix: str) -> None:
    change_weights(folder, lambda t: t.update({f"{prefix}{name}": t.pop(name) for name in list(t)}))


INNER, WTE = "transformer.h.0.mlp.c_fc.bias", "transformer.wte.weight"
LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
HALF, INDEX = "model-00002-of-00002.safetensors", "model.safetensors.index.json"
CODE = {"AutoModelForCausalLM": "modeling_mine.MyModel"}
DISTRIBUTED = {
    "pytorch_model_fsdp_0/__0_0.distcp": "merge all parts by accelerate merge-weights .*_fsdp_0 OUT, and give the",
    "global_step9/zero_pp_rank_0_mp_rank_00_model_states.pt": r"merge all parts by zero_to_fp32\.py, and give",
}
OTHER = "shard-00001-model-00001-of-00001.safetensors"
Spoil = Callable[[Path], object]
WEIGHTS: list[tuple[Spoil, str]] = [
    (lambda f: (shutil.copy(f / "model.safetensors", f / "old"), shard(f), (f / "old").rename(f / "model.safetensors")),
     r"holds two sets of weights, model\.safetensors and 2 shards, first model-00001-of-00002.safetensors: move"),
    (lambda f: change_weights(f, lambda t: t.update({WTE: torch.empty(0)})),
     r"\S+ is empty, as DeepSpeed's ZeRO-3 leaves a weight .* zero_to_fp32\.py"),
    (lambda f: change_weights(f, lambda t: t.update({WTE: t[WTE].to(torch.float8_e4m3fn)})),
     "wte.weight.*needs a scale to be a weight"),
    (lambda f: (f / "model.safetensors").write_text(LFS),
     r"model\.safetensors is a Git LFS pointer in place of the file: run 'git lfs pull' in its folder"),
    (lambda f: (f / "model.safetensors").write_bytes(bytes(3000)),
     r"model\.safetensors cannot be read \(.*\); download the model again"),
]  # fmt: skip
"""What the output layer alone shows too."""
SPOILT: list[tuple[Spoil, str]] = [
    *WEIGHTS,
    (pickle_weights, r"holds only pickled weights \(pytorch_model.bin\).* convert them with: python -c"),
    (lambda f: (shard(f), (f / HALF).unlink()), f"lacks 1 of its 2 weight files, first {HALF}"),
    (lambda f: (shard(f), (f / INDEX).write_text("{}")), f"{INDEX} is damaged or of another kind"),
    (lambda f: shutil.copy(f / "model.safetensors", f / OTHER), f"holds {OTHER}, and only model.safetensors, or"),
    (lambda f: (f / "model.safetensors").rename(f / "weights.safetensors"),
     "holds weights.safetensors, and only model.safetensors, or shards with"),
    (lambda f: change_config(f, transformers_weights="sub/other.safetensors"),
     r"config.json names the file of its weights itself \(transformers_weights\)"),
    (lambda f: (f / "adapter_config.json").write_text("{}"),
     "holds adapter_config.json, and only model.safetensors, .* are read: merge an adapter into its model"),
    (lambda f: ((f / "config.json").unlink(), (f / "model.safetensors").unlink(), (f / "adapter_config.json").touch()),
     r"holds an adapter \(adapter_config.json\): merge it into its model by merge_and_unload"),
    (lambda f: change_config(f, n_head="two"), "cannot read the configuration .*: .*n_head"),
    (lambda f: change_config(f, auto_map=CODE),
     r"is code of its own \(auto_map names MyModel\), and no code that comes with a model is run here"),
    (lambda f: change_config(f, model_type="bert", architectures=["BertForMaskedLM"]),
     r"is not a causal language model \(model type 'bert', BertForMaskedLM\); only causal"),
    (lambda f: change_config(f, model_type="bart", architectures=None, is_encoder_decoder=True),
     r"is not a causal language model \(model type 'bart'\); only causal"),
    (lambda f: [file.unlink() for file in f.glob("tokenizer*")],
     "has no tokenizer; put the model's tokenizer.json beside its weights"),
    (lambda f: (shard(f), name_shards(f, "of-00002", "of-00003")),
     "lacks 2 of its 2 weight files, first model-00001-of-00003.*; model-00001-of-00002.safetensors is of another"),
    (lambda f: (shard(f), name_shards(f, "model-00001", "x" * 300)), "lacks 1 of its 2 weight files"),
    *((lambda f, part=part: leave_parts(f, part), sentence) for part, sentence in DISTRIBUTED.items()),
    (lambda f: change_weights(f, lambda t: t.update({INNER: torch.zeros(7)})),
     rf"{INNER} has the shape \(7,\), not \(\d+,\): put the config.json beside them that was saved with them"),
    (lambda f: change_config(f, tie_word_embeddings=False),
     "lm_head.weight is missing; if the output layer is the input embeddings, set tie_word_embeddings .* to true"),
    (lambda f: rename_weights(f, "_orig_mod."),
     r"is missing; _orig_mod\.\S+ has a name too long: save the model itself"),
    (lambda f: change_weights(f, lambda t: t.__delitem__(INNER)), f"{INNER} is missing; download the model again"),
    (lambda f: change_weights(f, lambda t: t.update({name.replace("h.0", "h.1"): t[name].clone() for name in list(t)})),
     r"11 tensors of the files are not used, first transformer\.h\.1\.attn\.c_attn\.weight: put the config\.json"),
    (lambda f: change_weights(f, lambda t: t.update({"lm_head.bias": torch.ones(60)})),
     r"1 tensors of the files are not used, first lm_head\.bias: put the config\.json"),
    (lambda f: (f / "tokenizer.json").write_text(LFS), r"tokenizer\.json is a Git LFS pointer"),
    (lambda f: write_numbers(f, torch.float8_e4m3fn),
     r"weights of .* hold \S+ as F8_E4M3, .* and its config.json names no quantization that transformers knows"),
    (lambda f: (write_numbers(f, torch.int8, INNER), shard(f)), f"hold {INNER} as I8"),
    (lambda f: (write_numbers(f, torch.int8), change_config(f, quantization_config={"quant_method": "novel"})),
     "names the quantization 'novel', which transformers does not know: give the model in bfloat16"),
    (forget_words,
     "does not tell the words of the text apart: put the model's own tokenizer beside it, or give another text"),
    (lambda f: write_slow_tokenizer(f, {"w@@": 0}), "makes the token None, and the model has 60, numbered from 0"),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "sentence"), SPOILT)
def test_spoilt_folders(folder: Path, open_model: Open, spoil: Spoil, sentence: str) -> None:
    spoil(folder)
    with pytest.raises(SourceError, match=sentence) as raised:
        rank(open_model(folder))
    assert "\n" not in str(raised.value)
    if (spoil, sentence) in WEIGHTS:
        for measure in (head, argmaxable):
            with pytest.raises(SourceError, match=sentence):
                measure(folder)


MASKS = {"transformer.h.0.attn.bias": torch.ones(1, 1, 64, 64, dtype=torch.uint8).tril()}


@pytest.mark.parametrize(
    ("change", "options"),
    [
        (lambda f: change_weights(f, lambda t: t.update(MASKS)), {}),  # as older files of GPT-2
        (lambda f: change_weights(f, lambda t: t.update({"lm_head.weight": t[WTE].clone()})), {}),  # tied
        (shard, {}),
        (pickle_weights, {"allow_pickle": True}),
    ],
)
def test_what_is_the_same_model(change: Spoil, options: dict[str, Any], folder: Path, open_model: Open) -> None:
    whole = rank(open_model(folder)).spectrum.values
    change(folder)
    assert (rank(open_model(folder, **options)).spectrum.values == whole).all()


@pytest.mark.parametrize(
    "extra", [{"transformer.h.1.ln_1.weight": (8,), "transformer.h.1.eh_proj.weight": (8, 16)}, {f"ema.{WTE}": (60, 8)}]
)
def test_other_tensors_are_named_and_left_out(extra: Any, folder: Path, open_model: Open, caplog: Any) -> None:
    """As heads that predict several tokens are, whose layer has parts that others have not, and averages."""
    whole = rank(open_model(folder)).spectrum.values
    assert not caplog.messages
    change_weights(folder, lambda t: t.update({name: torch.ones(shape) for name, shape in extra.items()}))
    assert (rank(open_model(folder)).spectrum.values == whole).all()
    assert caplog.messages == [f"{folder}: {len(extra)} tensors of the files are not used, first {min(extra)}"]


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt"])
def test_the_conversion_command_works_as_printed(folder: Path, open_model: Open, name: str, tmp_path: Path) -> None:
    whole = rank(open_model(folder)).spectrum.values
    folder = folder.rename(tmp_path / "it's [1] $HOME")
    pickle_weights(folder)
    (folder / "pytorch_model.bin").rename(folder / name)
    with pytest.raises(SourceError, match="holds only pickled weights") as raised:
        open_model(folder, allow_pickle=name == "model.pt")  # transformers would not find it
    command = str(raised.value).partition("with: ")[2].partition(", or read")[0]
    program, option, code = shlex.split(command)
    assert (program, option) == ("python", "-c")
    exec(code, {})
    assert (rank(open_model(folder)).spectrum.values == whole).all()


@pytest.mark.parametrize(("whole", "place"), [("model.safetensors", ".."), ("pytorch_model.bin", "sub"), ("", "")])
def test_a_shard_lies_in_the_folder_itself(whole: str, place: str, folder: Path, open_model: Open) -> None:
    """What an index names elsewhere is not read: it is another's, or no hash of the model knows it."""
    shard(folder, whole or "model.safetensors")
    (index,) = folder.glob("*.index.json")
    shards = json.loads(index.read_text())["weight_map"]
    moved = sorted(set(shards.values()))[0]
    (folder / "sub").mkdir()
    (folder / moved).rename(folder / place / moved if place else folder.parent / moved)
    name = f"{place}/{moved}" if place else str(folder.parent / moved)
    changed = {tensor: name if file == moved else file for tensor, file in shards.items()}
    index.write_text(json.dumps({"metadata": {}, "weight_map": changed}))
    with pytest.raises(SourceError, match=f"index.json names '{name}', which is not a file of the folder itself"):
        open_model(folder, allow_pickle=True)


def test_the_identity_is_that_of_the_files_that_are_loaded(folder: Path, open_model: Open, tmp_path: Path) -> None:
    shard(folder)
    before = open_model(folder).identity
    save_file({"adapter": torch.ones(1)}, folder / "adapter_model.safetensors")
    assert open_model(folder).identity == before
    first = folder / "model-00001-of-00002.safetensors"
    first.rename(tmp_path / "blob")
    first.symlink_to(tmp_path / "blob")  # as the hub's cache keeps them
    assert open_model(folder).identity == before
    flip(-1)(tmp_path / "blob")
    assert open_model(folder).identity != before


class Spy:
    """Writes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return Path.touch, (self.file,)


def test_allowed_pickles_run_no_code(folder: Path, open_model: Open, tmp_path: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save({**tensors, "spy": Spy(tmp_path / "ran")}, folder / "pytorch_model.bin")
    with pytest.raises(SourceError, match=r"pytorch_model\.bin cannot be read \(it is damaged or holds more"):
        rank(open_model(folder, allow_pickle=True))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_encoder_under_a_causal_name_is_found_out(
    dtype: str, open_model: Open, tmp_path: Path, folder: Path
) -> None:
    """BERT's class for causal models attends to later tokens unless it is told not to.

    One token of many may move the others by less than bfloat16 rounds; half of them move them by more.
    """
    with quiet() as transformers:
        sizes = {"vocab_size": 60, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
        config = transformers.BertConfig(**sizes, intermediate_size=16, initializer_range=1.0)
        transformers.BertLMHeadModel(config).save_pretrained(tmp_path / "bert")
    for file in folder.glob("tokenizer*"):
        shutil.copy(file, tmp_path / "bert")
    with pytest.raises(SourceError, match="looks ahead: its hidden states change with the tokens after them"):
        rank(open_model(tmp_path / "bert", dtype=dtype, context_length=64, stride=32))
    change_config(tmp_path / "bert", is_decoder=True)
    assert rank(open_model(tmp_path / "bert", dtype=dtype, context_length=64, stride=32)).bound["raw"] in (8, 10)


def test_texts(folder: Path, tmp_path: Path) -> None:
    (short := tmp_path / "short.txt").write_text("w1 w2 w3")
    with pytest.raises(SourceError, match="the text has 3 tokens, and one window of 64 and the token after it need"):
        open_source(folder, data=str(short))
    with pytest.raises(ConfigurationError, match=r"split valid does not apply to the text file .*short\.txt"):
        open_source(folder, data=str(short), split="valid")


def test_a_corpuss_lines_and_characters(tmp_path: Path) -> None:
    """Blank lines are lines; tokens that are characters stand side by side."""
    for name, lines, expected in (
        ("words", ["the cat", "", "", "sat ."], "the cat\n\n\nsat ."),
        ("letters", ["t h e", "", "c a t"], "the\n\ncat"),
    ):
        (tmp_path / name).mkdir()
        for split in ("train", "valid", "test"):
            (tmp_path / name / f"{split}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        assert read_text(str(tmp_path / name), "test", dataset=None).decoded() == expected


def test_data_sets_need_their_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ConfigurationError, match="dataset needs the package datasets: pip install datasets"):
        open_source(folder, dataset="wikitext")
    with pytest.raises(ConfigurationError, match="data and dataset each name a text"):
        open_source(folder, data="ptb", dataset="wikitext")


def test_data_sets_are_their_text(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []
    sets: dict[str, dict[str, list[Any]]] = {
        "wikitext": {"text": ["w1 w2 w3", None, "w4 w5"] * 8},
        "quiz": {"question": ["a"], "answer": ["b"]},
        "numbers": {"text": [1, 2, 3]},
    }

    class Rows(dict[str, list[Any]]):
        column_names = property(list)

    def load_dataset(name: str, configuration: str | None, *, split: str, trust_remote_code: bool) -> Rows:
        assert not trust_remote_code
        calls.append((name, configuration, split))
        if name not in sets:
            raise FileNotFoundError(f"Couldn't reach {name!r} on the Hub\nand more")
        return Rows(sets[name])

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))

    def opened(name: str) -> Any:
        return open_source(folder, split="valid", dataset=name, context_length=4)

    source = opened("wikitext:raw")
    assert calls == [("wikitext", "raw", "validation")]
    assert source.description["corpus"] == "wikitext:raw"
    assert source.targets.tolist() == [1 + row % 5 for row in range(3, 40)]
    for name, sentence in (
        ("quiz", r"has no column 'text' with texts \(its columns are question, answer\); save the"),
        ("numbers", "has no column 'text' with texts"),
        ("absent", "the data set absent cannot be loaded, split valid: Couldn't reach 'absent'"),
    ):
        with pytest.raises(CorpusError, match=sentence):
            opened(name)


@pytest.mark.parametrize("kind", ["gpt2", "llama", Architecture("Gemma", {**GROUPED, "head_dim": 4})])
def test_the_output_layer_that_should_be_tied_is_named(kind: Any, save: Save, open_model: Open) -> None:
    folder = save(kind, tie_word_embeddings=True)
    change_weights(folder, lambda t: t.update({"lm_head.weight": torch.randn(60, 8)}))
    said = r"layer of its own \(lm_head\.weight\), .*: set tie_word_embeddings to false$"
    with pytest.raises(SourceError, match=said):
        rank(open_model(folder))


def test_models_need_their_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigurationError, match=r"package transformers: pip install 'softmax-bottleneck\[hf\]'"):
        open_source(folder)


@pytest.mark.parametrize(("constant", "value"), [("HF_HUB_OFFLINE", True), ("ENDPOINT", "http://127.0.0.1:9")])
def test_a_model_of_the_hub_without_network(
    constant: str, value: Any, folder: Path, open_model: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in the cache needs no network."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(f"huggingface_hub.constants.{constant}", value)
    place = tmp_path / "models--owner--tiny"
    shutil.copytree(folder, place / "snapshots" / "c0ffee")
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("c0ffee")
    report = rank(open_model("owner/tiny"))
    assert (report.source["path"], report.rank.value) == ("owner/tiny", 9)
    with pytest.raises(SourceError, match=r"^owner/none is not a local folder, and the Hub cannot be reached"):
        open_model("owner/none", revision="v1")
