package core

// Exclusion says which parameters do not count for keys and fingerprints. The zero
// Exclusion leaves out the default names.
type Exclusion struct {
	only  bool
	paths []string
}

// Exclude leaves out the values at paths in addition to the default names.
//
// The default names are a request's own metadata (timestamp, ts, _t, requestTime,
// nonce, sign, signature) and coordinates (lat, lng, lon, latitude, longitude), in
// any case, with or without _ and -, at the top level of the query, a form and a
// JSON object. Path parameters always count.
//
// A path is made of member names and array indices joined by dots, and matches
// exactly, case included: "device.gps", "items.*.ts", "**.traceId". "*" stands for
// any one segment, "**" for any number of them; `\.` is a dot within a name. In a
// query or form, a whole name is one segment.
func Exclude(paths ...string) Exclusion { return Exclusion{paths: paths} }

// ExcludeOnly leaves out the values at paths and nothing else: the default names
// count. Without arguments everything counts.
func ExcludeOnly(paths ...string) Exclusion { return Exclusion{only: true, paths: paths} }
