"""Single mutations of the protocol, each of which the explorer must find: this shows that it can see.

`python -m tests.explorer.mutations` tries all, or those that are named.
"""

import importlib.util
import multiprocessing
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = "spark_eos.sink.protocol"
# Processor time for one world, after which it counts as endless: the dearest needs a quarter of it on a slow machine.
_SECONDS: Final = 120.0
# What imports the protocol.
_IMPORTING: Final = ("spark_eos", "tests.explorer", "tests.simulation", "tests.support.spark_eos")


class Mutation(NamedTuple):
    """A text of one module that is replaced, and the worlds in which the difference shows, the cheapest first.

    Without a world there is the reason why nothing shows it.
    """

    name: str
    module: str
    old: str
    new: str
    worlds: str
    reason: str = ""


def read_mutations(text: str) -> list[Mutation]:
    """Read the mutations of `mutations.txt`."""
    found = []
    for block in text.split("\n\n"):
        head, *lines = block.strip("\n").split("\n")
        if not head.startswith("#"):
            name, module, worlds = head.split(" | ")
            old, new, reason = ("\n".join(line[1:] for line in lines if line[0] == sign) for sign in "-+#")
            found.append(Mutation(name, module, old, new, "" if worlds == "none" else worlds, reason.strip()))
    return found


MUTATIONS: Final = read_mutations((Path(__file__).parent / "mutations.txt").read_text())


class _Finder(MetaPathFinder, SourceLoader):
    """The finder of one module, with another source."""

    def __init__(self, mutation: Mutation) -> None:
        self._name = f"{PACKAGE}.{mutation.module}"
        self._path = ROOT.joinpath(*self._name.split(".")).with_suffix(".py")
        self._source = mutated(mutation)

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find the module that is mutated, and no other."""
        return importlib.util.spec_from_loader(fullname, self) if fullname == self._name else None

    def get_filename(self, fullname: str) -> str:
        """Return the file of the original."""
        return str(self._path)

    def get_data(self, path: str) -> bytes:
        """Return the mutated source."""
        return self._source.encode()


def mutated(mutation: Mutation) -> str:
    """Return the source of a mutated module; raise if it has not exactly one place for the mutation."""
    source = ROOT.joinpath(*PACKAGE.split("."), f"{mutation.module}.py").read_text()
    if source.count(mutation.old) != 1:
        raise ValueError(f"{mutation.name}: {mutation.module} has {source.count(mutation.old)} times {mutation.old!r}")
    return source.replace(mutation.old, mutation.new)


class Hunt(NamedTuple):
    """What became of a mutation: what is wrong, in which world, after which steps; or nothing."""

    mutation: str
    wrong: str
    world: str
    words: tuple[str, ...]
    states: int


def mutate(mutation: Mutation) -> None:
    """Import the mutated protocol from now on; this process must not use the protocol for anything else."""
    for name in list(sys.modules):
        if name.startswith(_IMPORTING) and name != __name__:
            del sys.modules[name]
    sys.meta_path.insert(0, _Finder(mutation))


def hunt(mutation: Mutation) -> Hunt:
    """Explore with a mutated protocol, in a process of its own."""
    mutate(mutation)
    from tests.explorer.search import explore
    from tests.explorer.worlds import FOR_MUTATIONS

    states = 0
    for world in mutation.worlds.split():
        found = explore(FOR_MUTATIONS[world], _SECONDS)
        states += found.states
        if found.wrong:
            return Hunt(mutation.name, found.wrong, world, found.words, states)
    return Hunt(mutation.name, "", "", (), states)


def hunt_all(mutations: Sequence[Mutation], cores: int = 2) -> list[Hunt]:
    """Explore with each of some mutations, each in a process of its own."""
    with multiprocessing.get_context("fork").Pool(cores, maxtasksperchild=1) as pool:
        return pool.map(hunt, mutations, chunksize=1)


def main(names: Sequence[str]) -> int:
    """Try mutations; return how many were not found."""
    chosen = [each for each in MUTATIONS if each.name in names or (not names and each.worlds)]
    missed = 0
    with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
        for each in pool.imap_unordered(hunt, chosen, chunksize=1):
            missed += not each.wrong
            found = f"{each.world}, {len(each.words)} steps: {each.wrong}" if each.wrong else "NOT FOUND"
            print(f"{each.mutation} ({each.states} states): {found}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} found")
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
