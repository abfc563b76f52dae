"""``python -m softmax_bottleneck`` is the command ``bottleneck``."""

from .cli import main

main(prog_name="bottleneck")
