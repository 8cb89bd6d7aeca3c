"""``python -m policies``: what a reviewer runs after an edit. Exit codes: 0 all holds, 2 usage,
3 the policy is invalid, 4 cases failed."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from policies import casework, congruence
from policies.emit.text import profile_lines
from policies.errors import InvalidPolicy, PolicyError
from policies.kinds import SHAPES
from policies.loader import parse
from policies.review import schemas
from policies.snapshot import DEFAULT_FOLDER, Snapshot, compiled, load
from policies.vocabulary import FACETS
from policies.vocabulary_file import append_generation

OK, INVALID, FAILED = 0, 3, 4


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one verb; prints for people, returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m policies", description=__doc__)
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER)
    parser.add_argument("--overlay", type=Path, default=None)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verify = verbs.add_parser("verify", help="load, prove against Casbin, run the cases")
    verify.add_argument("--exhaustive", action="store_true", help="ask about every single state")
    show = verbs.add_parser("show", help="what each profile may read, in few lines")
    show.add_argument("profiles", nargs="*")
    explain = verbs.add_parser("explain", help="which rules decide on one state")
    explain.add_argument("profile")
    explain.add_argument("values", nargs=len(FACETS), metavar="VALUE", help=" ".join(FACETS))
    explain.add_argument("--consent", choices=("none", "granted"), default="none")
    verbs.add_parser("lock", help="give ids to values that were appended to the vocabulary")
    verbs.add_parser("models", help="write the fixed models anew")
    verbs.add_parser("schemas", help="write the JSON Schemas of the YAML files anew")
    options = parser.parse_args(arguments)
    try:
        return _run(options)
    except InvalidPolicy as error:
        print(error, file=sys.stderr)
        print(f"{len(error.faults)} faults: the policy is refused", file=sys.stderr)
        return INVALID
    except PolicyError as error:
        print(f"refused: {error}", file=sys.stderr)
        return INVALID


def _run(options: argparse.Namespace) -> int:
    match options.verb:
        case "verify":
            return _verify(options)
        case "show":
            snapshot = load(options.folder, options.overlay)
            for profile in options.profiles or snapshot.vocabulary.profiles:
                print("\n".join(profile_lines(snapshot, profile)))
        case "explain":
            return _explain(load(options.folder, options.overlay), options)
        case "lock":
            print(append_generation(options.folder))
        case "schemas":
            schemas.write(options.folder)
        case "models":
            for shape in SHAPES.values():
                target = options.folder / shape.model_file
                target.parent.mkdir(exist_ok=True)
                target.write_text(shape.model_text, encoding="utf-8")
    return OK


def _verify(options: argparse.Namespace) -> int:
    start = time.perf_counter()
    snapshot = load(options.folder, options.overlay)
    print(f"policy {snapshot.digest[:12]} equals Casbin ({time.perf_counter() - start:.1f} s)")
    if options.exhaustive:
        parsed = parse(options.folder, options.overlay)
        asked = congruence.check_units_exhaustively(
            parsed.vocabulary,
            compiled(parsed)[0].table.units,
            lambda asked: print(f"  {asked} states asked", flush=True),
        )
        print(f"every one of {asked} states equals Casbin ({time.perf_counter() - start:.0f} s)")
    results = casework.run(options.folder, snapshot)
    for failure in results.failures:
        place = failure.place
        print(f"{place.file}:{place.line}:{place.column}: {failure.name}", file=sys.stderr)
        for problem in failure.problems:
            print(f"    {problem}", file=sys.stderr)
    passed = len(results.outcomes) - len(results.failures)
    print(f"{passed} of {len(results.outcomes)} cases hold")
    if results.untested_rules:
        print(f"rules that no case touches: {', '.join(results.untested_rules)}")
    return OK if results.passed else FAILED


def _explain(snapshot: Snapshot, options: argparse.Namespace) -> int:
    values = dict(zip(FACETS, options.values, strict=True))
    snapshot.grant([options.profile])
    class_id = snapshot.vocabulary.class_id(values)
    found = snapshot.table.units.rules(options.profile, class_id, options.consent)
    verdict = "ALLOW" if found.allowed else "DENY"
    print(f"{verdict} {options.profile} class {class_id} consent {options.consent}")
    print(f"  allowed by: {', '.join(found.allows) or 'no rule'}")
    print(f"  denied by:  {', '.join(found.denies) or 'no rule'}")
    return OK


if __name__ == "__main__":
    sys.exit(main())
