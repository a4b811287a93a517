package canon_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// counter is what each package that counts its work gets.
const counter = `
var Worked int

// wholly counts a text or slice that is read or copied to its end.
func wholly[T any](v T) T {
	switch v := any(v).(type) {
	case string:
		Worked += len(v)
	case []byte:
		Worked += len(v)
	default:
		if v := reflect.ValueOf(v); v.Kind() == reflect.Slice {
			Worked += v.Len()
		}
	}
	return v
}

// upTo counts a text of length all that is read as far as at, or to its end if nothing is found in it.
func upTo(all, at int) int {
	if at < 0 {
		Worked += all
	}
	Worked += max(at, 0)
	return at
}
`

// instrumented returns an overlay for the go command, with which this package counts its work, and so do those of the
// standard library that read multipart forms.
func instrumented(t *testing.T) string {
	list, err := exec.Command("go", "list", "-f", "{{.ImportPath}}\t{{.Dir}}\t{{join .GoFiles \"\t\"}}",
		"mime", "net/textproto", "mime/multipart", ".").Output()
	require.NoError(t, err)
	dir, replace := t.TempDir(), map[string]string{}
	add := func(path, text string) {
		replace[path] = filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		require.NoError(t, os.WriteFile(replace[path], []byte(text), 0o600))
	}
	imports, sum := `import "reflect"`+"\n", "Worked"
	for line := range strings.Lines(string(list)) {
		words := strings.Split(strings.TrimSpace(line), "\t")
		name, folder := path.Base(words[0]), words[1]
		for _, file := range words[2:] {
			text, err := os.ReadFile(filepath.Join(folder, file))
			require.NoError(t, err)
			add(filepath.Join(folder, file), instrument(t, string(text)))
		}
		text := "package " + name + "\n" + `import "reflect"` + counter
		if name == "canon" {
			text = "package canon\n" + imports + counter + "func init() { Work = func() int { return " + sum + "} }\n"
		}
		add(filepath.Join(folder, "worked.go"), text)
		imports += fmt.Sprintf("import %q\n", words[0])
		sum += "+" + name + ".Worked"
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	file := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(file, overlay, 0o600))
	return file
}

// instrument makes the text of a Go file count its work. A block of statements is one. A call of another package counts the
// lengths of all that it is given, unless it is known to look at less: a new one that looks at little of a long text
// makes TestGrowth fail until it is named here.
func instrument(t *testing.T, text string) string {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", text, parser.ParseComments|parser.SkipObjectResolution)
	require.NoError(t, err)
	type insertion struct {
		at   int
		text string
	}
	var all []insertion
	at := func(pos token.Pos) int { return files.Position(pos).Offset }
	insert := func(pos token.Pos, text string) { all = append(all, insertion{at(pos), text}) }
	around := func(n ast.Node, begin string) {
		insert(n.Pos(), begin)
		insert(n.End(), ")")
	}
	count := func(args ...ast.Expr) {
		for _, arg := range args {
			switch arg.(type) {
			case *ast.Ident, *ast.SelectorExpr, *ast.SliceExpr, *ast.IndexExpr, *ast.CallExpr:
				if text[at(arg.Pos()):at(arg.End())] != "nil" {
					around(arg, "wholly(")
				}
			}
		}
	}
	imported := map[string]bool{}
	for _, i := range file.Imports {
		imported[path.Base(strings.Trim(i.Path.Value, `"`))] = true
	}
	call := func(call *ast.CallExpr) {
		switch f := call.Fun.(type) {
		case *ast.Ident:
			if f.Name == "copy" || call.Ellipsis.IsValid() { // append
				count(call.Args[1])
			} else if f.Name == "string" {
				count(call.Args...)
			}
		case *ast.SelectorExpr:
			pkg, _ := f.X.(*ast.Ident)
			switch begins := func(with string) bool { return strings.HasPrefix(f.Sel.Name, with) }; {
			case begins("Write"): // of hashes
				count(call.Args...)
			case pkg == nil || !imported[pkg.Name]:
			case begins("Index"):
				around(call, "upTo(len("+text[at(call.Args[0].Pos()):at(call.Args[0].End())]+"), ")
			case begins("HasPrefix"), begins("HasSuffix"), begins("Append"):
				count(call.Args[1:]...)
			default:
				count(call.Args...)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		const one = " Worked++; "
		switch n := n.(type) {
		case *ast.BlockStmt:
			if len(n.List) > 0 {
				switch n.List[0].(type) {
				case *ast.CaseClause, *ast.CommClause:
					return true
				}
			}
			insert(n.Lbrace+1, one)
		case *ast.CaseClause:
			insert(n.Colon+1, one)
		case *ast.CommClause:
			insert(n.Colon+1, one)
		case *ast.CallExpr:
			call(n)
		}
		return true
	})
	slices.SortStableFunc(all, func(a, b insertion) int { return cmp.Compare(a.at, b.at) })
	var b strings.Builder
	done := 0
	for _, i := range all {
		b.WriteString(text[done:i.at] + i.text)
		done = i.at
	}
	return b.String() + text[done:]
}
