package canon

// maxDefaultName is the length of the longest default name, in its folded form.
const maxDefaultName = len("requesttime")

// isDefaultName reports whether name is one of those that [Rules.DefaultNames] leaves
// out. Names that may carry meaning (time, date, location, address) are not among them.
func isDefaultName(name []byte) bool {
	// With its underscore ignored, "_t" would be "t", which may well carry meaning.
	if len(name) == 2 && name[0] == '_' && lowerASCII(name[1]) == 't' {
		return true
	}
	var folded [maxDefaultName]byte
	n := 0
	for _, c := range name {
		if c == '_' || c == '-' {
			continue
		}
		if n == len(folded) {
			return false
		}
		folded[n] = lowerASCII(c)
		n++
	}
	switch string(folded[:n]) {
	case "timestamp", "ts", "requesttime", "nonce", "sign", "signature",
		"lat", "lng", "lon", "latitude", "longitude":
		return true
	}
	return false
}
