"""Which pods are in which groups, kept as pods, namespaces and groups come and go.

    group ──▶ scope (the namespaces a selector chooses, or one by name) ──▶ rooms (namespaces with their labels)
      └─ its pod selector ──▶ profiles (pods of one namespace with the same labels) ──▶ pods

Selectors see labels only, so they are compared with profiles, and a replica more of a Deployment costs no comparison at
all.  Scopes are shared by groups with the same namespaceSelector.  Both sides are found by label (`labels`).
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence

from flock.core.policy.compiled import NODES, Address, GroupId, NamedPort
from flock.core.policy.labels import Effort, Labels, Objects, Selectors, demands_labels
from flock.core.policy.podfacts import Ports
from flock.core.policy.reach import Reach
from flock.core.policy.reading import PeerSelector
from flock.core.policy.rosters import Entry, Rosters
from flock.core.selectors import LabelSelector

NAME_LABEL = "kubernetes.io/metadata.name"  # every namespace has it, set by the API server, with or without an object
UNKNOWN: Labels = {"?": ""}  # of a pod whose labels nobody knows yet: no object has these, and only suspicion fits


class Peer:
    __slots__ = ("addresses", "ports", "profile")

    def __init__(self, profile: "Profile", addresses: tuple[Address, ...], ports: Ports) -> None:
        self.profile = profile
        self.addresses = addresses
        self.ports = ports

    def entries(self, port: NamedPort | None) -> Sequence[Entry]:
        if port is None:
            return self.addresses
        return [(address, number) for named, number in self.ports if named == port for address in self.addresses]


class Profile:
    __slots__ = ("groups", "labels", "peers", "ports", "room")

    def __init__(self, room: "Room", labels: Labels) -> None:
        self.room = room
        self.labels = labels
        self.ports: Ports = ()  # of the pod that came last; most often of all
        self.peers: set[Peer] = set()
        self.groups: set[Group] = set()


class Room:
    """A namespace that has an object or pods."""

    __slots__ = ("has_object", "labels", "name", "profiles", "scopes")

    def __init__(self, name: str) -> None:
        self.name = name
        self.has_object = False
        self.labels: Labels = {}
        self.profiles: dict[tuple[str, ...], Profile] = {}
        self.scopes: set[Scope] = set()


class Scope:
    __slots__ = ("groups", "key", "rooms")

    def __init__(self, key: tuple[str, str], groups: "Selectors[Group]") -> None:
        self.key = key  # the namespace, or the text of the selector of namespaces
        self.groups = groups
        self.rooms: set[Room] = set()


class Group:
    """`ports` are the audiences someone holds: the addresses themselves (None), named ports.  `demands`: does its
    selector of pods demand a label?"""

    __slots__ = ("demands", "id", "ports", "profiles", "scope")

    def __init__(self, group: GroupId, scope: Scope, *, demands: bool) -> None:
        self.id = group
        self.scope = scope
        self.demands = demands
        self.ports: set[NamedPort | None] = set()
        self.profiles: set[Profile] = set()


class Peers:
    def __init__(self, rosters: Rosters, effort: Effort) -> None:
        self._rosters = rosters
        self._effort = effort
        self._peers: dict[Hashable, Peer] = {}
        self._profiles: Objects[Profile] = Objects()
        self._rooms: dict[str, Room] = {}
        self._labelled_rooms: Objects[Room] = Objects()
        self._groups: dict[GroupId, Group] = {}
        self._scopes: dict[tuple[str, str], Scope] = {}
        self._choosing: Selectors[Scope] = Selectors(effort)  # scopes that choose namespaces by label
        self._reach: frozenset[Reach] | None = None  # of all groups; None: to be looked at again

    # --- namespaces -----------------------------------------------------------------------------------------

    def set_namespace(self, name: str, labels: Labels) -> None:
        room = self._room(name)
        room.has_object = True
        self._label(room, labels)

    def drop_namespace(self, name: str) -> None:
        room = self._rooms.get(name)
        if room and room.has_object:
            room.has_object = False
            self._label(room, {})
            self._close_if_empty(room)

    def labels_of(self, namespace: str) -> Labels:
        """Of the namespace, with or without an object."""
        room = self._rooms.get(namespace)
        return room.labels if room else {NAME_LABEL: namespace}

    def _room(self, name: str) -> Room:
        room = self._rooms.get(name)
        if room is None:
            room = self._rooms[name] = Room(name)
            self._label(room, {})
        return room

    def _label(self, room: Room, labels: Labels) -> None:
        labels = {**labels, NAME_LABEL: room.name}
        if labels == room.labels:
            return
        self._labelled_rooms.remove(room, room.labels)
        room.labels = labels
        self._labelled_rooms.add(room, labels)
        scopes = set(self._choosing.fitting(labels)) if room.name != NODES else set()
        if (by_name := self._scopes.get((room.name, ""))) is not None:
            scopes.add(by_name)
        for scope in room.scopes - scopes:
            self._uncover(scope, room)
        for scope in scopes - room.scopes:
            self._cover(scope, room)

    def _close_if_empty(self, room: Room) -> None:
        if not room.has_object and not room.profiles:
            for scope in list(room.scopes):
                self._uncover(scope, room)
            self._labelled_rooms.remove(room, room.labels)
            del self._rooms[room.name]

    def _cover(self, scope: Scope, room: Room) -> None:
        self._reach = None
        scope.rooms.add(room)
        room.scopes.add(scope)
        for profile in room.profiles.values():
            for group in _fitting(scope, profile):
                self._enlist(group, profile)

    def _uncover(self, scope: Scope, room: Room) -> None:
        self._reach = None
        scope.rooms.discard(room)
        room.scopes.discard(scope)
        for profile in room.profiles.values():
            for group in [group for group in profile.groups if group.scope is scope]:
                self._strike(group, profile)

    # --- pods -----------------------------------------------------------------------------------------------

    def set(
        self, key: Hashable, *, namespace: str, labels: Labels, addresses: tuple[Address, ...], ports: Ports
    ) -> Peer:
        """The peer has labels and ports equal to those given, shared by the pods that have them."""
        old = self._peers.get(key)
        profile = self._profile(namespace, labels)
        if old is not None and (old.profile, old.addresses, old.ports) == (profile, addresses, ports):
            return old
        if profile.ports != ports:
            profile.ports = ports
        peer = self._peers[key] = Peer(profile, addresses, profile.ports)
        self._join(peer)
        if old is not None:
            self._leave(old)
        return peer

    def drop(self, key: Hashable) -> None:
        old = self._peers.pop(key, None)
        if old is not None:
            self._leave(old)

    def _profile(self, namespace: str, labels: Labels) -> Profile:
        room = self._room(namespace)
        key = _profile_key(labels)
        profile = room.profiles.get(key)
        if profile is None:
            profile = room.profiles[key] = Profile(room, labels)
            self._profiles.add(profile, labels)
            for scope in room.scopes:
                for group in _fitting(scope, profile):
                    self._enlist(group, profile)
        return profile

    def _join(self, peer: Peer) -> None:
        peer.profile.peers.add(peer)
        for group in peer.profile.groups:
            for port in group.ports:
                self._rosters.add((group.id, port), peer.entries(port))

    def _leave(self, peer: Peer) -> None:
        profile = peer.profile
        profile.peers.discard(peer)
        for group in profile.groups:
            for port in group.ports:
                self._rosters.remove((group.id, port), peer.entries(port))
        if not profile.peers:
            for group in profile.groups:
                group.profiles.discard(profile)
            self._profiles.remove(profile, profile.labels)
            del profile.room.profiles[_profile_key(profile.labels)]
            self._close_if_empty(profile.room)

    # --- groups ---------------------------------------------------------------------------------------------

    def follow(self, group: GroupId, port: NamedPort | None, selectors: Mapping[GroupId, PeerSelector]) -> None:
        """Fills the audience's roster and keeps it from now on."""
        known = self._groups.get(group) or self._gather(group, selectors[group])
        known.ports.add(port)
        for profile in known.profiles:
            for peer in profile.peers:
                self._rosters.add((group, port), peer.entries(port))

    def forget(self, group: GroupId, port: NamedPort | None) -> None:
        """The audience's roster is gone."""
        known = self._groups[group]
        known.ports.discard(port)
        if known.ports:
            return
        self._reach = None
        for profile in known.profiles:
            profile.groups.discard(known)
        scope = known.scope
        scope.groups.remove(known)
        del self._groups[group]
        if not len(scope.groups):
            for room in scope.rooms:
                room.scopes.discard(scope)
            if not scope.key[0]:
                self._choosing.remove(scope)
            del self._scopes[scope.key]

    @property
    def reach(self) -> frozenset[Reach]:
        """The same value for as long as it has not changed."""
        if self._reach is None:
            groups = self._groups.values()
            self._reach = frozenset(_reach(g.id, g.scope.rooms, demands=g.demands) for g in groups)
        return self._reach

    def reach_of(self, group: GroupId, selector: PeerSelector) -> Reach:
        """Of a group, followed or not."""
        scope = self._scopes.get((group.namespace, group.namespaces))
        rooms = scope.rooms if scope else self._chosen(group, selector.namespaces)
        return _reach(group, rooms, demands=demands_labels(selector.pods))

    def _gather(self, group: GroupId, selector: PeerSelector) -> Group:
        scope = self._scopes.get((group.namespace, group.namespaces)) or self._open(group, selector.namespaces)
        self._reach = None
        found = self._groups[group] = Group(group, scope, demands=demands_labels(selector.pods))
        scope.groups.add(found, selector.pods)
        candidates = self._profiles.candidates(selector.pods, among=sum(len(room.profiles) for room in scope.rooms))
        if candidates is None:
            candidates = (profile for room in scope.rooms for profile in room.profiles.values())
        for profile in candidates:
            known = profile.labels is not UNKNOWN
            if known and profile.room in scope.rooms and self._effort.fits(selector.pods, profile.labels):
                self._enlist(found, profile)
        for room in scope.rooms if group.suspects else ():
            if (unknown := room.profiles.get(_profile_key(UNKNOWN))) is not None:
                self._enlist(found, unknown)
        return found

    def _open(self, group: GroupId, namespaces: LabelSelector | None) -> Scope:
        scope = Scope((group.namespace, group.namespaces), Selectors(self._effort))
        self._scopes[scope.key] = scope
        if namespaces is not None:
            self._choosing.add(scope, namespaces)
        scope.rooms.update(self._chosen(group, namespaces))
        for room in scope.rooms:
            room.scopes.add(scope)
        return scope

    def _chosen(self, group: GroupId, namespaces: LabelSelector | None) -> list[Room]:
        if namespaces is None:
            return [room for room in (self._rooms.get(group.namespace),) if room]
        candidates = self._labelled_rooms.candidates(namespaces, among=len(self._rooms))
        found = self._rooms.values() if candidates is None else candidates
        return [room for room in found if room.name != NODES and self._effort.fits(namespaces, room.labels)]

    def _enlist(self, group: Group, profile: Profile) -> None:
        group.profiles.add(profile)
        profile.groups.add(group)
        for port in group.ports:
            for peer in profile.peers:
                self._rosters.add((group.id, port), peer.entries(port))

    def _strike(self, group: Group, profile: Profile) -> None:
        group.profiles.discard(profile)
        profile.groups.discard(group)
        for port in group.ports:
            for peer in profile.peers:
                self._rosters.remove((group.id, port), peer.entries(port))


def _reach(group: GroupId, rooms: Iterable[Room], *, demands: bool) -> Reach:
    """`rooms`: the namespaces it chooses."""
    if group.namespace:
        return Reach(frozenset({group.namespace}))  # pods may come before its object does
    if group.namespaces:
        return Reach(frozenset(room.name for room in rooms))
    return Reach(None, group.pods if demands else "")


def _fitting(scope: Scope, profile: Profile) -> Iterable[Group]:
    if profile.labels is UNKNOWN:
        return [group for group in scope.groups if group.id.suspects]
    return scope.groups.fitting(profile.labels)


def _profile_key(labels: Labels) -> tuple[str, ...]:
    """Equal for equal labels; flat, because there may be one for each of ten thousand pods."""
    return tuple(text for item in sorted(labels.items()) for text in item)
