//go:build !race

package fiberidem_test

const underRace = false
