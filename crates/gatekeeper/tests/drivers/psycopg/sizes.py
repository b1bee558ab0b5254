"""Large and odd messages: 100 MB results, 10 MB parameters, cursors, empty queries, notices, function calls."""

import hashlib

import psycopg
from psycopg.pq import ExecStatus

from checks import CONNECTIONS, FlatMemory, check

ROW = 10_000
ROWS = 10_500


@check("a result of 100 MB streams through flat memory")
def large_result():
    with psycopg.connect(autocommit=True) as connection:
        statement = f"SELECT repeat('x', {ROW}) FROM generate_series(1, %s::int)"
        # Once in small, so that what any session costs isn't counted as growth.
        assert sum(1 for _ in connection.cursor().stream(statement, (10,))) == 10
        memory = FlatMemory()
        received = 0
        for number, (text,) in enumerate(connection.cursor().stream(statement, (ROWS,))):
            received += len(text)
            if number % 500 == 0:
                memory.sample()
        assert received == ROW * ROWS, received
        memory.assert_flat()


@check("a COPY of 100 MB in and out streams through flat memory")
def large_copy():
    with psycopg.connect(autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS bulk; CREATE UNLOGGED TABLE bulk (line text)")
        block = ("y" * (ROW - 1) + "\n").encode() * 10
        memory = FlatMemory()
        with connection.cursor().copy("COPY bulk FROM STDIN") as copy:
            for number in range(ROWS // 10):
                copy.write(block)
                if number % 50 == 0:
                    memory.sample()
        received = 0
        with connection.cursor().copy("COPY bulk TO STDOUT") as copy:
            for number, data in enumerate(copy):
                received += len(data)
                if number % 500 == 0:
                    memory.sample()
        assert received == ROW * ROWS, received
        memory.assert_flat()
        connection.execute("DROP TABLE bulk")


@check("a single value of 100 MB")
def large_value():
    with psycopg.connect(autocommit=True) as connection:
        memory = FlatMemory()
        (text,) = connection.execute("SELECT repeat('z', 100000000)").fetchone()
        assert len(text) == 100_000_000
        memory.assert_flat()


@check("parameters of 10 MB, prepared or not, in a transaction or not")
def large_parameter():
    text = "0123456789" * 1_000_000
    digest = hashlib.md5(text.encode()).hexdigest()
    with psycopg.connect(autocommit=True) as connection:
        for prepare in (False, True):
            for _ in range(2):
                row = connection.execute("SELECT length(%s::text), md5(%s::text)", (text, text), prepare=prepare).fetchone()
                assert row == (len(text), digest), row
                with connection.transaction():
                    row = connection.execute("SELECT md5(%s::text)", (text,), prepare=prepare).fetchone()
                    assert row == (digest,)


@check("a simple query of 10 MB")
def large_query():
    with psycopg.connect(autocommit=True) as connection:
        assert connection.execute(f"SELECT length('{'q' * 10_000_000}')").fetchone() == (10_000_000,)


@check("server-side cursors fetch in parts, and scroll")
def cursors():
    with psycopg.connect() as connection, psycopg.connect() as other:
        with connection.cursor(name="forward") as cursor:
            cursor.itersize = 100
            cursor.execute("SELECT generate_series(1, 1000)")
            with other.cursor(name="forward") as same_name:
                same_name.execute("SELECT -1")
                assert same_name.fetchone() == (-1,)
            assert sum(row[0] for row in cursor) == 500_500
        with connection.cursor(name="back", scrollable=True) as cursor:
            cursor.execute("SELECT generate_series(1, 1000)")
            cursor.scroll(900)
            assert cursor.fetchone() == (901,)
            cursor.scroll(-500)
            assert cursor.fetchone() == (402,)
        connection.commit()


@check("empty queries, with and without comments")
def empty():
    with psycopg.connect(autocommit=True) as connection:
        for text in (b"", b";", b";;", b"-- ping", b"/* nothing */", b"  \n"):
            for _ in range(2):
                result = connection.pgconn.exec_(text)
                assert result.status == ExecStatus.EMPTY_QUERY, (text, result.status)
        assert connection.pgconn.exec_params(b"", []).status == ExecStatus.EMPTY_QUERY
        connection.execute("BEGIN")
        assert connection.pgconn.exec_(b"").status == ExecStatus.EMPTY_QUERY
        assert connection.execute("SELECT 1").fetchone() == (1,)
        assert connection.pgconn.exec_(b";").status == ExecStatus.EMPTY_QUERY
        assert connection.execute("COMMIT").statusmessage == "COMMIT"


@check("notices reach the session that caused them")
def notices():
    with psycopg.connect(autocommit=True) as mine, psycopg.connect(autocommit=True) as other:
        heard, overheard = [], []
        mine.add_notice_handler(lambda diagnostic: heard.append(diagnostic.message_primary))
        other.add_notice_handler(lambda diagnostic: overheard.append(diagnostic.message_primary))
        for number in range(2 * CONNECTIONS):
            mine.execute(f"DO $$ BEGIN RAISE NOTICE 'number {number}'; END $$")
            other.execute("SELECT 1")
        assert heard == [f"number {number}" for number in range(2 * CONNECTIONS)], heard
        assert overheard == [], overheard


@check("an error keeps every field that the server gave it")
def error_fields():
    with psycopg.connect(autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS unique_once; CREATE TABLE unique_once (a int CONSTRAINT once UNIQUE)")
        connection.execute("INSERT INTO unique_once VALUES (1)")
        try:
            connection.execute("INSERT INTO unique_once VALUES (%s)", (1,))
        except psycopg.errors.UniqueViolation as error:
            assert error.diag.constraint_name == "once" and error.diag.table_name == "unique_once"
            assert error.diag.message_detail == "Key (a)=(1) already exists."
        else:
            raise AssertionError("the error was lost")
        connection.execute("DROP TABLE unique_once")


@check("rows of every common type come back as they went in")
def types():
    statement = """SELECT 1::int2, 2::int8, 3.5::numeric, 4.25::float8, true, 'x'::text, '\\x00ff'::bytea,
        '2026-01-02'::date, ARRAY[1, 2, NULL], '{"a": [1]}'::jsonb, NULL::int, ROW(1, 'a')"""
    with psycopg.connect(autocommit=True) as connection:
        text = connection.cursor().execute(statement).fetchone()
        binary = connection.cursor(binary=True).execute(statement.replace(", ROW(1, 'a')", "")).fetchone()
        assert text[:-1] == binary, (text, binary)
