"""The console through drivers that speak the extended protocol, in text and in binary."""

import asyncio
import os

import asyncpg
import psycopg
from psycopg import sql

DSN = f"host={os.environ['PGHOST']} port={os.environ['PGPORT']} dbname=gatekeeper"


def with_psycopg():
    # Not in autocommit: a BEGIN comes first.
    with psycopg.connect(DSN) as connection:
        with connection.cursor() as cursor:
            cursor.execute("SHOW POOLS")
            assert cursor.description[0].name == "database", cursor.description
            cursor.fetchall()
        connection.rollback()
    with psycopg.connect(DSN, autocommit=True) as connection:
        for binary in (False, True):
            for prepare in (False, True):
                cursor = connection.cursor(binary=binary)
                cursor.execute("SHOW LISTS", prepare=prepare)
                items = dict(cursor.fetchall())
                assert items["used_clients"] == 0 and isinstance(items["pools"], int), items
        try:
            connection.execute("KILL %s", [17])
            raise AssertionError("parameters are not taken")
        except psycopg.Error as error:
            print("as expected:", error)
        connection.execute(sql.SQL("PAUSE"))
        state = dict(connection.execute("SHOW STATE").fetchall())
        assert state == {"active": "no", "paused": "yes", "suspended": "no"}, state
        connection.execute("RESUME")
        try:
            connection.execute("RESUME")
            raise AssertionError("it is not paused")
        except psycopg.errors.ObjectNotInPrerequisiteState as error:
            print("as expected:", error)


async def with_asyncpg():
    connection = await asyncpg.connect(
        host=os.environ["PGHOST"], port=int(os.environ["PGPORT"]), database="gatekeeper"
    )
    rows = await connection.fetch("SHOW CONFIG")
    assert {row["key"]: row["value"] for row in rows}["admin_users"], rows
    for _ in range(3):
        rows = await connection.fetch("SHOW LISTS")
        assert all(isinstance(row["items"], int) for row in rows), rows
    await connection.close()


with_psycopg()
asyncio.run(with_asyncpg())
print("ok")
