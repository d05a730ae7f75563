"""Keeps BIRD running what the NodeConfig says.

The file is rendered, checked, swapped in and taken up by `configure`: at once on the first change, then at most every
COOLDOWN, so that a burst of changes costs two reloads and a single one no delay.  Equal text touches nothing.  After
each reload the protocols BIRD runs are compared with those the file names.  BIRD may be absent, late, dead and back:
its file is kept ready, and every new connection starts with a `configure`.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from flock.agent.nodeview import NodeView
from flock.core.birdconf import bootstrap_bird_conf, protocol_name, render_bird_conf
from flock.core.errors import FlockError
from flock.core.nodeconfig import PasswordSource
from flock.edge.bird import conffile, room
from flock.edge.bird.control import BirdControl, BirdError
from flock.edge.bird.replies import Session, protocol_names, sessions
from flock.edge.source import Source

log = logging.getLogger("bird")

COOLDOWN = 0.5
RECONNECT = 0.5  # how soon a restarted BIRD is noticed; an attempt costs one failed connect
LOOK_AGAIN = 30.0  # password files change without notice
_PROTOCOL = re.compile(r"^protocol \S+(?: v[23])? '?([^' {]+)'?", re.MULTILINE)


class Routing:
    def __init__(self, *, view: NodeView, source: Source, bird_dir: Path, run_dir: Path) -> None:
        self._view = view
        self._source = source
        self._directory = bird_dir
        self._run_dir = run_dir
        self._dirty = asyncio.Event()
        self._bird: BirdControl | None = None
        self._written: str | None = None
        self.conf_problem = ""
        self.bird_problem = "BIRD was not reached yet"
        self.reloads = 0
        self.import_problem = ""
        self._full: set[str] = set()  # sessions that passed over routes they were sent
        self.last_seen: list[dict[str, Any]] = []  # the sessions, for whoever cannot wait for BIRD

    def start(self) -> None:
        """Make sure that there is a file BIRD can start with; what is there stays until a NodeConfig is known."""
        try:
            self._directory.mkdir(mode=0o755, parents=True, exist_ok=True)
            room.prepare(self._run_dir)
            self._written = conffile.read(self._directory)
            if self._written is None:
                conffile.write(self._directory, bootstrap_bird_conf(self._view.facts), check=False)
        except (FlockError, OSError) as error:
            self.conf_problem = str(error)
            log.error("could not prepare bird.conf problem=%s", error)

    def trigger(self) -> None:
        self._dirty.set()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_connected())
            tasks.create_task(self._keep_configured())

    # --- the file ---

    async def _keep_configured(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_AGAIN):
                    await self._dirty.wait()
            self._dirty.clear()
            if await self._bring_up_to_date():
                await asyncio.sleep(COOLDOWN)
            with contextlib.suppress(BirdError):
                await self.peers()
                await self._take_in_again()

    async def _bring_up_to_date(self) -> bool:
        """True if something was changed."""
        config = self._view.effective_config
        if config is None:
            return False
        try:
            secrets = await self._read_secrets(config.password_sources)
            text = render_bird_conf(config, self._view.facts, secrets=secrets)
            if text == self._written:
                self.conf_problem = ""
                return False
            await asyncio.to_thread(conffile.write, self._directory, text, check=True)
        except FlockError as error:
            if error.msg != self.conf_problem:
                log.error("kept the old bird.conf problem=%r", error.msg)
            self.conf_problem = error.msg
            return False
        self._written = text
        self.conf_problem = ""
        log.info("wrote bird.conf bytes=%d", len(text))
        await self._configure()
        return True

    async def _read_secrets(self, sources: Iterable[PasswordSource]) -> dict[PasswordSource, str]:
        """What can be read; the renderer names the field of what cannot."""
        found: dict[PasswordSource, str] = {}
        for source in sources:
            if isinstance(source, str):
                secret = _read_password_file(source)
            else:
                secret = await self._source.secret(source.name, source.key)
            if secret is not None:
                found[source] = secret.strip("\r\n")
        return found

    async def _configure(self) -> None:
        bird = self._bird
        if bird is None:
            return
        written = self._written
        try:
            reply = await bird.command("configure")
            self.reloads += 1
            running = protocol_names(await bird.command("show protocols"))
        except BirdError as error:
            self.bird_problem = error.msg
            return
        if written is not self._written:
            return  # replaced meanwhile: which of the two was read is open, and the next `configure` is on its way
        wanted = frozenset(_PROTOCOL.findall(written or ""))
        if reply.error:
            self.bird_problem = f"BIRD refused to reconfigure: {reply.error}"
        elif missing := wanted - running:
            self.bird_problem = f"BIRD does not run {', '.join(sorted(missing))}"
        else:
            self.bird_problem = ""
        if self.bird_problem:
            log.error("%s", self.bird_problem)
        else:
            log.info("BIRD reconfigured protocols=%d", len(running))

    # --- the connection ---

    async def _keep_connected(self) -> None:
        while True:
            try:
                self._bird = await BirdControl.connect(self._run_dir / room.SOCKET)
            except BirdError as error:
                self.bird_problem = error.msg
                room.follow(self._run_dir)
                await asyncio.sleep(RECONNECT)
                continue
            log.info("BIRD is there socket=%s", self._run_dir / room.SOCKET)
            await self._configure()
            await self._bird.lost.wait()
            self._bird = None
            self.last_seen = [row | {"up": False, "state": "BIRD went away"} for row in self.last_seen]
            self.bird_problem, self.import_problem = "BIRD went away", ""
            log.warning("BIRD went away")

    async def _take_in_again(self) -> None:
        """BIRD forgets what it passed over: ask the router again once there is room.  BirdError if BIRD is away."""
        full = {session.name for session in await self.sessions() if session.full}
        for name in sorted(self._full - full):
            if self._bird is not None:
                log.info("asking for all routes again protocol=%s", name)
                await self._bird.command(f"reload in '{name}'")
        self._full = full

    # --- telling ---

    async def sessions(self) -> list[Session]:
        """What BIRD says now; BirdError if it is not there."""
        if self._bird is None:
            raise BirdError(self.bird_problem)
        return sessions(await self._bird.command("show protocols all"))

    async def peers(self) -> list[dict[str, Any]]:
        """Sessions, named as the NodeConfig names them, and peers that BIRD does not know."""
        found = {session.name: session for session in await self.sessions()}
        rows: list[dict[str, Any]] = []
        config = self._view.config
        for peer in config.bgp.peers if config and config.bgp else ():
            session = found.pop(protocol_name(peer.name), None)
            row = {"peer": peer.name, "asn": peer.asn, "address": str(peer.address)}
            rows.append(row | _told(session))
        rows += [{"peer": s.name, "asn": 0, "address": s.neighbour} | _told(s) for s in found.values()]
        self.last_seen = rows
        full = [f"{row['peer']} ({', '.join(row['full'])})" for row in rows if row.get("full")]
        self.import_problem = f"importLimit is reached, further routes are not taken: {', '.join(full)}" if full else ""
        return rows


def _told(session: Session | None) -> dict[str, Any]:
    if session is None:
        return {"kind": "BGP", "up": False, "state": "not configured in BIRD"}
    told: dict[str, Any] = msgspec.to_builtins(session)
    del told["name"], told["neighbour"]
    if session.full and not session.last_error:
        told["last_error"] = f"importLimit is reached: {', '.join(session.full)}"
    return told


def _read_password_file(path: str) -> str | None:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        log.error("could not read password file=%s problem=%s", path, getattr(error, "strerror", error))
        return None
