// The runner of Java's checks.
//
// Where to connect comes from libpq's variables (PGHOST, PGPORT, PGUSER, PGPASSWORD, PGDATABASE; with TLS PGSSLMODE,
// PGSSLROOTCERT and PGCHANNELBINDING). Beside them, from tests/drivers.rs: GATEKEEPER_PID (absent when the checks run
// against PostgreSQL itself), GATEKEEPER_CONNECTIONS, UPSTREAM_PORT. A check prints one line; the first that fails ends
// the run, unless CHECK_ALL is set. CHECK_ONLY selects by a part of the title. Nothing waits for a time to pass: `until`
// polls a condition within a bound.

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

final class Harness {
    /** Seconds. A bound that only a hang reaches: the slowest check takes a few seconds. */
    private static final long CHECK_TIMEOUT = 120;
    private static final long POLL_INTERVAL_MILLIS = 10;
    /** What the gatekeeper may grow by while 100 MB stream through it. */
    private static final long RSS_GROWTH_MAX = 30L << 20;

    static final int CONNECTIONS = Integer.parseInt(System.getenv().getOrDefault("GATEKEEPER_CONNECTIONS", "4"));
    static final boolean THROUGH_GATE = System.getenv("GATEKEEPER_PID") != null;

    interface Check {
        void run() throws Exception;
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    private record Named(String title, Check check) {}

    private static final List<Named> CHECKS = new ArrayList<>();

    private Harness() {}

    static void check(String title, Check check) {
        CHECKS.add(new Named(title, check));
    }

    static String url(String port) {
        return "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + port + "/" + System.getenv("PGDATABASE");
    }

    static String url() {
        return url(System.getenv("PGPORT"));
    }

    /** A session; the options are pairs of a name and a value. */
    static Connection connect(String... options) throws SQLException {
        return DriverManager.getConnection(url(), properties(options));
    }

    /** What TLS is to be like, as pgjdbc's properties. */
    static Map<String, String> tls() {
        Map<String, String> properties = new HashMap<>();
        properties.put("sslmode", System.getenv().getOrDefault("PGSSLMODE", "disable"));
        properties.put("channelBinding", System.getenv().getOrDefault("PGCHANNELBINDING", "prefer"));
        if (System.getenv("PGSSLROOTCERT") != null) {
            properties.put("sslrootcert", System.getenv("PGSSLROOTCERT"));
        }
        return properties;
    }

    static Properties properties(String... options) {
        Properties properties = new Properties();
        properties.setProperty("user", System.getenv("PGUSER"));
        properties.setProperty("password", System.getenv("PGPASSWORD"));
        tls().forEach(properties::setProperty);
        for (int index = 0; index < options.length; index += 2) {
            properties.setProperty(options[index], options[index + 1]);
        }
        return properties;
    }

    /** Past the gatekeeper, to PostgreSQL itself, where TLS is of no interest. */
    static Connection upstream() throws SQLException {
        String port = System.getenv().getOrDefault("UPSTREAM_PORT", System.getenv("PGPORT"));
        return DriverManager.getConnection(url(port), properties("sslmode", "disable", "channelBinding", "disable"));
    }

    static void execute(Connection connection, String sql) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.execute(sql);
        }
    }

    static String scalar(Connection connection, String sql, Object... parameters) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            for (int index = 0; index < parameters.length; index++) {
                statement.setObject(index + 1, parameters[index]);
            }
            try (ResultSet rows = statement.executeQuery()) {
                rows.next();
                return rows.getString(1);
            }
        }
    }

    static void expect(String what, Object got, Object want) {
        if (!java.util.Objects.equals(got, want)) {
            throw new AssertionError(what + ": got " + got + ", want " + want);
        }
    }

    static void require(String what, boolean holds) {
        expect(what, holds, true);
    }

    static SQLException fails(String code, Check check) throws Exception {
        try {
            check.run();
        } catch (SQLException error) {
            expect("the SQLSTATE of \"" + error.getMessage() + "\"", error.getSQLState(), code);
            return error;
        }
        throw new AssertionError("SQLSTATE " + code + " was due");
    }

    static void until(String what, Condition condition) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(CHECK_TIMEOUT / 2);
        while (!condition.holds()) {
            require("happened: " + what, System.nanoTime() < deadline);
            Thread.sleep(POLL_INTERVAL_MILLIS);
        }
    }

    /** Whether a statement with this marker runs on the server itself. */
    static boolean runs(Connection watcher, String marker) throws SQLException {
        return !"0".equals(scalar(watcher, "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' "
            + "AND pid <> pg_backend_pid() AND query LIKE '%' || ? || '%'", marker));
    }

    /** Runs `count` tasks at the same time, and fails with the first that does. */
    static void together(int count, java.util.function.IntFunction<Check> task) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(count);
        List<Future<Void>> running = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            Check check = task.apply(number);
            Callable<Void> call = () -> {
                check.run();
                return null;
            };
            running.add(threads.submit(call));
        }
        for (Future<Void> one : running) {
            one.get();
        }
        threads.shutdown();
    }

    /** The gatekeeper's resident memory in bytes; 0 when there is no gatekeeper. */
    static long gatekeeperRss() throws IOException {
        if (!THROUGH_GATE) {
            return 0;
        }
        for (String line : Files.readAllLines(Path.of("/proc", System.getenv("GATEKEEPER_PID"), "status"))) {
            if (line.startsWith("VmRSS:")) {
                return 1024 * Long.parseLong(line.replaceAll("[^0-9]", ""));
            }
        }
        throw new AssertionError("the gatekeeper's status has no VmRSS");
    }

    static void expectFlat(long before) throws IOException {
        long grown = gatekeeperRss() - before;
        require("the gatekeeper grew by " + grown + " bytes only", grown < RSS_GROWTH_MAX);
    }

    static void run() {
        ExecutorService runner = Executors.newCachedThreadPool(task -> {
            Thread thread = new Thread(task);
            thread.setDaemon(true);
            return thread;
        });
        String only = System.getenv().getOrDefault("CHECK_ONLY", "");
        int code = 0;
        for (Named named : CHECKS) {
            if (!named.title.contains(only)) {
                continue;
            }
            Callable<Void> call = () -> {
                named.check.run();
                return null;
            };
            try {
                runner.submit(call).get(CHECK_TIMEOUT, TimeUnit.SECONDS);
                System.out.println("ok     " + named.title);
            } catch (ExecutionException | TimeoutException | InterruptedException error) {
                System.out.println("FAILED " + named.title);
                (error.getCause() == null ? error : error.getCause()).printStackTrace(System.out);
                code = 1;
                if (System.getenv("CHECK_ALL") == null) {
                    break;
                }
            }
        }
        System.out.flush();
        Runtime.getRuntime().halt(code);
    }
}
