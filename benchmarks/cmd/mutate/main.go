//go:build linux || darwin

// Command mutate tests the tests: it changes one thing at a time in the code of released packages, which makes a mutant, and
// says which mutants no test catches. It is started in the folder of its module, and leaves the files there as they are.
//
//	mutate -n 60 -seed 2026-01-31      sixty mutants; for the same commit and seed they are the same
//	mutate -rooms 'idem$'              only in folders whose names match
//	mutate -out FILE                   adds the results to a file, and tries no mutant again that has one there
//
// A mutant negates a condition, drops a statement or a case, swaps an operator, adds one to a constant, or returns a zero
// value; also in SQL and Lua. Each package has a share of them by its size, and at least one. Those that do not compile do
// not count. The tests of the package run first, then those of packages that depend on it. A mutant that makes them
// hang is caught. A survivor is a question, not a verdict: some mutants change nothing that can be observed.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// notMutated are the packages that are not released, or are for tests, documentation and browsers.
var notMutated = regexp.MustCompile(`^(docs|js|(benchmarks|examples|sign/interop)(/.*)?|internal/([^r].*|race|rehearsal)|` +
	`core/(adaptertest|storetest|internal/(keycases|jitter|simulator))|sign/(signtest|internal/fixture))$`)

// dependents are packages whose tests may catch what those of the package itself do not.
var dependents = map[string]string{
	"adapterkit":                 "httpidem ginidem echoidem echo5idem",
	"adapterkit/echokit":         "echoidem echo5idem",
	"adapterkit/fasthttpkit":     "fiberidem fiber3idem",
	"adapterkit/mcpkit":          "internal/mcptest",
	"adapterkit/rpckit":          "internal/rpctest",
	"adapterkit/internal/buffer": "adapterkit httpidem",
	"adapterkit/internal/stack":  "adapterkit httpidem",
	"amqpidem":                   "examples/orders-worker",
	"connectidem":                "internal/rpctest",
	"core":                       "httpidem fiberidem idemtest",
	"core/adapter":               "core httpidem fiberidem idemtest",
	"core/codes":                 "core httpidem",
	"core/internal/canon":        "core httpidem",
	"core/internal/view":         "core/operations",
	"core/store":                 "core core/store/memstore core/store/redisstore core/store/sqlstore",
	"core/store/memstore":        "core httpidem",
	"core/store/redisstore":      "internal/faults goredisidem",
	"core/store/sqlstore":        "pgxidem internal/faults",
	"grpcidem":                   "internal/rpctest",
	"internal/retry":             "idemclient sign",
	"mcpgoidem":                  "internal/mcptest",
	"mcpidem":                    "internal/mcptest",
	"otelidem":                   "examples",
	"outbox":                     "pgxidem",
	"profile":                    "examples/profiles",
	"promidem":                   "examples",
	"rowguard":                   "pgxidem",
	"sign":                       "sign/rfc9421 sign/sortedparams httpidem",
	"sign/internal/form":         "sign sign/sortedparams httpidem",
	"sign/internal/keys":         "sign",
	"sign/internal/redact":       "sign",
	"sign/rfc9421":               "sign/interop httpidem",
	"sign/sortedparams":          "httpidem",
}

const (
	patience = 5 * time.Minute // for the tests of one package; on an idle machine they take a tenth of it
	slow     = "^(TestChaos|TestBrokerRestart)$"
	memory   = 8 << 30 // bytes that a process may ask for

	survived = "survived"
	broken   = "does not compile"
)

// room is a package that has mutants.
type room struct {
	dir                    string // below the root of the repository
	mutants                []mutant
	tried, planted, caught int
}

