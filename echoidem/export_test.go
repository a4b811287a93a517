package echoidem

// Pooled returns a copy of an exchange from the pool.
func Pooled() any { return *exchanges.Get().(*exchange) }
