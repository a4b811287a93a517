package browser_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/examples/internal/program"
)

// trials are the buttons of the page /try, with what its lanes and the server's count say in the end.
var trials = []struct {
	play  string
	lanes []string // regular expressions
	count string
}{
	{"tap", []string{
		`Ann pays 5 € with key k-1, at A\s+ran, answered: 201`,
		`Ann pays 5 € with key k-1, at A\s+(waited \d\.\d s, )?replayed: 201`,
	}, "ran once, and charged once"},
	{"lost", []string{
		`ran, no answer: the connection broke`,
		`(waited \d\.\d s, )?replayed: 201`,
	}, "ran once, and charged once"},
	{"amount", []string{
		`Ann pays 5 € with key k-1, at A\s+ran, answered: 201`,
		`Ann pays 500 € with key k-1, at A\s+refused: 422 key_reused`,
	}, "ran once, and charged once"},
	{"customers", []string{
		`Ann pays 5 € with key k-1, at A\s+ran, answered: 201`,
		`Bob pays 5 € with key k-1, at A\s+ran, answered: 201`,
	}, "ran twice, and charged twice"},
	{"death", []string{
		`at A\s+ran, no answer: 502, the process has died`,
		`at B\s+waited 2\.\d s, refused: 409 in_progress, try again in \d s`,
		`at B\s+(waited \d\.\d s, )?took over and ran, answered: 201`,
	}, "ran twice, and charged once"},
	{"shutdown", []string{
		`Ann pays 5 € with key k-1, at A\s+ran, answered: 201`,
		`A is told to stop\s+stopped when its run had ended`,
		`Bob pays 5 € with key k-2, at A\s+refused: 503 shutting_down`,
		`Bob pays 5 € with key k-2, at B\s+ran, answered: 201`,
		`Ann pays 5 € with key k-1, at B\s+replayed: 201`,
	}, "ran twice, and charged twice"},
}

// TestTry presses each button of the page, on a small phone.
func TestTry(t *testing.T) {
	browser := launch(t)
	dir := program.Build(t, "..", programs()...)
	for _, name := range programs() {
		t.Run(name, func(t *testing.T) {
			server := program.Start(t, filepath.Join(dir, name))
			for _, trial := range trials {
				t.Run(trial.play, func(t *testing.T) {
					p := newPerson(t, browser, server)
					p.viewport(360, 640)
					p.open("/try")
					p.try(trial.play)
					require.Contains(t, p.text("#count"), trial.count)
					lanes := eval[[]string](p, `[...document.querySelectorAll("#lanes li")].map(e => e.innerText)`)
					require.Len(t, lanes, len(trial.lanes), strings.Join(lanes, "\n"))
					for i, want := range trial.lanes {
						require.Regexp(t, want, lanes[i])
					}
					p.fitsSmallPhone()
				})
			}
		})
	}
}

// try presses a button of the page, and waits for the server's count.
func (p *tab) try(play string) {
	p.Helper()
	p.click("[data-play="+play+"]", 1)
	p.until(`document.querySelector("#count").textContent != ""`)
}
