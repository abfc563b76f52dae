"""How much of the next-token distribution can a language model's output layer express?

Importing this package loads neither torch nor matplotlib: names are looked up when they are first used
(PEP 562).
"""

if __name__ == "bottleneck":
    raise ImportError(
        "This folder is the source of the package 'softmax_bottleneck', not the PyPI package 'Bottleneck'; "
        "write 'import softmax_bottleneck', or start Python outside the source checkout."
    )
