"""Where flockctl begins: Ctrl-C while the rest is being loaded ends it without a word, as of any program."""

import signal


def main() -> None:
    interrupted = signal.getsignal(signal.SIGINT)
    if interrupted is signal.default_int_handler:  # else a shell has it ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from flock.cli.main import main as flockctl

    signal.signal(signal.SIGINT, interrupted)
    flockctl()
