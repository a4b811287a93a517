package js_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/js"
)

// The script is tested where it runs: the cases are in test/.
func TestScript(t *testing.T) {
	lacking := t.Skipf
	if os.Getenv("IDEM_REQUIRE_BACKENDS") == "1" {
		lacking = t.Fatalf
	}
	node, err := exec.LookPath("node")
	if err != nil {
		lacking("idem.js is tested by Node.js 20 or later: %v", err)
	}
	version, err := exec.Command(node, "--version").Output()
	require.NoError(t, err)
	major, _, _ := strings.Cut(strings.TrimPrefix(string(version), "v"), ".")
	if n, err := strconv.Atoi(major); err != nil || n < 20 {
		lacking("idem.js is tested by Node.js 20 or later, not by %s", version)
	}
	for _, dir := range []string{".", "test", "testdata"} {
		_, err := os.ReadDir(dir) // go test knows an old result by the files that this process has opened
		require.NoError(t, err)
	}
	out, err := exec.CommandContext(t.Context(), node, "--test", "--test-reporter=tap").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// It exits with 0 also if it finds nothing to run.
	require.Regexp(t, `(?m)^# pass [1-9]\d\d$`, string(out))
}

func TestScriptIsSmall(t *testing.T) {
	var zipped bytes.Buffer
	w, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	require.NoError(t, err)
	_, err = w.Write([]byte(js.Script))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	assert.Greater(t, zipped.Len(), 1000)
	assert.Less(t, zipped.Len(), 3000)
}

func TestPackage(t *testing.T) {
	raw, err := os.ReadFile("package.json")
	require.NoError(t, err)
	var pkg struct{ Files []string }
	require.NoError(t, json.Unmarshal(raw, &pkg))
	named := slices.Clone(pkg.Files)
	for _, path := range regexp.MustCompile(`"\./([^"]+)"[^:]`).FindAllSubmatch(raw, -1) {
		named = append(named, string(path[1]))
		assert.Contains(t, pkg.Files, string(path[1]), "what is exported is published")
	}
	require.Len(t, named, 7)
	for _, name := range named {
		assert.FileExists(t, name)
	}
}

func TestServe(t *testing.T) {
	get := func(method, etag string) *http.Response {
		r := httptest.NewRequest(method, "/idem.js", nil)
		if etag != "" {
			r.Header.Set("If-None-Match", etag)
		}
		w := httptest.NewRecorder()
		js.Serve(w, r)
		return w.Result()
	}

	first := get("GET", "")
	etag := first.Header.Get("ETag")
	assert.Equal(t, 200, first.StatusCode)
	assert.Equal(t, "text/javascript; charset=utf-8", first.Header.Get("Content-Type"))
	assert.Equal(t, "public, max-age=3600", first.Header.Get("Cache-Control"))
	assert.Equal(t, "nosniff", first.Header.Get("X-Content-Type-Options"))
	assert.Regexp(t, `^"[0-9a-f]{16}"$`, etag)
	file, err := os.ReadFile("idem.js")
	require.NoError(t, err)
	body, err := io.ReadAll(first.Body)
	require.NoError(t, err)
	assert.Equal(t, string(file), string(body))

	assert.Equal(t, 200, get("GET", `"other"`).StatusCode)
	again := get("GET", etag)
	assert.Equal(t, 304, again.StatusCode)
	assert.Equal(t, etag, again.Header.Get("ETag"))
	assert.Equal(t, strconv.Itoa(len(file)), get("HEAD", "").Header.Get("Content-Length"))
}

func ExampleServe() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /idem.js", js.Serve)
}
