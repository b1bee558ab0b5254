// A reverse proxy that lets in what Netflix's concurrency-limits says: the peer in Java that the gate is measured beside.
//
// Server and client are the development kit's own, everything is on 127.0.0.1:
// --listen PORT --upstream PORT --limit vegas|gradient2|aimd --wait none|lifo [--min N] [--timeout MILLISECONDS]
// Without --min and --timeout the limits are as they come. A refused client gets 429, as from the library's own filter for servlets.

import com.netflix.concurrency.limits.Limit;
import com.netflix.concurrency.limits.Limiter;
import com.netflix.concurrency.limits.limit.AIMDLimit;
import com.netflix.concurrency.limits.limit.Gradient2Limit;
import com.netflix.concurrency.limits.limit.VegasLimit;
import com.netflix.concurrency.limits.limiter.LifoBlockingLimiter;
import com.netflix.concurrency.limits.limiter.SimpleLimiter;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

final class Proxy {
    /** The most requests that are in flight or wait: each has a thread. */
    private static final int THREADS_MAX = 2_000;
    /** Clients that the system may hold until they are accepted. */
    private static final int BACKLOG = 1_000;
    private static final int TOO_MANY_REQUESTS = 429;
    private static final int BAD_GATEWAY = 502;

    private final Limiter<Void> limiter;
    private final HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    private final String upstream;

    private Proxy(Limiter<Void> limiter, String upstream) {
        this.limiter = limiter;
        this.upstream = upstream;
    }

    public static void main(String[] arguments) throws IOException {
        Map<String, String> options = new HashMap<>();
        for (int index = 0; index + 1 < arguments.length; index += 2) {
            options.put(arguments[index], arguments[index + 1]);
        }
        Limiter<Void> limiter = SimpleLimiter.newBuilder().limit(limit(options)).build();
        if (options.getOrDefault("--wait", "none").equals("lifo")) {
            limiter = LifoBlockingLimiter.newBuilder(limiter).build();
        }
        Proxy proxy = new Proxy(limiter, "http://127.0.0.1:" + options.get("--upstream"));
        int port = Integer.parseInt(options.get("--listen"));
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getByName("127.0.0.1"), port), BACKLOG);
        server.setExecutor(
                new ThreadPoolExecutor(8, THREADS_MAX, 10, TimeUnit.SECONDS, new SynchronousQueue<>()));
        server.createContext("/", proxy::handle);
        server.start();
    }

    private static Limit limit(Map<String, String> options) {
        Optional<Integer> least = Optional.ofNullable(options.get("--min")).map(Integer::parseInt);
        String name = options.getOrDefault("--limit", "vegas");
        switch (name) {
            case "vegas":
                return VegasLimit.newDefault();
            case "gradient2":
                Gradient2Limit.Builder gradient = Gradient2Limit.newBuilder();
                least.ifPresent(gradient::minLimit);
                return gradient.build();
            case "aimd":
                AIMDLimit.Builder aimd = AIMDLimit.newBuilder();
                least.ifPresent(aimd::minLimit);
                Optional.ofNullable(options.get("--timeout"))
                        .ifPresent(time -> aimd.timeout(Long.parseLong(time), TimeUnit.MILLISECONDS));
                return aimd.build();
            default:
                throw new IllegalArgumentException("there is no limit " + name);
        }
    }

    private void handle(HttpExchange exchange) throws IOException {
        Optional<Limiter.Listener> permit = limiter.acquire(null);
        if (permit.isEmpty()) {
            exchange.sendResponseHeaders(TOO_MANY_REQUESTS, -1);
            exchange.close();
            return;
        }
        HttpRequest request = HttpRequest.newBuilder(URI.create(upstream + exchange.getRequestURI())).GET().build();
        HttpResponse<byte[]> response;
        try {
            response = client.send(request, HttpResponse.BodyHandlers.ofByteArray());
        } catch (IOException failure) {
            permit.get().onIgnore();
            exchange.sendResponseHeaders(BAD_GATEWAY, -1);
            exchange.close();
            return;
        } catch (InterruptedException ending) {
            permit.get().onIgnore();
            Thread.currentThread().interrupt();
            return;
        }
        permit.get().onSuccess();
        byte[] body = response.body();
        exchange.sendResponseHeaders(response.statusCode(), body.length == 0 ? -1 : body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }
}
