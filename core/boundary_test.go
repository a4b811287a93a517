package core_test

import (
	"os/exec"
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
		"github.com/anishathalye/porcupine": "a consumer compiles no test library",
		"github.com/alicebob/miniredis":     "a consumer compiles no test library",
		"github.com/jackc/pgx":              "the drivers are the consumer's choice",
		"github.com/go-sql-driver/mysql":    "the drivers are the consumer's choice",
		"modernc.org/sqlite":                "the drivers are the consumer's choice",
		"github.com/idem-go/idem/internal":  "what starts servers is for tests",
		"github.com/idem-go/idem/sign":      "core and sign do not know each other; adapters know both",
		"github.com/idem-go/idem/core":      "sign is a leaf: who only verifies signatures compiles nothing else",
		"github.com/idem-go/idem/httpidem":  "arrows go from adapter to core",
		"github.com/idem-go/idem/ginidem":   "arrows go from adapter to core",
		"github.com/idem-go/idem/echoidem":  "arrows go from adapter to core",
		"github.com/idem-go/idem/fiberidem": "arrows go from adapter to core",
		"github.com/dunglas/httpsfv":        "only who uses RFC 9421 compiles structured fields",
		"encoding/xml":                      "only who reads XML compiles a reader of all of it",
		"github.com/dadrus/httpsig":         "the other implementation is for tests",

		"github.com/idem-go/idem/sign/sortedparams": "only who signs parameters compiles readers of JSON and XML for them",
	}
	const (
		core     = "github.com/idem-go/idem/core"
		sign     = "github.com/idem-go/idem/sign"
		httpidem = "github.com/idem-go/idem/httpidem"
	)
	for pkg, except := range map[string][]string{
		"core":                  nil,
		"core/limit":            nil,
		"core/store/memstore":   nil,
		"core/store/redisstore": {"github.com/redis/rueidis"},
		"core/store/sqlstore":   {"database/sql"},
		"core/adaptertest":      nil,
		"core/storetest":        {"pgregory.net/rapid", "github.com/anishathalye/porcupine"},
		"sign":                  nil,
		"sign/rfc9421":          {"github.com/dunglas/httpsfv"},
		"sign/sortedparams":     nil,
		"httpidem":              {core, sign},
		"ginidem":               {core, sign, httpidem, "github.com/gin-gonic/gin", "encoding/xml"},
		"echoidem":              {core, sign, httpidem, "github.com/labstack/echo", "encoding/xml"},
		// Fiber's UUIDs can be stored with database/sql.
		"fiberidem": {core, sign, "github.com/gofiber/fiber", "github.com/valyala/fasthttp", "database/sql", "encoding/xml"},
	} {
		out, err := exec.Command("go", "list", "-deps", "github.com/idem-go/idem/"+pkg).Output()
		require.NoError(t, err, pkg)
		for dep := range strings.FieldsSeq(string(out)) {
			for bad, why := range forbidden {
				if isWithin(dep, bad) && !allowed(except, bad) && !isWithin("github.com/idem-go/idem/"+pkg, bad) {
					t.Errorf("%s reaches %s: %s", pkg, dep, why)
				}
			}
		}
	}
}

// isWithin reports whether a package is parent, or below it.
func isWithin(pkg, parent string) bool { return pkg == parent || strings.HasPrefix(pkg, parent+"/") }

func allowed(except []string, bad string) bool {
	for _, e := range except {
		if e == bad {
			return true
		}
	}
	return false
}
