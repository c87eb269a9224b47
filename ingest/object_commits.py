"""How a job's folder in an object store changes: parts under names of their own, manifests last.

There are no locks. Two writers never write one name: each puts a token of its own into the names
of its parts. A manifest is made on the condition that there is none yet; for the moment of that a
writer holds claims on the ranks it brings (`store.claims`), so that of two different traces of a
rank one is refused. Readers need none of this: they see a manifest or do not.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import UnsetType

from . import settings, store
from .detect import clash_group
from .errors import StoreBusy, StoreRefused, UsageError, WarehouseError
from .keeping import packs, prune
from .manifest import (
    PACKED,
    BadManifest,
    Generation,
    Manifest,
    encoded,
    generation_id,
    generation_manifest_name,
    generation_with_token,
    manifest_name,
    with_token,
)
from .object_jobs import (
    MANIFESTS,
    SOURCES,
    Look,
    is_source,
    look,
    read,
    read_generation,
    write_list,
)
from .roster import Roster
from .store import Entry, Folder, Place
from .store.claims import FOLDER as CLAIMS
from .store.claims import claimed
from .store.reading import know, side_by_side

KEPT = "_kept"
QUARANTINE = "_quarantine"
CLAIMED_RANKS = 256
"""Ranks that many apart share a claim, so that a source of all ranks needs no more of them."""

YIELD_S = 5.0
"""So long the earlier of two traces of a rank waits for the later to go."""

Check = Callable[[list[Manifest]], None]


def commit(
    folder: Folder,
    staged: Path,
    moves: list[tuple[str, str]],
    manifest: Manifest,
    roster: Roster,
    check: Check,
) -> bool:
    """Brings a finished source into the job; see `staging.commit`. `check` raises for a clash.

    Parts of a manifest that has a token are in the store already (`upload`). They are removed
    where it does not come to stand, as those that are brought here are.
    """
    mine = [] if isinstance(manifest.token, UnsetType) else [p.file for p in manifest.parts]
    named, name = manifest, manifest_name(manifest)
    try:
        prune.remove_dead(folder)
        if _there(folder, manifest, roster):
            _discard(folder, mine)
            return False
        check(roster.rivals(manifest.format, manifest.ranks))
        if isinstance(manifest.token, UnsetType):
            named = upload(folder, staged, moves, manifest)
            mine = [p.file for p in named.parts]
        with claimed(folder, _claims(named)) as claims:
            if _there(folder, named, roster):
                raise FileExistsError(name)
            check(roster.rivals(named.format, named.ranks))
            _check_uploaded(folder, named)
            claims.check()
            # One that cannot be used stands in the way: it is replaced.
            _stand(folder, f"{MANIFESTS}/{name}", encoded(named), new=name not in roster.files)
    except FileExistsError:
        _discard(folder, mine)
        _there(folder, named, roster)
        return False
    except (StoreBusy, StoreRefused):
        raise  # whether the manifest stands is not known: what it names has to stay
    except BaseException:
        _discard(folder, mine)
        raise
    roster.put(name, named)
    if _claims(named):
        _stay_or_go(folder, named, roster, check)
    return True


def _stay_or_go(folder: Folder, mine: Manifest, roster: Roster, check: Check) -> None:
    """Looks whether another trace of a rank came to stand as well; if so, one of them goes again.

    A writer may have been so slow that its claims were taken over. Whoever stands last sees the
    other: the later (`created_at_ns`, id), which readers leave out, goes at once; the earlier waits
    for that, and goes where the other stays, whose writer was done before. Raises what `check`
    does, after mine is gone.
    """
    name = manifest_name(mine)
    for last in (False, True):
        _there(folder, mine, roster)
        others = roster.rivals(mine.format, mine.ranks, besides=mine.id)
        try:
            check(others)
            return
        except UsageError:
            first = min((o.created_at_ns, o.id) for o in others)
            if last or first < (mine.created_at_ns, mine.id):
                folder.remove([f"{MANIFESTS}/{name}"])
                _discard(folder, [p.file for p in mine.parts])
                roster.drop(name)
                raise
        time.sleep(YIELD_S)


def upload(
    folder: Folder, staged: Path, moves: list[tuple[str, str]], manifest: Manifest
) -> Manifest:
    """Brings the parts of a finished source into the job under a writer's own names.

    Gives the manifest that names them, for `commit`: before that nothing counts. Where it fails
    or is never committed they are removed, now or with the orphans. Raises StoreBusy,
    StoreRefused.
    """
    named, names = with_token(manifest, secrets.token_hex(6))
    files = [(staged / here, names[goal]) for here, goal in moves]
    try:
        _upload(folder, files)
    except StoreBusy:
        raise  # it would be as busy for a removal
    except BaseException:
        _discard(folder, (goal for _, goal in files))
        raise
    return named


def give_up(place: Place, manifests: Iterable[Manifest]) -> None:
    """Removes what `upload` brought for manifests that will never be committed."""
    brought = [m for m in manifests if not isinstance(m.token, UnsetType)]
    if brought:
        _discard(store.folder(place), [p.file for m in brought for p in m.parts])


def _check_uploaded(folder: Folder, named: Manifest) -> None:
    """Raises WarehouseError where a part is gone or cut by now.

    A node may have uploaded it long ago, and somebody tidied up meanwhile.
    """
    found = side_by_side(lambda p: folder.entry(p.file), named.parts, True)
    for part, entry in zip(named.parts, found, strict=True):
        if entry is None or entry.bytes != part.bytes:
            raise WarehouseError(
                f"{folder.address(part.file)}: gone or cut since it was uploaded, so "
                f"{named.name} cannot count; ingest it again"
            )
        know(folder.address(part.file), part.bytes)


def _there(folder: Folder, manifest: Manifest, roster: Roster) -> bool:
    """Reads the manifests that came since; whether the source's is among those there are."""
    names = [n for n in folder.names(MANIFESTS) if is_source(n)]
    known = roster.files
    new = [n for n in names if n not in known]
    for name, m in zip(new, side_by_side(lambda n: read(folder, n), new, True), strict=True):
        if m is not None:
            roster.put(name, m if isinstance(m, Manifest) else None)
    roster.forget_all_but(names)
    return roster.has(manifest.id) is not None


