// pgjdbc: logins, statements in each of its query modes, batches, cursors, COPY, large objects, cancels.

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.ByteArrayInputStream;
import java.io.InputStream;
import java.io.OutputStream;
import java.sql.BatchUpdateException;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import org.postgresql.PGConnection;
import org.postgresql.PGNotification;
import org.postgresql.largeobject.LargeObject;
import org.postgresql.largeobject.LargeObjectManager;
import org.postgresql.util.PSQLException;

final class JdbcStatements {
    private static final String[] MODES = {"extended", "extendedForPrepared", "extendedCacheEverything", "simple"};
    private static final int COPIED = 50_000;

    private JdbcStatements() {}

    static void register() {
        Harness.check("pgjdbc: a right password is let in by SCRAM, a wrong one is refused", JdbcStatements::login);
        Harness.check("pgjdbc: many sessions share few server connections", JdbcStatements::sharing);
        Harness.check("pgjdbc: statements in every query mode, over many sessions", JdbcStatements::modes);
        Harness.check("pgjdbc: statements prepared on the server from the first and from the fifth time", JdbcStatements::prepared);
        Harness.check("pgjdbc: a table that changes under a prepared statement", JdbcStatements::invalidated);
        Harness.check("pgjdbc: an error leaves its session usable, in every query mode", JdbcStatements::errors);
        Harness.check("pgjdbc: a batch of a thousand rows, with generated keys", JdbcStatements::batches);
        Harness.check("pgjdbc: an error in a batch undoes it", JdbcStatements::batchErrors);
        Harness.check("pgjdbc: a cursor fetches in pieces", JdbcStatements::cursor);
        Harness.check("pgjdbc: COPY in and out, and one that goes wrong", JdbcStatements::copying);
        Harness.check("pgjdbc: a large object, by the fast path", JdbcStatements::largeObject);
        Harness.check("pgjdbc: a running statement is cancelled, and its session lives on", JdbcStatements::cancel);
        Harness.check("pgjdbc: a query time-out ends its statement only", JdbcStatements::timeout);
        Harness.check("pgjdbc: LISTEN receives what others NOTIFY", JdbcStatements::listen);
        Harness.check("pgjdbc: settings, the schema and the client's information stay with their session", JdbcStatements::settings);
        Harness.check("pgjdbc: what the driver reads of the catalog", JdbcStatements::metadata);
        Harness.check("pgjdbc: 100 MB stream through flat memory, and a parameter of 10 MB", JdbcStatements::large);
    }

    private static void login() throws Exception {
        try (Connection connection = Harness.connect()) {
            Harness.expect("the user", Harness.scalar(connection, "SELECT current_user"), System.getenv("PGUSER"));
            Harness.require("it lives", connection.isValid(10));
        }
        Harness.fails("28P01", () -> Harness.connect("password", "wrong").close());
        Harness.fails("28P01", () -> Harness.connect("user", "nobody_of_that_name").close());
        try (Connection connection = Harness.connect("ApplicationName", "named", "options", "-c work_mem=5MB", "readOnly", "true")) {
            Harness.expect("the name", Harness.scalar(connection, "SHOW application_name"), "named");
            Harness.expect("an option", Harness.scalar(connection, "SHOW work_mem"), "5MB");
        }
    }

