"""Keeps allocations.json up to date: what was answered is in the journal at once, and in the file soon."""

import logging

from flock.agent.reconciling import Reconciler
from flock.edge.store import Store

log = logging.getLogger("store")

SOON = 0.5  # seconds: readers may rely on one


class Folding(Reconciler):
    def __init__(self, store: Store) -> None:
        super().__init__(log, "could not bring the state file up to date", minor=True)  # the store itself complains
        self._store = store
        store.subscribe(lambda: self.look_again(SOON))

    async def _reconcile(self) -> str:
        await self._store.fold()
        return ""
