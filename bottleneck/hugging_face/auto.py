"""Teach the Auto classes of transformers to load a model with a head; importing this module does so."""

from __future__ import annotations

import copy
from typing import Any

from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, AutoModelForCausalLM, PreTrainedConfig

from .headed import MARK, MODEL_TYPE, checked_spec, headed_class, headed_config


class HeadedConfig(PreTrainedConfig):
    """The configuration of a saved model with a head: that of the plain model, of another type."""

    model_type = MODEL_TYPE

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **options: Any) -> Any:
        """Return the configuration in a ``config.json``; see ``PreTrainedConfig.from_dict``.

        Raises:
            SourceError: for a head that is damaged, unknown or of a newer version.
        """
        spec = checked_spec(config_dict.get(MARK) or {}, "config.json")
        plain: Any = CONFIG_MAPPING[spec["model_type"]]
        kind = headed_config(plain)
        AutoModelForCausalLM.register(kind, HeadedModel, exist_ok=True)
        return kind.from_dict({key: value for key, value in config_dict.items() if key != "model_type"}, **options)


class HeadedModel:
    """What `AutoModelForCausalLM` calls for such a configuration."""

    @classmethod
    def from_pretrained(cls, path: Any, *arguments: Any, config: Any, **options: Any) -> Any:
        """Return the model with its head; see ``PreTrainedModel.from_pretrained``."""
        kind, plain = _class_and_config(config)
        options.pop("trust_remote_code", None)
        return kind.from_pretrained(path, *arguments, config=plain, trust_remote_code=False, **options)

    @classmethod
    def _from_config(cls, config: Any, **options: Any) -> Any:
        """Return a new model with a new head."""
        kind, plain = _class_and_config(config)
        return kind._from_config(plain, **options)


def _class_and_config(config: Any) -> tuple[Any, Any]:
    plain = copy.deepcopy(config)
    plain.__class__ = config.plain
    spec = vars(plain).pop(MARK)
    base: Any = MODEL_FOR_CAUSAL_LM_MAPPING[config.plain]
    return headed_class(base, spec), plain


AutoConfig.register(MODEL_TYPE, HeadedConfig, exist_ok=True)
