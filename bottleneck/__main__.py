"""``bottleneck`` and ``python -m softmax_bottleneck``: the command, and Ctrl-C before and after it."""

import os
import signal
from types import FrameType


def run() -> None:
    """Run the command line of this process.

    While packages are loaded there is nothing to tidy, and afterwards nothing to end: Ctrl-C then prints no traceback.
    """
    os.environ["MPLBACKEND"] = "agg"  # figures go to files, whatever is set for windows
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # one sentence says what torch's processes run into
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _leave)
    from .cli import main

    try:
        main(prog_name="bottleneck")
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(2, b"interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    run()
