"""The analysis of a Hugging Face model's output layer in a rank report."""

from __future__ import annotations

from ..models.huggingface import HuggingFaceOnText
from ..sources import ModelSource, Source
from .directions import ROWS, directions
from .report import Finding


def has_analysis(source: Source) -> bool:
    """Return whether `head_analysis` applies to a source."""
    return isinstance(source, ModelSource) and isinstance(source.model, HuggingFaceOnText)


def head_analysis(source: Source) -> Finding:
    """Return an analysis of the output embeddings W and the hidden states H of a Hugging Face model.

    Row-centring A subtracts the mean from the rows of W: :math:`A (I - 11^⊤/M) = H (W - 1\\bar w^⊤)^⊤`.
    """
    assert isinstance(source, ModelSource)
    model = source.model
    assert isinstance(model, HuggingFaceOnText)
    head, norm, vocabularies, tied = model.head, model.norm, model.vocabularies, model.model.tied
    weight = directions(head.weight[: source.shape[1]].split(ROWS))
    hidden = directions(model.hidden(source.ranges(ROWS)))
    has = [
        "tied embeddings" if tied else "embeddings of its own",
        "a bias" if head.bias is not None else "no bias",
        *([f"logits scaled by {head.scale:g}"] if head.scale != 1 else []),
        *([f"soft-capped at {head.soft_cap:g}"] if head.soft_cap is not None else []),
        *(["a LayerNorm before it"] if norm is not None else []),
    ]
    sizes = f"{vocabularies['model']:,} rows"
    if vocabularies["tokenizer"] is not None:
        sizes += f", {vocabularies['tokenizer']:,} tokens in the tokenizer"
    return Finding(
        "head_analysis",
        {
            "tied": tied,
            "bias": head.bias is not None,
            "scale": head.scale,
            "soft_cap": head.soft_cap,
            "final_layer_norm": None if norm is None else {"name": norm.name, "offset": norm.offset},
            "vocabularies": vocabularies,
            "logit_difference": model.logit_difference,
            "weight": weight.to_dict(),
            "hidden": hidden.to_dict(),
        },
        (
            ("output layer", f"{', '.join(has)}; {sizes}"),
            ("logits checked", f"within {model.logit_difference:.2g} of the model's own on a sample of its contexts"),
            ("W", weight.summary()),
            ("H", hidden.summary()),
        ),
    )
