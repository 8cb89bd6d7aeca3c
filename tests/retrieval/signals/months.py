"""Partitions of months that are over, as if they had been made then."""

from __future__ import annotations

import psycopg

from tests.services import Database


def older_partition(database: Database, months_ago: int, parent: str = "pack_delivery") -> None:
    """Makes that of an earlier month: a fresh database has this one's and three more."""
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute(
            f"""do $$ declare m timestamp := date_trunc('month', now() at time zone 'utc')
                                             - interval '{months_ago} months';
            begin
                set role gw_owner;
                execute format('create table brain.%I partition of brain.{parent}'
                    ' for values from (%L) to (%L)', '{parent}_' || to_char(m, 'YYYYMM'),
                    m at time zone 'utc', (m + interval '1 month') at time zone 'utc');
                execute format('alter table brain.%I enable row level security',
                               '{parent}_' || to_char(m, 'YYYYMM'));
                execute format('alter table brain.%I force row level security',
                               '{parent}_' || to_char(m, 'YYYYMM'));
            end $$""".encode()
        )
