"""``bottleneck`` and ``python -m softmax_bottleneck``: the command, and what a signal does before and after it."""

import os
import signal
import sys
from types import FrameType

from .core.interruption import EXIT_CODES, INTERRUPTIONS


def run() -> None:
    """Run the command line of this process, and exit.

    While packages are loaded there is nothing to tidy, and afterwards nothing to end: a signal then prints no traceback
    and does not change the exit code.
    """
    numbers = [number for number in EXIT_CODES if signal.getsignal(number) is not signal.SIG_IGN]
    for number in numbers:
        signal.signal(number, _leave)
    from .cli import main
    from .cli.outputs import say_interrupted
    from .cli.process import Signals, prepare

    prepare()
    signals = Signals(numbers)
    try:
        code = main.exit_code("bottleneck", signals=signals)
        signals.ignore()
    except INTERRUPTIONS:  # between the command's end and this line
        code = say_interrupted(signals.received or signal.SIGINT)
    raise SystemExit(code)


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(2, b"interrupted\n")
    os._exit(EXIT_CODES[number])


if __name__ == "__main__":
    if not sys.flags.safe_path:  # python -m put the working folder there, whose files are not this package's
        del sys.path[0]
    run()
