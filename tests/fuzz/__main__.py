"""``python -m tests.fuzz [--seconds N] [FILE ...]``: search for a folder that breaks a law.

Files are inputs that an earlier run kept; with them nothing is searched, each is judged alone.
Exit code 0 when nothing was found, 77 when something was (libFuzzer's own); the input is then
kept under ``build/fuzz``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from importlib import import_module
from pathlib import Path
from random import Random

KEPT = Path("build/fuzz")
INPUT_MAX = 20_000
HANG_SECONDS = 20
TOLD_EVERY = 200
LIBFUZZERS_OWN = 0.25
AFRESH = 0.5
"""How often edits start from a shipped file: edits of edits are hardly ever accepted."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("files", nargs="*", type=Path)
    given = parser.parse_args()
    atheris = import_module("atheris")  # in an environment of its own: `make fuzz`
    with atheris.instrument_imports(include=["policies"]):
        law_module = import_module("tests.fuzz.law")
    from tests.fuzz.edits import decoded, edited, encoded, words_of
    from tests.fuzz.seeds import seeds

    law = law_module.Law()
    names = sorted(law.contents)
    words = words_of(law.contents)
    counted = Counter[str]()

    def one(data: bytes) -> None:
        found = law.check({**law.contents, **decoded(names, data)})
        counted["refused" if found.faults else "accepted"] += 1
        counted["opening something"] += bool(found.grown)
        if counted.total() % TOLD_EVERY == 0:  # the fuzzer ends the process itself
            print(f"folders so far: {dict(counted)}", file=sys.stderr, flush=True)

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        random = Random(seed)
        if random.random() < LIBFUZZERS_OWN:
            return bytes(atheris.Mutate(data, max_size))
        if random.random() < AFRESH:
            name = random.choice(names)
            data = encoded(names, {name: law.contents[name]})
        for _ in range(random.choice((1, 1, 2, 4))):
            data = edited(data, words, random)
        return data[:max_size]

    for file in given.files:
        print(file, law.check({**law.contents, **decoded(names, file.read_bytes())}))
    if given.files:
        return
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(seeds(law.contents)):
            (Path(corpus) / f"{number:04}").write_bytes(encoded(names, seed))
        options = [
            f"-max_total_time={given.seconds}",
            f"-timeout={HANG_SECONDS}",
            f"-max_len={INPUT_MAX}",
            f"-artifact_prefix={KEPT}/",
            "-print_final_stats=1",
        ]
        atheris.Setup([sys.argv[0], corpus, *options], one, custom_mutator=mutate)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
