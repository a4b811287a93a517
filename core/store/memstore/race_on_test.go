//go:build race

package memstore

// raceEnabled says that everything takes ten times as long.
const raceEnabled = true
