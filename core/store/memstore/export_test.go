package memstore

// For the tests outside of the package.
const (
	Overhead       = overhead
	ReclaimPerCall = reclaimPerCall
)
