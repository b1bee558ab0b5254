// pgjdbc, and Hibernate on it, through the gatekeeper, in one virtual machine: environment as in Harness.java.

final class Main {
    private Main() {}

    public static void main(String[] arguments) {
        JdbcStatements.register();
        JdbcTransactions.register();
        HibernateChecks.register();
        Harness.run();
    }
}
