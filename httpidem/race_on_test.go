//go:build race

package httpidem_test

const raceEnabled = true
