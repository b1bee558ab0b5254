// pgjdbc: isolation, savepoints, failed transactions, what others see, two-phase commit, many clients.

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.util.Map;
import javax.sql.XAConnection;
import javax.transaction.xa.XAResource;
import javax.transaction.xa.Xid;
import org.postgresql.xa.PGXADataSource;

final class JdbcTransactions {
    private JdbcTransactions() {}

    static void register() {
        Harness.check("pgjdbc: transactions with every isolation level and access mode", JdbcTransactions::isolation);
        Harness.check("pgjdbc: a serialization failure is told to the one that it meets", JdbcTransactions::serialization);
        Harness.check("pgjdbc: savepoints undo a part, by hand and by the driver", JdbcTransactions::savepoints);
        Harness.check("pgjdbc: a failed transaction stays failed until it ends", JdbcTransactions::failed);
        Harness.check("pgjdbc: an empty transaction is answered", JdbcTransactions::empty);
        Harness.check("pgjdbc: closing in the middle of a transaction rolls it back", JdbcTransactions::closing);
        Harness.check("pgjdbc: a server connection that is killed ends only its own session", JdbcTransactions::killed);
        Harness.check("pgjdbc: two-phase commit by XA", JdbcTransactions::xa);
        Harness.check("pgjdbc: many clients over few server connections", JdbcTransactions::many);
    }

    private static void isolation() throws Exception {
        int[] levels = {Connection.TRANSACTION_READ_COMMITTED, Connection.TRANSACTION_REPEATABLE_READ, Connection.TRANSACTION_SERIALIZABLE};
        String[] names = {"read committed", "repeatable read", "serializable"};
        for (String mode : new String[] {"ignore", "transaction", "always"}) {
            try (Connection connection = Harness.connect("readOnlyMode", mode); Connection other = Harness.connect()) {
                for (int index = 0; index < levels.length; index++) {
                    for (boolean readOnly : new boolean[] {true, false}) {
                        connection.setTransactionIsolation(levels[index]);
                        connection.setReadOnly(readOnly);
                        connection.setAutoCommit(false);
                        Harness.expect("the isolation", Harness.scalar(connection, "SHOW transaction_isolation"), names[index]);
                        String expected = readOnly && !"ignore".equals(mode) ? "on" : "off";
                        Harness.expect("read only, " + mode, Harness.scalar(connection, "SHOW transaction_read_only"), expected);
                        connection.commit();
                        connection.setAutoCommit(true);
                        Harness.expect("another's", Harness.scalar(other, "SHOW transaction_isolation"), "read committed");
                        Harness.expect("another's", Harness.scalar(other, "SHOW transaction_read_only"), "off");
                    }
                }
            }
        }
    }

    private static void serialization() throws Exception {
        try (Connection one = Harness.connect(); Connection other = Harness.connect()) {
            Harness.execute(one, "DROP TABLE IF EXISTS javaserial; CREATE TABLE javaserial (a int); INSERT INTO javaserial VALUES (0)");
            for (Connection connection : new Connection[] {one, other}) {
                connection.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
                connection.setAutoCommit(false);
                Harness.scalar(connection, "SELECT a FROM javaserial");
            }
            Harness.execute(one, "UPDATE javaserial SET a = 1");
            one.commit();
            Harness.fails("40001", () -> Harness.execute(other, "UPDATE javaserial SET a = 2"));
            other.rollback();
            Harness.execute(one, "DROP TABLE javaserial");
            one.commit();
        }
    }

    private static void savepoints() throws Exception {
        try (Connection connection = Harness.connect(); Connection always = Harness.connect("autosave", "always")) {
            Harness.execute(connection, "DROP TABLE IF EXISTS javasaved; CREATE TABLE javasaved (a int)");
            connection.setAutoCommit(false);
            Savepoint first = connection.setSavepoint();
            Harness.execute(connection, "INSERT INTO javasaved VALUES (1)");
            connection.rollback(first);
            Harness.execute(connection, "INSERT INTO javasaved VALUES (2)");
            Savepoint second = connection.setSavepoint("second");
            Harness.fails("22012", () -> Harness.execute(connection, "SELECT 1/0"));
            Harness.fails("25P02", () -> Harness.execute(connection, "SELECT 1"));
            connection.rollback(second);
            Harness.execute(connection, "INSERT INTO javasaved VALUES (4)");
            connection.releaseSavepoint(second);
            connection.commit();
            Harness.expect("the sum", Harness.scalar(connection, "SELECT sum(a) FROM javasaved"), "6");
            connection.commit();
            always.setAutoCommit(false);
            for (int round = 0; round < Harness.CONNECTIONS; round++) {
                Harness.execute(always, "INSERT INTO javasaved VALUES (10)");
                Harness.fails("22012", () -> Harness.scalar(always, "SELECT 1 / ?::int", 0));
                Harness.execute(always, "INSERT INTO javasaved VALUES (20)");
                always.commit();
            }
            Harness.expect("the sum", Harness.scalar(connection, "SELECT sum(a) FROM javasaved"), String.valueOf(6 + 30 * Harness.CONNECTIONS));
            connection.commit();
            Harness.execute(connection, "DROP TABLE javasaved");
            connection.commit();
        }
    }

    private static void failed() throws Exception {
        try (Connection connection = Harness.connect()) {
            connection.setAutoCommit(false);
            for (int round = 0; round < Harness.CONNECTIONS; round++) {
                Harness.fails("22012", () -> Harness.scalar(connection, "SELECT 1 / ?::int", 0));
                Harness.fails("25P02", () -> Harness.scalar(connection, "SELECT ?::int", 1));
                // The server answers that it was rolled back.
                connection.commit();
                Harness.expect("the session", Harness.scalar(connection, "SELECT 1"), "1");
                connection.rollback();
            }
        }
    }

