package examples_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/sign"
)

// languages are the clients in folder clients.
var languages = []struct {
	name  string
	needs []string
	// old says why what is installed is not enough. Nil: it always is.
	old func(t *testing.T) string
	// build prepares what command and vector run. Nil: nothing needs to be prepared.
	build func(t *testing.T, dir string)
	// command runs the client that signs, or the one that tries again; URL and Idempotency-Key follow.
	command, send func(dir string) []string
	// stops tries once, for half a second. Nil: the language sets no limit of its own; the URL follows.
	stops func(dir string) []string
	// vector prints, somewhere, the signature of the test vector; the URL follows.
	vector func(dir string) []string
	// raw clients send URLs as they are; others escape what is not ASCII.
	raw bool
}{
	{
		name: "JavaScript", needs: []string{"node"},
		old: func(t *testing.T) string {
			if output(t, "node", "-p", "Boolean(globalThis.crypto?.subtle && globalThis.fetch)") != "true" {
				return "node has no global crypto or fetch; Node.js 20 has"
			}
			return ""
		},
		command: func(string) []string { return []string{"node", "clients/sign.mjs"} },
		send:    func(string) []string { return []string{"node", "clients/send.mjs"} },
		vector: func(string) []string {
			return []string{"node", "--input-type=module", "-e", `
				import { sign } from "./clients/sign.mjs";
				const headers = { "Idempotency-Key": '"k-1"', "content-type": " application/json " };
				const signed = await sign("demo", "0123456789abcdef0123456789abcdef", "POST", process.argv[1], headers,
					'{"amount":5,"to":"bob"}', 1700000000, "n-0123456789abcdef");
				console.log(signed.get("X-Signature"));`}
		},
	},
	{
		name: "Python", needs: []string{"python3"},
		old: func(t *testing.T) string {
			if output(t, "python3", "-c", "import sys; print(sys.version_info >= (3, 9))") != "True" {
				return "python3 is older than 3.9"
			}
			return ""
		},
		command: func(string) []string { return []string{"python3", "clients/sign.py"} },
		send:    func(string) []string { return []string{"python3", "clients/send.py"} },
		stops: func(string) []string {
			return []string{"python3", "-B", "-c", `if True:
				import sys
				sys.path.insert(0, "clients")
				import send
				try:
					send.send(sys.argv[1], b"{}", tries=1, try_timeout=0.5)
				except send.NoAnswer:
					sys.exit(3)`}
		},
		vector: func(string) []string {
			return []string{"python3", "-B", "-c", `if True:
				import sys
				sys.path.insert(0, "clients")
				from sign import sign
				headers = {"Idempotency-Key": '"k-1"', "content-type": " application/json "}
				print(sign("demo", b"0123456789abcdef0123456789abcdef", "POST", sys.argv[1], headers,
					b'{"amount":5,"to":"bob"}', 1700000000, "n-0123456789abcdef")["X-Signature"])`}
		},
	},
	{
		name: "Java", needs: []string{"java", "javac"},
		old: func(t *testing.T) string {
			version := regexp.MustCompile(`version "(\d+)`).FindStringSubmatch(output(t, "java", "-version"))
			if version == nil {
				return "java does not say which version it is"
			}
			if n, err := strconv.Atoi(version[1]); err != nil || n < 17 {
				return "java is older than 17"
			}
			return ""
		},
		build: func(t *testing.T, dir string) {
			vector := filepath.Join(dir, "Vector.java")
			require.NoError(t, os.WriteFile(vector, []byte(`
				import java.util.Map;
				class Vector {
					public static void main(String[] args) throws Exception {
						System.out.println(Sign.sign("demo", "0123456789abcdef0123456789abcdef".getBytes(), "POST", java.net.URI.create(args[0]),
							Map.of("Idempotency-Key", "\"k-1\"", "content-type", " application/json "), "{\"amount\":5,\"to\":\"bob\"}".getBytes(),
							java.time.Instant.ofEpochSecond(1700000000), "n-0123456789abcdef").get("X-Signature"));
					}
				}
				class Stops {
					public static void main(String[] args) throws Exception {
						var request = java.net.http.HttpRequest.newBuilder(java.net.URI.create(args[0])).timeout(java.time.Duration.ofMillis(500))
							.POST(java.net.http.HttpRequest.BodyPublishers.noBody()).build();
						try {
							Send.send(java.net.http.HttpClient.newHttpClient(), request, "k-1", 1, java.time.Duration.ofSeconds(60));
						} catch (Send.NoAnswer none) {
							System.exit(3);
						}
					}
				}`), 0o600))
			output(t, "javac", "-encoding", "UTF-8", "-d", dir, "clients/Sign.java", "clients/Send.java", vector)
			// It is one file, which java runs as it is; compiling it each time takes too long here.
			_, _, code := post(t, "", "", "java", "clients/Sign.java", "http://127.0.0.1:1/")
			require.Equal(t, 2, code)
		},
		command: func(dir string) []string { return java(dir, "Sign") },
		send:    func(dir string) []string { return java(dir, "Send") },
		stops:   func(dir string) []string { return java(dir, "Stops") },
		vector:  func(dir string) []string { return java(dir, "Vector") },
	},
	{
		name: "curl and openssl", needs: []string{"sh", "curl", "openssl"},
		build: func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "body"), []byte(`{"amount":5,"to":"bob"}`), 0o600))
		},
		command: func(string) []string { return []string{"sh", "clients/sign.sh"} },
		send:    func(string) []string { return []string{"sh", "clients/send.sh"} },
		vector: func(dir string) []string {
			return []string{"sh", "-c", `. clients/sign.sh
				sign demo 0123456789abcdef0123456789abcdef POST "$1" "$0/body" '"k-1"' 1700000000 n-0123456789abcdef`, dir}
		},
		raw: true,
	},
}

