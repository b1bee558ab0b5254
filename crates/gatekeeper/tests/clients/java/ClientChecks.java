// What is asked of a client: both versions of HTTP, in the clear (where it asks for an upgrade to HTTP/2) and with TLS.

import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.WebSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

final class ClientChecks {
    private static final String PLAIN = System.getenv("SITE_URL");
    private static final String ENCRYPTED = System.getenv("SITE_TLS_URL");

    /** A client, where it asks, and the version that it must get (null: either). */
    private record Way(HttpClient client, String url, HttpClient.Version version) {
        HttpRequest.Builder to(String path) {
            return HttpRequest.newBuilder(URI.create(url + path));
        }

        HttpResponse<String> get(String path) throws Exception {
            return client.send(to(path).build(), BodyHandlers.ofString());
        }
    }

    private interface Use {
        void of(Way way) throws Exception;
    }

    private ClientChecks() {}

    private static SSLContext trusting() throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (InputStream file = Files.newInputStream(Path.of(System.getenv("SITE_CA")))) {
            store.setCertificateEntry("site", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        return context;
    }

    private static HttpClient client(HttpClient.Version version) throws Exception {
        return HttpClient.newBuilder().version(version).sslContext(trusting()).build();
    }

    private static List<Way> ways() throws Exception {
        HttpClient old = client(HttpClient.Version.HTTP_1_1);
        HttpClient usual = client(HttpClient.Version.HTTP_2);
        return List.of(
            new Way(old, PLAIN, HttpClient.Version.HTTP_1_1),
            new Way(usual, PLAIN, null),
            new Way(old, ENCRYPTED, HttpClient.Version.HTTP_1_1),
            new Way(usual, ENCRYPTED, HttpClient.Version.HTTP_2));
    }

    private static void each(String title, Use use) {
        Harness.check(title, () -> {
            for (Way way : ways()) {
                use.of(way);
            }
        });
    }

    static void register() {
        each("pages come in the version that is spoken", ClientChecks::pages);
        each("bodies with and without a length come back", ClientChecks::bodies);
        each("responses of every kind", ClientChecks::kinds);
        each("many at the same time, each with its own answer", ClientChecks::many);
        each("responses that are left halfway", ClientChecks::left);
        each("a response that breaks off is an error", ClientChecks::cut);
        Harness.check("a WebSocket, in the clear and with TLS", () -> {
            for (String url : List.of(PLAIN, ENCRYPTED)) {
                sockets(url);
            }
        });
    }

    private static void pages(Way way) throws Exception {
        for (int number = 0; number < 50; number++) {
            HttpResponse<String> response = way.get("/hello");
            Harness.expect("the page", response.body(), "hello\n");
            if (way.version() != null) {
                Harness.expect("the version", response.version(), way.version());
            }
        }
    }

    private static void bodies(Way way) throws Exception {
        byte[] content = new byte[2_000_000];
        new Random(1).nextBytes(content);
        HttpRequest known = way.to("/echo").POST(BodyPublishers.ofByteArray(content)).build();
        byte[] back = way.client().send(known, BodyHandlers.ofByteArray()).body();
        Harness.require("it came back", Arrays.equals(back, content));
        HttpRequest unknown =
            way.to("/echo").PUT(BodyPublishers.ofInputStream(() -> new java.io.ByteArrayInputStream(content))).build();
        back = way.client().send(unknown, BodyHandlers.ofByteArray()).body();
        Harness.require("it came back in pieces", Arrays.equals(back, content));
        if (way.version() == HttpClient.Version.HTTP_2) {
            // Nobody says 100 to it through the gate, and of HTTP/2 this client waits for it for ever.
            return;
        }
        HttpRequest asked = way.to("/echo").expectContinue(true).POST(BodyPublishers.ofString("asked for")).build();
        Harness.expect("it came back", way.client().send(asked, BodyHandlers.ofString()).body(), "asked for");
    }

    private static void kinds(Way way) throws Exception {
        for (int status : List.of(204, 304, 200, 404, 500)) {
            Harness.expect("the status", way.get("/status/" + status).statusCode(), status);
        }
        HttpRequest head = way.to("/bytes/12345").method("HEAD", BodyPublishers.noBody()).build();
        HttpResponse<String> response = way.client().send(head, BodyHandlers.ofString());
        Harness.expect("the length", response.headers().firstValue("content-length").orElse(""), "12345");
        Harness.expect("the pieces", way.get("/pieces/200").body().lines().count(), 200L);
        Harness.expect("the large one", way.get("/bytes/20000000").body().length(), 20_000_000);
        Harness.expect("the events", way.get("/events").body(), "data: 0\n\ndata: 1\n\ndata: 2\n\n");
    }

    private static void many(Way way) throws Exception {
        List<CompletableFuture<HttpResponse<String>>> asked = new ArrayList<>();
        for (int number = 0; number < 100; number++) {
            asked.add(way.client().sendAsync(way.to("/part/" + number).build(), BodyHandlers.ofString()));
        }
        for (int number = 0; number < 100; number++) {
            String body = asked.get(number).get(60, TimeUnit.SECONDS).body();
            Harness.expect("its own answer", body, "part " + number + "\n");
        }
    }

    private static void left(Way way) throws Exception {
        for (int number = 0; number < 10; number++) {
            HttpRequest request = way.to("/bytes/20000000").build();
            try (InputStream body = way.client().send(request, BodyHandlers.ofInputStream()).body()) {
                Harness.expect("the beginning", body.readNBytes(1_000).length, 1_000);
            }
        }
        pages(way);
    }

    private static void cut(Way way) throws Exception {
        try {
            way.get("/cut");
        } catch (IOException expected) {
            pages(way);
            return;
        }
        throw new AssertionError("half a response was taken for a whole one");
    }

    private static void sockets(String url) throws Exception {
        CompletableFuture<Integer> closed = new CompletableFuture<>();
        StringBuilder heard = new StringBuilder();
        WebSocket.Listener listener = new WebSocket.Listener() {
            @Override
            public CompletionStage<?> onText(WebSocket socket, CharSequence data, boolean last) {
                heard.append(data).append(last ? "|" : "");
                socket.request(1);
                return null;
            }

            @Override
            public CompletionStage<?> onClose(WebSocket socket, int status, String reason) {
                closed.complete(status);
                return null;
            }

            @Override
            public void onError(WebSocket socket, Throwable error) {
                closed.completeExceptionally(error);
            }
        };
        URI address = URI.create(url.replaceFirst("http", "ws") + "/socket");
        WebSocket socket = client(HttpClient.Version.HTTP_2).newWebSocketBuilder().buildAsync(address, listener).get();
        String large = "x".repeat(100_000);
        socket.sendText("hello", true).get();
        socket.sendText(large, true).get();
        socket.sendClose(1000, "").get();
        Harness.expect("how it was closed", closed.get(60, TimeUnit.SECONDS), 1000);
        Harness.expect("what came back", heard.toString(), "hello|" + large + "|");
    }
}
