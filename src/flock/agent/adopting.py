"""Running pods that are not on record come onto it, before anybody asks for them or for their addresses."""

import logging
from datetime import UTC, datetime

from flock.agent.attached import Attached
from flock.edge.kernel.threads import Kernel
from flock.edge.nft import observe

log = logging.getLogger("adopt")


async def adopt(attached: Attached, kernel: Kernel) -> None:
    """For a state directory that was emptied or moved away under running pods.  Safe to repeat.

    What is half done has its note, is on record by that, and is taken down by whoever resolves notes."""
    recorded = {allocation.host_interface for allocation in attached.entries}
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    for found in await kernel.unrecorded(recorded=recorded, sources=observe.sources, now=now):
        if attached.of(found.container_id) is None:
            log.warning(
                "adopting pod=%s container=%s interface=%s", found.pod, found.container_id, found.host_interface
            )
            await attached.record(found)
