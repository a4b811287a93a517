package simulator

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func read(t *testing.T, pattern string) string {
	t.Helper()
	var text strings.Builder
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.NotEmpty(t, files, pattern)
	for _, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		text.Write(b)
	}
	return text.String()
}

// TestInvariantsPage holds docs/invariants.md to what is checked and planted, and to the tests that it names.
func TestInvariantsPage(t *testing.T) {
	page, _, _ := strings.Cut(read(t, "../../../docs/invariants.md"), "\n## Where the promises stand")
	sources := read(t, "*_test.go")
	sections := strings.Split(page, "\n### ")[1:]
	var numbers []int
	for _, section := range sections {
		heading, text, _ := strings.Cut(section, "\n")
		number, sentence, _ := strings.Cut(heading, ". ")
		n, err := strconv.Atoi(number)
		require.NoError(t, err)
		numbers = append(numbers, n)
		assert.NotEmpty(t, sentence)
		assert.Contains(t, sources, "breaks("+number+", ", "invariant %d is checked", n)

		count := 0
		for _, f := range faults {
			if f.invariant == n {
				count++
			}
		}
		assert.Contains(t, text, "Planted: "+strconv.Itoa(count), "invariant %d", n)
		assert.Contains(t, text, "\n- Rests on: ")
		_, plays, _ := strings.Cut(text, "\n- Simulator: ")
		plays, _, _ = strings.Cut(plays, ".")
		for _, name := range regexp.MustCompile(`\w+`).FindAllString(strings.TrimPrefix(plays, "all scenarios"), -1) {
			known := slices.ContainsFunc(scenarios, func(s *scenario) bool { return s.name == name })
			assert.True(t, known || name == "has" || name == "FailOpen", "invariant %d: there is no scenario %s", n, name)
		}
		_, tests, _ := strings.Cut(text, "\n- Tests: ")
		cases(t, tests)
	}
	for i, n := range numbers {
		require.Equal(t, i+1, n)
	}
	for _, check := range regexp.MustCompile(`breaks\((\d+), `).FindAllStringSubmatch(sources, -1) {
		n, _ := strconv.Atoi(check[1])
		assert.Contains(t, numbers, n, "what is checked is on the page")
	}
}

// cases holds a list of cases to the code: where they are, their names, and the rules of suites; "; " stands between places.
func cases(t *testing.T, list string) {
	t.Helper()
	for _, of := range strings.Split(list, ";") {
		where, _, _ := strings.Cut(strings.TrimSpace(of), " ")
		path := regexp.MustCompile(`^(storetest|adaptertest)$`).ReplaceAllString(where, "core/$1")
		sources := read(t, "../../../"+path+"/*.go")
		names := regexp.MustCompile(`\b(Test|Example)\w*`).FindAllString(of, -1)
		rules := regexp.MustCompile(`"[^"]+"`).FindAllString(of, -1)
		assert.NotEmpty(t, append(names, rules...), of)
		for _, name := range names {
			assert.True(t, strings.Contains(sources, "\nfunc "+name+"("), "%s has no %s", where, name)
		}
		for _, rule := range rules {
			assert.True(t, strings.Contains(sources, rule), "%s has no case %s", where, rule)
		}
	}
}

// TestTrackRecord: the cases exist that hold the defects of docs/track-record.md.
func TestTrackRecord(t *testing.T) {
	tables := strings.Split(read(t, "../../../docs/track-record.md"), " | covered by |\n")[1:]
	require.NotEmpty(t, tables)
	for _, table := range tables {
		_, rows, _ := strings.Cut(table, "\n")
		rows, _, _ = strings.Cut(rows, "\n\n")
		for row := range strings.Lines(rows) {
			cells := strings.Split(strings.Trim(row, "| \n"), " | ")
			require.Len(t, cells, 4, row)
			cases(t, cells[3])
		}
	}
}

// TestPromisesOfTheReadme: each promise of the README stands in the table, with its invariants.
func TestPromisesOfTheReadme(t *testing.T) {
	_, promises, _ := strings.Cut(read(t, "../../../README.md"), "idem guarantees, as long as the store answers:\n")
	promises, _, _ = strings.Cut(promises, "\nIf the store fails")
	_, table, _ := strings.Cut(read(t, "../../../docs/invariants.md"), "| README | invariants |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")
	begin := strings.Split(promises, "\n- ")[1:]
	require.Len(t, rows, len(begin))
	for i, row := range rows {
		cells := strings.Split(row, " | ")
		require.True(t, strings.HasPrefix(begin[i], strings.TrimPrefix(cells[0], "| ")), "%q is %q", row, begin[i])
	}
}

// TestNotPromised plays the schedules that show what is not promised.
func TestNotPromised(t *testing.T) {
	_, list, _ := strings.Cut(read(t, "../../../docs/invariants.md"), "\n## What is not promised\n")
	shown := regexp.MustCompile("`([a-z]+:[0-9=,]*)` shows `([^`]+)`").FindAllStringSubmatch(list, -1)
	require.Len(t, shown, strings.Count(list, "\n- "))
	for _, line := range shown {
		s, deviations, err := parse(line[1])
		require.NoError(t, err)
		assert.Contains(t, s.show(t, deviations.choose, true).String(), line[2], line[1])
	}
}
