// java.net.http.HttpClient, the JDK's own client, through the gatekeeper: environment as in site_under_test.py. The runner
// is the one of the drivers' checks (drivers/java/Harness.java).

final class Main {
    private Main() {}

    public static void main(String[] arguments) {
        ClientChecks.register();
        Harness.run();
    }
}