    private static List<Connection> sessions(int count, String... options) throws SQLException {
        List<Connection> sessions = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            sessions.add(Harness.connect(options));
        }
        return sessions;
    }

    private static void close(List<Connection> sessions) throws SQLException {
        for (Connection session : sessions) {
            session.close();
        }
    }

    private static void sharing() throws Exception {
        List<Connection> sessions = sessions(3 * Harness.CONNECTIONS);
        Set<String> pids = new HashSet<>();
        for (Connection session : sessions) {
            pids.add(Harness.scalar(session, "SELECT pg_backend_pid()"));
        }
        Harness.require(pids.size() + " server connections", !Harness.THROUGH_GATE || pids.size() <= Harness.CONNECTIONS);
        close(sessions);
    }

    private static void modes() throws Exception {
        for (String mode : MODES) {
            List<Connection> sessions = sessions(2 * Harness.CONNECTIONS, "preferQueryMode", mode);
            for (int round = 0; round < 7; round++) {
                for (int index = 0; index < sessions.size(); index++) {
                    String sum = Harness.scalar(sessions.get(index), "SELECT ?::int + " + index, round);
                    Harness.expect(mode, sum, String.valueOf(round + index));
                    Harness.expect(mode, Harness.scalar(sessions.get(index), "SELECT ?::text || '!'", "it's"), "it's!");
                }
            }
            try (Statement statement = sessions.get(0).createStatement()) {
                Harness.require("a result", statement.execute("SELECT 1; SELECT 2"));
                Harness.require("another", statement.getMoreResults());
                Harness.require("an empty one", !statement.execute(""));
            }
            close(sessions);
        }
    }

    private static void prepared() throws Exception {
        for (String threshold : new String[] {"-1", "1", "5"}) {
            List<Connection> sessions = sessions(3 * Harness.CONNECTIONS, "prepareThreshold", threshold);
            List<PreparedStatement> statements = new ArrayList<>();
            for (int index = 0; index < sessions.size(); index++) {
                // Every session calls its first statement by the same name.
                statements.add(sessions.get(index).prepareStatement("SELECT ?::int * " + index + ", now()"));
            }
            for (int round = 0; round < 8; round++) {
                for (int index = 0; index < sessions.size(); index++) {
                    statements.get(index).setInt(1, round);
                    try (ResultSet rows = statements.get(index).executeQuery()) {
                        rows.next();
                        Harness.expect("a product", rows.getInt(1), round * index);
                    }
                }
            }
            close(sessions);
        }
    }

    private static void invalidated() throws Exception {
        try (Connection connection = Harness.connect("prepareThreshold", "1"); Connection other = Harness.connect()) {
            Harness.execute(connection, "DROP TABLE IF EXISTS javachanged; CREATE TABLE javachanged (a int)");
            Harness.execute(connection, "INSERT INTO javachanged VALUES (1)");
            try (PreparedStatement statement = connection.prepareStatement("SELECT * FROM javachanged")) {
                for (int round = 0; round < 3; round++) {
                    statement.executeQuery().close();
                }
                Harness.execute(other, "ALTER TABLE javachanged ADD COLUMN b text DEFAULT 'new'");
                // The driver's own remedy: it prepares anew and asks again, in autocommit.
                try (ResultSet rows = statement.executeQuery()) {
                    rows.next();
                    Harness.expect("the new column", rows.getString("b"), "new");
                }
            }
            Harness.execute(connection, "DROP TABLE javachanged");
        }
    }

    private static void errors() throws Exception {
        for (String mode : MODES) {
            try (Connection connection = Harness.connect("preferQueryMode", mode, "prepareThreshold", "2")) {
                for (int round = 0; round < 2 * Harness.CONNECTIONS; round++) {
                    Harness.fails("22012", () -> Harness.scalar(connection, "SELECT 1 / ?::int", 0));
                    Harness.fails("42703", () -> Harness.scalar(connection, "SELECT no_such_column"));
                    Harness.fails("42601", () -> Harness.execute(connection, "SELEC 1"));
                    Harness.expect(mode, Harness.scalar(connection, "SELECT ?::int", round), String.valueOf(round));
                }
                SQLException error = Harness.fails("GK001", () -> Harness.execute(connection,
                    "DO $$ BEGIN RAISE 'mine' USING ERRCODE = 'GK001', DETAIL = 'why', HINT = 'so'; END $$"));
                var told = ((PSQLException) error).getServerErrorMessage();
                Harness.expect("its fields", told.getMessage() + told.getDetail() + told.getHint(), "minewhyso");
            }
        }
    }

    private static void batches() throws Exception {
        for (String rewrite : new String[] {"false", "true"}) {
            try (Connection connection = Harness.connect("reWriteBatchedInserts", rewrite)) {
                Harness.execute(connection, "DROP TABLE IF EXISTS javabatch; CREATE TABLE javabatch (id serial PRIMARY KEY, n int)");
                try (PreparedStatement insert = connection.prepareStatement(
                        "INSERT INTO javabatch (n) VALUES (?)", Statement.RETURN_GENERATED_KEYS)) {
                    for (int number = 0; number < 1000; number++) {
                        insert.setInt(1, number);
                        insert.addBatch();
                    }
                    Harness.expect("results", insert.executeBatch().length, 1000);
                    int keys = 0;
                    try (ResultSet rows = insert.getGeneratedKeys()) {
                        while (rows.next()) {
                            keys++;
                        }
                    }
                    Harness.expect("keys", keys, 1000);
                }
                try (Statement mixed = connection.createStatement()) {
                    mixed.addBatch("UPDATE javabatch SET n = n + 1 WHERE n < 10");
                    mixed.addBatch("DELETE FROM javabatch WHERE n = 500");
                    Harness.expect("changed", mixed.executeBatch()[0], 10);
                }
                Harness.expect("rows", Harness.scalar(connection, "SELECT count(*) FROM javabatch"), "999");
                Harness.execute(connection, "DROP TABLE javabatch");
            }
        }
    }

    private static void batchErrors() throws Exception {
        try (Connection connection = Harness.connect()) {
            Harness.execute(connection, "DROP TABLE IF EXISTS javabroken; CREATE TABLE javabroken (n int CHECK (n <> 77))");
            for (int round = 0; round < Harness.CONNECTIONS; round++) {
                connection.setAutoCommit(false);
                try (PreparedStatement insert = connection.prepareStatement("INSERT INTO javabroken VALUES (?)")) {
                    for (int number = 0; number < 300; number++) {
                        insert.setInt(1, number);
                        insert.addBatch();
                    }
                    try {
                        insert.executeBatch();
                        throw new AssertionError("the batch went well");
                    } catch (BatchUpdateException error) {
                        Harness.expect("the SQLSTATE", error.getSQLState(), "23514");
                    }
                }
                connection.rollback();
                connection.setAutoCommit(true);
                Harness.expect("rows", Harness.scalar(connection, "SELECT count(*) FROM javabroken"), "0");
            }
            Harness.execute(connection, "DROP TABLE javabroken");
        }
    }

    private static void cursor() throws Exception {
        try (Connection connection = Harness.connect()) {
            connection.setAutoCommit(false);
            for (int size : new int[] {7, 1000}) {
                try (PreparedStatement statement = connection.prepareStatement("SELECT n FROM generate_series(1, ?) n")) {
                    statement.setFetchSize(size);
                    statement.setInt(1, 5000);
                    int count = 0;
                    try (ResultSet rows = statement.executeQuery()) {
                        while (rows.next()) {
                            Harness.expect("a row", rows.getInt(1), ++count);
                            if (count == 50) {
                                // Another statement while the portal is open.
                                Harness.expect("another", Harness.scalar(connection, "SELECT ?::int", size), String.valueOf(size));
                            }
                        }
                    }
                    Harness.expect("rows", count, 5000);
                    // Left before its end.
                    ResultSet left = statement.executeQuery();
                    left.next();
                    left.close();
                }
            }
            connection.commit();
            try (Statement statement = connection.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_READ_ONLY);
                    ResultSet rows = statement.executeQuery("SELECT n FROM generate_series(1, 100) n")) {
                Harness.require("the last", rows.last());
                Harness.expect("its value", rows.getInt(1), 100);
            }
            connection.rollback();
        }
    }

    private static void copying() throws Exception {
        try (Connection connection = Harness.connect()) {
            var copy = connection.unwrap(PGConnection.class).getCopyAPI();
            Harness.execute(connection, "DROP TABLE IF EXISTS javacopied; CREATE TABLE javacopied (id int CHECK (id >= 0), name text)");
            StringBuilder text = new StringBuilder();
            for (int row = 0; row < COPIED; row++) {
                text.append(row).append("\tname ").append(row).append('\n');
            }
            byte[] bytes = text.toString().getBytes(UTF_8);
            Harness.expect("rows in", copy.copyIn("COPY javacopied FROM STDIN", new ByteArrayInputStream(bytes)), (long) COPIED);
            long[] received = {0};
            OutputStream counter = new OutputStream() {
                @Override
                public void write(int one) {
                    received[0]++;
                }

                @Override
                public void write(byte[] many, int from, int count) {
                    received[0] += count;
                }
            };
            Harness.expect("rows out", copy.copyOut("COPY javacopied TO STDOUT", counter), (long) COPIED);
            Harness.expect("bytes out", received[0], (long) bytes.length);
            byte[] wrong = (text + "-1\tx\n").getBytes(UTF_8);
            for (int round = 0; round < Harness.CONNECTIONS; round++) {
                Harness.fails("23514", () -> copy.copyIn("COPY javacopied FROM STDIN", new ByteArrayInputStream(wrong)));
                var given = copy.copyIn("COPY javacopied FROM STDIN");
                given.writeToCopy(bytes, 0, 1000);
                given.cancelCopy();
                Harness.expect("rows", Harness.scalar(connection, "SELECT count(*) FROM javacopied"), String.valueOf(COPIED));
            }
            Harness.execute(connection, "DROP TABLE javacopied");
        }
    }

    private static void largeObject() throws Exception {
        try (Connection connection = Harness.connect()) {
            connection.setAutoCommit(false);
            LargeObjectManager manager = connection.unwrap(PGConnection.class).getLargeObjectAPI();
            long id = manager.createLO();
            byte[] written = new byte[300_000];
            java.util.Arrays.fill(written, (byte) 7);
            try (LargeObject object = manager.open(id, LargeObjectManager.WRITE)) {
                object.write(written);
            }
            connection.commit();
            try (LargeObject object = manager.open(id, LargeObjectManager.READ); InputStream stream = object.getInputStream()) {
                Harness.require("the same", java.util.Arrays.equals(stream.readAllBytes(), written));
            }
            manager.unlink(id);
            connection.commit();
        }
    }

    private static void cancel() throws Exception {
        try (Connection watcher = Harness.upstream()) {
            for (int round = 0; round < 3; round++) {
                try (Connection connection = Harness.connect(); Statement statement = connection.createStatement()) {
                    String marker = "java-cancel-" + round;
                    var ended = CompletableFuture.supplyAsync(() -> {
                        try {
                            statement.execute("SELECT '" + marker + "', pg_sleep(600)");
                            return "well";
                        } catch (SQLException error) {
                            return error.getSQLState();
                        }
                    });
                    Harness.until("the statement runs", () -> Harness.runs(watcher, marker));
                    statement.cancel();
                    Harness.expect("its end", ended.get(), "57014");
                    Harness.expect("the session", Harness.scalar(connection, "SELECT 1"), "1");
                }
            }
        }
    }

    private static void timeout() throws Exception {
        try (Connection connection = Harness.connect(); Statement statement = connection.createStatement()) {
            for (int round = 0; round < 2; round++) {
                statement.setQueryTimeout(1);
                Harness.fails("57014", () -> statement.execute("SELECT pg_sleep(600)"));
                statement.setQueryTimeout(0);
                Harness.expect("the session", Harness.scalar(connection, "SELECT 1"), "1");
            }
        }
    }

    private static void listen() throws Exception {
        try (Connection mine = Harness.connect(); Connection other = Harness.connect()) {
            Harness.execute(mine, "LISTEN java");
            List<String> received = new ArrayList<>();
            for (int number = 0; number < 5; number++) {
                Harness.scalar(other, "SELECT pg_notify('java', ?)", String.valueOf(number));
            }
            Harness.until("they arrive", () -> {
                PGNotification[] found = mine.unwrap(PGConnection.class).getNotifications(10);
                for (PGNotification one : found == null ? new PGNotification[0] : found) {
                    received.add(one.getParameter());
                }
                return received.size() == 5;
            });
            Harness.expect("payloads", received, List.of("0", "1", "2", "3", "4"));
            Harness.execute(mine, "UNLISTEN *");
        }
    }

    private static void settings() throws Exception {
        List<Connection> sessions = sessions(3 * Harness.CONNECTIONS);
        Harness.execute(sessions.get(0), "CREATE SCHEMA IF NOT EXISTS javaschema");
        for (int index = 0; index < sessions.size(); index++) {
            sessions.get(index).setClientInfo("ApplicationName", "java " + index);
            sessions.get(index).setSchema(index % 2 == 0 ? "javaschema" : "public");
        }
        for (int round = 0; round < 3; round++) {
            for (int index = 0; index < sessions.size(); index++) {
                Harness.expect("the name", Harness.scalar(sessions.get(index), "SHOW application_name"), "java " + index);
                Harness.expect("the schema", sessions.get(index).getSchema(), index % 2 == 0 ? "javaschema" : "public");
            }
        }
        Harness.execute(sessions.get(0), "DROP SCHEMA javaschema");
        close(sessions);
    }

    private static void metadata() throws Exception {
        try (Connection connection = Harness.connect()) {
            Harness.execute(connection, "DROP TABLE IF EXISTS javatypes; CREATE TABLE javatypes (a int[], b jsonb, c timestamptz)");
            int columns = 0;
            try (ResultSet rows = connection.getMetaData().getColumns(null, "public", "javatypes", null)) {
                while (rows.next()) {
                    columns++;
                }
            }
            Harness.expect("columns", columns, 3);
            try (PreparedStatement insert = connection.prepareStatement("INSERT INTO javatypes VALUES (?, ?::jsonb, ?)")) {
                Harness.expect("parameters", insert.getParameterMetaData().getParameterCount(), 3);
                insert.setArray(1, connection.createArrayOf("int4", new Integer[] {1, 2}));
                insert.setString(2, "{\"a\": 1}");
                insert.setObject(3, java.time.OffsetDateTime.parse("2026-01-02T03:04:05Z"));
                insert.executeUpdate();
            }
            Harness.expect("a value", Harness.scalar(connection, "SELECT a[2] FROM javatypes"), "2");
            Harness.execute(connection, "DROP TABLE javatypes");
        }
    }

    private static void large() throws Exception {
        try (Connection connection = Harness.connect()) {
            connection.setAutoCommit(false);
            long before = Harness.gatekeeperRss();
            long received = 0;
            try (Statement statement = connection.createStatement()) {
                statement.setFetchSize(500);
                try (ResultSet rows = statement.executeQuery("SELECT repeat('x', 10000) FROM generate_series(1, 10500)")) {
                    for (int count = 0; rows.next(); count++) {
                        received += rows.getString(1).length();
                        if (count % 500 == 0) {
                            Harness.expectFlat(before);
                        }
                    }
                }
            }
            Harness.expect("bytes", received, 105_000_000L);
            String text = "0123456789".repeat(1_000_000);
            Harness.expect("its length", Harness.scalar(connection, "SELECT length(?)", text), "10000000");
        }
    }
}
