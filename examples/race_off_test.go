//go:build !race

package examples_test

// buildFlags builds the programs as this test is built.
var buildFlags []string
