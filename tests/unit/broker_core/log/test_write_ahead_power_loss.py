"""Power losses at every operation of small scripts, and between any operations, with a write-ahead log."""

import errno
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.log.write_ahead import WriteAheadStorage
from tests.support.broker_core.write_ahead_world import (
    EVERYTHING,
    FILES,
    KINDS,
    NOTHING,
    PowerLossKind,
    World,
    random_parts,
    written,
)
from tests.support.examples import examples
from tests.support.short_form import chosen
from tests.support.simulated.disk import PowerLoss

Script = Callable[[World], None]

# Power losses at every operation.


def grow(world: World) -> None:
    for number in range(4):
        written(world, *FILES[: 2 + number % 2])


def checkpoint_between(world: World) -> None:
    grow(world)
    world.checkpoint()
    grow(world)


def own_sync_between(world: World) -> None:
    grow(world)
    world.append("a/x", 9)
    world.sync("a/x")
    written(world, *FILES)


def unsynced_bytes_at_first_step(world: World) -> None:
    world.append("a/x", 50)
    written(world, *FILES)
    world.append("a/x", 50)
    world.die()
    world.append("a/x", 5)
    written(world, *FILES)


def truncate(world: World) -> None:
    grow(world)
    world.truncate("a/x", 9)
    written(world, *FILES)
    world.truncate("a/x", 2)
    world.append("a/x", 30)
    written(world, *FILES)
    written(world, *FILES)


def truncate_without_sync(world: World) -> None:
    grow(world)
    world.truncate("a/x", 9)
    world.append("a/x", 2)
    written(world, "a/y", "b/x")
    world.truncate("b/x", 1)


def delete_and_create(world: World) -> None:
    grow(world)
    world.delete("a/x")
    written(world, *FILES)
    written(world, *FILES)
    world.delete("a")
    written(world, *FILES)
    grow(world)


def shrink_by_recreation(world: World) -> None:
    """The new file is shorter than the positions of the old one's frames, and then grows beyond them."""
    grow(world)
    world.delete("a/x")
    world.append("a/x", 3)
    world.step(["a/x"])
    world.append("a/x", 40)
    world.sync("a/x")
    written(world, *FILES)


def replace_by_rename(world: World) -> None:
    grow(world)
    world.append("a/y.cleaned", 5)
    world.sync("a/y.cleaned")
    world.rename("a/y.cleaned", "a/y.swap")
    world.rename("a/y.swap", "a/y")
    written(world, *FILES)
    written(world, *FILES)


def rename_away_and_create(world: World) -> None:
    grow(world)
    world.rename("a/x", "a/x.deleted")
    world.append("a/x", 2)
    world.step(["a/x", "a/y"])
    written(world, *FILES)
    world.delete("a/x.deleted")


def rename_folder(world: World) -> None:
    grow(world)
    world.rename("a", "a.deleted")
    written(world, *FILES)
    written(world, *FILES)
    world.delete("a.deleted")
    written(world, *FILES)


def replaced_file_with_frames(world: World) -> None:
    """Both the file that moves and the file that it replaces are in the write-ahead log."""
    grow(world)
    world.rename("b/x", "a/x")
    written(world, "a/x", "a/y")
    written(world, *FILES)


def end_and_start(world: World) -> None:
    grow(world)
    world.append("a/x", 8)
    world.close_and_open()
    grow(world)
    world.die()
    written(world, *FILES)
    world.die()
    written(world, *FILES)
    written(world, *FILES)


def changes_after_a_replay(world: World) -> None:
    """No frame is written after the replay, so nothing but the replay itself can empty the write-ahead log."""
    grow(world)
    world.die()
    world.delete("a/x")
    world.append("a/x", 60)
    world.sync("a/x")
    world.truncate("a/y", 3)
    world.append("a/y", 60)
    world.sync("a/y")
    world.rename("a/x", "b/x")


def two_objects_of_a_file(world: World) -> None:
    grow(world)
    world.open_again("a/x")
    written(world, *FILES)
    world.append("b/x", 4)
    world.open_again("b/x")
    written(world, *FILES)


SCRIPTS: dict[str, Script] = {
    script.__name__: script
    for script in (
        grow, checkpoint_between, own_sync_between, unsynced_bytes_at_first_step, truncate, truncate_without_sync,
        delete_and_create, shrink_by_recreation, replace_by_rename, rename_away_and_create, rename_folder,
        replaced_file_with_frames, end_and_start, changes_after_a_replay, two_objects_of_a_file,
    )
}  # fmt: skip


def cut(script: Script, fuse: int, checkpoint_bytes: int) -> tuple[World, bool]:
    """Run the script with a power loss after `fuse` operations; return whether the script ended before it."""
    world = World(checkpoint_bytes)
    world.disk.fuse = fuse
    try:
        script(world)
    except PowerLoss:
        return world, False
    return world, True


def worlds_cut_at_every_operation(script: Script, checkpoint_bytes: int) -> Iterator[World]:
    for fuse in itertools.count():
        world, ended = cut(script, fuse, checkpoint_bytes)
        yield world
        if ended:
            return


def after_power_losses(world: World, kinds: Iterable[PowerLossKind]) -> Iterator[World]:
    """Return what each kind of power loss leaves of the world; what several of them leave, once."""
    seen: list[tuple[dict[str, bytes], list[str]]] = []
    for kind in kinds:
        left = world.after_end()
        left.lose_power(kind)
        found = dict(left.disk.files()), left.disk.list_folder("")
        if found not in seen:
            seen.append(found)
            yield left


