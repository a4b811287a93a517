package core_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a package may not reach, however indirectly, and why.
func TestBoundaries(t *testing.T) {
	forbidden := map[string]string{
		"github.com/gin-gonic/gin":          "core knows no framework",
		"github.com/labstack/echo":          "core knows no framework",
		"github.com/gofiber/fiber":          "core knows no framework",
		"github.com/valyala/fasthttp":       "core knows no framework",
		"github.com/redis/rueidis":          "core knows no Redis client",
		"github.com/rabbitmq/amqp091-go":    "core knows no broker",
		"database/sql":                      "core knows no database",
		"github.com/stretchr/testify":       "a consumer compiles no test library",
		"go.uber.org/goleak":                "a consumer compiles no test library",
		"pgregory.net/rapid":                "a consumer compiles no test library",
		"github.com/alicebob/miniredis":     "a consumer compiles no test library",
		"github.com/redis/go-redis":         "only who has it compiles it",
		"github.com/valkey-io/valkey-go":    "only who has it compiles it",
		"github.com/jackc/pgx":              "the drivers are the consumer's choice",
		"github.com/go-sql-driver/mysql":    "the drivers are the consumer's choice",
		"modernc.org/sqlite":                "the drivers are the consumer's choice",
		"github.com/idem-go/idem/sign":      "core and sign do not know each other; adapters know both",
		"github.com/idem-go/idem/core":      "sign is a leaf: who only verifies signatures compiles nothing else",
		"github.com/idem-go/idem/httpidem":  "arrows go from adapter to core",
		"github.com/idem-go/idem/ginidem":   "arrows go from adapter to core",
		"github.com/idem-go/idem/echoidem":  "arrows go from adapter to core",
		"github.com/idem-go/idem/fiberidem": "arrows go from adapter to core",
		"github.com/gofiber/fiber/v2":       "who is on Fiber v3 compiles no Fiber v2",
		"github.com/idem-go/idem/echo5idem": "arrows go from adapter to core",
		"github.com/dunglas/httpsfv":        "only who uses RFC 9421 compiles structured fields",
		"encoding/xml":                      "only who reads XML compiles a reader of all of it",
		"github.com/dadrus/httpsig":         "the other implementation is for tests",

		"google.golang.org/grpc":              "only who serves gRPC compiles it",
		"google.golang.org/protobuf":          "only who has messages of Protobuf compiles it",
		"connectrpc.com/connect":              "only who serves Connect compiles it",
		"github.com/modelcontextprotocol":     "only who serves MCP on this SDK compiles it",
		"github.com/mark3labs/mcp-go":         "only who serves MCP on this SDK compiles it",
		"github.com/prometheus/client_golang": "only who exports metrics compiles it",
		"go.opentelemetry.io/otel":            "only who exports metrics compiles it",

		"github.com/idem-go/idem/core/operations":   "a program without operators compiles nothing for them",
		"github.com/idem-go/idem/adapterkit":        "arrows go from adapter to core",
		"github.com/idem-go/idem/internal/backend":  "what starts servers is for tests",
		"github.com/idem-go/idem/sign/webhook":      "only who has webhooks compiles their schemes",
		"github.com/idem-go/idem/sign/jwk":          "only who has keys on the web compiles what fetches them",
		"github.com/idem-go/idem/sign/sortedparams": "only who signs parameters compiles a reader of forms and JSON for them",
	}
	const (
		core = "github.com/idem-go/idem/core"
		sign = "github.com/idem-go/idem/sign"
		kit  = "github.com/idem-go/idem/adapterkit"
	)
	for pkg, except := range map[string][]string{
		"core":                   nil,
		"core/store/memstore":    nil,
		"core/store/redisstore":  {"github.com/redis/rueidis"},
		"core/store/sqlstore":    {"database/sql"},
		"core/adaptertest":       {sign, sign + "/sortedparams", sign + "/webhook", "github.com/dunglas/httpsfv", "encoding/xml"},
		"core/storetest":         {"pgregory.net/rapid"},
		"sign":                   nil,
		"sign/rfc9421":           {"github.com/dunglas/httpsfv"},
		"sign/sortedparams":      nil,
		"sign/webhook":           nil,
		"sign/jwk":               nil,
		"idemclient":             nil,
		"core/measure":           nil,
		"promidem":               {core, "github.com/prometheus/client_golang", "google.golang.org/protobuf"},
		"otelidem":               {core, "go.opentelemetry.io/otel"},
		"adapterkit/rpckit":      {core},
		"grpcidem":               {core, kit, "google.golang.org/grpc", "google.golang.org/protobuf"},
		"connectidem":            {core, kit, "connectrpc.com/connect", "google.golang.org/protobuf"},
		"adapterkit/mcpkit":      {core},
		"mcpidem":                {core, kit, "github.com/modelcontextprotocol"},
		"mcpgoidem":              {core, kit, "github.com/mark3labs/mcp-go", "database/sql"}, // UUIDs, as below
		"adapterkit":             {core, sign},
		"adapterkit/fasthttpkit": {core, sign, kit, "github.com/valyala/fasthttp"},
		"httpidem":               {core, sign, kit},
		"ginidem":                {core, sign, kit, "github.com/gin-gonic/gin", "google.golang.org/protobuf", "encoding/xml"},
		"echoidem":               {core, sign, kit, "github.com/labstack/echo", "encoding/xml"},
		"echo5idem":              {core, sign, kit, "github.com/labstack/echo", "encoding/xml"},
		// Fiber's UUIDs can be stored with database/sql.
		"fiberidem": {core, sign, kit, "github.com/gofiber/fiber", "github.com/gofiber/fiber/v2", "github.com/valyala/fasthttp",
			"database/sql", "encoding/xml"},
		"fiber3idem": {core, sign, kit, "github.com/gofiber/fiber", "github.com/valyala/fasthttp", "database/sql", "encoding/xml"},

		"profile":  {core},
		"idemtest": {core},
		// Their clients compile UUIDs, which can be stored with database/sql, too.
		"amqpidem":      {core, "github.com/rabbitmq/amqp091-go", "database/sql"},
		"watermillidem": {core, "database/sql"},
		"goredisidem":   {core, "github.com/redis/rueidis", "github.com/redis/go-redis"},
		"valkeyidem":    {core, "github.com/redis/rueidis", "github.com/valkey-io/valkey-go"},
		"outbox":        {core, "database/sql"},
		"pgxidem":       {core, "github.com/jackc/pgx", "database/sql", "encoding/xml"},
		"rowguard":      {"database/sql"},
	} {
		for dep := range strings.FieldsSeq(run(t, "../"+pkg, "go", "list", "-deps")) {
			for bad, why := range forbidden {
				if isWithin(dep, bad) && !slices.Contains(except, bad) && !isWithin("github.com/idem-go/idem/"+pkg, bad) {
					t.Errorf("%s reaches %s: %s", pkg, dep, why)
				}
			}
		}
	}
}

