"""Python's asynchronous drivers through the gatekeeper: `python tests/drivers/mysql/aio aiomysql` (or asyncmy).

The environment is as in ../python/__main__.py.
"""

import asyncio
import importlib
import os
import ssl
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "harness"))

from checks import CONNECTIONS, POLL_INTERVAL, check, main  # noqa: E402

driver = importlib.import_module(sys.argv[1])
errors = importlib.import_module("pymysql.err" if sys.argv[1] == "aiomysql" else "asyncmy.errors")


def settings(**options):
    tls = "MYSQL_TLS_CA" in os.environ
    return {
        "host": os.environ["MYSQL_HOST"],
        "port": int(os.environ["MYSQL_TCP_PORT"]),
        "user": os.environ["MYSQL_USER"],
        "password": os.environ["MYSQL_PWD"],
        "db": os.environ["MYSQL_DATABASE"],
        "ssl": ssl.create_default_context(cafile=os.environ["MYSQL_TLS_CA"]) if tls else None,
        **options,
    }


async def connect(**options):
    return await driver.connect(**settings(**options))


async def run(connection, sql, parameters=None):
    async with connection.cursor() as cursor:
        await cursor.execute(sql, parameters)
        return await cursor.fetchall()


async def value(connection, sql, parameters=None):
    return (await run(connection, sql, parameters))[0][0]


async def fails(call, number, kind=None):
    try:
        await call
    except errors.MySQLError as error:
        assert error.args[0] == number and isinstance(error, kind or errors.MySQLError), error
        return
    raise AssertionError(f"error {number} was due")


@check("a right password is let in, a wrong one is refused")
async def login():
    connection = await connect()
    print(await value(connection, "SELECT CURRENT_USER()"))
    await connection.ensure_closed()
    await fails(connect(password="wrong"), 1045, errors.OperationalError)
    await fails(connect(db="no_such_database"), 1049, errors.OperationalError)


@check("a pool of many sessions shares few server connections")
async def pools():
    async with driver.create_pool(minsize=1, maxsize=3 * CONNECTIONS, **settings(autocommit=True)) as pool:
        async with pool.acquire() as connection:
            await run(connection, "CREATE TABLE pooled (a INT)")

        async def work(number):
            for _ in range(5):
                async with pool.acquire() as connection:
                    await connection.begin()
                    await run(connection, "INSERT INTO pooled VALUES (%s)", (number,))
                    if number % 2:
                        await connection.commit()
                    else:
                        await connection.rollback()

        await asyncio.gather(*(work(number) for number in range(6 * CONNECTIONS)))
        async with pool.acquire() as connection:
            print(await value(connection, "SELECT COUNT(*) FROM pooled"), await value(connection, "SELECT SUM(a) FROM pooled"))


@check("settings and transactions stay with their session")
async def sessions():
    first, second = await connect(), await connect(autocommit=True, init_command="SET time_zone = '+04:00'")
    await run(second, "CREATE TABLE aio_sessions (a INT)")
    for _ in range(CONNECTIONS):
        await run(first, "INSERT INTO aio_sessions VALUES (1)")
        print(await value(second, "SELECT COUNT(*) FROM aio_sessions"), await value(second, "SELECT @@time_zone"))
        print(await value(first, "SELECT @@time_zone"))
        await first.commit()
    await run(first, "SAVEPOINT a")
    await run(first, "INSERT INTO aio_sessions VALUES (2)")
    await run(first, "ROLLBACK TO SAVEPOINT a")
    await first.commit()
    print(await value(second, "SELECT SUM(a) FROM aio_sessions"))
    for one in (first, second):
        one.close()


@check("a batch, an error, and rows that are fetched as they come")
async def statements():
    connection = await connect()
    async with connection.cursor() as cursor:
        await cursor.execute("CREATE TABLE aio_batch (id INT AUTO_INCREMENT PRIMARY KEY, t TEXT)")
        await cursor.executemany("INSERT INTO aio_batch (t) VALUES (%s)", [(f"ä {n} 😀",) for n in range(500)])
        print(cursor.rowcount, cursor.lastrowid)
    await fails(run(connection, "INSERT INTO aio_batch VALUES (1, NULL)"), 1062, errors.IntegrityError)
    await fails(run(connection, "SELEC"), 1064, errors.ProgrammingError)
    cursors = importlib.import_module(f"{sys.argv[1]}.cursors")
    async with connection.cursor(cursors.SSCursor) as cursor:
        await cursor.execute("SELECT t FROM aio_batch ORDER BY id")
        count = 0
        while row := await cursor.fetchone():
            assert row[0] == f"ä {count} 😀", row
            count += 1
        print(count)
    connection.close()


@check("a running statement is killed by the id of its login")
async def kill():
    victim, killer = await connect(), await connect(autocommit=True)
    port = int(os.environ.get("UPSTREAM_PORT", os.environ["MYSQL_TCP_PORT"]))
    watcher = await connect(port=port, ssl=None, autocommit=True)
    running = asyncio.ensure_future(run(victim, "SELECT COUNT(*), SLEEP(600) FROM seq_1_to_10 /* aio-victim */"))
    asked = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%aio-victim%' AND id <> CONNECTION_ID()"
    while not await value(watcher, asked):
        await asyncio.sleep(POLL_INTERVAL)
    await run(killer, f"KILL QUERY {victim.thread_id()}")
    await fails(running, 1317)
    print(await value(victim, "SELECT 1"))
    for one in (victim, killer, watcher):
        one.close()


if __name__ == "__main__":
    main()
