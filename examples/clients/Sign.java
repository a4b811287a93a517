// Signs a request for a verifier of github.com/idem-go/idem (scheme v1). Sends what comes by
// stdin to a URL, and prints the status and the body of the answer:
//
//	IDEM_KEY_ID=demo IDEM_SECRET=0123456789abcdef0123456789abcdef java Sign.java URL [IDEMPOTENCY-KEY] <body.json
//
// It needs Java 17 or later.

import static java.nio.charset.StandardCharsets.UTF_8;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.UUID;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

class Sign {
    /**
     * Returns headers with a signature added. Send them with the same method, uri and body, once: another try
     * needs another signature, with the time and a nonce of its own (UUID.randomUUID().toString()).
     */
    static Map<String, String> sign(String keyId, byte[] secret, String method, URI uri, Map<String, String> headers,
            byte[] body, Instant time, String nonce) throws GeneralSecurityException {
        // The Host field as java.net.http sends it: without the scheme's own port.
        boolean ownPort = uri.getPort() == -1 || uri.getPort() == (uri.getScheme().equalsIgnoreCase("https") ? 443 : 80);
        String host = uri.getHost().toLowerCase(Locale.ROOT) + (ownPort ? "" : ":" + uri.getPort());
        String path = uri.getRawPath().isEmpty() ? "/" : uri.getRawPath();
        String query = uri.getRawQuery() == null ? "" : uri.getRawQuery();
        String timestamp = Long.toString(time.getEpochSecond());

        var covered = new TreeMap<String, String>();
        headers.forEach((name, value) -> {
            String lower = name.toLowerCase(Locale.ROOT);
            if (Set.of("content-encoding", "content-type", "idempotency-key").contains(lower)) {
                covered.put(lower, value.trim());
            }
        });
        String names = String.join(";", covered.keySet());
        byte[] digest = MessageDigest.getInstance("SHA-256").digest(body);
        var lines = new ArrayList<>(List.of("v1", keyId, method, host, path, query, timestamp, nonce,
                HexFormat.of().formatHex(digest), names));
        covered.forEach((name, value) -> lines.add(name + ":" + value));

        var mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(secret, "HmacSHA256"));
        var signed = new TreeMap<>(headers);
        signed.put("X-Key-Id", keyId);
        signed.put("X-Timestamp", timestamp);
        signed.put("X-Nonce", nonce);
        signed.put("X-Signed-Headers", names);
        signed.put("X-Signature", "v1=" + HexFormat.of().formatHex(mac.doFinal(String.join("\n", lines).getBytes(UTF_8))));
        return signed;
    }

    public static void main(String[] args) throws Exception {
        String keyId = System.getenv("IDEM_KEY_ID"), secret = System.getenv("IDEM_SECRET");
        if (args.length == 0 || keyId == null || secret == null || secret.isEmpty()) {
            System.err.println("usage: IDEM_KEY_ID=… IDEM_SECRET=… java Sign.java URL [IDEMPOTENCY-KEY] <body.json");
            System.exit(2);
        }
        // What java.net.http would escape has to be escaped before it is signed.
        URI uri = URI.create(URI.create(args[0]).toASCIIString());
        byte[] body = System.in.readAllBytes();

        var headers = new TreeMap<>(Map.of("Content-Type", "application/json"));
        if (args.length > 1 && !args[1].isEmpty()) {
            headers.put("Idempotency-Key", args[1]);
        }
        var request = HttpRequest.newBuilder(uri)
                .version(HttpClient.Version.HTTP_1_1)
                .timeout(Duration.ofSeconds(30))
                .POST(HttpRequest.BodyPublishers.ofByteArray(body));
        sign(keyId, secret.getBytes(UTF_8), "POST", uri, headers, body, Instant.now(), UUID.randomUUID().toString())
                .forEach(request::setHeader);
        var response = HttpClient.newHttpClient().send(request.build(), HttpResponse.BodyHandlers.ofString());
        System.out.println(response.statusCode() + " " + response.body());
        System.exit(response.statusCode() / 100 == 2 ? 0 : 1);
    }
}
