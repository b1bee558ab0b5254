"""asyncpg's own pool, whose reset query every release sends, and many clients at once."""

import asyncio

import asyncpg

from checks import CONNECTIONS, check


@check("a pool whose sessions are reset at every release")
async def pool_reset():
    async with asyncpg.create_pool(min_size=2, max_size=2) as pool:
        for _ in range(3 * CONNECTIONS):
            async with pool.acquire() as connection:
                assert await connection.fetchval("SHOW statement_timeout") == "0"
                assert await connection.fetchval("SHOW TimeZone") != "Asia/Tokyo"
                await connection.execute("SET statement_timeout = '11s'; SET TimeZone = 'Asia/Tokyo'")
                assert await connection.fetchval("SHOW statement_timeout") == "11s"
                assert await connection.fetchval("SELECT $1::int", 3) == 3


@check("a pool's reset releases locks, cursors and listeners")
async def pool_reset_releases():
    heard = []
    async with asyncpg.create_pool(min_size=1, max_size=1) as pool:
        async with pool.acquire() as connection:
            assert await connection.fetchval("SELECT pg_try_advisory_lock(77)")
            listener = lambda *arguments: heard.append(arguments)  # noqa: E731
            await connection.add_listener("pooled", listener)
            await connection.execute("NOTIFY pooled, 'hello'")
            await connection.fetchval("SELECT 1")
            await connection.remove_listener("pooled", listener)
        other = await asyncpg.connect()
        assert await other.fetchval("SELECT pg_try_advisory_lock(77)"), "the lock outlived the reset"
        assert await other.fetchval("SELECT pg_advisory_unlock(77)")
        await other.close()
    assert [arguments[3] for arguments in heard] == ["hello"], heard


@check("many clients with transactions, statements and cursors over few server connections")
async def many_clients():
    setup = await asyncpg.connect()
    await setup.execute("DROP TABLE IF EXISTS tallies; CREATE TABLE tallies (id int PRIMARY KEY, n int)")
    await setup.execute("INSERT INTO tallies SELECT id, 0 FROM generate_series(0, 9) id")

    async def client(seed):
        connection = await asyncpg.connect()
        for step in range(10):
            async with connection.transaction():
                await connection.execute("UPDATE tallies SET n = n + 1 WHERE id = $1", (seed + step) % 10)
            assert await connection.fetchval("SELECT $1::int + $2::int", seed, step) == seed + step
        await connection.close()

    await asyncio.gather(*(client(seed) for seed in range(10 * CONNECTIONS)))
    total = await setup.fetchval("SELECT sum(n) FROM tallies")
    assert total == 100 * CONNECTIONS, total
    await setup.execute("DROP TABLE tallies")
    await setup.close()


@check("a pool larger than the connections behind the gate")
async def large_pool():
    async with asyncpg.create_pool(min_size=5 * CONNECTIONS, max_size=5 * CONNECTIONS) as pool:

        async def one(number):
            async with pool.acquire() as connection, connection.transaction():
                return await connection.fetchval("SELECT $1::int", number)

        values = await asyncio.gather(*(one(number) for number in range(50 * CONNECTIONS)))
        assert values == list(range(50 * CONNECTIONS))