NAMES = chosen(list(SCRIPTS), "scripts with a power loss at every operation", of=5)
all_scripts = pytest.mark.parametrize("script", [SCRIPTS[name] for name in NAMES], ids=NAMES)
all_checkpoints = pytest.mark.parametrize("checkpoint_bytes", [200, 10_000])


@all_checkpoints
@all_scripts
def test_a_power_loss_keeps_what_is_acknowledged(script: Script, checkpoint_bytes: int) -> None:
    for world in worlds_cut_at_every_operation(script, checkpoint_bytes):
        for left in after_power_losses(world, KINDS.values()):
            left.open_after_power_loss()
            for _ in range(2):
                written(left, *FILES)
            left.lose_power()
            left.open_after_power_loss()


@all_scripts
def test_a_replay_can_be_cut_at_every_operation(script: Script) -> None:
    for world in worlds_cut_at_every_operation(script, 10_000):
        for left in after_power_losses(world, (NOTHING, EVERYTHING)):
            for fuse in range(operations_of_replay(left) + 1):
                for replay_kind in (NOTHING, KINDS["the files"]):
                    left.after_end().open_after_power_loss([fuse], replay_kind)


def operations_of_replay(world: World) -> int:
    left = world.after_end()
    left.disk.fuse = 1_000
    WriteAheadStorage(left.disk, checkpoint_bytes=10_000)
    return 1_000 - left.disk.fuse


@all_scripts
def test_a_power_loss_after_a_killed_process_keeps_what_is_acknowledged(script: Script) -> None:
    """The next process finds bytes in the files that are not durable."""
    for world in worlds_cut_at_every_operation(script, 10_000):
        for fuse in itertools.count():
            left = world.after_end()
            left.disk.fuse = fuse
            try:
                WriteAheadStorage(left.disk, checkpoint_bytes=10_000)
                ended = True
            except PowerLoss:
                ended = False
            left.lose_power()
            left.open_after_power_loss()
            if ended:
                break


# Any operations.

paths = st.sampled_from(["a/x", "a/y", "b/x", "a/y.swap", "c/x"])
folders = st.sampled_from(["a", "b", "c"])
counts = st.integers(0, 30)
OPERATIONS = st.one_of(
    st.tuples(st.just("written"), st.lists(paths, min_size=1, max_size=4, unique=True)),
    st.tuples(st.just("written"), st.just(FILES)),
    st.tuples(st.just("append"), paths, counts),
    st.tuples(st.just("step"), st.lists(paths, max_size=4)),
    st.tuples(st.just("sync"), paths),
    st.tuples(st.just("truncate"), paths, counts),
    st.tuples(st.just("delete"), st.one_of(paths, folders)),
    st.tuples(st.just("rename"), paths, paths),
    st.tuples(st.just("rename folder"), folders, folders),
    st.tuples(st.sampled_from(["open_again"]), paths),
    st.tuples(st.sampled_from(["checkpoint", "close_and_open", "die", "finish", "sync_names"])),
    st.tuples(st.just("slow"), st.booleans()),
    st.tuples(st.just("full"), st.booleans()),
    st.tuples(st.just("fuse"), st.integers(0, 12)),
)


def apply(world: World, operation: tuple[Any, ...]) -> None:
    name, *arguments = operation
    match name:
        case "written":
            for path in arguments[0]:
                world.append(path, 7)
            world.step(arguments[0])
        case "rename folder":
            if not world.names.exists(arguments[1]):
                world.rename(*arguments)
        case "slow":
            world.disk.after_us = (lambda _us, _action: None) if arguments[0] else None
        case "full":
            world.disk.is_full = arguments[0]
        case "fuse":
            world.disk.fuse = arguments[0]
        case _:
            getattr(world, name)(*arguments)


@examples(600)
@given(
    st.sampled_from([1, 150, 10_000]),
    st.lists(OPERATIONS, min_size=4, max_size=30),
    st.lists(st.integers(0, 8), max_size=3),
    st.integers(0, 1_000_000),
)
def test_any_operations_and_power_losses_keep_what_is_acknowledged(
    checkpoint_bytes: int, operations: list[tuple[Any, ...]], replay_fuses: list[int], seed: int
) -> None:
    world = World(checkpoint_bytes)
    losses = itertools.count(seed)
    for operation in operations:
        try:
            apply(world, operation)
        except PowerLoss:
            world.lose_power(random_parts(next(losses)))
            world.open_after_power_loss(replay_fuses, random_parts(next(losses)))
        except OSError as error:
            assert error.errno == errno.ENOSPC
            world.disk.is_full = False
    world.lose_power(random_parts(next(losses)))
    world.open_after_power_loss(replay_fuses, random_parts(next(losses)))


@examples(100)
@given(st.lists(OPERATIONS, max_size=30))
def test_without_power_loss_it_behaves_as_the_plain_storage(operations: list[tuple[Any, ...]]) -> None:
    world = World(150)
    for operation in operations:
        if operation[0] not in ("full", "fuse"):
            apply(world, operation)
            world.check_unharmed()
            for folder in ("", "a", "b", "c"):
                assert world.storage.list_folder(folder) == world.names.list_folder(folder)
