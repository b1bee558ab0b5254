"""Statements: login, prepared statements, introspected types, transactions, cursors, errors."""

import asyncio
import os

import asyncpg

from checks import CONNECTIONS, check


@check("a right password is let in, a wrong one is refused")
async def login():
    connection = await asyncpg.connect()
    assert await connection.fetchval("SELECT current_user") == os.environ["PGUSER"]
    assert connection.get_server_version().major >= 13
    await connection.close()
    for wrong in ({"password": "not the password"}, {"user": "nobody_of_that_name"}):
        try:
            await asyncpg.connect(**wrong)
        except asyncpg.InvalidPasswordError:
            continue
        raise AssertionError(f"{wrong} was let in")
    try:
        await asyncpg.connect(database="no_such_database")
    except asyncpg.InvalidCatalogNameError:
        pass
    else:
        raise AssertionError("an unknown database was let in")


@check("server settings of the login hold for their session")
async def server_settings():
    mine = await asyncpg.connect(server_settings={"application_name": "mine", "search_path": "pg_catalog", "jit": "off"})
    other = await asyncpg.connect()
    for _ in range(2 * CONNECTIONS):
        assert await mine.fetchval("SHOW application_name") == "mine"
        assert await mine.fetchval("SHOW search_path") == "pg_catalog"
        assert await mine.fetchval("SHOW jit") == "off"
        assert await other.fetchval("SHOW search_path") != "pg_catalog"
        assert await other.fetchval("SHOW application_name") != "mine"
    await mine.close()
    await other.close()


@check("prepared statements over many transactions and sessions")
async def prepared():
    sessions = [await asyncpg.connect() for _ in range(3 * CONNECTIONS)]
    statements = [await session.prepare(f"SELECT $1::int + {index}") for index, session in enumerate(sessions)]
    for number in range(5):
        for index, statement in enumerate(statements):
            assert await statement.fetchval(number) == number + index
            assert await sessions[index].fetchval("SELECT $1::text || 'x'", str(number)) == f"{number}x"
    values = await asyncio.gather(*(statement.fetchval(100) for statement in statements))
    assert values == [100 + index for index in range(len(sessions))], values
    assert [attribute.type.name for attribute in statements[0].get_attributes()] == ["int4"]
    for session in sessions:
        await session.close()


@check("composite, enum and array types are introspected")
async def introspection():
    connection = await asyncpg.connect()
    await connection.execute("""DROP TABLE IF EXISTS shapes; DROP TYPE IF EXISTS shape; DROP TYPE IF EXISTS hue;
        CREATE TYPE hue AS ENUM ('red', 'green'); CREATE TYPE shape AS (name text, hue hue, sides int[]);
        CREATE TABLE shapes (id int, shape shape, all_shapes shape[])""")
    one = ("square", "red", [1, 1, 1, 1])
    for _ in range(CONNECTIONS):
        session = await asyncpg.connect()
        await session.execute("TRUNCATE shapes")
        await session.execute("INSERT INTO shapes VALUES ($1, $2, $3)", 1, one, [one, ("line", "green", [2])])
        row = await session.fetchrow("SELECT * FROM shapes WHERE id = $1", 1)
        assert tuple(row["shape"]) == one, row
        assert [tuple(shape) for shape in row["all_shapes"]] == [one, ("line", "green", [2])], row
        assert await session.fetchval("SELECT $1::hue[]", ["red", "green"]) == ["red", "green"]
        await session.close()
    await connection.execute("DROP TABLE shapes; DROP TYPE shape; DROP TYPE hue")
    await connection.close()


@check("a custom codec and a changed type are looked up again")
async def codecs():
    connection = await asyncpg.connect()
    await connection.set_type_codec("json", encoder=str, decoder=lambda text: f"decoded {text}", schema="pg_catalog")
    assert await connection.fetchval("SELECT '[1]'::json") == "decoded [1]"
    await connection.execute("DROP TABLE IF EXISTS widened; CREATE TABLE widened (a int); INSERT INTO widened VALUES (1)")
    assert dict(await connection.fetchrow("SELECT * FROM widened")) == {"a": 1}
    await connection.execute("ALTER TABLE widened ADD b text DEFAULT 'x'")
    # asyncpg prepares again by itself when the server says that the cached plan is stale.
    assert dict(await connection.fetchrow("SELECT * FROM widened")) == {"a": 1, "b": "x"}
    await connection.execute("DROP TABLE widened")
    await connection.close()


