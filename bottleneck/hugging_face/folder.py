"""The folder of a Hugging Face model: found on disk or on the hub, and checked before it is loaded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from typing_extensions import TypedDict

from ..core.json_file import json_if_any, read_json
from ..errors import ConfigurationError, SourceError, first_line

CONFIG, ADAPTER = "config.json", "adapter_config.json"
WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLE, PICKLE_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
_SAFETENSORS, _PICKLES = "*.safetensors", ("*.bin", "*.pt", "*.pth", "*.ckpt")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_TEXT_FILES = ["*.json", "*.txt", "*.model", "*.jinja"]
"""Files of the configuration and of tokenizers."""
_ELSEWHERE = ("*/*", "consolidated*")
"""Files that transformers does not read: folders, and Mistral's second copy of the weights."""


class _Config(TypedDict, total=False):
    """What is read here of a ``config.json``; transformers reads the rest."""

    model_type: str | None
    architectures: list[str] | None
    auto_map: dict[str, Any] | None
    is_encoder_decoder: bool
    quantization_config: dict[str, Any] | None
    text_config: dict[str, Any] | None


class _Index(TypedDict):
    """Which file holds each weight."""

    weight_map: dict[str, str]


def is_hugging_face(path: Path) -> bool:
    """Return whether a folder has the ``config.json`` of a Hugging Face model."""
    config = json_if_any(path / CONFIG)
    return isinstance(config, dict) and "format" not in config and ("model_type" in config or "auto_map" in config)


def is_hub_id(name: str) -> bool:
    """Return whether ``name`` has the form of a model's name on the hub: ``gpt2`` or ``owner/model``."""
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
    """Return the folder of a hub model, from the local cache or the network.

    Raises:
        SourceError: when the hub cannot be reached, or has no such model for this user.
    """
    import_transformers()
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    wanted = [*_TEXT_FILES, _SAFETENSORS, *(_PICKLES if allow_pickle else ())]
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=wanted, ignore_patterns=list(_ELSEWHERE)))
    except LocalEntryNotFoundError as error:
        raise SourceError(
            f"{name} is not a local folder, and the Hub cannot be reached; SOURCE is "
            "a run folder, an n-gram model such as kn5:ptb, a .zarr store, a matrix file such as .npy, or a model's "
            "folder or (with a network) its name"
        ) from error
    except HfHubHTTPError as error:
        at = f" at revision {revision}" if revision else ""
        raise SourceError(
            f"{name} is not a local folder, and the Hub does not give a model of that name{at} "
            f"({first_line(error)}); check the name, or log in with 'hf auth login' if it is private"
        ) from error
    except (OSError, ValueError) as error:
        raise SourceError(f"{name} could not be downloaded from the Hub: {first_line(error)}") from error


def read_config(path: Path) -> dict[str, Any]:
    """Return the ``config.json`` of a model this tool can measure.

    Raises:
        SourceError: for a configuration that is damaged, of an encoder or a sequence-to-sequence model, or of a model
            that needs its own code.
    """
    if not (path / CONFIG).exists():
        raise SourceError(f"{path} has no {CONFIG}; give the folder that save_pretrained wrote")
    config = read_json(path / CONFIG, _Config, error=SourceError, remedy="download the model again")
    _check_kind(path, config)
    return dict(config)


