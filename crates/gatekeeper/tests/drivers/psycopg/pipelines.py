"""Pipeline mode: many batches before the first answer, errors inside, more data than sockets buffer."""

import psycopg
from psycopg import errors

from checks import CONNECTIONS, check, together


@check("a pipeline of many statements")
def many():
    with psycopg.connect(autocommit=True) as connection, connection.pipeline():
        cursors = [connection.execute("SELECT %s::int", (number,)) for number in range(1000)]
        assert [cursor.fetchone()[0] for cursor in cursors] == list(range(1000))


@check("a pipeline of many Syncs")
def many_syncs():
    with psycopg.connect(autocommit=True) as connection, connection.pipeline() as pipeline:
        cursors = []
        for number in range(200):
            cursors.append(connection.execute("SELECT %s::int", (number,)))
            if number % 3 == 0:
                pipeline.sync()
        assert [cursor.fetchone()[0] for cursor in cursors] == list(range(200))


@check("transactions inside a pipeline")
def transactions():
    with psycopg.connect() as connection:
        with connection.pipeline():
            connection.execute("DROP TABLE IF EXISTS piped")
            connection.execute("CREATE TABLE piped (a int)")
            connection.commit()
            for number in range(10):
                with connection.transaction():
                    connection.execute("INSERT INTO piped VALUES (%s)", (number,))
            connection.execute("INSERT INTO piped VALUES (100)")
            connection.rollback()
            total = connection.execute("SELECT sum(a) FROM piped")
            connection.execute("DROP TABLE piped")
        assert total.fetchone() == (45,)


@check("an error in a pipeline aborts up to the next Sync and no further")
def error():
    with psycopg.connect(autocommit=True) as connection:
        for _ in range(CONNECTIONS):
            with connection.pipeline() as pipeline:
                before = connection.execute("SELECT 1")
                pipeline.sync()
                assert before.fetchone() == (1,)
                broken = connection.execute("SELECT 1 / %s::int", (0,))
                skipped = connection.execute("SELECT 2")
                try:
                    pipeline.sync()
                except errors.DivisionByZero:
                    pass
                else:
                    raise AssertionError("the error was lost")
                for cursor in (broken, skipped):
                    assert cursor.pgresult is None or cursor.pgresult.status != psycopg.pq.ExecStatus.TUPLES_OK
                after = connection.execute("SELECT 3")
                pipeline.sync()
                assert after.fetchone() == (3,)


@check("a failed Parse in a pipeline is not remembered")
def failed_parse():
    with psycopg.connect(autocommit=True, prepare_threshold=0) as connection:
        for _ in range(CONNECTIONS):
            try:
                with connection.pipeline():
                    connection.execute("SELECT no_such_column, %s::int", (1,))
                    connection.execute("SELECT %s::int + 100", (1,))
            except errors.UndefinedColumn:
                pass
            else:
                raise AssertionError("the error was lost")
            assert connection.execute("SELECT %s::int + 100", (1,)).fetchone() == (101,)


@check("a pipeline larger than every buffer on the way")
def large():
    text = "x" * 200_000
    with psycopg.connect(autocommit=True) as connection, connection.pipeline():
        cursors = [connection.execute("SELECT %s::text", (text,)) for _ in range(200)]
        for cursor in cursors:
            assert cursor.fetchone() == (text,)


@check("pipelines of many sessions at once")
def concurrent():
    def work(seed):
        with psycopg.connect(autocommit=True, prepare_threshold=0) as connection:
            for _ in range(5):
                with connection.pipeline():
                    cursors = [connection.execute(f"SELECT {seed} + %s::int", (number,)) for number in range(50)]
                    assert [cursor.fetchone()[0] for cursor in cursors] == [seed + number for number in range(50)]

    together(4 * CONNECTIONS, work)
