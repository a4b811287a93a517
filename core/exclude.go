package core

// Exclusion says which parameters do not count for keys and fingerprints. The zero
// Exclusion leaves out the default names.
type Exclusion struct {
	only  bool
	paths []string
}

func (e Exclusion) isSet() bool { return e.only || len(e.paths) > 0 }

// Exclude leaves out the values at paths, and under [Params] the default names as well. Path parameters
// always count.
//
// The default names are a request's own metadata (timestamp, ts, _t, requestTime, nonce, sign,
// signature) and coordinates (lat, lng, lon, latitude, longitude), in any case, with or without _ and -,
// at the top level of the query, a form and a JSON object.
//
// A path is made of member names and array indices joined by dots, and matches
// exactly, case included: "device.gps", "items.*.ts", "**.traceId". "*" stands for
// any one segment, "**" for any number of them; `\.` is a dot within a name. In a
// query or form, a whole name is one segment.
func Exclude(paths ...string) Exclusion { return Exclusion{paths: paths} }

// ExcludeOnly leaves out the values at paths and nothing else: the default names
// count. Without arguments everything counts. It is for [Params]; under another key source [Exclude]
// does the same.
func ExcludeOnly(paths ...string) Exclusion { return Exclusion{only: true, paths: paths} }