def _check_kind(path: Path, config: dict[str, Any]) -> None:
    """Refuse a configuration for which transformers has no causal language model."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

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
            "comes with a model is run here: measure it through a function of NumPy ids (B, L), "
            "softmax_bottleneck.rank(f, data=batches), or through a file of its logits"
        )
    if config.get("transformers_weights") is not None:
        raise SourceError(
            f"{path / CONFIG} names the file of its weights itself (transformers_weights): only {WHOLE}, or shards "
            f"with {INDEX}, are read; rename the file and remove the setting"
        )
    supported = "only causal (decoder-only) language models can be measured"
    if config.get("is_encoder_decoder"):
        raise SourceError(f"{path} is a sequence-to-sequence model ({_named(model_type, classes)}); {supported}")
    if native is None or (classes and not any("CausalLM" in c or "LMHead" in c or c == native for c in classes)):
        raise SourceError(f"{path} is not a causal language model ({_named(model_type, classes)}); {supported}")


def _named(model_type: Any, classes: list[str]) -> str:
    return ", ".join([f"model type {model_type!r}", *classes[:1]])


def weight_files(path: Path, *, allow_pickle: bool) -> list[Path]:
    """Return the files that transformers loads a model's weights from; all are complete and in the model's folder.

    Raises:
        SourceError: for a folder without weights, for pickled weights that are not allowed, or for a shard that is
            missing, damaged or in another folder.
    """
    if (path / ADAPTER).exists():
        raise SourceError(
            f"{path} holds an adapter ({ADAPTER}), whose weights may lie elsewhere: merge it into its model and "
            "save that"
        )
    if files := _whole_or_shards(path, WHOLE, INDEX):
        for file in files:
            _check_header(file)
        return files
    if others := sorted(path.glob(_SAFETENSORS)):
        raise SourceError(
            f"{path} holds {others[0].name} and neither {WHOLE} nor {INDEX}: rename it, or save the model anew"
        )
    if allow_pickle and (files := _whole_or_shards(path, PICKLE, PICKLE_INDEX)):
        return files
    pickles = sorted(file for pattern in _PICKLES for file in path.glob(pattern) if file.name != "training_args.bin")
    if not pickles:
        raise SourceError(f"{path} holds no weights ({WHOLE}, or shards with {INDEX}); download the model again")
    read_by_transformers = any(file.name.startswith("pytorch_model") for file in pickles)
    raise SourceError(
        f"{path} holds only pickled weights ({pickles[0].name}), which can run code when they are opened; convert them "
        f"with: {_conversion(path, None if read_by_transformers else pickles[0])}"
        + (", or read their numbers only with --allow-pickle" if read_by_transformers else "")
    )


def _conversion(path: Path, state_dict: Path | None) -> str:
    """Return a command that converts a folder's weights, or one pickled file, to safetensors."""
    if state_dict is None:
        code = "from transformers import AutoModelForCausalLM as A; "
        code += f"A.from_pretrained('{path}').save_pretrained('{path}')"
    else:
        code = "import torch; from safetensors.torch import save_file; "
        code += f"weights = torch.load('{state_dict}', weights_only=True, map_location='cpu'); "
        code += "save_file({name: tensor.clone() for name, tensor in weights.items()}, "
        code += f"'{path / 'model.safetensors'}', {{'format': 'pt'}})"
    return f'python -c "{code}"'


def _whole_or_shards(path: Path, whole: str, index: str) -> list[Path]:
    """Return the single file of weights, otherwise the shards that an index names, otherwise nothing."""
    if (path / whole).is_file():
        return [path / whole]
    return _shards(path, index) if (path / index).exists() else []


def _shards(path: Path, index: str) -> list[Path]:
    content = read_json(path / index, _Index, error=SourceError, remedy="download the model again")
    names = sorted(set(content["weight_map"].values()))
    elsewhere = [name for name in names if re.search(r"[/\\]", name)]
    if elsewhere:
        raise SourceError(
            f"{path / index} names {elsewhere[0]!r}, which is no file of the folder itself: only such are read; "
            "put it there and name it without a folder"
        )
    if missing := [name for name in names if not (path / name).is_file()]:
        raise SourceError(
            f"{path} lacks {len(missing)} of its {len(names)} weight files, first {missing[0]}; download it again"
        )
    return [path / name for name in names]


def _check_header(file: Path) -> None:
    """Refuse a file whose length differs from the length in its header."""
    try:
        with safe_open(file, framework="pt"):
            pass
    except (SafetensorError, OSError) as error:
        raise SourceError(f"{file} cannot be read as safetensors ({error}); download the model again") from error
