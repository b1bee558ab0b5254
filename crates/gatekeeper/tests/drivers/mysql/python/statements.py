"""Logins, values of every type, batches, procedures, several results, long values."""

import datetime
import decimal

from checks import CONNECTIONS, FlatMemory, check, together
from driver import CLIENT, connect, cursors, driver, fails, run, value


@check("a right password is let in, a wrong one and an unknown database are refused")
def login():
    with connect() as connection:
        print(value(connection, "SELECT CURRENT_USER()"), value(connection, "SELECT DATABASE()"))
    print(fails(lambda: connect(password="wrong"), 1045, driver.OperationalError).args[0])
    fails(lambda: connect(user="nobody_knows"), 1045, driver.OperationalError)
    fails(lambda: connect(database="no_such_database"), 1049, driver.OperationalError)


@check("many sessions share few server connections")
def sharing():
    many = [connect() for _ in range(3 * CONNECTIONS)]
    for number, one in enumerate(many):
        assert value(one, "SELECT %s + 1", (number,)) == number + 1
        one.rollback()
    for one in many:
        one.close()


@check("values of every type come back as they went")
def types():
    columns = {
        "TINYINT": -128,
        "BIGINT UNSIGNED": 2**64 - 1,
        "DECIMAL(30, 10)": decimal.Decimal("-12345678901234567890.0123456789"),
        "DOUBLE": 1.5e300,
        "DATE": datetime.date(1969, 12, 31),
        "DATETIME(6)": datetime.datetime(2026, 2, 28, 23, 59, 59, 999999),
        "TIME": datetime.timedelta(hours=-838, minutes=-59, seconds=-59),
        "VARCHAR(100)": "it's \\ \" 😀 % ? :a",
        "LONGTEXT": "ä" * 70_000,
        "LONGBLOB": bytes(range(256)) * 300,
        "ENUM('a', 'b')": "b",
        "BIT(16)": b"\x01\xfe",
        "YEAR": 2026,
        "JSON": '{"a": [1, null]}',
        "INT": None,
    }
    with connect() as connection:
        kinds = ", ".join(f"c{number} {kind}" for number, kind in enumerate(columns))
        run(connection, f"CREATE TABLE every_type ({kinds})")
        places = ", ".join(["%s"] * len(columns))
        run(connection, f"INSERT INTO every_type VALUES ({places})", tuple(columns.values()))
        with connection.cursor() as cursor:
            cursor.execute("SELECT * FROM every_type")
            got = cursor.fetchone()
            for kind, sent, received in zip(columns, columns.values(), got):
                assert received == sent, (kind, sent, received)
            print([column[:7] for column in cursor.description])
        connection.rollback()


@check("a batch of rows, the rows that it touched, and the ids that it made")
def batches():
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE batch (id INT AUTO_INCREMENT PRIMARY KEY, a INT, b TEXT)")
        rows = [(number, f"row {number}") for number in range(1000)]
        print(cursor.executemany("INSERT INTO batch (a, b) VALUES (%s, %s)", rows), cursor.lastrowid)
        for _ in range(3):
            print(cursor.execute("INSERT INTO batch (a, b) VALUES (%s, 'one')", (7,)), cursor.lastrowid)
        print(cursor.execute("UPDATE batch SET b = 'changed' WHERE a < 10"), value(connection, "SELECT SUM(id) FROM batch"))
        print(value(connection, "SELECT LAST_INSERT_ID()"))
        connection.commit()
        print(cursor.execute("DELETE FROM batch WHERE a >= 500"), cursor.rowcount)
        connection.rollback()
        print(value(connection, "SELECT COUNT(*) FROM batch"))


@check("several statements in one text, each with its result")
def several():
    with connect(client_flag=CLIENT.MULTI_STATEMENTS, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE several (a INT); INSERT INTO several VALUES (1), (2); SELECT * FROM several; SELECT 9")
        while True:
            print(cursor.rowcount, cursor.fetchall() if cursor.description else None)
            if not cursor.nextset():
                break
        cursor.execute("INSERT INTO several VALUES (3); SELECT no_such_column; SELECT 1")
        fails(cursor.nextset, 1054, driver.OperationalError)
    with connect() as connection:
        print(value(connection, "SELECT COUNT(*) FROM several"))
    # mysqlclient asks for several statements unless it is told not to.
    with connect(**({"multi_statements": False} if driver.__name__ == "MySQLdb" else {})) as connection:
        fails(lambda: run(connection, "SELECT 1; SELECT 2"), 1064, driver.ProgrammingError)


@check("a procedure with several results and values that it gives back")
def procedures():
    with connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE PROCEDURE parts(IN a INT, OUT b INT) BEGIN SELECT a; SELECT a * 2, 'x'; SET b = a * 3; END")
        for round in range(CONNECTIONS):
            cursor.callproc("parts", (round, 0))
            results = [cursor.fetchall()]
            while cursor.nextset():
                results.append(cursor.fetchall())
            print(results, value(connection, "SELECT @_parts_1"))


@check("rows are fetched as they come, and a value of 20 MB passes")
def long_results():
    with connect(cursorclass=cursors.SSCursor) as connection:
        memory = FlatMemory()
        with connection.cursor() as cursor:
            cursor.execute("SELECT seq, REPEAT('x', 10000) FROM seq_1_to_10000")
            count = 0
            for _, text in cursor:
                assert len(text) == 10_000
                count += 1
                if count % 1000 == 0:
                    memory.sample()
            print(count)
        memory.assert_flat()
    with connect() as connection:
        print(len(value(connection, "SELECT REPEAT('y', 20000000)")), value(connection, "SELECT LENGTH(%s)", ("z" * 20_000_000,)))


@check("an error leaves its session usable")
def errors():
    with connect() as connection:
        run(connection, "CREATE TABLE unique_ones (a INT PRIMARY KEY, b INT NOT NULL)")
        for number in range(2 * CONNECTIONS):
            run(connection, "INSERT INTO unique_ones VALUES (%s, 1)", (number,))
            fails(lambda: run(connection, "INSERT INTO unique_ones VALUES (%s, 1)", (number,)), 1062, driver.IntegrityError)
            fails(lambda: run(connection, "INSERT INTO unique_ones VALUES (-1, NULL)"), 1048, driver.IntegrityError)
            fails(lambda: run(connection, "SELEC"), 1064, driver.ProgrammingError)
            fails(lambda: run(connection, "SELECT * FROM no_such_table"), 1146, driver.ProgrammingError)
            connection.commit()
        print(value(connection, "SELECT COUNT(*) FROM unique_ones"))


@check("many clients over few server connections move money and lose none")
def transfers():
    with connect(autocommit=True) as connection:
        run(connection, "CREATE TABLE accounts (id INT PRIMARY KEY, money INT NOT NULL)")
        run(connection, "INSERT INTO accounts SELECT seq, 100 FROM seq_0_to_9")

    def work(number):
        with connect() as mine:
            for round in range(10):
                # Always the smaller id first, so that no two wait for each other.
                first, second = sorted(((number + round) % 10, (number * 3 + 1) % 10))
                run(mine, "UPDATE accounts SET money = money - 1 WHERE id = %s", (first,))
                run(mine, "UPDATE accounts SET money = money + 1 WHERE id = %s", (second,))
                mine.commit()

    together(5 * CONNECTIONS, work)
    with connect() as connection:
        print(run(connection, "SELECT * FROM accounts ORDER BY id"))
