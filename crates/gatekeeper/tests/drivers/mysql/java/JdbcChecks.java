// JDBC: statements in text and prepared at the server, batches, results, isolation, savepoints, errors, cancels.

import java.math.BigDecimal;
import java.sql.CallableStatement;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.sql.Timestamp;

final class JdbcChecks {
    private final Main.Driver driver;

    JdbcChecks(Main.Driver driver) {
        this.driver = driver;
    }

    /** The ways of a driver: as it is, and with statements that the server prepares. */
    private String[][] ways() {
        return new String[][] {{}, {"useServerPrepStmts=true", "cachePrepStmts=true", "rewriteBatchedStatements=true"}};
    }

    private void check(String title, Harness.Check check) {
        Harness.check(driver.name() + ": " + title, check);
    }

    void register() {
        check("a right password is let in, a wrong one is refused", this::login);
        check("values come back as they went, prepared and not", this::values);
        check("batches, and the keys that they made", this::batches);
        check("a batch as one execution", this::bulk);
        check("several results and a procedure", this::results);
        check("rows are fetched as they come, by streaming and by a cursor", this::streaming);
        check("every isolation level, and read-only sessions", this::isolation);
        check("savepoints undo a part, and an error leaves the session usable", this::savepoints);
        check("a running statement is cancelled", this::cancel);
        check("many clients over few server connections", this::many);
    }

    private void login() throws Exception {
        try (Connection connection = driver.connect()) {
            System.out.println(Harness.scalar(connection, "SELECT CURRENT_USER()") + " " + connection.getCatalog());
            Harness.require("it is valid", connection.isValid(10));
        }
        Harness.fails("28000", () -> {
            var wrong = driver.login();
            wrong.setProperty("password", "wrong");
            java.sql.DriverManager.getConnection(driver.url(), wrong).close();
        });
    }

    private void values() throws Exception {
        for (String[] way : ways()) {
            try (Connection connection = driver.connect(way)) {
                Harness.execute(connection, "CREATE OR REPLACE TABLE every_type (a BIGINT UNSIGNED, b DOUBLE, c DATETIME(6), "
                    + "d LONGBLOB, e TEXT, f DECIMAL(20, 5), g TIME, h INT)");
                try (PreparedStatement insert = connection.prepareStatement("INSERT INTO every_type VALUES (?, ?, ?, ?, ?, ?, ?, ?)")) {
                    for (int round = 0; round < 2 * Harness.CONNECTIONS; round++) {
                        insert.setBigDecimal(1, new BigDecimal("18446744073709551615"));
                        insert.setDouble(2, -1.5e-300);
                        insert.setTimestamp(3, Timestamp.valueOf("2026-02-28 23:59:59.123456"));
                        insert.setBytes(4, new byte[] {0, 1, -1});
                        insert.setString(5, "it's ä 😀 \\ ?");
                        insert.setBigDecimal(6, new BigDecimal("-1.50000"));
                        insert.setObject(7, java.time.LocalTime.of(23, 59, 59));
                        insert.setNull(8, java.sql.Types.INTEGER);
                        Harness.expect("inserted", insert.executeUpdate(), 1);
                    }
                }
                try (PreparedStatement select = connection.prepareStatement("SELECT * FROM every_type WHERE h IS NULL OR h = ?")) {
                    select.setInt(1, 7);
                    try (ResultSet rows = select.executeQuery()) {
                        rows.next();
                        System.out.println(rows.getBigDecimal(1) + " " + rows.getDouble(2) + " " + rows.getTimestamp(3) + " "
                            + rows.getBytes(4).length + " " + rows.getString(5) + " " + rows.getBigDecimal(6) + " "
                            + rows.getTime(7) + " " + rows.getObject(8));
                    }
                }
            }
        }
    }

