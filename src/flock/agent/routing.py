"""Keeps BIRD running what the NodeConfig says.

There is always a file that BIRD can start with, and what is there stays until a NodeConfig is known.  Then it is
rendered, checked, swapped in and taken up by `configure`: at once on the first change, then at most every COOLDOWN, so
that a burst of changes costs two reloads and a single one no delay.  Equal text touches nothing.  After each reload the
protocols BIRD runs are compared with those the file names.  BIRD may be absent, late, dead and back: its file is kept
ready, and every new connection starts with a `configure`.  On it BIRD tells when sessions come and go.  What is wrong
with the file is `problem`, what with BIRD `bird_problem`.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from flock.agent.aggregates import Aggregates
from flock.agent.configured import Configured
from flock.agent.happened import Happened
from flock.agent.preparing import Preparing
from flock.agent.reconciling import Reconciler
from flock.core.birdconf import bootstrap_bird_conf, protocol_name, render_bird_conf
from flock.core.birdconf.document import FAMILIES
from flock.core.birdreplies import Session, bfd_states, protocol_names, sessions, unknown_bird
from flock.core.errors import FlockError
from flock.core.fabrichealth import explained, fabric_complaints, may_be_away
from flock.core.happenings import BfdDown, BfdUp, BirdGone, BirdThere, SessionDown, SessionUp
from flock.core.nodeconfig import PasswordSource, Peer
from flock.edge.batching import Rounds
from flock.edge.bird import conffile, room
from flock.edge.bird.control import BirdControl, BirdError
from flock.edge.feeder import Feeder
from flock.edge.kernel.node import unanswered, ways_out

log = logging.getLogger("bird")

COOLDOWN = 0.5
FIRST_RETRY = 1.0  # a password may be about to be put in place
LOOK_AGAIN = 30.0  # password files change without notice
SOON, SETTLED = 0.1, 2.0  # after BIRD told of a change: a look, and one when what the change led to has come about
_PROTOCOL = re.compile(r"^protocol \S+(?: v[23])? '?([^' {]+)'?", re.MULTILINE)

_NOWHERE = Session(name="", kind="BGP", up=False, state="not configured in BIRD", since="")


class Routing(Reconciler):
    def __init__(
        self,
        *,
        configured: Configured,
        aggregates: Aggregates,
        preparing: Preparing,
        feeder: Feeder,
        happened: Happened,
        bird_dir: Path,
        run_dir: Path,
    ) -> None:
        super().__init__(log, "kept the old bird.conf", period=LOOK_AGAIN, pauses=(FIRST_RETRY, LOOK_AGAIN))
        self._happened = happened
        self._configured = configured
        self._aggregates = aggregates
        self._preparing = preparing
        self._feeder = feeder
        self._directory = bird_dir
        self._run_dir = run_dir
        self._bird: BirdControl | None = None
        self._written: str | None = None
        self._running: tuple[BirdControl, str | None] | None = None  # which BIRD took up which file
        self.bird_problem = "BIRD was not reached yet"
        self.reloads = 0
        self.import_problem = ""
        self._sessions: list[Session] = []  # as told last
        self._ways_out: frozenset[str] = frozenset()
        self._full: set[str] = set()  # sessions that passed over routes they were sent
        self.last_seen: list[dict[str, Any]] = []  # the sessions, for whoever cannot wait for BIRD
        self._looks: Rounds[None, None] = Rounds(self._look)
        self._soon: asyncio.TimerHandle | None = None

    def complaints(self) -> Iterable[str]:
        yield from (self.problem, self.bird_problem if self._configured.speaks else "", self.import_problem)
        yield from self.fabric_complaints()

    def fabric_complaints(self) -> list[str]:
        """As the sessions were last seen."""
        config = self._configured.config
        if self._bird is None or config is None or self.bird_problem:
            return []
        by_name = {session.name: session for session in self._sessions}
        return [*fabric_complaints(config, by_name, ways_out=self._ways_out)]

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_connected())
            tasks.create_task(super().run())

    async def _reconcile(self) -> str:
        """What is wrong with the file keeps a BIRD that is there anew from nothing."""
        changed, problem = False, ""
        try:
            changed = await self._keep_file()
        except (FlockError, OSError) as error:
            problem = str(error)
        if self._bird is not None and self._running != (self._bird, self._written):
            await self._configure(self._bird)
        if changed:
            await asyncio.sleep(COOLDOWN)
        with contextlib.suppress(BirdError):
            await self.peers()
            await self._take_in_again()
        return problem

    # --- the file ---

    async def _keep_file(self) -> bool:
        """True if it was changed."""
        if self._written is None:
            self._directory.mkdir(mode=0o755, parents=True, exist_ok=True)
            room.prepare(self._run_dir)
            self._written = conffile.read(self._directory)
        config = self._aggregates.announced_config
        if config is not None:
            secrets = await self._read_secrets(config.password_sources)
            text = render_bird_conf(config, self._preparing.facts, secrets=secrets)
        else:
            text = self._written or bootstrap_bird_conf(self._preparing.facts)
        if text == self._written:
            return False
        await asyncio.to_thread(conffile.write, self._directory, text, check=config is not None)
        self._written = text
        log.info("wrote bird.conf bytes=%d", len(text))
        return config is not None

    async def _read_secrets(self, sources: Iterable[PasswordSource]) -> dict[PasswordSource, str]:
        """What can be read; the renderer names the field of what cannot."""
        found: dict[PasswordSource, str] = {}
        for source in sources:
            if isinstance(source, str):
                secret = _read_password_file(source)
            else:
                secret = await self._feeder.secret(source.name, source.key)
            if secret is not None:
                found[source] = secret.strip("\r\n")
        return found

    async def _configure(self, bird: BirdControl) -> None:
        before, written = self.bird_problem, self._written
        try:
            reply = await bird.command("configure")
            self.reloads += 1
            running = protocol_names(await bird.command("show protocols"))
        except BirdError as error:
            self.bird_problem = error.msg
            return
        wanted = frozenset(_PROTOCOL.findall(written or ""))
        if reply.error:
            self.bird_problem = f"BIRD refused to reconfigure: {reply.error}"
        elif missing := wanted - running:
            self.bird_problem = f"BIRD does not run {', '.join(sorted(missing))}"
        else:
            self.bird_problem, self._running = "", (bird, written)
            log.info("BIRD reconfigured protocols=%d", len(running))
        if self.bird_problem and self.bird_problem != before:
            log.error("%s", self.bird_problem)

    # --- the connection ---

    async def _keep_connected(self) -> None:
        while True:
            bird = self._bird = await self._reach()
            room.note(self._run_dir)
            await self._have_it_learn(bird)
            self._happened.note(BirdThere(socket=str(self._run_dir / room.SOCKET)))
            self.trigger()
            bird.on_log = self._heard
            with contextlib.suppress(BirdError):
                await bird.command("echo { trace }")
            await bird.lost.wait()
            self._bird = None
            self._see([row | {"up": False, "state": "BIRD went away", "bfd": ""} for row in self.last_seen])
            self.bird_problem, self.import_problem = "BIRD went away", ""
            self._happened.note(BirdGone())

    async def _reach(self) -> BirdControl:
        """However long it takes until there is one."""
        with contextlib.closing(room.Bell(self._run_dir)) as bell:
            while True:
                try:
                    return await self._connect()
                except BirdError as error:
                    self.bird_problem = error.msg
                    await bell.wait()

    async def _connect(self) -> BirdControl:
        """BirdError if nobody answers, or a BIRD that is not to be told anything."""
        bird = await room.reach(self._run_dir)
        if unknown := unknown_bird(bird.greeting):
            bird.close()
            raise BirdError(f"BIRD is refused: {unknown}")
        return bird

    async def _have_it_learn(self, bird: BirdControl) -> None:
        """BIRD first looks at the kernel's routes a second after its start.  A router that is back before would be told
        that these are all, and drop the addresses it had kept through the restart."""
        with contextlib.suppress(BirdError):
            for family in FAMILIES:
                await bird.command(f"reload in kernel_{family}")

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
        bird, bfd = self._bird, dict[str, str]()
        if any(peer.bfd.enabled for peer in self._peers):
            bfd = bfd_states(await bird.command("show bfd sessions"))
        told = sessions(await bird.command("show protocols all"), self._sessions)
        peers, facts = {protocol_name(peer.name): peer for peer in self._peers}, self._preparing.facts
        silent = await asyncio.to_thread(unanswered) if any(map(may_be_away, told)) else ()
        told = [explained(session, peers.get(session.name), facts, unanswered=silent) for session in told]
        self._sessions = [msgspec.structs.replace(s, bfd=bfd.get(s.neighbour, "")) for s in told]
        return self._sessions

    async def peers(self) -> list[dict[str, Any]]:
        """Sessions, named as the NodeConfig names them, and peers that BIRD does not know."""
        found = {session.name: session for session in await self.sessions()}
        rows = [self._row(peer, found.pop(protocol_name(peer.name), _NOWHERE)) for peer in self._peers]
        rows += [{"peer": s.name, "asn": 0, "address": s.neighbour} | _told(s) for s in found.values()]
        self._see(rows)
        full = [f"{row['peer']} ({', '.join(row['full'])})" for row in rows if row.get("full")]
        self._ways_out = await asyncio.to_thread(ways_out)
        self.import_problem = f"maxPrefixes is reached, further routes are not taken: {', '.join(full)}" if full else ""
        return rows

    async def glance(self, patience: float) -> list[dict[str, Any]]:
        """The same within so many seconds: as last seen, if BIRD takes longer or is away.  Never fails."""
        if self._bird is not None:
            await asyncio.wait({self._looks.join(None)}, timeout=patience)
        away = msgspec.structs.replace(_NOWHERE, state=self.bird_problem or _NOWHERE.state)
        return self.last_seen or [self._row(peer, away) for peer in self._peers]

    def _heard(self) -> None:
        """A protocol of BIRD's has changed its state."""
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(SOON, self._look_now)
            self.look_again(SETTLED)

    def _look_now(self) -> None:
        self._soon = None
        self._looks.join(None)

    async def _look(self, _: list[None]) -> None:
        with contextlib.suppress(BirdError):
            await self.peers()

    @property
    def _peers(self) -> Iterable[Peer]:
        config = self._configured.config
        return config.bgp.peers if config and config.bgp else ()

    def _row(self, peer: Peer, session: Session) -> dict[str, Any]:
        return {"peer": peer.name, "asn": peer.asn, "address": str(peer.address)} | _told(session)

    def _see(self, rows: list[dict[str, Any]]) -> None:
        """A session is told when it comes and when it goes, not that it is not there yet."""
        before = {row["peer"]: row for row in self.last_seen}
        for row in rows:
            peer, known = row["peer"], before.get(row["peer"], {"up": False, "bfd": ""})
            if known["bfd"] == "up" != row["bfd"]:
                self._happened.note(BfdDown(peer=peer))
            if row["up"] and not known["up"]:
                self._happened.note(SessionUp(peer=peer))
            elif not row["up"] and known["up"]:
                self._happened.note(SessionDown(peer=peer, state=row["state"], problem=row["last_error"]))
            if row["bfd"] == "up" != known["bfd"]:
                self._happened.note(BfdUp(peer=peer))
        self.last_seen = rows


def _told(session: Session) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(session)
    del told["name"], told["neighbour"]
    if session.full and not session.last_error:
        told["last_error"] = f"maxPrefixes is reached: {', '.join(session.full)}"
    return told


def _read_password_file(path: str) -> str | None:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        log.error("could not read password file=%s problem=%s", path, getattr(error, "strerror", error))
        return None
