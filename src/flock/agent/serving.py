"""STATUS: can this node take pods?  A restart of the agent is no reason to say no.

Runtimes ask every few seconds, and report the node as unable at the first failure; kubelet then starts no pod, while an
ADD would only have waited.  So an agent that could serve in its last moment is believed for as long as a restart takes:
by the executable while none is there, by the next agent until it can serve itself.  From then on that says what is.
"""

import asyncio

from flock.agent.readiness import Readiness
from flock.core.cni import Request, parse_net_conf
from flock.core.errors import Code, FlockError
from flock.edge.servingfile import BEAT, ServingFile


class Serving:
    def __init__(self, readiness: Readiness, served: ServingFile) -> None:
        self._readiness = readiness
        self._served = served
        self._began = False

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self.note()
            await asyncio.sleep(BEAT)

    def note(self) -> None:
        """Write down whether pods can be taken now, for the time after this agent."""
        if self._readiness.ready:
            self._began = True
            self._served.touch()
        elif self._began:
            self._served.remove()

    async def status(self, request: Request) -> None:
        parse_net_conf(request.stdin_data)
        self.note()
        report = self._readiness.report()
        restarted = not self._began and not report.pods_suffer and self._served.recently()
        if report.not_ready and not restarted:
            code = Code.LIMITED if report.pods_suffer else Code.NOT_AVAILABLE
            raise FlockError("; ".join(report.not_ready), code=code, details="flockctl status tells more")