func main() {
	log.SetFlags(0)
	n := flag.Int("n", 60, "how many `mutants`")
	seed := flag.String("seed", "", "the `text` that chooses them")
	out := flag.String("out", os.DevNull, "the `file` of results")
	where := flag.String("rooms", "", "the `pattern` of the folders that get mutants")
	least := flag.Int("least", 0, "how many `percent` must be caught")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: memory, Max: memory}) // go test inherits it
	if err == nil {
		err = run(ctx, *n, *seed, *where, *out, *least)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, n int, seed, where, out string, least int) error {
	wanted, err := regexp.Compile(where)
	if err != nil {
		return err
	}
	results, err := os.OpenFile(out, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer results.Close()
	known := map[string]string{}
	for s := bufio.NewScanner(results); s.Scan(); {
		name, result, _ := strings.Cut(s.Text(), "\t")
		known[name] = result
	}
	rooms, err := findRooms(ctx, seed)
	if err != nil {
		return err
	}
	rooms = slices.DeleteFunc(rooms, func(r *room) bool { return !wanted.MatchString(r.dir) })
	if len(rooms) == 0 {
		return fmt.Errorf("no package is in a folder that matches %q", where)
	}
	for _, r := range rooms { // go caches what passes
		if result, err := r.test(ctx, os.Getenv("GOFLAGS")); result != survived {
			return cmp.Or(err, fmt.Errorf("without a mutant: %s", result))
		}
	}

	caught := 0
	for planted := 0; planted < n; {
		r := slices.MinFunc(rooms, func(a, b *room) int { // has had the fewest for its size
			return cmp.Or(cmp.Compare(min(a.planted, 1), min(b.planted, 1)),
				cmp.Compare((a.planted+1)*len(b.mutants), (b.planted+1)*len(a.mutants)))
		})
		if r.tried == len(r.mutants) {
			return fmt.Errorf("%s has only %d mutants", r.dir, r.planted)
		}
		m := r.mutants[r.tried]
		r.tried++
		result, ok := known[m.name]
		if !ok {
			if result, err = r.try(ctx, m); err == nil {
				_, err = fmt.Fprintf(results, "%s\t%s\n", m.name, result)
			}
			if err != nil {
				return err
			}
		}
		if result == broken {
			continue
		}
		fmt.Printf("%s: %s\n", m.name, result)
		planted++
		r.planted++
		if result != survived {
			caught++
			r.caught++
		}
	}

	fmt.Printf("\n%-24s %8s %8s\n", "room", "planted", "caught")
	for _, r := range rooms {
		fmt.Printf("%-24s %8d %8d\n", r.dir, r.planted, r.caught)
	}
	fmt.Printf("%-24s %8d %8d\n", "all", n, caught)
	if 100*caught < least*n {
		return fmt.Errorf("less than %d %% are caught", least)
	}
	return nil
}

// findRooms finds the rooms and their mutants, in an order that the seed makes.
func findRooms(ctx context.Context, seed string) (rooms []*room, err error) {
	root, err := filepath.Abs("..")
	if err != nil {
		return nil, err
	}
	list := exec.CommandContext(ctx, "go", "list", "-f", `{{.Dir}} {{join .GoFiles " "}} {{join .EmbedFiles " "}}`, "work")
	list.Env = append(os.Environ(), "GOWORK=")
	packages, err := list.Output()
	for line := range strings.Lines(string(packages)) {
		files := strings.Fields(line)
		r := &room{dir: strings.TrimPrefix(files[0], root+"/")}
		if notMutated.MatchString(r.dir) {
			continue
		}
		repeats := map[string]int{}
		for i, file := range files {
			if ext := filepath.Ext(file); ext != ".go" && ext != ".lua" || slices.Index(files, file) < i {
				continue
			}
			mutants, fileErr := mutantsOf(filepath.Join(r.dir, file), seed, repeats)
			r.mutants, err = append(r.mutants, mutants...), errors.Join(err, fileErr)
		}
		if r.mutants != nil {
			slices.SortFunc(r.mutants, func(a, b mutant) int { return strings.Compare(a.rank, b.rank) })
			rooms = append(rooms, r)
		}
	}
	slices.SortFunc(rooms, func(a, b *room) int { return strings.Compare(a.dir, b.dir) })
	return rooms, err
}

// try returns the result of a mutant of the room.
func (r *room) try(ctx context.Context, m mutant) (string, error) {
	dir, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	mutated, overlay := filepath.Join(dir, "mutated"), filepath.Join(dir, "overlay.json")
	file, err := filepath.Abs(filepath.Join("..", m.file))
	err = errors.Join(err, os.WriteFile(mutated, m.source(), 0o600),
		os.WriteFile(overlay, fmt.Appendf(nil, `{"Replace": {%q: %q}}`, file, mutated), 0o600))
	if err != nil {
		return "", err
	}
	// In the environment, so that programs that tests build are mutated, too.
	flags := os.Getenv("GOFLAGS") + " -overlay=" + overlay
	if _, err := command(ctx, r.dir, flags, "build", "."); err != nil {
		return broken, ctx.Err()
	}
	return r.test(ctx, flags)
}

var failure = regexp.MustCompile(`(?m)^(?:--- FAIL: (\w+)|panic: .*|fatal error: .*)`)

// test returns what fails in the tests of the room and its dependents.
func (r *room) test(ctx context.Context, flags string) (string, error) {
	args := []string{"test", "-short", "-failfast", "-vet=off", "-skip", slow, "-timeout", patience.String()}
	busy := 0
	for dirs := strings.Fields(r.dir + " " + dependents[r.dir]); len(dirs) > 0; {
		out, err := command(ctx, dirs[0], flags, args...)
		if err == nil {
			dirs = dirs[1:]
			continue
		}
		found := failure.FindSubmatch(out)
		if busy < 3 && found != nil && found[1] != nil {
			if _, err := command(ctx, dirs[0], flags, append(args, "-run", "^"+string(found[1])+"$")...); err == nil {
				busy++ // it has failed because the machine is busy: all once more
				continue
			}
		}
		if found != nil {
			err = errors.New(string(found[0]))
		}
		return fmt.Sprintf("caught by %s: %s", dirs[0], brief(err.Error())), ctx.Err()
	}
	return survived, ctx.Err()
}

// command runs go. What is left of its processes ends with it. Go itself ends tests after patience; building them takes time, too.
func command(ctx context.Context, dir, flags string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join("..", dir)
	cmd.Env = append(os.Environ(), "GOFLAGS="+flags)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	kill := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = kill
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if cmd.Process != nil {
		_ = kill() // there may be nothing left
	}
	return out, err
}

// mutant is one change of a file.
type mutant struct {
	name   string // its place and what is changed
	file   string // below the root of the repository
	source func() []byte
	rank   string // mutants are tried in the order of their ranks
}

var (
	swaps = map[string]string{
		"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "~=": "==", "+": "-", "-": "+", "*": "/", "/": "*",
		"&&": "||", "||": "&&", "and": "or", "or": "and", "AND": "OR", "OR": "AND",
	}
	isSQL        = regexp.MustCompile(`\b(SELECT|UPDATE|INSERT|DELETE|WHERE|AND)\b`)
	operator     = regexp.MustCompile(`\s(<=|>=|[=~]=|[<>+-]|AND|OR|and|or)\s`) // in SQL and Lua
	luaStatement = regexp.MustCompile(`(?m)^ *((redis\.p?call\(|return\b|\w+(, \w+)* = ).*)`)
	isZero       = regexp.MustCompile(`^(nil|true|false|0|""|.*\{\})$`) // true has a mutant by itself
	luaComment   = regexp.MustCompile(`--.*`)
)

// mutantsOf returns the mutants of a file of Go or Lua. Those of a room share repeats.
func mutantsOf(file, seed string, repeats map[string]int) ([]mutant, error) {
	text, err := os.ReadFile(filepath.Join("..", file))
	if err != nil {
		return nil, err
	}
	s := &source{file: file, seed: seed, text: text, repeats: repeats}
	if filepath.Ext(file) == ".lua" {
		s.changeLua()
		return s.mutants, nil
	}
	err = s.changeGo()
	return s.mutants, err
}

// source is a file, and what has been made of it.
type source struct {
	file, seed string
	text       []byte
	helper     string         // what the changed file has at its end
	positions  *token.FileSet // of Go
	repeats    map[string]int
	mutants    []mutant
}

// put adds a mutant: the file with other text in place of what is between begin and end.
func (s *source) put(begin, end int, text string) {
	line := bytes.LastIndexByte(s.text[:begin], '\n') + 1
	rest, _, _ := bytes.Cut(s.text[begin:], []byte("\n"))
	change := fmt.Sprintf("%s -> %s", brief(string(s.text[begin:end])), cmp.Or(brief(text), "nothing"))
	// The rank is made of what is in the line: where a commit leaves that as it is, the seed chooses the same mutants.
	key := fmt.Sprintf("%s\n%s\n%s\n%s\n%s", s.seed, filepath.Dir(s.file), bytes.TrimSpace(s.text[line:begin]), rest, change)
	s.repeats[key]++
	s.mutants = append(s.mutants, mutant{
		name:   fmt.Sprintf("%s:%d:%d: %s", s.file, 1+bytes.Count(s.text[:begin], []byte("\n")), 1+begin-line, change),
		file:   s.file,
		source: func() []byte { return slices.Concat(s.text[:begin], []byte(text), s.text[end:], []byte(s.helper)) },
		rank:   fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, key, s.repeats[key]))),
	})
}

