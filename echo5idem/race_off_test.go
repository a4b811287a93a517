//go:build !race

package echo5idem_test

const raceEnabled = false