    private void batches() throws Exception {
        for (String[] way : ways()) {
            try (Connection connection = driver.connect(way)) {
                Harness.execute(connection, "CREATE OR REPLACE TABLE batch (id INT AUTO_INCREMENT PRIMARY KEY, a INT)");
                connection.setAutoCommit(false);
                String sql = "INSERT INTO batch (a) VALUES (?)";
                try (PreparedStatement insert = connection.prepareStatement(sql, Statement.RETURN_GENERATED_KEYS)) {
                    for (int round = 0; round < 300; round++) {
                        insert.setInt(1, round);
                        insert.addBatch();
                    }
                    insert.executeBatch();
                    int keys = 0;
                    try (ResultSet made = insert.getGeneratedKeys()) {
                        while (made.next()) {
                            keys++;
                        }
                    }
                    System.out.println("keys: " + keys);
                }
                connection.commit();
                System.out.println(Harness.scalar(connection, "SELECT CONCAT(COUNT(*), ' ', SUM(a), ' ', SUM(id)) FROM batch"));
                connection.commit();
            }
        }
    }

    /** MariaDB's driver sends a bulk execution for each batch, which the server counts as one. Connector/J has none. */
    private void bulk() throws Exception {
        boolean hasBulk = "mariadb".equals(driver.scheme());
        try (Connection connection = driver.connect(hasBulk ? "useBulkStmts=true" : "useServerPrepStmts=true")) {
            Harness.execute(connection, "CREATE OR REPLACE TABLE bulk (a INT, b VARCHAR(20))");
            String asked = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'COM_STMT_EXECUTE'";
            int before = Integer.parseInt(Harness.scalar(connection, asked));
            for (int round = 0; round < 2; round++) {
                try (PreparedStatement insert = connection.prepareStatement("INSERT INTO bulk VALUES (?, ?)")) {
                    for (int row = 0; row < 1000; row++) {
                        insert.setInt(1, row);
                        insert.setString(2, row % 3 == 0 ? null : "row " + row);
                        insert.addBatch();
                    }
                    System.out.println(insert.executeBatch()[0]);
                }
            }
            int executed = Integer.parseInt(Harness.scalar(connection, asked)) - before;
            Harness.require("a batch is one execution: " + executed, !hasBulk || executed > 0 && executed < 20);
            String told = "SELECT CONCAT(COUNT(*), ' ', SUM(a), ' ', COUNT(b), ' ', COUNT(DISTINCT b)) FROM bulk";
            System.out.println(Harness.scalar(connection, told));
        }
    }

    private void results() throws Exception {
        try (Connection connection = driver.connect("allowMultiQueries=true")) {
            try (Statement statement = connection.createStatement()) {
                boolean isResult = statement.execute("SELECT 1; CREATE OR REPLACE TABLE several (a INT); INSERT INTO several VALUES (1), (2); SELECT 4");
                for (int number = 0; isResult || statement.getUpdateCount() != -1; number++) {
                    System.out.println(number + " " + isResult + " " + statement.getUpdateCount());
                    isResult = statement.getMoreResults();
                }
            }
            Harness.execute(connection, "CREATE OR REPLACE PROCEDURE parts(IN a INT, OUT b INT) BEGIN SELECT a; SET b = a * 3; END");
            try (CallableStatement call = connection.prepareCall("{call parts(?, ?)}")) {
                for (int round = 0; round < Harness.CONNECTIONS; round++) {
                    call.setInt(1, round);
                    call.registerOutParameter(2, java.sql.Types.INTEGER);
                    call.execute();
                    Harness.expect("the value given back", call.getInt(2), round * 3);
                }
            }
        }
    }

    private void streaming() throws Exception {
        for (String option : new String[] {"useServerPrepStmts=false", "useCursorFetch=true"}) {
            try (Connection connection = driver.connect(option)) {
                try (Statement statement = connection.createStatement()) {
                    statement.setFetchSize(option.startsWith("useCursor") || driver == Main.MARIADB ? 100 : Integer.MIN_VALUE);
                    try (ResultSet rows = statement.executeQuery("SELECT seq, REPEAT('x', 1000) FROM seq_1_to_5000")) {
                        int count = 0;
                        while (rows.next()) {
                            count += rows.getString(2).length();
                        }
                        System.out.println(option + " " + count);
                    }
                }
                System.out.println(Harness.scalar(connection, "SELECT LENGTH(?)", "y".repeat(20_000_000)));
            }
        }
    }

