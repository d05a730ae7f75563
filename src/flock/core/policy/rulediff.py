"""Rules as they have to be against rules as they are, in words.  For CHECK and `flockctl check`."""

from collections.abc import Mapping

from flock.core.policy.rendered import Expected


def differences(expected: Expected, observed: Expected) -> list[str]:
    return [
        *_counts("chain", "rules", expected.rules, observed.rules),
        *_counts("set", "elements", expected.elements, observed.elements),
    ]


def _counts(where: str, what: str, expected: Mapping[str, int], observed: Mapping[str, int]) -> list[str]:
    found = []
    for name in sorted({*expected, *observed}):
        if name not in observed:
            found.append(f"{where} {name} is missing")
        elif name not in expected:
            found.append(f"{where} {name} is not ours")
        elif expected[name] != observed[name]:
            found.append(f"{where} {name} has {observed[name]} {what}, expected {expected[name]}")
    return found
