package canon

// maxDefaultName is the length of the longest default name, in its folded form.
const maxDefaultName = len("requesttime")

// What a byte may be to a default name: most names need no closer look than at their ends.
const (
	beginsDefaultName = 1 << iota
	endsDefaultName
)

var defaultNameBytes = func() (table [256]uint8) {
	for _, c := range "_-trnslTRNSL" {
		table[c] |= beginsDefaultName
	}
	for _, c := range "_-pesngtPESNGT" {
		table[c] |= endsDefaultName
	}
	return table
}()

// isDefaultName reports whether name is one of those that [Rules.DefaultNames] leaves
// out. Names that may carry meaning (time, date, location, address) are not among them.
func isDefaultName(name []byte) bool {
	if len(name) == 0 || defaultNameBytes[name[0]]&beginsDefaultName == 0 ||
		defaultNameBytes[name[len(name)-1]]&endsDefaultName == 0 {
		return false
	}
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
