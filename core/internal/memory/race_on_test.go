//go:build race

package memory

// raceEnabled says that everything takes ten times as long.
const raceEnabled = true
