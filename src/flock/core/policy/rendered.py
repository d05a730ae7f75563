"""What the renderer gives out: what the kernel is to be told, and what it then should have."""

import msgspec

from flock.core.policy.elements import Element, Operation, Table


class Transaction(msgspec.Struct, frozen=True):
    """`prepare` makes what nothing leads to yet, and changes policies nobody leaves.  The rest comes after it in one
    transaction, as a script or as operations; the other is empty."""

    prepare: str = ""
    script: str = ""
    operations: tuple[Operation, ...] = ()

    @property
    def is_empty(self) -> bool:
        """The kernel has all of it already."""
        return not (self.prepare or self.script or self.operations)


class Expected(msgspec.Struct, frozen=True):
    """How much has to be in our tables but ARP's: rules by chain, elements by set."""

    rules: dict[str, int]
    elements: dict[str, int]


class ExpectedOfPod(msgspec.Struct, frozen=True):
    """What one pod depends on: its elements, and how many rules are in the chains its packets meet."""

    elements: tuple[Element, ...]
    rules: dict[tuple[Table, str], int]