// swapIn changes the operators in a piece of SQL or Lua that is at offset.
func (s *source) swapIn(code []byte, offset int) {
	for _, at := range operator.FindAllSubmatchIndex(code, -1) {
		to := swaps[string(code[at[2]:at[3]])]
		s.put(offset+at[2], offset+at[3], strings.Replace(to, "!=", "~=", 1))
	}
}

func (s *source) changeLua() {
	code := luaComment.ReplaceAllFunc(s.text, func(c []byte) []byte { return bytes.Repeat([]byte(" "), len(c)) })
	for _, at := range luaStatement.FindAllSubmatchIndex(code, -1) {
		s.put(at[2], at[3], "")
	}
	s.swapIn(code, 0)
}

func (s *source) changeGo() error {
	s.positions = token.NewFileSet()
	parsed, err := parser.ParseFile(s.positions, s.file, s.text, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil || ast.IsGenerated(parsed) {
		return err
	}
	s.helper = "\nfunc zeroOf[T any](T) (zero T) { return }\n"
	var forPost ast.Node
	ast.PreorderStack(parsed, nil, func(n ast.Node, stack []ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.ForStmt:
			forPost = n.Post // without it, the loop does not end
		case *ast.ReturnStmt:
			if _, ok := stack[len(stack)-2].(*ast.IfStmt); ok {
				s.replace(n, "")
			}
			for _, result := range n.Results {
				if old := s.textOf(result); !isZero.MatchString(old) {
					s.replace(result, "zeroOf("+old+")")
				}
			}
		case ast.Stmt:
			if n != forPost {
				s.changeStatement(n)
			}
		default:
			s.changeExpression(n)
		}
		return true
	})
	return nil
}

