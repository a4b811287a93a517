// Package faults has no code of its own: its tests break stores while operations run, and
// count in a ledger outside of the store how often each operation really ran. What they
// find is the table in core/store/FAULTS.md, which they write with
//
//	go test ./internal/faults -update
//
// and without -update compare with what they find now. The servers are processes that the
// tests start themselves.
package faults