def _claims(manifest: Manifest) -> list[str]:
    group = clash_group(manifest.format)
    if group is None:
        return []
    return sorted({f"{group}-{rank % CLAIMED_RANKS}" for rank in manifest.ranks})


def _upload(folder: Folder, files: list[tuple[Path, str]]) -> None:
    side_by_side(lambda one: folder.put(one[1], one[0]), files, True)
    for here, goal in files:
        know(folder.address(goal), here.stat().st_size)


def _stand(folder: Folder, file: str, data: bytes, new: bool) -> None:
    """Lets a manifest stand. An answer that never came is asked for once more."""
    try:
        folder.put(file, data, new=new)
    except StoreBusy:
        try:
            if folder.read(file, len(data)) == data:
                return
        except OSError:
            pass
        raise


def _discard(folder: Folder, files: Iterable[str]) -> None:
    """Removes a writer's own parts; those that cannot be are removed with the orphans, later."""
    with contextlib.suppress(StoreBusy, StoreRefused, OSError):
        folder.remove(list(files))


def publish(
    folder: Folder,
    staged: Path,
    moves: list[tuple[str, str]],
    generation: Generation,
    spared: Callable[[list[tuple[int, str, bool]], int], list[str]],
) -> None:
    """Brings a derived generation into the job, then removes what is out of use for long.

    `spared` is told of each standing generation (made at, name, whether it is the current one),
    and gives the names of those to be removed.
    """
    named, names = generation_with_token(generation, secrets.token_hex(6))
    file = f"{MANIFESTS}/{generation_manifest_name(named.id)}"
    files = [(staged / here, names[goal]) for here, goal in moves]
    standing = read_generation(folder, named.id)
    seen = look(folder)
    stands = standing is not None and standing.sources == named.sources
    if standing is None or not stands or seen.missing(standing) is not None:
        _upload(folder, files)
        try:
            _stand(folder, file, encoded(named), new=file not in seen.entries)
        except FileExistsError:
            _discard(folder, (goal for _, goal in files))
        seen = look(folder)
    write_list(folder, seen)
    sweep(folder, seen, spared)


