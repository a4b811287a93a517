//go:build !race

package echoidem_test

const raceEnabled = false