// java runs a class that lives for a moment only.
func java(dir, class string) []string {
	return []string{"java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", dir, class}
}

// TestClients has the clients in other languages send to the real verifier.
func TestClients(t *testing.T) {
	if testing.Short() {
		t.Skip("starts interpreters")
	}
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			for _, program := range l.needs {
				if _, err := exec.LookPath(program); err != nil {
					t.Skipf("there is no %s here", program)
				}
			}
			if l.old != nil {
				if why := l.old(t); why != "" {
					t.Skip(why)
				}
			}
			dir := t.TempDir()
			if l.build != nil {
				l.build(t, dir)
			}

			// The test vector of scheme v1, and the same request by another spelling of its URL.
			for _, url := range []string{
				"https://api.example.com/transfers/a%2Fb?x=2&x=1", "https://API.example.com:443/transfers/a%2Fb?x=2&x=1#part",
			} {
				out := output(t, append(l.vector(dir), url)...)
				require.Contains(t, out, "v1=dd48cdea89f6d7454263c0263ea01cd98542d15cbcd22d45d27289d62797b1ce", url)
			}
			clientIsUnderstood(t, l.command(dir), l.raw)
			clientTriesAgain(t, l.send(dir))
			clientMeetsOddAnswers(t, l.send(dir), l.stops, dir)
		})
	}
}

// clientIsUnderstood has a client send requests of many shapes, and compares what has arrived.
func clientIsUnderstood(t *testing.T, command []string, raw bool) {
	r := newReceiver(t)
	for _, c := range []struct {
		host, target, body string
		cleaned            bool // some clients tidy the target up before they sign and send it
	}{
		{host: "127.0.0.1", target: "/webhooks", body: `{"amount":5,"to":"bob"}`},
		{host: "127.0.0.1", target: "/transfers/a%2Fb%61?x=2&x=1&y=%7E", body: `{"to":"Zoë","city":"東京","🍵":1}`},
		{host: "localhost", target: "//a//?q=%2B+%20&empty=&flag&=&u=http://h/?#fragment", body: ""},
		{host: "LocalHost", target: "/?", body: "\r\nlines\n\n", cleaned: true},
		{host: "127.0.0.1", target: "?q=%E6%9D%B1;a:b@c,d", body: "\x00\xff\xfe%\\ '\"$HOME", cleaned: true},
		{host: "[::1]", target: "/a/../b/./%2e%2E/c", body: strings.Repeat("0123456789", 20_000), cleaned: true},
		{host: "127.0.0.1", target: "/café/~a?q=Zoë", body: "{}", cleaned: true},
	} {
		if c.host == "[::1]" && r.port6 == "" || raw && !isASCII(c.target) {
			continue
		}
		port := r.port
		if c.host == "[::1]" {
			port = r.port6
		}
		status, answer, code := post(t, secretOfReceiver, c.body, append(command, "http://"+c.host+":"+port+c.target)...)
		require.Equal(t, "202", status, "%s %q: %s", c.host, c.target, answer)
		require.Zero(t, code)
		var got received
		require.NoError(t, json.Unmarshal([]byte(answer), &got))
		require.Equal(t, []byte(c.body), got.Body)
		require.Equal(t, "partner-7", got.KeyID)
		if !c.cleaned {
			sent, _, _ := strings.Cut(c.target, "#")
			require.Equal(t, sent, got.Target)
		}
	}

	// A retry has a nonce of its own and the same Idempotency-Key.
	url := "http://127.0.0.1:" + r.port + "/webhooks?attempt"
	before := r.ran.Load()
	for range 2 {
		status, answer, _ := post(t, secretOfReceiver, "{}", append(command, url, `"operation 1"`)...)
		require.Equal(t, "202", status, answer)
	}
	require.EqualValues(t, 1, r.ran.Load()-before)

	status, answer, code := post(t, secretOfReceiver+"!", "{}", append(command, url)...)
	require.Equal(t, "401", status)
	require.Contains(t, answer, `"code":"invalid"`)
	require.Equal(t, 1, code)
	_, _, code = post(t, "", "{}", append(command, url)...)
	require.Contains(t, []int{1, 2}, code, "there is no secret")
}

