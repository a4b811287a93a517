//go:build !race

package fiberidem_test

const raceEnabled = false