@check("transactions with every isolation option, and savepoints")
async def transactions():
    connection = await asyncpg.connect()
    for level in ("read_committed", "repeatable_read", "serializable"):
        for readonly in (False, True):
            async with connection.transaction(isolation=level, readonly=readonly, deferrable=level == "serializable" and readonly):
                assert await connection.fetchval("SHOW transaction_isolation") == level.replace("_", " ")
                assert await connection.fetchval("SHOW transaction_read_only") == ("on" if readonly else "off")
                assert connection.is_in_transaction()
    await connection.execute("DROP TABLE IF EXISTS saved; CREATE TABLE saved (a int)")
    async with connection.transaction():
        await connection.execute("INSERT INTO saved VALUES (1)")
        try:
            async with connection.transaction():
                await connection.execute("INSERT INTO saved VALUES (2)")
                await connection.execute("SELECT 1/0")
        except asyncpg.DivisionByZeroError:
            pass
        async with connection.transaction():
            await connection.execute("INSERT INTO saved VALUES (3)")
    # A savepoint before the first statement.
    async with connection.transaction():
        try:
            async with connection.transaction():
                await connection.execute("INSERT INTO no_such_table VALUES (1)")
        except asyncpg.UndefinedTableError:
            pass
        await connection.execute("INSERT INTO saved VALUES (4)")
    async with connection.transaction():
        pass
    rows = await connection.fetch("SELECT a FROM saved ORDER BY a")
    assert [row["a"] for row in rows] == [1, 3, 4], rows
    await connection.execute("DROP TABLE saved")
    await connection.close()


@check("an error fails the transaction, and the session lives on")
async def errors():
    connection = await asyncpg.connect()
    transaction = connection.transaction()
    await transaction.start()
    for expected, statement in ((asyncpg.UniqueViolationError, "DO $$ BEGIN RAISE unique_violation; END $$"),
                                (asyncpg.InFailedSQLTransactionError, "SELECT 1"),
                                (asyncpg.InFailedSQLTransactionError, "SELECT $1::int")):
        try:
            await connection.fetchval(statement, *([1] if "$1" in statement else []))
        except expected:
            continue
        raise AssertionError(f"{statement} did not fail with {expected.__name__}")
    await transaction.rollback()
    assert await connection.fetchval("SELECT $1::int", 5) == 5
    for _ in range(CONNECTIONS):
        try:
            await connection.fetchval("SELEC $1", 1)
        except asyncpg.PostgresSyntaxError:
            assert await connection.fetchval("SELECT 6") == 6
    await connection.close()


@check("cursors fetch portal by portal")
async def cursors():
    connection = await asyncpg.connect()
    async with connection.transaction():
        total = 0
        async for row in connection.cursor("SELECT generate_series(1, $1::int) AS n", 1000, prefetch=7):
            total += row["n"]
        assert total == 500_500, total
        cursor = await connection.cursor("SELECT generate_series(1, 100)")
        assert await cursor.forward(10) == 10
        assert (await cursor.fetchrow())[0] == 11
        other = await connection.cursor("SELECT generate_series(101, 200)")
        assert (await other.fetchrow())[0] == 101
        assert len(await cursor.fetch(1000)) == 89
    async with connection.transaction():
        statement = await connection.prepare("SELECT generate_series(1, $1::int)")
        cursor = await statement.cursor(50)
        assert len(await cursor.fetch(20)) == 20
        assert len(await cursor.fetch(100)) == 30
    await connection.close()


@check("executemany is one transaction, large or wrong")
async def executemany():
    connection = await asyncpg.connect()
    await connection.execute("DROP TABLE IF EXISTS many; CREATE TABLE many (a int CHECK (a >= 0), b text)")
    await connection.executemany("INSERT INTO many VALUES ($1, $2)", [(number, "x" * 100) for number in range(20_000)])
    assert await connection.fetchval("SELECT count(*) FROM many") == 20_000
    try:
        await connection.executemany("INSERT INTO many VALUES ($1, $2)", [(number, "y") for number in (1, 2, -3, 4)])
    except asyncpg.CheckViolationError:
        pass
    else:
        raise AssertionError("the error was lost")
    assert await connection.fetchval("SELECT count(*) FROM many WHERE b = 'y'") == 0
    rows = await connection.fetchmany("SELECT $1::int * 2 AS n", [(1,), (2,), (3,)])
    assert [row["n"] for row in rows] == [2, 4, 6], rows
    await connection.execute("DROP TABLE many")
    await connection.close()
