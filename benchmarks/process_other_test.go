//go:build !unix

package benchmarks

import "time"

// processTime is not known here.
func processTime() time.Duration { return 0 }

// openFiles is not limited here.
func openFiles() int { return 1 << 20 }
