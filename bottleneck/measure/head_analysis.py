"""The analysis of a Hugging Face model's output layer in a rank report."""

from __future__ import annotations

from ..hugging_face import HuggingFaceOnText
from ..sources import Source
from .directions import ROWS, directions
from .report import Finding


def head_analysis(source: Source) -> Finding | None:
    """Return an analysis of the output embeddings W and the hidden states H of a Hugging Face model, if it is one.

    Row-centring A subtracts the mean from the rows of W: :math:`A (I - 11^⊤/M) = H (W - 1\\bar w^⊤)^⊤`.
    """
    if not isinstance(source, HuggingFaceOnText):
        return None
    head, norm, vocabularies, tied = source.full_head, source.checked_head.norm, source.vocabularies, source.model.tied
    scale, soft_cap = getattr(head, "scale", 1.0), getattr(head, "soft_cap", None)
    weight = directions(head.weight[: source.shape[1]].split(ROWS))
    hidden = directions(source.hidden(source.ranges(ROWS)))
    has = [
        "tied embeddings" if tied else "embeddings of its own",
        "a bias" if head.bias is not None else "no bias",
        *([f"logits scaled by {scale:g}"] if scale != 1 else []),
        *([f"soft-capped at {soft_cap:g}"] if soft_cap is not None else []),
        *(["a LayerNorm before it"] if norm is not None else []),
    ]
    sizes = f"{vocabularies['model']:,} rows"
    if vocabularies["tokenizer"] is not None:
        sizes += f", {vocabularies['tokenizer']:,} tokens in the tokenizer"
    by = f"by at most {source.checked_head.difference:.2g}" if source.checked_head.difference else "nowhere"
    return Finding(
        "head_analysis",
        {
            "tied": tied,
            "bias": head.bias is not None,
            "scale": scale,
            "soft_cap": soft_cap,
            "final_layer_norm": None if norm is None else {"name": norm.name, "offset": norm.offset},
            "vocabularies": vocabularies,
            "logit_difference": source.checked_head.difference,
            "weight": weight.to_dict(),
            "hidden": hidden.to_dict(),
        },
        (
            ("output layer", f"{', '.join(has)}; {sizes}"),
            ("logits checked", f"they differ {by} from the model's own on a sample of its contexts"),
            ("W", weight.one_line()),
            ("H", hidden.one_line()),
        ),
        is_detail=True,
    )
