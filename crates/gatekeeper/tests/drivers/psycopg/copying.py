"""COPY both ways, in text and binary, ended by the client, by the server, and by an error of each."""

import psycopg
from psycopg import errors

from checks import CONNECTIONS, check

ROWS = 100_000


@check("COPY in and out of 100 000 rows as text and as binary")
def both_ways():
    with psycopg.connect(autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS copied; CREATE TABLE copied (id int, name text)")
        for options in ("", " (FORMAT BINARY)"):
            connection.execute("TRUNCATE copied")
            cursor = connection.cursor()
            with cursor.copy(f"COPY copied FROM STDIN{options}") as copy:
                copy.set_types(["int4", "text"])
                for number in range(ROWS):
                    copy.write_row((number, f"name {number}"))
            assert cursor.rowcount == ROWS, cursor.rowcount
            assert connection.execute("SELECT count(*), sum(id) FROM copied").fetchone() == (ROWS, ROWS * (ROWS - 1) // 2)
            seen = total = 0
            with cursor.copy(f"COPY copied TO STDOUT{options}") as copy:
                copy.set_types(["int4", "text"])
                for number, name in copy.rows():
                    assert name == f"name {number}"
                    seen, total = seen + 1, total + number
            assert (seen, total) == (ROWS, ROWS * (ROWS - 1) // 2)
        connection.execute("DROP TABLE copied")


@check("COPY inside a transaction")
def in_transaction():
    with psycopg.connect() as connection:
        connection.execute("CREATE TABLE copied_inside (a int)")
        with connection.cursor().copy("COPY copied_inside FROM STDIN") as copy:
            copy.write("1\n2\n")
        assert connection.execute("SELECT sum(a) FROM copied_inside").fetchone() == (3,)
        connection.rollback()
        assert connection.execute("SELECT to_regclass('copied_inside')").fetchone() == (None,)


@check("COPY that begins a transaction")
def begins_transaction():
    with psycopg.connect() as connection:
        connection.execute("DROP TABLE IF EXISTS copied_first")
        connection.execute("CREATE TABLE copied_first (a int)")
        connection.commit()
        for _ in range(CONNECTIONS):
            with connection.cursor().copy("COPY copied_first FROM STDIN") as copy:
                copy.write("1\n")
            connection.rollback()
            with connection.cursor().copy("COPY (SELECT count(*) FROM copied_first) TO STDOUT") as copy:
                assert b"".join(copy) == b"0\n"
            connection.commit()
        connection.execute("DROP TABLE copied_first")
        connection.commit()


@check("the server's error in the middle of a COPY, and the session lives on")
def server_error():
    with psycopg.connect(autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS copied_badly; CREATE TABLE copied_badly (a int)")
        for _ in range(CONNECTIONS):
            try:
                with connection.cursor().copy("COPY copied_badly FROM STDIN") as copy:
                    for number in range(20_000):
                        copy.write(f"{number}\n" if number != 10 else "not a number\n")
            except errors.InvalidTextRepresentation:
                pass
            else:
                raise AssertionError("the error was lost")
            assert connection.execute("SELECT count(*) FROM copied_badly").fetchone() == (0,)
        connection.execute("DROP TABLE copied_badly")


class GivenUp(Exception):
    """The client's own reason to stop."""


@check("a COPY given up by the client, and the session lives on")
def client_error():
    with psycopg.connect(autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS copied_half; CREATE TABLE copied_half (a int)")
        for _ in range(CONNECTIONS):
            try:
                with connection.cursor().copy("COPY copied_half FROM STDIN") as copy:
                    copy.write("1\n2\n")
                    raise GivenUp
            except GivenUp:
                pass
            assert connection.execute("SELECT count(*) FROM copied_half").fetchone() == (0,)
        connection.execute("DROP TABLE copied_half")


@check("a COPY out left in the middle, and the session lives on")
def left_out():
    with psycopg.connect(autocommit=True) as connection:
        for _ in range(CONNECTIONS):
            try:
                # psycopg cancels it and reads what is still on the way.
                with connection.cursor().copy("COPY (SELECT generate_series(1, 1000000)) TO STDOUT") as copy:
                    assert copy.read()
                    raise GivenUp
            except GivenUp:
                pass
            assert connection.execute("SELECT 1").fetchone() == (1,)


@check("closing in the middle of a COPY in rolls it back")
def closed():
    with psycopg.connect(autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS copied_closed; CREATE TABLE copied_closed (a int)")
        for _ in range(2 * CONNECTIONS):
            leaving = psycopg.connect(autocommit=True)
            leaving.pgconn.exec_(b"COPY copied_closed FROM STDIN")
            leaving.pgconn.put_copy_data(b"1\n2\n")
            leaving.pgconn.flush()
            leaving.pgconn.finish()
        connection.execute("BEGIN; LOCK TABLE copied_closed IN ACCESS EXCLUSIVE MODE")
        assert connection.execute("SELECT count(*) FROM copied_closed").fetchone() == (0,)
        connection.execute("COMMIT; DROP TABLE copied_closed")
