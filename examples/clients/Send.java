// Sends a request until there is an answer, under one Idempotency-Key (see docs/clients.md). Sends what
// comes by stdin to a URL, and prints the status and the body of the answer:
//
//	java Send.java URL [IDEMPOTENCY-KEY [FIELD: VALUE]...] <body.json
//
// It needs Java 17 or later.

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpHeaders;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.DateTimeException;
import java.time.Duration;
import java.time.Instant;
import java.time.format.DateTimeFormatter;
import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

class Send {
    static final Set<Integer> PASSES = Set.of(408, 425, 429, 502, 503, 504);
    static final Set<String> PASSES_AS = Set.of("rate_limited", "store_unavailable", "shutting_down", "unfinished");

    /** There is no answer yet, and the operation may have been carried out. Go on with the same key. */
    static class NoAnswer extends IOException {
        final String key;

        NoAnswer(String key, String why, Throwable cause) {
            super(why + "; go on with the key " + key, cause);
            this.key = key;
        }
    }

    /** A new key. Store it with the operation before you first send it, if it must not happen twice after a crash. */
    static String newKey() {
        return '"' + UUID.randomUUID().toString() + '"';
    }

    /**
     * Returns the operation's answer. The request needs a timeout for each try, and a body publisher that can be used again, such
     * as ofByteArray; the client must not follow redirects. Do not send a key that is older than the service keeps results: a day,
     * as a rule. While the operation runs on the server, it is asked for more often than tries.
     */
    static HttpResponse<byte[]> send(HttpClient client, HttpRequest request, String key, int tries, Duration patience)
            throws NoAnswer, InterruptedException {
        var keyed = HttpRequest.newBuilder(request, (name, value) -> true).setHeader("Idempotency-Key", key).build();
        long end = System.nanoTime() + patience.toNanos();
        for (int n = 1;; n++) {
            long asked = 0;
            String why;
            Throwable cause = null;
            try {
                var response = receive(client, keyed, Duration.ofNanos(end - System.nanoTime()));
                String code = response.headers().firstValue("Idempotency-Refused").orElse("");
                boolean running = code.equals("in_progress");
                if (!running && !PASSES_AS.contains(code) && !PASSES.contains(response.statusCode())
                        && response.statusCode() >= 200) {
                    return response;
                }
                if (running) {
                    n--;
                }
                asked = retryAfter(response.headers());
                why = response.statusCode() + " " + code;
            } catch (IOException failed) {
                why = failed.toString();
                cause = failed;
            }
            long grown = Math.min(100L << Math.min(n, 10), 5000);
            long pause = Math.max(asked, grown / 2) + ThreadLocalRandom.current().nextLong(grown);
            if (n >= tries || pause > (end - System.nanoTime()) / 1_000_000) {
                throw new NoAnswer(key, why.trim(), cause);
            }
            Thread.sleep(pause);
        }
    }

    /** Makes one try. The request's timeout alone would end with the header of the answer. */
    static HttpResponse<byte[]> receive(HttpClient client, HttpRequest request, Duration left)
            throws IOException, InterruptedException {
        var limit = request.timeout().filter(timeout -> timeout.compareTo(left) < 0).orElse(left);
        var answer = client.sendAsync(request, HttpResponse.BodyHandlers.ofByteArray());
        try {
            return answer.get(limit.toMillis(), TimeUnit.MILLISECONDS);
        } catch (TimeoutException slow) {
            throw new IOException("the answer takes too long", slow);
        } catch (ExecutionException failed) {
            throw new IOException(failed.getCause());
        } finally {
            answer.cancel(true);
        }
    }

    /** What Retry-After asks for, in milliseconds: 0 if it is not there, or is nothing. */
    static long retryAfter(HttpHeaders headers) {
        String value = headers.firstValue("Retry-After").orElse("");
        if (value.matches("[0-9]+")) {
            return value.length() > 9 ? Long.MAX_VALUE / 2 : Long.parseLong(value) * 1000;
        }
        return date(value).map(at -> Math.max(0, Duration.between(
                headers.firstValue("Date").flatMap(Send::date).orElse(Instant.now()), at).toMillis())).orElse(0L);
    }

    static Optional<Instant> date(String value) {
        if (value.length() > "Sun, 06 Nov 1994 08:49:37 GMT".length()) {
            return Optional.empty(); // a year of five digits
        }
        try {
            return Optional.of(Instant.from(DateTimeFormatter.RFC_1123_DATE_TIME.parse(value)));
        } catch (DateTimeException none) {
            return Optional.empty();
        }
    }

    public static void main(String[] args) throws Exception {
        if (args.length == 0) {
            System.err.println("usage: java Send.java URL [IDEMPOTENCY-KEY [FIELD: VALUE]...] <body.json");
            System.exit(2);
        }
        var request = HttpRequest.newBuilder(URI.create(args[0]))
                .timeout(Duration.ofSeconds(30))
                .header("Content-Type", "application/json")
                .POST(HttpRequest.BodyPublishers.ofByteArray(System.in.readAllBytes()));
        for (int i = 2; i < args.length; i++) {
            String[] field = args[i].split(": ", 2);
            request.header(field[0], field[1]);
        }
        String key = args.length > 1 && !args[1].isEmpty() ? args[1] : newKey();
        try {
            var response = send(HttpClient.newHttpClient(), request.build(), key, 8, Duration.ofSeconds(60));
            System.out.print(response.statusCode() + " ");
            System.out.write(response.body());
            System.out.println();
            System.exit(response.statusCode() / 100 == 2 ? 0 : 1);
        } catch (NoAnswer none) {
            System.err.println("no answer: " + none.getMessage());
            System.exit(3); // it may have been carried out
        }
    }
}
