// Package docs_test holds the pages of this directory to what the code says.
package docs_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gin-gonic/gin/binding"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/sign"
)

// refusals are the codes of a package and their statuses, as they stand in its source: the constants of the
// type Code in one file, and their particulars in another.
func refusals(t *testing.T, constants, particulars string) map[string]int {
	t.Helper()
	codes := make(map[string]string) // by the names of the constants
	inspect(t, constants, func(n ast.Node) {
		if spec, ok := n.(*ast.ValueSpec); ok && isNamed(spec.Type, "Code") {
			code, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			codes[spec.Names[0].Name] = code
		}
	})
	statuses := make(map[string]int)
	inspect(t, particulars, func(n ast.Node) {
		entry, ok := n.(*ast.KeyValueExpr)
		if !ok {
			return
		}
		name, ok := entry.Key.(*ast.Ident)
		if !ok || codes[name.Name] == "" {
			return
		}
		status := entry.Value.(*ast.CompositeLit).Elts[0].(*ast.SelectorExpr).Sel.Name
		statuses[codes[name.Name]] = statusNamed(t, status)
	})
	require.ElementsMatch(t, slices.Collect(maps.Values(codes)), slices.Collect(maps.Keys(statuses)), "each code has its particulars")
	require.NotEmpty(t, statuses)
	return statuses
}

func inspect(t *testing.T, file string, f func(ast.Node)) {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	require.NoError(t, err)
	ast.Inspect(tree, func(n ast.Node) bool { f(n); return true })
}

func isNamed(e ast.Expr, name string) bool {
	ident, ok := e.(*ast.Ident)
	return ok && ident.Name == name
}

// statusNamed returns the constant of net/http with a name.
func statusNamed(t *testing.T, name string) int {
	t.Helper()
	for status := 400; status < 600; status++ {
		if "Status"+strings.ReplaceAll(http.StatusText(status), " ", "") == name {
			return status
		}
	}
	require.FailNow(t, "unknown status", name)
	return 0
}

// all are the codes of both packages.
func all(t *testing.T) map[string]int {
	t.Helper()
	codes := refusals(t, "../core/codes/codes.go", "../core/codes/codes.go")
	for code, status := range refusals(t, "../sign/errors.go", "../sign/problem.go") {
		if of, both := codes[code]; both {
			require.Equal(t, of, status, "%s is of both packages, and has one entry", code)
		}
		require.Equal(t, status, sign.Errorf(sign.Code(code), "").Status(), code)
		codes[code] = status
	}
	return codes
}

func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}

// A problem's type leads to the heading that is its code (GitHub makes the anchor of it), and what
// stands there is true.
func TestEveryCodeHasItsHeading(t *testing.T) {
	statuses := all(t)
	entries := strings.Split(page(t, "problems.md"), "\n### ")[1:]
	var headings []string
	for _, entry := range entries {
		heading, text, _ := strings.Cut(entry, "\n")
		text, _, _ = strings.Cut(text, "\n## ")
		headings = append(headings, heading)
		status := statuses[heading]
		facts, _, _ := strings.Cut(text, ". ")
		assert.True(t, strings.HasPrefix(facts, fmt.Sprintf("\n**%d**", status)), "%s: the status is %d: %s", heading, status, facts)
		// Of the 409s, one makes sense to be tried again.
		assert.Equal(t, status == 503 || status == 429 || heading == string(codes.InProgress),
			strings.Contains(facts, "Retry-After"), heading)
		assert.Equal(t, status == 401, strings.Contains(facts, "WWW-Authenticate"), heading)
		assert.Equal(t, heading == string(sign.CodeExpired) || heading == string(sign.CodeNotYetValid),
			strings.Contains(facts, "Date"), heading)
		assert.Contains(t, text, "\n- Client: ", heading)
		assert.Contains(t, text, "\n- Service: ", heading)
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(statuses)), headings)

	for _, uri := range []string{codes.KeyReused.Type(), sign.Errorf(sign.CodeReplayed, "").Type()} {
		require.Regexp(t, `^https://github\.com/idem-go/idem/blob/main/docs/problems\.md#(key_reused|replayed)$`, uri)
	}
}

func TestOpenAPI(t *testing.T) {
	text := page(t, "openapi.yaml")
	var doc map[string]any
	require.NoError(t, binding.YAML.BindBody([]byte(text), &doc))
	codes := all(t)

	// Every reference leads somewhere, also in the comment on top.
	references := regexp.MustCompile(`\$ref: "(?:openapi\.yaml)?#(/[^"]*)"`).FindAllStringSubmatch(text, -1)
	require.Equal(t, len(references), strings.Count(text, "$ref"))
	for _, reference := range references {
		require.NotNil(t, at(doc, strings.Split(reference[1], "/")[1:]...), reference[0])
	}

	// The codes, in all and by status.
	require.ElementsMatch(t, slices.Collect(maps.Keys(codes)), at(doc, "components", "schemas", "RefusalCode", "enum"))
	byStatus := make(map[int][]any)
	for code, status := range codes {
		byStatus[status] = append(byStatus[status], code)
	}
	responses := at(doc, "components", "responses").(map[string]any)
	require.Len(t, responses, len(byStatus))
	for status, codes := range byStatus {
		response := at(responses, fmt.Sprint("Refused", status))
		require.NotNil(t, response, status)
		properties := at(response, "content", "application/problem+json", "schema", "properties")
		require.EqualValues(t, status, at(properties, "status", "const"))
		require.ElementsMatch(t, codes, at(properties, "code", "enum"), status)

		headers := at(response, "headers").(map[string]any)
		want := []string{"Cache-Control", core.RefusedHeader}
		if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests || status == http.StatusConflict {
			want = append(want, "Retry-After")
		}
		if status == http.StatusUnauthorized {
			want = append(want, "WWW-Authenticate")
		}
		require.ElementsMatch(t, want, slices.Collect(maps.Keys(headers)), status)
	}

	// The schema is that of the body.
	require.Equal(t, []any{"type", "title", "status", "detail", "code"}, at(doc, "components", "schemas", "Refusal", "required"))
	require.Equal(t, core.DefaultKeyHeader, at(doc, "components", "parameters", "IdempotencyKey", "name"))
	for name, component := range map[string]string{core.ReplayedHeader: "IdempotentReplayed", core.RefusedHeader: "IdempotencyRefused",
		core.ExpiresHeader: "IdempotencyKeyExpires"} {
		require.Equal(t, component, strings.ReplaceAll(name, "-", ""))
		require.NotNil(t, at(doc, "components", "headers", component))
	}
}

