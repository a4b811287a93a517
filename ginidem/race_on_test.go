//go:build race

package ginidem_test

const raceEnabled = true
