//go:build !race

package program

// buildFlags builds the programs as the test is built.
var buildFlags []string
