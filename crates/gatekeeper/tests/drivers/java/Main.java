// pgjdbc, and Hibernate on it, through the gatekeeper, in one virtual machine: environment as in Harness.java.

final class Main {
    private Main() {}

    public static void main(String[] arguments) {
        JdbcStatements.register();
        JdbcTransactions.register();
        new HibernateChecks(
            Harness.url(),
            Harness.properties("prepareThreshold", "2"),
            "23505",
            "SHOW transaction_isolation",
            "SELECT 1 FROM pg_sleep(600)").register();
        Harness.run();
    }
}