    private void isolation() throws Exception {
        int[] levels = {Connection.TRANSACTION_READ_UNCOMMITTED, Connection.TRANSACTION_READ_COMMITTED,
            Connection.TRANSACTION_REPEATABLE_READ, Connection.TRANSACTION_SERIALIZABLE};
        try (Connection connection = driver.connect(); Connection other = driver.connect()) {
            Harness.execute(other, "CREATE OR REPLACE TABLE isolated (a INT)");
            for (int level : levels) {
                for (boolean readOnly : new boolean[] {true, false}) {
                    connection.setTransactionIsolation(level);
                    connection.setReadOnly(readOnly);
                    connection.setAutoCommit(false);
                    System.out.println(Harness.scalar(connection, "SELECT CONCAT(@@tx_isolation, ' ', @@tx_read_only, ' ', @@autocommit)")
                        + " " + Harness.scalar(other, "SELECT CONCAT(@@tx_isolation, ' ', @@tx_read_only, ' ', @@autocommit)"));
                    if (!readOnly) {
                        Harness.execute(connection, "INSERT INTO isolated VALUES (1)");
                    }
                    connection.rollback();
                    connection.setAutoCommit(true);
                }
            }
            System.out.println(Harness.scalar(other, "SELECT COUNT(*) FROM isolated"));
        }
    }

    private void savepoints() throws Exception {
        try (Connection connection = driver.connect()) {
            Harness.execute(connection, "CREATE OR REPLACE TABLE saved (a INT PRIMARY KEY)");
            connection.setAutoCommit(false);
            for (int round = 0; round < Harness.CONNECTIONS; round++) {
                Harness.execute(connection, "INSERT INTO saved VALUES (" + round + ")");
                Savepoint before = connection.setSavepoint();
                int number = round;
                Harness.execute(connection, "INSERT INTO saved VALUES (" + (100 + round) + ")");
                Harness.fails("23000", () -> Harness.execute(connection, "INSERT INTO saved VALUES (" + number + ")"));
                Harness.fails("42S02", () -> Harness.execute(connection, "SELECT * FROM no_such_table"));
                connection.rollback(before);
                connection.commit();
            }
            System.out.println(Harness.scalar(connection, "SELECT GROUP_CONCAT(a ORDER BY a) FROM saved"));
        }
    }

    private void cancel() throws Exception {
        String marker = "java-victim-" + driver.scheme();
        String port = System.getenv("UPSTREAM_PORT");
        String direct = "jdbc:mariadb://127.0.0.1:" + port + "/?sslMode=DISABLED";
        try (Connection connection = driver.connect(); Statement statement = connection.createStatement();
            Connection watcher = java.sql.DriverManager.getConnection(direct, driver.login())) {
            String asked = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE ? AND id <> CONNECTION_ID()";
            Thread canceller = new Thread(() -> {
                try {
                    Harness.until("the statement runs", () -> !"0".equals(Harness.scalar(watcher, asked, "%" + marker + "%")));
                    statement.cancel();
                } catch (Exception error) {
                    throw new IllegalStateException(error);
                }
            });
            canceller.start();
            try {
                statement.execute("SELECT COUNT(*), SLEEP(600) FROM seq_1_to_10 /* " + marker + " */");
                throw new AssertionError("it was cancelled");
            } catch (SQLException expected) {
                canceller.join();
            }
            System.out.println(Harness.scalar(connection, "SELECT 1"));
        }
    }

    private void many() throws Exception {
        try (Connection connection = driver.connect()) {
            Harness.execute(connection, "CREATE OR REPLACE TABLE counted (id INT PRIMARY KEY, n INT)");
            Harness.execute(connection, "INSERT INTO counted VALUES (1, 0)");
            Harness.together(4 * Harness.CONNECTIONS, seed -> () -> {
                try (Connection mine = driver.connect(ways()[seed % 2])) {
                    mine.setAutoCommit(false);
                    for (int round = 0; round < 5; round++) {
                        Harness.scalar(mine, "SELECT n + ? FROM counted WHERE id = 1 FOR UPDATE", seed);
                        Harness.execute(mine, "UPDATE counted SET n = n + 1 WHERE id = 1");
                        mine.commit();
                    }
                }
            });
            System.out.println(Harness.scalar(connection, "SELECT n FROM counted"));
        }
    }
}