// What seals decorates any store: it knows what stores promise, and neither an engine nor a particular store.
func TestSealedKnowsStoresOnly(t *testing.T) {
	const core = "github.com/idem-go/idem/core/"
	ours := []string{core + "store", core + "internal/canon", core + "internal/sealed"}
	for dep := range strings.FieldsSeq(run(t, "internal/sealed", "go", "list", "-deps")) {
		require.True(t, !isWithin(dep, "github.com/idem-go/idem") || slices.Contains(ours, dep), dep)
	}
}

// Every module is released by itself, beside any version of the others. What one takes out of another's internal
// packages may be gone there in the next version.
func TestModulesUseNoInternalPackages(t *testing.T) {
	for dir := range strings.FieldsSeq(run(t, "..", "scripts/modules", "-released")) {
		if dir == "." {
			continue
		}
		module := strings.TrimSpace(run(t, "../"+dir, "go", "list", "-m"))
		for pkg := range strings.FieldsSeq(run(t, "../"+dir, "go", "list", "-f", `{{join .Imports "\n"}}`, "./...")) {
			if isWithin(pkg, "github.com/idem-go/idem") && !isWithin(pkg, module) && strings.Contains(pkg, "/internal") {
				t.Errorf("%s imports %s", module, pkg)
			}
		}
	}
}

// What go.mod requires raises versions in the module of everybody who uses this one. The SQL drivers, and whatever
// else few users need, are required by modules of their own.
func TestRequirements(t *testing.T) {
	reasons := map[string]string{
		"github.com/gin-gonic/gin":           "ginidem",
		"github.com/labstack/echo/v4":        "echoidem",
		"github.com/gofiber/fiber/v2":        "fiberidem",
		"github.com/valyala/fasthttp":        "fasthttpkit: what Fiber is built on",
		"github.com/redis/rueidis":           "redisstore",
		"github.com/dunglas/httpsfv":         "sign/rfc9421: structured fields",
		"github.com/stretchr/testify":        "tests",
		"go.uber.org/goleak":                 "tests: no goroutine is left behind",
		"pgregory.net/rapid":                 "storetest: a random state machine; tests of properties",
		"github.com/alicebob/miniredis/v2":   "tests of redisstore without a server",
		"github.com/go-json-experiment/json": "tests: another reader of canonical JSON",
	}
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	require.NoError(t, json.Unmarshal([]byte(run(t, "..", "go", "mod", "edit", "-json")), &mod))
	var direct []string
	for _, r := range mod.Require {
		if !r.Indirect {
			direct = append(direct, r.Path)
		}
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(reasons)), direct)
}

// A service on net/http compiles the standard library and this module.
func TestNothingForeign(t *testing.T) {
	deps := run(t, "..", "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./core", "./httpidem")
	for dep := range strings.FieldsSeq(deps) {
		require.True(t, isWithin(dep, "github.com/idem-go/idem"), dep)
	}
}

// run runs a command in a folder, with what its own go.mod requires, and returns what it prints.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off")
	var faults strings.Builder
	cmd.Stderr = &faults
	out, err := cmd.Output()
	require.NoError(t, err, "%s in %s: %s", cmd, dir, &faults)
	return string(out)
}

// isWithin reports whether a package is parent, or below it.
func isWithin(pkg, parent string) bool { return pkg == parent || strings.HasPrefix(pkg, parent+"/") }
