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

// nameClass is a set of classes of default names.
type nameClass uint8

const (
	stamps      nameClass = 1 << iota // timestamps and nonces
	shortStamp                        // _t, which clients add to get past caches
	signatures                        // sign, signature
	coordinates                       // of a place

	allDefaultNames = stamps | shortStamp | signatures | coordinates
)

// counting returns the classes that count all the same. seen are those that there are, and otherwise says that something else counts, in
// the query or the body.
//
// A signature without a timestamp or nonce, which it would sign, is content. So is a place to which nothing is sent.
func (seen nameClass) counting(otherwise bool) (counting nameClass) {
	if seen&stamps == 0 {
		counting = seen & signatures
	}
	if !otherwise && counting == 0 {
		counting |= seen & coordinates
	}
	return counting
}

// classOf returns the class of a name that [Rules.DefaultNames] leaves out, or 0. Names that may carry meaning (time, date, location,
// address) are in none.
func classOf(name []byte) nameClass {
	if len(name) == 0 || defaultNameBytes[name[0]]&beginsDefaultName == 0 ||
		defaultNameBytes[name[len(name)-1]]&endsDefaultName == 0 {
		return 0
	}
	// With its underscore ignored, "_t" would be "t", which may well carry meaning.
	if len(name) == 2 && name[0] == '_' && lowerASCII(name[1]) == 't' {
		return shortStamp
	}
	var folded [maxDefaultName]byte
	n := 0
	for _, c := range name {
		if c == '_' || c == '-' {
			continue
		}
		if n == len(folded) {
			return 0
		}
		folded[n] = lowerASCII(c)
		n++
	}
	switch string(folded[:n]) {
	case "timestamp", "ts", "requesttime", "nonce":
		return stamps
	case "sign", "signature":
		return signatures
	case "lat", "lng", "lon", "latitude", "longitude":
		return coordinates
	}
	return 0
}
