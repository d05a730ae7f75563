"""For programs that tests send signals to."""

import signal


def listen() -> None:
    """To all signals, whoever started the tests; with nohup, perhaps.  For `preexec_fn`."""
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
