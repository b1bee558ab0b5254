"""The console through Python's drivers: `python tests/drivers/mysql/console.py pymysql` (or MySQLdb, aiomysql, asyncmy).

The environment is as in python/__main__.py; the database is the console.
"""

import asyncio
import importlib
import os
import ssl
import sys

name = sys.argv[1]
driver = importlib.import_module(name)
SETTINGS = {
    "host": os.environ["MYSQL_HOST"],
    "port": int(os.environ["MYSQL_TCP_PORT"]),
    "user": os.environ["MYSQL_USER"],
    "password": os.environ["MYSQL_PWD"],
    "charset": "utf8mb4",
}


def commands():
    """What is asked, and what must come of it."""
    names = yield "SELECT DATABASE(), @@autocommit"
    assert names == [("gatekeeper", 1)], names
    lists = dict((yield "SHOW LISTS"))
    assert lists["used_clients"] == 0 and lists["pools"] == 0, lists
    assert (yield "SHOW WARNINGS") == []
    refused = yield "SELECT @@no_such_variable"
    assert refused == 1193, refused
    refused = yield "RESUME"
    assert refused == 1105, refused
    yield "PAUSE"
    assert ("paused", "yes") in (yield "SHOW STATE")
    yield "RESUME"
    assert ("paused", "no") in (yield "SHOW STATE")


def synchronous():
    tls = {"ssl": {"ca": os.environ["MYSQL_TLS_CA"]}} if "MYSQL_TLS_CA" in os.environ else {}
    # Both turn autocommit off of their own accord.
    session = driver.connect(database="gatekeeper", **SETTINGS, **tls)
    asked = commands()
    answer = None
    while True:
        try:
            sql = asked.send(answer)
        except StopIteration:
            break
        with session.cursor() as cursor:
            try:
                cursor.execute(sql)
                answer = list(cursor.fetchall())
            except driver.Error as error:
                answer = error.args[0]
    session.commit()
    session.rollback()
    session.ping()
    session.close()


async def asynchronous():
    errors = importlib.import_module("pymysql.err" if name == "aiomysql" else "asyncmy.errors")
    tls = ssl.create_default_context(cafile=os.environ["MYSQL_TLS_CA"]) if "MYSQL_TLS_CA" in os.environ else None
    session = await driver.connect(db="gatekeeper", ssl=tls, **SETTINGS)
    asked = commands()
    answer = None
    while True:
        try:
            sql = asked.send(answer)
        except StopIteration:
            break
        async with session.cursor() as cursor:
            try:
                await cursor.execute(sql)
                answer = list(await cursor.fetchall())
            except errors.MySQLError as error:
                answer = error.args[0]
    await session.commit()
    await session.ping()
    session.close()


if name in ("pymysql", "MySQLdb"):
    synchronous()
else:
    asyncio.run(asynchronous())
print(f"ok     {name}")
