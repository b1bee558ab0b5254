"""Transactions as the DB-API begins them, isolation, savepoints, deadlocks, waits for locks."""

import threading

from checks import CONNECTIONS, check, until
from driver import connect, driver, fails, run, running, upstream, value


@check("without autocommit a transaction begins with its first statement")
def implicit():
    with connect() as first, connect() as second:
        run(first, "CREATE TABLE implicit (a INT)")
        for round in range(2 * CONNECTIONS):
            run(first, "INSERT INTO implicit VALUES (%s)", (round,))
            print(value(second, "SELECT COUNT(*) FROM implicit"), end=" ")
            second.rollback()
            if round % 2:
                first.rollback()
            else:
                first.commit()
            print(value(second, "SELECT COUNT(*) FROM implicit"))
            second.rollback()


@check("autocommit is switched on and off")
def autocommit():
    with connect() as connection:
        run(connection, "CREATE TABLE switched (a INT)")
        for state in (True, False, True, False):
            connection.autocommit(state)
            run(connection, "INSERT INTO switched VALUES (1)")
            connection.rollback()
            print(state, connection.get_autocommit(), value(connection, "SELECT @@autocommit, COUNT(*) FROM switched"))


@check("every isolation level, for the session and for one transaction")
def isolation():
    levels = ("READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")
    sessions = [connect(autocommit=True) for _ in levels]
    for level, one in zip(levels, sessions):
        run(one, f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
    for _ in range(CONNECTIONS):
        print([value(one, "SELECT @@tx_isolation") for one in sessions])
    for one in sessions:
        one.close()
    with connect(autocommit=True) as reader, connect(autocommit=True) as writer:
        run(writer, "CREATE TABLE isolated (a INT)")
        for level in levels[:3]:
            run(reader, f"SET TRANSACTION ISOLATION LEVEL {level}")
            reader.begin()
            seen = [value(reader, "SELECT COUNT(*) FROM isolated")]
            writer.begin()
            run(writer, "INSERT INTO isolated VALUES (1)")
            seen.append(value(reader, "SELECT COUNT(*) FROM isolated"))
            writer.commit()
            seen.append(value(reader, "SELECT COUNT(*) FROM isolated"))
            reader.commit()
            print(level, seen)


@check("savepoints undo a part")
def savepoints():
    with connect() as connection:
        run(connection, "CREATE TABLE saved (a INT)")
        for _ in range(CONNECTIONS):
            run(connection, "INSERT INTO saved VALUES (1)")
            run(connection, "SAVEPOINT one")
            run(connection, "INSERT INTO saved VALUES (2)")
            run(connection, "ROLLBACK TO SAVEPOINT one")
            fails(lambda: run(connection, "RELEASE SAVEPOINT two"), 1305)
            connection.commit()
        print(run(connection, "SELECT a, COUNT(*) FROM saved GROUP BY a"))


@check("of two transactions that wait for each other one is undone and told so")
def deadlock():
    with connect() as first, connect() as second, upstream() as watcher:
        run(first, "CREATE TABLE dead (id INT PRIMARY KEY, a INT)")
        run(first, "INSERT INTO dead VALUES (1, 0), (2, 0)")
        first.commit()
        run(first, "UPDATE dead SET a = 1 WHERE id = 1")
        run(second, "UPDATE dead SET a = 2 WHERE id = 2")
        told = []

        def wait():
            try:
                run(second, "UPDATE dead SET a = 2 WHERE id = 1 /* dead-wait */")
            except driver.OperationalError as error:
                told.append(error.args[0])

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        until(lambda: running(watcher, "dead-wait"), "the second waits")
        try:
            run(first, "UPDATE dead SET a = 1 WHERE id = 2")
        except driver.OperationalError as error:
            told.append(error.args[0])
            first.rollback()
        thread.join()
        assert told == [1213], told
        first.rollback()
        second.rollback()
        print(run(first, "SELECT * FROM dead"))


@check("a wait for a row that is too long is told, and the transaction goes on")
def lock_wait():
    with connect() as first, connect() as second:
        run(first, "CREATE TABLE waited (id INT PRIMARY KEY, a INT)")
        run(first, "INSERT INTO waited VALUES (1, 0), (2, 0)")
        first.commit()
        run(first, "UPDATE waited SET a = 1 WHERE id = 1")
        run(second, "SET innodb_lock_wait_timeout = 1")
        run(second, "UPDATE waited SET a = 2 WHERE id = 2")
        error = fails(lambda: run(second, "UPDATE waited SET a = 2 WHERE id = 1"), 1205, driver.OperationalError)
        print(error.args)
        second.commit()
        first.commit()
        print(run(first, "SELECT * FROM waited"))
