package core

import "github.com/idem-go/idem/core/internal/canon"

// Pair is a parameter: a name and its value, both decoded.
type Pair = canon.Pair
