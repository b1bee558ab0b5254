"""What a session keeps, and how it is interrupted, changed, reset and lost."""

import os
import threading

from checks import CONNECTIONS, check, until
from driver import connect, driver, fails, run, running, upstream, value


@check("settings stay with their session")
def settings():
    plain, zoned, latin = connect(), connect(init_command="SET time_zone = '+03:00'"), connect(charset="latin1")
    strict = connect(sql_mode="ANSI_QUOTES,STRICT_ALL_TABLES") if driver.__name__ == "pymysql" else connect()
    run(strict, "SET sql_mode = 'ANSI_QUOTES,STRICT_ALL_TABLES'")
    asked = "SELECT @@time_zone, @@character_set_client, @@collation_connection, @@sql_mode, @@autocommit"
    for _ in range(CONNECTIONS):
        for one in (plain, zoned, latin, strict):
            print(run(one, asked))
            one.rollback()
    print(value(latin, "SELECT 'ä'"), value(strict, 'SELECT COUNT("table_name") FROM information_schema.tables WHERE 1 = 0'))
    for one in (plain, zoned, latin, strict):
        one.close()


@check("another database is chosen, and stays chosen")
def databases():
    own = os.environ["MYSQL_DATABASE"]
    with connect() as connection, connect() as other:
        for _ in range(CONNECTIONS):
            connection.select_db("information_schema")
            assert value(other, "SELECT DATABASE()") == own
            other.rollback()
            print(value(connection, "SELECT DATABASE()"))
            connection.rollback()
            run(connection, f"USE `{own}`")
        fails(lambda: connection.select_db("no_such_database"), 1049)
        assert value(connection, "SELECT DATABASE()") == own


@check("variables, temporary tables and named locks are their session's own")
def own_state():
    with connect(autocommit=True) as first, connect(autocommit=True) as second:
        run(first, "SET @a = 5")
        run(first, "CREATE TEMPORARY TABLE own (a INT)")
        run(first, "INSERT INTO own VALUES (@a)")
        print(value(first, "SELECT GET_LOCK('the gate', 0)"), value(second, "SELECT IS_USED_LOCK('the gate') IS NULL"))
        for _ in range(CONNECTIONS):
            print(value(second, "SELECT @a"), value(first, "SELECT a + @a FROM own"))
            fails(lambda: run(second, "SELECT * FROM own"), 1146)
        print(value(first, "SELECT RELEASE_LOCK('the gate')"))


@check("warnings and counts of rows are those of the statement before")
def diagnostics():
    with connect(autocommit=True) as connection:
        for _ in range(CONNECTIONS):
            with connection.cursor() as cursor:
                cursor.execute("SELECT CAST('12x' AS INT), CAST('y' AS INT)")
                print(cursor.fetchall())
                print(connection.show_warnings())
            run(connection, "SELECT SQL_CALC_FOUND_ROWS seq FROM seq_1_to_50 LIMIT 3")
            print(value(connection, "SELECT FOUND_ROWS()"))


@check("a running statement is killed by the id of its login, and its session goes on")
def kill():
    with connect(autocommit=True) as victim, connect(autocommit=True) as killer, upstream() as watcher:
        victims_id = victim.thread_id()
        for round in range(3):
            marker = f"victim-{round}"
            told = []

            def sleep():
                try:
                    # A statement that is killed answers 1; one that reads tells an error.
                    told.append(run(victim, f"SELECT COUNT(*), SLEEP(600) FROM seq_1_to_10 /* {marker} */"))
                except driver.OperationalError as error:
                    told.append(error.args[0])

            thread = threading.Thread(target=sleep, daemon=True)
            thread.start()
            until(lambda: running(watcher, marker), "the statement runs")
            run(killer, f"KILL QUERY {victims_id}")
            thread.join()
            print(told, value(victim, "SELECT 1"))
        fails(lambda: run(killer, "KILL QUERY 4000000000"), 1094)


@check("a session is killed by the id of its login")
def kill_session():
    with connect(autocommit=True) as killer:
        victim = connect()
        value(victim, "SELECT 1")
        run(killer, f"KILL {victim.thread_id()}")

        def gone():
            try:
                run(victim, "SELECT 1")
            except (driver.OperationalError, driver.InterfaceError) as error:
                return error.args[0] in (2006, 2013, 1927, 0)
            return False

        until(gone, "the session has ended")


@check("a transaction whose connection is lost is undone, and a new session finds all well")
def lost():
    with connect(autocommit=True) as connection:
        run(connection, "CREATE TABLE lost (a INT)")
    victim = connect()
    run(victim, "INSERT INTO lost VALUES (1)")
    with upstream() as watcher:
        asked = (
            "SELECT p.id FROM information_schema.innodb_trx t JOIN information_schema.processlist p "
            "ON t.trx_mysql_thread_id = p.id WHERE p.user = %s AND t.trx_rows_modified = 1"
        )
        holders = run(watcher, asked, (os.environ["MYSQL_USER"],))
        assert len(holders) == 1, holders
        run(watcher, f"KILL {holders[0][0]}")
        until(lambda: not run(watcher, asked, (os.environ["MYSQL_USER"],)), "the server has undone it")
    try:
        run(victim, "INSERT INTO lost VALUES (2)")
        raise AssertionError("the transaction is lost")
    except driver.OperationalError as error:
        # MariaDB's C library takes the gate's 2013 for a malformed packet.
        assert error.args[0] in (2006, 2013, 2027), error
    with connect() as connection:
        print(value(connection, "SELECT COUNT(*) FROM lost"))


@check("a ping finds the session")
def ping():
    with connect() as connection:
        connection.ping()
        print(value(connection, "SELECT 1"))


if driver.__name__ == "MySQLdb":

    @check("a session is given to another user, and forgets what it had")
    def change_user():
        with connect(autocommit=True) as connection:
            run(connection, "SET @a = 1, time_zone = '+05:00'")
            connection.change_user(os.environ["MYSQL_USER"], os.environ["MYSQL_PWD"], os.environ["MYSQL_DATABASE"])
            print(run(connection, "SELECT @a, @@time_zone, DATABASE()"))