// clientTriesAgain has a client send to a service that loses answers and is busy, and counts what happens.
func clientTriesAgain(t *testing.T, command []string) {
	engine := core.MustNew(core.Config{User: core.UserFromHeader("X-User")})
	var ran atomic.Int64
	began, finish := make(chan struct{}, 1), make(chan struct{})
	pay := httpidem.New(engine.MustGuard(core.ClientKey()))(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if ran.Add(1) == 1 {
			began <- struct{}{}
			<-finish
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		w.Write(body) // the client may have gone
	}))
	var requests atomic.Int64
	var user atomic.Value // of the latest
	var background sync.WaitGroup
	defer background.Wait()
	port := serve(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		n := requests.Add(1)
		user.Store(req.Header.Get("X-User"))
		if req.URL.Path == "/busy" {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		switch n {
		case 1:
			body, err := io.ReadAll(req.Body)
			if err != nil {
				panic(err)
			}
			again := req.Clone(context.WithoutCancel(req.Context()))
			again.Body = io.NopCloser(bytes.NewReader(body))
			background.Go(func() { pay.ServeHTTP(httptest.NewRecorder(), again) })
			<-began
			panic(http.ErrAbortHandler) // the answer will be lost
		case 3:
			close(finish) // 409 until now
			background.Wait()
		case 4:
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "100") // and breaks off
			w.WriteHeader(http.StatusCreated)
			return
		}
		pay.ServeHTTP(w, req)
		if n == 3 {
			panic(http.ErrAbortHandler) // inside the answer
		}
	}), nil)
	url := "http://127.0.0.1:" + port + "/payments"
	status, answer, code := post(t, "", `{"amount":500}`, append(command, url, `"pay 17"`, "X-User: ann")...)
	require.Equal(t, "201", status)
	require.Equal(t, `{"amount":500}`, answer)
	require.Zero(t, code)
	require.EqualValues(t, 1, ran.Load())
	require.GreaterOrEqual(t, requests.Load(), int64(4), "lost, in progress, cut, and whole")

	requests.Store(10)
	status, answer, code = post(t, "", `{"amount":50000}`, append(command, url, `"pay 17"`, "X-User: ann")...)
	require.Equal(t, "422", status)
	require.Contains(t, answer, "key_reused")
	require.Equal(t, 1, code)
	require.EqualValues(t, 11, requests.Load(), "an answer that stands")
	require.EqualValues(t, 1, ran.Load())

	status, _, code = post(t, "", `{"amount":500}`, append(command, url, "", "X-User: urn: ann:1")...)
	require.Equal(t, "201", status)
	require.Equal(t, "urn: ann:1", user.Load())
	require.Zero(t, code)
	require.EqualValues(t, 2, ran.Load(), "a key of its own")

	requests.Store(20)
	_, _, code = post(t, "", `{}`, append(command, "http://127.0.0.1:"+port+"/busy")...)
	require.NotZero(t, code)
	require.EqualValues(t, 21, requests.Load(), "an hour is too long to wait")
}

