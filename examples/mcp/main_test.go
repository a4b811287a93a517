package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Whatever is lost, each action is done once, and has its result. How often a call is made until a book is bound, the clock says.
func TestScript(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(t.Context(), "", "memory", 10*time.Millisecond, &out))
	require.Equal(t, `books
        no answer: the same call again
        no answer: the same call again
        Emma, Middlemarch, Ulysses
order
        no answer: the same call again
        no answer: the same call again
        order 1: Emma (replayed)
pay
        the person is asked: Pay for Emma? Yes.
        no answer: the same call again
        receipt 1: Emma (replayed)
bind
        binding 1: Emma
ledger  asked the person: 1, bound: 1, ordered: 1, paid: 1
`, out.String())
}
