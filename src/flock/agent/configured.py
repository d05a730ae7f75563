"""Holds the configuration in force, and tells who follows it.  What is in force, `core/configuration.py` decides."""

from collections.abc import Iterable

from flock.agent.happened import Happened
from flock.agent.reconciling import Telling
from flock.core.configuration import Configuration, Effective, FromNode, Inputs, decide, still_in_force
from flock.core.happenings import ConfigRefused, ConfigTaken
from flock.core.kinds import NODE_CONFIGS, NODES, TEMPLATES, is_name
from flock.core.nodeconfig import NodeConfig
from flock.core.podrequest import no_family_here
from flock.edge.cache import Cache

NAMED = 3  # NodeConfigs of other nodes, in a message


class Configured(Telling):
    def __init__(self, *, cache: Cache, happened: Happened) -> None:
        super().__init__()
        self._happened = happened
        self.node = cache.node
        self._cache = cache
        self._reader = cache.reader(NODES, NODE_CONFIGS, TEMPLATES)
        self._believed = Configuration()
        self._seen: Inputs | None = None  # what it follows from

    @property
    def config(self) -> NodeConfig | None:
        return self._believed.config

    @property
    def layers(self) -> Effective | None:
        """Where its values came from."""
        return self._believed.layers

    @property
    def problem(self) -> str:
        """Why what was written last is not in force.  What was wrong before with a file that nobody can read any more
        is no help."""
        if self._believed.problem and self._cache.outdated:
            told = "; ".join(f"{file}: {why}" for file, why in sorted(self._cache.outdated.items()))
            return still_in_force(told, self.config)
        return self._believed.problem

    @property
    def missing(self) -> str:
        """Why nothing is in force; empty while something is."""
        if self.config or self.problem:
            return "" if self.config else self.problem
        if not is_name(self.node):
            return f"metadata.name: {self.node!r} is no DNS name (small letters); set FLOCK_NODE in /etc/default/flock"
        others = [f"{node} in {file}" for file, nodes in sorted(self._cache.passed_over.items()) for node in nodes]
        told = f"; there is one named {', '.join(others[:NAMED])}" if others else ""
        return f"no NodeConfig named {self.node}{told}"

    @property
    def barren(self) -> str:
        """Why no pod can get an address by what is in force; empty while some can."""
        if self.config is None or self.config.cidr6 or self.config.cidr4 or self.config.reach:
            return ""  # asked for each ADD: most have a CIDR
        refused = no_family_here()
        return f"{refused.msg}; {refused.details}"

    def complaints(self) -> Iterable[str]:
        """What was written last is not in force, while something else is."""
        return (self.problem,) if self.config else ()

    @property
    def speaks(self) -> bool:
        """Is BIRD expected to talk to anybody?"""
        return self.config is not None and bool(self.config.bgp or self.config.ospf)

    def take_in(self) -> None:
        """Believe what is known by now.  Cheap when nothing of it changed."""
        if not self._reader.changes():
            return
        inputs = inputs_of(self._cache)
        if inputs == self._seen:
            return
        self._seen = inputs
        before = self._believed
        now = self._believed = decide(self.node, inputs, before=before)
        if now.problem and now.problem != before.problem:
            refused = ConfigRefused(node=self.node, problem=now.problem, last_good=bool(now.config))
            self._happened.note(refused)
        if now.config is not None and now.config is not before.config:
            cidrs = ",".join(map(str, now.config.aggregates)) or "-"
            self._happened.note(ConfigTaken(node=self.node, cidrs=cidrs))
            self._notify()


def inputs_of(cache: Cache) -> Inputs:
    templates = tuple(cache.table(TEMPLATES).values())
    return Inputs(given=FromNode.of(cache.own(NODES)), templates=templates, own=cache.own(NODE_CONFIGS))