    private static void empty() throws Exception {
        for (String mode : new String[] {"extended", "simple"}) {
            try (Connection connection = Harness.connect("preferQueryMode", mode)) {
                connection.setAutoCommit(false);
                connection.commit();
                connection.rollback();
                Harness.execute(connection, "BEGIN");
                connection.commit();
                connection.setAutoCommit(true);
                Harness.expect("the session", Harness.scalar(connection, "SELECT ?::int", 1), "1");
            }
        }
    }

    private static void closing() throws Exception {
        try (Connection connection = Harness.connect()) {
            Harness.execute(connection, "DROP TABLE IF EXISTS javaclosed; CREATE TABLE javaclosed (a int)");
            for (int round = 0; round < 2 * Harness.CONNECTIONS; round++) {
                Connection leaving = Harness.connect();
                leaving.setAutoCommit(false);
                Harness.execute(leaving, "INSERT INTO javaclosed VALUES (1)");
                if (round % 2 == 0) {
                    leaving.close();
                } else {
                    leaving.abort(Runnable::run);
                }
            }
            connection.setAutoCommit(false);
            Harness.execute(connection, "LOCK TABLE javaclosed IN ACCESS EXCLUSIVE MODE");
            Harness.expect("rows", Harness.scalar(connection, "SELECT count(*) FROM javaclosed"), "0");
            Harness.execute(connection, "DROP TABLE javaclosed");
            connection.commit();
        }
    }

    private static void killed() throws Exception {
        try (Connection watcher = Harness.upstream(); Connection victim = Harness.connect(); Connection other = Harness.connect()) {
            victim.setAutoCommit(false);
            int pid = Integer.parseInt(Harness.scalar(victim, "SELECT pg_backend_pid()"));
            Harness.scalar(watcher, "SELECT pg_terminate_backend(?)", pid);
            Harness.until("it is gone", () ->
                "0".equals(Harness.scalar(watcher, "SELECT count(*) FROM pg_stat_activity WHERE pid = ?", pid)));
            try {
                Harness.scalar(victim, "SELECT 1");
                throw new AssertionError("a transaction outlived its server connection");
            } catch (SQLException error) {
                Harness.expect("another session", Harness.scalar(other, "SELECT 1"), "1");
            }
        }
    }

    private record Branch(int number) implements Xid {
        @Override
        public int getFormatId() {
            return 7;
        }

        @Override
        public byte[] getGlobalTransactionId() {
            return new byte[] {1, (byte) number};
        }

        @Override
        public byte[] getBranchQualifier() {
            return new byte[] {2};
        }
    }

    private static void xa() throws Exception {
        PGXADataSource source = new PGXADataSource();
        source.setUrl(Harness.url());
        source.setUser(System.getenv("PGUSER"));
        source.setPassword(System.getenv("PGPASSWORD"));
        for (Map.Entry<String, String> property : Harness.tls().entrySet()) {
            source.setProperty(property.getKey(), property.getValue());
        }
        try (Connection setup = Harness.connect()) {
            Harness.execute(setup, "DROP TABLE IF EXISTS javaxa; CREATE TABLE javaxa (a int)");
        }
        for (int number = 0; number < 2; number++) {
            Xid xid = new Branch(number);
            XAConnection first = source.getXAConnection();
            first.getXAResource().start(xid, XAResource.TMNOFLAGS);
            Harness.execute(first.getConnection(), "INSERT INTO javaxa VALUES (" + number + ")");
            first.getXAResource().end(xid, XAResource.TMSUCCESS);
            Harness.expect("the vote", first.getXAResource().prepare(xid), XAResource.XA_OK);
            first.close();
            XAConnection second = source.getXAConnection();
            Harness.expect("prepared", second.getXAResource().recover(XAResource.TMSTARTRSCAN).length, 1);
            if (number == 0) {
                second.getXAResource().rollback(xid);
            } else {
                second.getXAResource().commit(xid, false);
            }
            second.close();
        }
        try (Connection connection = Harness.connect()) {
            Harness.expect("rows", Harness.scalar(connection, "SELECT string_agg(a::text, ',') FROM javaxa"), "1");
            Harness.execute(connection, "DROP TABLE javaxa");
        }
    }

    private static void many() throws Exception {
        int clients = 8 * Harness.CONNECTIONS;
        int steps = 10;
        try (Connection setup = Harness.connect()) {
            Harness.execute(setup, "DROP TABLE IF EXISTS javamany; CREATE TABLE javamany (id int PRIMARY KEY, n int)");
            Harness.execute(setup, "INSERT INTO javamany SELECT id, 0 FROM generate_series(0, 9) id");
            Harness.together(clients, seed -> () -> {
                try (Connection connection = Harness.connect("prepareThreshold", String.valueOf(1 + seed % 3))) {
                    connection.setAutoCommit(false);
                    try (PreparedStatement update = connection.prepareStatement("UPDATE javamany SET n = n + 1 WHERE id = ?")) {
                        for (int step = 0; step < steps; step++) {
                            update.setInt(1, (seed + step) % 10);
                            update.executeUpdate();
                            connection.commit();
                        }
                    }
                }
            });
            Harness.expect("the sum", Harness.scalar(setup, "SELECT sum(n) FROM javamany"), String.valueOf(clients * steps));
            Harness.execute(setup, "DROP TABLE javamany");
        }
    }
}