// clientMeetsOddAnswers has a client meet what few services answer.
func clientMeetsOddAnswers(t *testing.T, command []string, stops func(string) []string, dir string) {
	var requests atomic.Int64
	if command[0] == "node" {
		requests.Store(1) // JavaScript's dates have more digits: the client gives up
	}
	port := serve(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		n := requests.Add(1)
		switch {
		case req.URL.Path == "/octal":
			w.Header().Set("Retry-After", "099")
			w.WriteHeader(http.StatusTooManyRequests)
		case req.URL.Path == "/drip":
			w.Header().Set("Content-Length", "100")
			for range 100 {
				if _, err := io.WriteString(w, "x"); err != nil || http.NewResponseController(w).Flush() != nil {
					return
				}
				select {
				case <-time.After(100 * time.Millisecond):
				case <-req.Context().Done():
					return
				}
			}
		case n == 1:
			w.Header().Set("Retry-After", "Sat, 01 Jan 10000 00:00:00 GMT") // HTTP has four digits for a year
			w.WriteHeader(http.StatusTooManyRequests)
		case n == 2:
			w.Header().Set("Retry-After", "tomorrow")
			w.WriteHeader(http.StatusTooManyRequests)
		default:
			if req.URL.Path == "/early" {
				w.WriteHeader(http.StatusProcessing)
				w.WriteHeader(http.StatusEarlyHints)
			}
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "caf\xe9 \xff\x00.") // the client may have gone
		}
	}), nil)
	for _, path := range []string{"/", "/early"} {
		status, answer, code := post(t, "", `{}`, append(command, "http://127.0.0.1:"+port+path)...)
		require.Equal(t, "201", status)
		require.Equal(t, "caf\xe9 \xff\x00.", answer)
		require.Zero(t, code)
	}
	require.EqualValues(t, 4, requests.Load())
	_, _, code := post(t, "", `{}`, append(command, "http://127.0.0.1:"+port+"/octal")...)
	require.True(t, code == 3 || command[0] == "node" && code == 1, code) // which returns the last answer
	if stops != nil {
		_, _, code := post(t, "", "", append(stops(dir), "http://127.0.0.1:"+port+"/drip")...)
		require.Equal(t, 3, code, "an answer that comes in drops")
	}
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r > 0x7f }) < 0
}

// secretOfReceiver has what a shell, a command line or JSON may trip over.
const secretOfReceiver = `s3cr3t $HOME "quoted" 'too' \n %41 – ключ`

// received is what a request's handler has got.
type received struct {
	KeyID, Target string
	Body          []byte
}

// receiver takes signed requests of any URL, and answers with what it has received.
type receiver struct {
	port  string
	port6 string // on [::1]; empty: there is no IPv6 here
	ran   atomic.Int64
}

func newReceiver(t *testing.T) *receiver {
	r := new(receiver)
	engine := core.MustNew(core.Config{User: core.UserFromCaller()})
	guard := engine.MustGuard(core.Policy{Key: core.Header(core.Optional)})
	key := sign.Must(sign.NewHMACKey(sign.KeyConfig{ID: "partner-7"}, []byte(secretOfReceiver)))
	verifier := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key)), Nonces: engine.Nonces()}))
	handler := httpidem.Verify(verifier)(httpidem.New(guard)(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.ran.Add(1)
		body, err := io.ReadAll(req.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		signed, _ := sign.From(req.Context())
		w.WriteHeader(http.StatusAccepted)
		_ = json.NewEncoder(w).Encode(received{signed.KeyID, req.RequestURI, body}) // the client may have gone
	})))

	r.port = serve(t, handler, nil)
	if l, err := net.Listen("tcp", "[::1]:0"); err == nil {
		r.port6 = serve(t, handler, l)
	}
	return r
}

// serve serves h for the time of the test, on l or else on 127.0.0.1.
func serve(t *testing.T, h http.Handler, l net.Listener) (port string) {
	s := httptest.NewUnstartedServer(h)
	if l != nil {
		s.Listener.Close()
		s.Listener = l
	}
	s.Start()
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	require.NoError(t, err)
	return u.Port()
}

// post runs a client, and takes apart what it prints.
func post(t *testing.T, secret, body string, command ...string) (status, answer string, code int) {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(strings.ToLower(v), "="); !strings.HasSuffix(name, "_proxy") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	// Java takes its arguments and its environment for what the locale says.
	cmd.Env = append(cmd.Env, "LC_ALL=C.UTF-8", "IDEM_KEY_ID=partner-7", "IDEM_SECRET="+secret)
	cmd.Stdin = strings.NewReader(body)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, "%s", stderr.String())
		t.Logf("%q: %s", command, stderr.String())
	}
	status, answer, _ = strings.Cut(strings.TrimSpace(string(out)), " ")
	return status, answer, cmd.ProcessState.ExitCode()
}

// output runs a command that must succeed, and returns what it says.
func output(t *testing.T, command ...string) string {
	t.Helper()
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	require.NoError(t, err, "%q: %s", command, out)
	return strings.TrimSpace(string(out))
}