// at returns what stands at a path. Nil: nothing.
func at(node any, path ...string) any {
	for _, name := range path {
		members, ok := node.(map[string]any)
		if !ok {
			return nil
		}
		node = members[name]
	}
	return node
}

func TestCORS(t *testing.T) {
	text := page(t, "clients.md")
	for field, names := range map[string][]string{
		"Allow":  {core.DefaultKeyHeader, core.TokenHeader},
		"Expose": {core.ReplayedHeader, core.RefusedHeader, core.DefaultKeyHeader, core.ExpiresHeader, "Retry-After"},
	} {
		require.Contains(t, text, "| `Access-Control-"+field+"-Headers` | `"+strings.Join(names, "`, `")+"` |")
		require.Contains(t, text, field+`Headers: `, "the example has them")
		require.Contains(t, text, `"`+strings.Join(names, `", "`)+`"`)
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)#]*)(?:#([^)]*))?\)`)
	mention = regexp.MustCompile(`\bdocs/[a-z/-]+\.md`)
)

// Links between pages lead somewhere, those to a heading too. So do the names of pages in the source.
func TestLinks(t *testing.T) {
	pages := 0
	err := filepath.WalkDir("..", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		// What make site leaves in site is copies, and other people's packages.
		if entry.IsDir() && (entry.Name() == "testdata" || entry.Name() == ".git" || filepath.Dir(name) == filepath.Join("..", "site")) {
			return fs.SkipDir
		}
		switch filepath.Ext(name) {
		case ".go":
			for _, found := range mention.FindAllString(page(t, name), -1) {
				require.FileExists(t, filepath.Join("..", found), name)
			}
		case ".md":
			pages++
			for _, found := range link.FindAllStringSubmatch(page(t, name), -1) {
				if strings.Contains(found[1], "://") {
					continue
				}
				target := filepath.Join(filepath.Dir(name), found[1])
				if found[1] == "" {
					target = name
				}
				_, err := os.Stat(target)
				require.NoError(t, err, "%s links to %s", name, found[1])
				if found[2] != "" {
					require.Contains(t, anchors(page(t, target)), found[2], "%s links to %s", name, found[0])
				}
			}
		}
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, pages, 20)
}

// The README leads to every page, is short, and names tests that exist.
func TestReadme(t *testing.T) {
	readme := page(t, "../README.md")
	require.LessOrEqual(t, strings.Count(readme, "\n"), 150)
	pages, err := filepath.Glob("*.md")
	require.NoError(t, err)
	for _, name := range pages {
		require.True(t, strings.Contains(readme, "(docs/"+name+")"), name)
	}

	_, table, _ := strings.Cut(readme, "| what happens | `SETNX` with a TTL | idem | test |\n|---|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")
	require.Len(t, rows, 6)
	for _, row := range rows {
		tests := regexp.MustCompile("`(Test\\w+)`(?: in `([^`]+)`)?").FindAllStringSubmatch(row, -1)
		require.NotEmpty(t, tests, row)
		for _, test := range tests {
			files, err := filepath.Glob(filepath.Join("..", cmp.Or(test[2], "core"), "*_test.go"))
			require.NoError(t, err)
			require.True(t, slices.ContainsFunc(files, func(file string) bool {
				return strings.Contains(page(t, file), "\nfunc "+test[1]+"(")
			}), test[0])
		}
	}
}

// anchors are what GitHub makes of a page's headings.
func anchors(text string) (names []string) {
	for _, heading := range regexp.MustCompile("(?m)^#+ (.*)$").FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

// Who runs our suites has the RFCs, the package documentation and the pages of this directory: cases cite nothing else.
func TestSuitesCiteWhatTheirUsersHave(t *testing.T) {
	page := regexp.MustCompile(`[\w/-]+\.md\b`) // below the root of the repository
	section := regexp.MustCompile(`(\S+ \S+) sections? \d`)
	for _, dir := range []string{"core/adaptertest", "core/storetest", "sign/signtest", "idemtest", "httpidem", "ginidem",
		"internal/fibertest", "echoidem", "echo5idem", "adapterkit/fasthttpkit", "fiberidem", "fiber3idem"} {
		files, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
		require.NoError(t, err)
		require.NotEmpty(t, files, dir)
		for _, file := range files {
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			text := string(source)
			for _, cited := range page.FindAllString(text, -1) {
				assert.FileExists(t, filepath.Join("..", cited), file)
			}
			for _, cited := range section.FindAllStringSubmatch(text, -1) {
				assert.Regexp(t, `RFC \d+,$`, cited[1], "%s: a section of what?", file)
			}
		}
	}
}