def sweep(
    folder: Folder,
    seen: Look,
    spared: Callable[[list[tuple[int, str, bool]], int], list[str]],
    abandoned_s: float = 24 * 3600.0,
    packed_s: float = 24 * 3600.0,
    now_ns: int = 0,
) -> list[str]:
    """Removes superseded generations, what was kept of them, and what no manifest names.

    What a pack took the place of goes `packed_s` after that.
    Ages are told by the store's own clock: `now_ns`, else that of its newest object, which will do
    for who has just written. Gives the names removed.
    """
    entries = seen.entries
    now_ns = now_ns or max((e.modified_ns for e in entries.values()), default=0)

    def old(name: str) -> bool:
        return now_ns - entries[name].modified_ns > abandoned_s * 1e9

    derived = sorted(n for n in entries if n.startswith(f"{MANIFESTS}/derived-"))
    ids = [n.removeprefix(f"{MANIFESTS}/derived-").removesuffix(".json") for n in derived]
    made = dict(
        zip(derived, side_by_side(lambda i: read_generation(folder, i), ids, True), strict=True)
    )
    whole = {n: m for n, m in seen.manifests.items() if isinstance(m, Manifest)}
    # As readers have it: a pack that is cut or lies takes the place of nothing.
    sound = [m for m in whole.values() if seen.missing(m) is None and packs.is_sound(m)]
    settled = packs.settled(sound, [], MANIFESTS)
    out = _packed(whole, settled, entries, now_ns - packed_s * 1e9)
    present = {id[:16] for m in settled.units for id in m.ids}
    said = settings.usable(folder).digest_derived
    told = []
    for name, g in made.items():
        current = g is not None and {s[:16] for s in g.sources} == present
        current = current and g is not None and g.id == generation_id(g.sources, said)
        told.append((entries[name].modified_ns, name, current))
    gone = spared(sorted(told, reverse=True), now_ns)
    standing = {n: g for n, g in made.items() if n not in gone}
    named = {p.file for g in standing.values() if g is not None for p in g.parts}
    # What a manifest that cannot be read names is not known: another version may read it.
    unread = {n.removeprefix(f"{MANIFESTS}/").removesuffix(".json")
              for n, g in standing.items() if g is None}  # fmt: skip
    left_behind = {p.file for n in gone if (g := made[n]) is not None for p in g.parts}
    broken = {n for n, m in seen.manifests.items() if isinstance(m, BadManifest)}
    for name, m in whole.items():
        (left_behind if name in out else named).update(p.file for p in m.parts)
    stands = {n.removeprefix(f"{MANIFESTS}/derived-").removesuffix(".json") for n in standing}
    removed = [*gone, *(f"{MANIFESTS}/{name}" for name in out)]
    for name in sorted(entries):
        room, _, base = name.rpartition("/")
        if name.startswith(f"{QUARANTINE}/"):
            go = False
        elif room == KEPT:
            go = base.split(".")[0] not in stands
        elif room in (MANIFESTS, SOURCES) or not name.endswith(".parquet"):
            go = room == CLAIMS and old(name)
        elif name in named:
            go = False
        elif name in left_behind:
            go = True
        else:
            stem = base.removesuffix(".parquet").split("-")
            go = old(name) and f"{stem[0]}.json" not in broken
            go = go and "-".join(stem[:2]) not in unread
        if go:
            removed.append(name)
    if removed:
        # The manifests first: without one nothing of it counts.
        folder.remove([n for n in removed if n.startswith(f"{MANIFESTS}/")])
        folder.remove([n for n in removed if not n.startswith(f"{MANIFESTS}/")])
    return removed


def _packed(
    whole: dict[str, Manifest], settled: packs.Standing, entries: dict[str, Entry], before: float
) -> list[str]:
    """Names of manifests whose sources a pack that counts has had since `before` (ns)."""
    units = {manifest_name(m) for m in settled.units}
    ids = {
        id
        for m in settled.units
        if m.format == PACKED and entries[f"{MANIFESTS}/{manifest_name(m)}"].modified_ns <= before
        for id in m.ids
    }
    return [n for n, m in whole.items() if n not in units and ids.issuperset(m.ids)]
