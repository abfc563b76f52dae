"""The folder of a Hugging Face model: found on disk or on the Hub, and checked before transformers reads it."""

from __future__ import annotations

import glob
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from typing_extensions import TypedDict

from ..core.files import DAMAGE, exists, meant_path, open_file
from ..core.json_file import json_if_any, read_json
from ..errors import ConfigurationError, Parameter, SourceError, first_line, meant
from .headed import MARK
from .pretrained import PRETRAINED

CONFIG, ADAPTER = "config.json", "adapter_config.json"
OF_A_RUN = ("vocabulary.json", "metrics.jsonl")
"""Files beside the config.json of a run of this tool."""
WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLE, PICKLE_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
_SAFETENSORS, _PICKLES = "*.safetensors", ("*.bin", "*.pt", "*.pth", "*.ckpt")
_SHARD_OF_A_PROCESS = "shard-*.safetensors"
"""Files of a distributed training, which transformers would load in place of the others."""
_PARTS = "*.distcp", "*/*.distcp", "*rank*.pt", "*/*rank*.pt"
"""Files in which FSDP and DeepSpeed keep what each process of a training holds."""
_OF_TRAINING = re.compile(r"training_args|optimizer|scheduler|scaler|rng_state")
"""Beginnings of pickles beside the weights of a training's checkpoint."""
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_TEXT_FILES = ["*.json", "*.txt", "*.model", "*.jinja"]
"""Files of the configuration and of tokenizers."""
_ELSEWHERE = ["*/*", "consolidated*"]
"""Files that transformers does not read: folders, and Mistral's second copy of the weights."""
AGAIN = "download the model again"


class _Config(TypedDict, total=False):
    """What is checked here of a ``config.json``; transformers reads the rest."""

    model_type: str | None
    architectures: list[str] | None
    auto_map: dict[str, Any] | None
    is_encoder_decoder: bool
    quantization_config: dict[str, Any] | None
    text_config: dict[str, Any] | None


class _Index(TypedDict):
    """Which file holds each weight."""

    weight_map: dict[str, str]


class Stored(NamedTuple):
    """A tensor in a file of weights, of which no numbers were read."""

    name: str
    file: Path
    dtype: str


def is_hugging_face(path: Path) -> bool:
    """Return whether a folder has a ``config.json`` that is not that of a run, or of what may be a damaged one."""
    if not (path / CONFIG).is_file() or not any((path / name).exists() for name in OF_A_RUN):
        return (path / CONFIG).is_file()
    config = json_if_any(path / CONFIG)
    return isinstance(config, dict) and not {"model_type", "auto_map"}.isdisjoint(config)


def is_hub_id(name: str) -> bool:
    """Return whether ``name`` has the form of a model's name on the Hub: ``gpt2`` or ``owner/model``."""
    return _HUB_ID.fullmatch(name) is not None and Path(name).suffix not in (".npy", ".npz", ".txt", ".pt", ".bin")


def import_transformers() -> Any:
    """Return the package; `ConfigurationError` says how to install it."""
    try:
        import transformers
    except ImportError as error:
        raise ConfigurationError(
            "Hugging Face models need the package transformers: pip install 'softmax-bottleneck[hf]'"
        ) from error
    return transformers


def fetch(name: str, *, revision: str | None, allow_pickle: bool) -> Path:
    """Return the folder of a model on the Hub, from the local cache or the network."""
    import_transformers()
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    patterns = [*_TEXT_FILES, _SAFETENSORS, *(_PICKLES if allow_pickle else ())]
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=patterns, ignore_patterns=_ELSEWHERE))
    except (HfHubHTTPError, OSError, ValueError) as error:
        at = f" at revision {revision}" if revision else ""
        reason = f"does not give a model of that name{at} ({first_line(error)}); if it is private, run 'hf auth login'"
        if isinstance(error, LocalEntryNotFoundError):
            reason = "cannot be reached"
        raise SourceError(
            f"{name} is not a local folder, and the Hub {reason}; SOURCE is a run folder, an n-gram model such as "
            "kn5:ptb, a .zarr store, a matrix file such as .npy, or a model's folder or (with a network) its "
            f"name{meant_path(Path(name)) or meant(name, PRETRAINED)}"
        ) from error


