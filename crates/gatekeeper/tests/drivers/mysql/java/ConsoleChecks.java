// The console: its lists and commands, in text and prepared at the gate.

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.Statement;
import java.util.HashMap;
import java.util.Map;

final class ConsoleChecks {
    private final Main.Driver driver;

    ConsoleChecks(Main.Driver driver) {
        this.driver = driver;
    }

    void register() {
        for (String way : new String[] {"useServerPrepStmts=false", "useServerPrepStmts=true"}) {
            Harness.check(driver.name() + " at the console, " + way, () -> run(way));
        }
    }

    private static Map<String, Long> lists(ResultSet rows) throws Exception {
        Map<String, Long> lists = new HashMap<>();
        while (rows.next()) {
            lists.put(rows.getString(1), rows.getLong(2));
        }
        return lists;
    }

    private void run(String way) throws Exception {
        try (Connection connection = driver.connect(way)) {
            Harness.require("it is valid", connection.isValid(10));
            Harness.expect("the database", connection.getCatalog(), "gatekeeper");
            Map<String, Long> text;
            try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery("SHOW LISTS")) {
                text = lists(rows);
            }
            try (PreparedStatement prepared = connection.prepareStatement("SHOW LISTS")) {
                for (int round = 0; round < 3; round++) {
                    try (ResultSet rows = prepared.executeQuery()) {
                        Harness.expect("the lists", lists(rows), text);
                    }
                }
            }
            Harness.execute(connection, "PAUSE");
            try (PreparedStatement resume = connection.prepareStatement("RESUME")) {
                resume.execute();
            }
            Harness.fails("42000", () -> Harness.execute(connection, "SELECT 1"));
            connection.setAutoCommit(false);
            Harness.expect("two states", Harness.scalar(connection, "SHOW STATE"), "active");
            connection.commit();
        }
    }
}
