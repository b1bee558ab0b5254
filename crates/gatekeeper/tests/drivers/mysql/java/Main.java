// MySQL's Connector/J, MariaDB's driver, and Hibernate on it, through the gatekeeper, in one virtual machine.
//
// The environment is as in ../python/__main__.py, and what else ../../java/Harness.java reads.

import java.util.Properties;

final class Main {
    private Main() {}

    /** One of the two drivers. */
    record Driver(String name, String scheme) {
        /** Where it connects to, and its settings as the rest of the address. */
        String url(String... options) {
            String tls = System.getenv("MYSQL_TLS_CA") == null ? "sslMode=DISABLED" : tls();
            String address = "jdbc:" + scheme + "://" + System.getenv("MYSQL_HOST") + ":" + System.getenv("MYSQL_TCP_PORT");
            String rest = options.length == 0 ? "" : "&" + String.join("&", options);
            return address + "/" + DATABASE + "?" + tls + rest;
        }

        private String tls() {
            String file = System.getenv("MYSQL_TLS_CA");
            if ("mariadb".equals(scheme)) {
                return "sslMode=verify-full&serverSslCert=" + file;
            }
            // It reads authorities from a key store only.
            return "sslMode=REQUIRED";
        }

        Properties login() {
            Properties properties = new Properties();
            properties.setProperty("user", System.getenv("MYSQL_USER"));
            properties.setProperty("password", System.getenv("MYSQL_PWD"));
            return properties;
        }

        java.sql.Connection connect(String... options) throws java.sql.SQLException {
            return java.sql.DriverManager.getConnection(url(options), login());
        }
    }

    private static final boolean IS_CONSOLE = Boolean.getBoolean("console");
    private static final String DATABASE = IS_CONSOLE ? "gatekeeper" : System.getenv("MYSQL_DATABASE");
    static final Driver CONNECTOR_J = new Driver("Connector/J", "mysql");
    static final Driver MARIADB = new Driver("MariaDB's driver", "mariadb");

    public static void main(String[] arguments) {
        System.setProperty("mariadb.logging.disable", "true");
        for (Driver driver : new Driver[] {CONNECTOR_J, MARIADB}) {
            if (IS_CONSOLE) {
                new ConsoleChecks(driver).register();
            } else {
                new JdbcChecks(driver).register();
            }
        }
        if (IS_CONSOLE) {
            Harness.run();
            return;
        }
        new HibernateChecks(
            MARIADB.url("useServerPrepStmts=true"),
            MARIADB.login(),
            "23000",
            "SELECT @@tx_isolation",
            "SELECT 1 FROM seq_1_to_10 WHERE SLEEP(600) = 0").register();
        Harness.run();
    }
}