def read_config(path: Path) -> dict[str, Any]:
    """Return the ``config.json`` of a model that can be measured.

    Raises:
        SourceError: for a configuration that is damaged, of an encoder or a sequence-to-sequence model, or of a model
            that needs its own code.
    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    config: dict[str, Any] = read_json(path / CONFIG, _Config, error=SourceError, remedy=AGAIN)
    if not config.keys() & {"model_type", "auto_map"}:
        raise SourceError(f"{path / CONFIG} was written neither by this tool nor by transformers; give another folder")
    if isinstance(config.get(MARK), dict):
        config["model_type"] = config[MARK].get("model_type")
    model_type, classes = config.get("model_type"), config.get("architectures") or []
    native = dict(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES).get(model_type or "")
    own_code = {
        str(target).rpartition(".")[2]
        for name, target in (config.get("auto_map") or {}).items()
        if name.startswith("AutoModel")
    }
    if own_code and not (native and own_code <= {native, native.replace("ForCausalLM", "Model")}):
        raise SourceError(
            f"the model {path} is code of its own (auto_map names {', '.join(sorted(own_code))}), and no code that "
            "comes with a model is run here: measure it through a function of ids (B, L), "
            "softmax_bottleneck.rank(f, data=batches), or through a file of its logits"
        )
    if config.get("transformers_weights") is not None:
        raise SourceError(
            f"{path / CONFIG} names the file of its weights itself (transformers_weights): only {WHOLE}, or shards "
            f"with {INDEX}, are read; rename the file and remove the setting"
        )
    is_causal = native and (not classes or any("CausalLM" in c or "LMHead" in c or c == native for c in classes))
    if not is_causal or config.get("is_encoder_decoder"):
        kind = ", ".join([f"model type {model_type!r}", *classes[:1]])
        raise SourceError(
            f"{path} is not a causal language model ({kind}); only causal (decoder-only) language models can be "
            "measured"
        )
    return config


def weight_files(path: Path, *, allow_pickle: bool = False) -> list[Path]:
    """Return the files that transformers loads a model's weights from; all of them are in the model's folder.

    Raises:
        SourceError: for a folder without weights or with two sets of them, for pickled weights that are not allowed, or
            for a shard that is missing or in another folder.
    """
    files = _whole_or_shards(path, WHOLE, INDEX)
    if not files:
        check_merged(path)
    if others := [*path.glob(ADAPTER), *sorted(path.glob(_SHARD_OF_A_PROCESS if files else _SAFETENSORS))]:
        raise SourceError(
            f"{path} holds {others[0].name}, and only {WHOLE}, or shards with {INDEX}, are read: merge an adapter into "
            "its model, rename or remove the file, or save the model again"
        )
    if not files and allow_pickle:
        files = _whole_or_shards(path, PICKLE, PICKLE_INDEX)
    if files:
        return files
    pickles = sorted(each for name in _PICKLES for each in path.glob(name) if not _OF_TRAINING.match(each.name))
    if not pickles:
        raise SourceError(f"{path} holds no weights ({WHOLE}, or shards with {INDEX}); {AGAIN}")
    can_be_read = any(exists(path / name) for name in (PICKLE, PICKLE_INDEX))
    names = "pytorch_model*.bin" if can_be_read else glob.escape(pickles[0].name)
    code = (
        "import torch; from pathlib import Path; from safetensors.torch import save_file; "
        f"folder = Path({json.dumps(str(path), ensure_ascii=False)}); save_file({{name: tensor.clone() "
        f'for file in folder.glob("{names}") '
        'for name, tensor in torch.load(file, weights_only=True, map_location="cpu").items()}, '
        f'folder / "{WHOLE}", {{"format": "pt"}})'
    )
    raise SourceError(
        f"{path} holds only pickled weights ({pickles[0].name}), which can run code when they are opened; convert them "
        f"with: python -c {shlex.quote(code)}",
        *((", or read their numbers only with ", Parameter("allow_pickle")) if can_be_read else ()),
    )


def check_merged(path: Path) -> None:
    """Refuse an adapter alone, and a folder in which each process of a training left its part of the weights."""
    if exists(path / ADAPTER):
        raise SourceError(
            f"{path} holds an adapter ({ADAPTER}): merge it into its model by merge_and_unload() of the package peft, "
            "and save that model"
        )
    for part in sorted(part for pattern in _PARTS for part in path.glob(pattern)):
        merge = f"accelerate merge-weights {part.parent} OUT" if part.suffix == ".distcp" else "zero_to_fp32.py"
        raise SourceError(
            f"{part} is what one process of a training held of the model: merge all parts by {merge}, and give the "
            "folder with the whole weights"
        )


def _whole_or_shards(path: Path, whole: str, index: str) -> list[Path]:
    """Return the single file of weights, otherwise the shards that an index names, otherwise nothing."""
    names: list[str] = []
    if (path / index).exists():
        content = read_json(path / index, _Index, error=SourceError, remedy=AGAIN)
        names = sorted(set(content["weight_map"].values()))
    if elsewhere := [name for name in names if re.search(r"[/\\]", name)]:
        raise SourceError(
            f"{path / index} names {elsewhere[0]!r}, which is not a file of the folder itself: put it there and name "
            "it without a folder"
        )
    missing = [name for name in names if not exists(path / name)]
    shards = {*names, *(file.name for file in path.glob(whole.replace(".", "-*-of-*.")))} - {whole, *missing}
    if exists(path / whole):
        if shards:
            raise SourceError(
                f"{path} holds two sets of weights, {whole} and {len(shards)} shards, first {min(shards)}: move the "
                "one that is not to be measured to another folder"
            )
        return [path / whole]
    if missing:
        others = sorted(shards - {*names})
        remedy = f"{others[0]} is of another set, whose index is needed: save the model again" if others else AGAIN
        raise SourceError(f"{path} lacks {len(missing)} of its {len(names)} weight files, first {missing[0]}; {remedy}")
    return [path / name for name in names]


def stored_tensors(files: list[Path]) -> Iterator[Stored]:
    """Yield the tensors in the files of a model's weights.

    Raises:
        SourceError: for a file that cannot be read.
    """
    for file in files:
        try:
            open_file(file).close()
            if file.suffix == ".safetensors":
                with safe_open(file, framework="pt") as tensors:
                    yield from (Stored(key, file, tensors.get_slice(key).get_dtype()) for key in sorted(tensors.keys()))
            else:
                weights = torch.load(file, weights_only=True, map_location="meta")
                for name, each in weights.items():
                    if isinstance(each, torch.Tensor):
                        yield Stored(name, file, str(each.dtype))
        except (*DAMAGE, SafetensorError, UnpicklingError) as error:
            # torch would advise to let the pickle run code.
            why = first_line(error) if file.suffix == ".safetensors" else "it is damaged or holds more than tensors"
            raise SourceError(f"{file} cannot be read ({why}); {AGAIN}") from error
