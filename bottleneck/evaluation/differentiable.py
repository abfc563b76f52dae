"""A model whose gradients are those of its evaluation: nothing is dropped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from ..full_precision import full_precision
from ..language_model import LanguageModel


@contextmanager
def differentiable(model: LanguageModel) -> Iterator[list[nn.Parameter]]:
    """Yield the parameters that are learned, the model in eval mode and ready for backward passes inside the block.

    Inside it products are made in full precision, as in all that is measured.
    cuDNN has no backward pass for recurrent layers in eval mode, so they are in training mode with their own dropout
    at zero. The modes, and the gradients' absence, are put back.
    """
    training = model.training
    recurrent = [module for module in model.modules() if isinstance(module, nn.RNNBase)]
    dropouts = [module.dropout for module in recurrent]
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    model.eval()
    try:
        for module in recurrent:
            module.train()
            module.dropout = 0.0
        with full_precision(gradients=True):
            yield parameters
    finally:
        for module, dropout in zip(recurrent, dropouts, strict=True):
            module.dropout = dropout
        for parameter in parameters:
            parameter.grad = None
        model.train(training)
