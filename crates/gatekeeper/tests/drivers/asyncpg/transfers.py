"""Data in bulk, and statements that end before their time: COPY, large results, time-outs, cancellation."""

import asyncio
import io

import asyncpg

from checks import CONNECTIONS, FlatMemory, check, until, upstream

ROWS = 100_000


@check("COPY of records in, of a query out")
async def copy():
    connection = await asyncpg.connect()
    await connection.execute("DROP TABLE IF EXISTS records; CREATE TABLE records (id int, name text)")
    tag = await connection.copy_records_to_table("records", records=((n, f"name {n}") for n in range(ROWS)))
    assert tag == f"COPY {ROWS}", tag
    for output_format in ("text", "binary", "csv"):
        out = io.BytesIO()
        tag = await connection.copy_from_query("SELECT * FROM records WHERE id < $1", ROWS, output=out, format=output_format)
        assert tag == f"COPY {ROWS}", tag
        out.seek(0)
        await connection.execute("CREATE TABLE records_again (LIKE records)")
        tag = await connection.copy_to_table("records_again", source=out, format=output_format)
        assert tag == f"COPY {ROWS}", tag
        assert await connection.fetchval("SELECT sum(id) FROM records_again") == ROWS * (ROWS - 1) // 2
        await connection.execute("DROP TABLE records_again")
    await connection.execute("DROP TABLE records")
    await connection.close()


@check("a COPY that goes wrong on either side, and the session lives on")
async def copy_errors():
    connection = await asyncpg.connect()
    await connection.execute("DROP TABLE IF EXISTS wrong; CREATE TABLE wrong (a int CHECK (a <> 7))")

    def gives_up():
        yield (1,)
        raise RuntimeError("given up")

    for _ in range(CONNECTIONS):
        try:
            await connection.copy_records_to_table("wrong", records=((n,) for n in range(50_000)))
        except asyncpg.CheckViolationError:
            pass
        else:
            raise AssertionError("the server's error was lost")
        try:
            await connection.copy_records_to_table("wrong", records=gives_up())
        except RuntimeError:
            pass
        else:
            raise AssertionError("the client's error was lost")
        assert await connection.fetchval("SELECT count(*) FROM wrong") == 0
    await connection.execute("DROP TABLE wrong")
    await connection.close()


@check("100 MB by COPY stream through flat memory")
async def large_copy():
    connection = await asyncpg.connect()
    memory = FlatMemory()
    received = 0

    async def count(data):
        nonlocal received
        if (received + len(data)) // 5_000_000 > received // 5_000_000:
            memory.sample()
        received += len(data)

    await connection.copy_from_query("SELECT repeat('x', 9999) FROM generate_series(1, 10500)", output=count)
    assert received == 105_000_000, received
    memory.assert_flat()
    await connection.close()


@check("100 MB by cursor stream through flat memory")
async def large_cursor():
    connection = await asyncpg.connect()
    memory = FlatMemory()
    received = 0
    async with connection.transaction():
        async for row in connection.cursor("SELECT repeat('x', 10000) FROM generate_series(1, 10500)", prefetch=100):
            received += len(row[0])
            if received % 5_000_000 == 0:
                memory.sample()
    assert received == 105_000_000, received
    memory.assert_flat()
    await connection.close()


@check("a parameter of 10 MB")
async def large_parameter():
    connection = await asyncpg.connect()
    text = "z" * 10_000_000
    for _ in range(3):
        assert await connection.fetchval("SELECT length($1::text)", text) == len(text)
        assert await connection.fetchval("SELECT $1::bytea", text.encode()) == text.encode()
    await connection.close()


@check("a time-out of the driver cancels the statement, and the session lives on")
async def timeout():
    connection = await asyncpg.connect()
    for _ in range(2 * CONNECTIONS):
        try:
            await connection.fetchval("SELECT pg_sleep($1::int)", 600, timeout=0.05)
        except asyncio.TimeoutError:
            pass
        else:
            raise AssertionError("the time-out was lost")
        assert await connection.fetchval("SELECT 1") == 1
    try:
        async with connection.transaction():
            await connection.fetchval("SELECT pg_sleep($1::int)", 600, timeout=0.05)
    except asyncio.TimeoutError:
        pass
    assert not connection.is_in_transaction()
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()


@check("a cancelled task cancels its statement on the server")
async def cancelled_task():
    import psycopg

    connection = await asyncpg.connect()
    with psycopg.connect(autocommit=True, **upstream()) as watcher:

        # Where it is only being parsed a cancel would be for that, and what comes behind it would run.
        def running():
            return watcher.execute(
                "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND query LIKE '%cancelled-task%'"
            ).fetchall()

        task = asyncio.create_task(connection.fetchval("/* cancelled-task */ SELECT pg_sleep($1::int)", 600))
        await asyncio.to_thread(until, running, "the statement runs")
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            pass
        await asyncio.to_thread(until, lambda: not running(), "the statement is gone")
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()
