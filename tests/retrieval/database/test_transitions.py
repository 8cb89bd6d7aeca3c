"""What follows from a statement takes time by the number of its rows, and not by its square.

Chosen by us. The planner keeps the plan that it made for a first statement of a session, often one
of a single row, and a join of the two transition tables then compares each row with every other.
"""

from __future__ import annotations

import re

from tests.retrieval.database.world import OPEN_THREAD, World

JOINED = re.compile(r"\b(new|old)_rows\b\s*\w*\s+(inner\s+)?join\s+(new|old)_rows\b")


def test_no_function_joins_the_two_transition_tables(world: World) -> None:
    functions = world.ask(
        "select p.proname, p.prosrc from pg_proc p join pg_namespace n on n.oid = p.pronamespace"
        " where n.nspname in ('brain', 'gate') and p.prosrc ~ 'new_rows'"
    )
    assert len(functions) > 5
    assert [name for name, text in functions if JOINED.search(text)] == []


def test_a_label_waits_for_its_posting_only_when_its_words_changed(world: World) -> None:
    """Aliases that were there, came, went and stayed; a blank is a value like any other."""
    columns = "visibility, readiness, publication_state, risk_class, authority, kind"
    for term in ("one", "two", "three"):
        world.run(
            f"insert into brain.label (id, term, {columns}, tenant, jurisdiction)"
            " values (md5(%s)::uuid, %s, %s, %s, %s, %s, %s, 'label', '*', '*')",
            [term, term, *OPEN_THREAD[:5]],
        )

    def waiting() -> list[str]:
        found = world.ask(
            "select l.term from brain.label_term t join brain.label l on l.id = t.label_id"
            " where t.term = -1 order by 1"
        )
        world.as_superuser("delete from brain.label_term")
        return [term for (term,) in found]

    assert waiting() == ["one", "three", "two"]
    world.run("update brain.label set aliases = array['an alias'] where term <> 'three'")
    assert waiting() == ["one", "two"]
    world.run("update brain.label set tenant = 'a'")
    assert waiting() == []
    world.run("update brain.label set aliases = case term when 'one' then '{}' else aliases end")
    assert waiting() == ["one"]
