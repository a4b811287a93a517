package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What docs/migrating.md shows is what the program prints.
func TestPage(t *testing.T) {
	var said strings.Builder
	pay(&said)
	page, err := os.ReadFile("../../../docs/migrating.md")
	require.NoError(t, err)
	require.Contains(t, string(page), "```console\n$ cd benchmarks && go run ./cmd/twousers\n"+said.String()+"```\n")
}
