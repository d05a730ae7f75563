"""Policies that nobody has applied yet, tried for as long as whoever asked for it stays on the line.

They are in memory alone, as audited policies in the place of those of their names, and go with the connection: however
flockctl ends, they end.  What an agent that dies leaves of them in the kernel drops nothing, and the next one's first
transaction takes it away.
"""

import asyncio
from collections.abc import Collection
from functools import partial

from flock.agent.policies import Policies
from flock.core.cni import Request
from flock.core.errors import FieldError
from flock.core.policy.compiled import PolicyKey
from flock.core.policy.trial import read_trial
from flock.core.policy.wording import policy_text
from flock.edge.rpc import Held


class Trying:
    def __init__(self, policies: Policies) -> None:
        self._policies = policies
        self._tried: frozenset[PolicyKey] = frozenset()

    async def begin(self, request: Request) -> Held:
        """`args` is the file.  Answered once it is audited; FieldError if it cannot be, and then nothing is."""
        trial = await asyncio.to_thread(read_trial, request.args.encode())
        if taken := self._tried & trial.policies.keys():
            raise FieldError(policy_text(min(taken)), "is being tried already")
        index, keys = self._policies.index, frozenset(trial.policies)
        for key, policy in trial.policies.items():
            (index.set_policy if key[0] else index.set_cluster_policy)(policy)
        self._take(self._tried | keys)
        try:
            await self._policies.heed()
            for key in sorted(keys):
                if index.is_closed(key):
                    raise FieldError(policy_text(key), index.problems[key])
        except BaseException:
            self._end(keys)
            raise
        names = sorted(map(policy_text, keys))
        return Held({"policies": names, "warnings": list(trial.warnings)}, partial(self._end, keys))

    def _end(self, keys: Collection[PolicyKey]) -> None:
        index = self._policies.index
        for key in keys:
            (index.drop_policy if key[0] else index.drop_cluster_policy)(key)
        self._take(self._tried.difference(keys))
        self._policies.trigger()

    def _take(self, tried: frozenset[PolicyKey]) -> None:
        self._tried = tried
        self._policies.index.try_out(tried)