func (s *source) changeStatement(n ast.Stmt) {
	switch n := n.(type) {
	case *ast.ExprStmt, *ast.IncDecStmt, *ast.DeferStmt, *ast.GoStmt, *ast.SendStmt, *ast.BranchStmt:
		s.replace(n, "")
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			s.replace(n, "")
		}
	case *ast.CaseClause:
		if n.List != nil && n.Body != nil {
			s.replace(n, "")
		}
	case *ast.IfStmt:
		s.replace(n.Cond, "!("+s.textOf(n.Cond)+")")
	}
}

func (s *source) changeExpression(n ast.Node) {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		if to := swaps[n.Op.String()]; to != "" {
			s.put(s.offset(n.OpPos), s.offset(n.OpPos)+len(n.Op.String()), to)
		}
	case *ast.Ident:
		if n.Name == "true" || n.Name == "false" {
			s.replace(n, "!"+n.Name)
		}
	case *ast.BasicLit:
		if n.Kind == token.INT {
			s.replace(n, "("+n.Value+" + 1)")
		}
		if n.Kind == token.STRING && isSQL.MatchString(n.Value) {
			s.swapIn([]byte(n.Value), s.offset(n.Pos()))
		}
	}
}

func (s *source) offset(p token.Pos) int { return s.positions.Position(p).Offset }

func (s *source) textOf(n ast.Node) string {
	return string(s.text[s.offset(n.Pos()):s.offset(n.End())])
}

func (s *source) replace(n ast.Node, by string) { s.put(s.offset(n.Pos()), s.offset(n.End()), by) }

// brief returns the beginning of a text, in one line.
func brief(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 60 {
		text = strings.ToValidUTF8(text[:57], "") + "..."
	}
	return text
}
