package core

import (
	"crypto/fips140"
	"net/http"
	"slices"

	"github.com/idem-go/idem/core/internal/canon"
)

// parameters say which parameters of a request count.
type parameters struct {
	excluded         []string
	headers          []string
	withoutFiles     bool
	withoutFileNames bool

	field, path string   // where the key itself is, in the header and in the form or JSON: it does not count
	faults      []string // of options that were given nothing
}

func (k *parameters) faultIf(bad bool, problem string) {
	if bad {
		k.faults = append(k.faults, problem)
	}
}

// Exclude leaves out the values at paths, and under [Params] the default names as well. Path parameters always count.
//
// The default names are these, in upper or lower case, with or without _ and -, at the top level of the query, a form and a JSON
// object:
//
//   - timestamp, ts, _t, requestTime and nonce never count.
//   - sign and signature do not count if one of these (except _t) is there: then they sign this try. Otherwise they count. (A name
//     that a verifier has consumed never counts, and is not one of these.)
//   - lat, lng, lon, latitude and longitude do not count if anything else of the query or body does: then they say where the client
//     was. If nothing else counts, the request is about them, and they count.
//
// A path consists of member names and array indices joined by dots, and matches exactly, including case: "device.gps",
// "items.*.ts", "**.traceId". "*" stands for any one segment, "**" for any number of them; `\.` is a dot within a name. In a query
// or form, a whole name is one segment.
func Exclude(paths ...string) Option {
	return func(k *parameters) { k.excluded = append(k.excluded, paths...) }
}

// ExcludeOnly leaves out the values at paths and nothing else: the default names
// count. Without arguments everything counts.
func ExcludeOnly(paths ...string) ParamsOption {
	return paramsOption(func(k *paramsKey) { k.onlyExcluded, k.excluded = true, append(k.excluded, paths...) })
}

// RequestHeaders makes the named header fields count as parameters, such as Upload-Offset or X-Amz-Target. The preconditions and
// ranges of RFC 9110 (If-Match, If-None-Match, If-Modified-Since, If-Unmodified-Since, If-Range, Range, Content-Range) and the
// media type of the body always count.
func RequestHeaders(names ...string) Option {
	return func(k *parameters) { k.headers = append(k.headers, names...) }
}

// WithoutFiles leaves out the files of a multipart form.
func WithoutFiles() Option { return func(k *parameters) { k.withoutFiles = true } }

// WithoutFileNames leaves out only the names of files: a file counts by its field and content.
func WithoutFileNames() Option { return func(k *parameters) { k.withoutFileNames = true } }

// compileParameters checks and compiles k, and the fields of the policy that say how parameters are compared.
func (g *Guard) compileParameters(f *faults, k *parameters) {
	p := &g.policy
	for _, fault := range k.faults {
		f.add("Key", "%s", fault)
	}
	forbidden := p.Digest == canon.MD5 && fips140.Enabled()
	without := "" // why nothing may be left out
	switch {
	case g.ignores:
		none := "has no effect under IgnoreFingerprint; leave one of the two out"
		if g.ofEvents() {
			none = "has no effect on a SignedEvent without CompareContent: its id alone counts"
		}
		f.addIf(p.Digest != canon.MD5, "Digest", "%s", none)
		f.addIf(p.Compare != byMeaning, "Compare", "%s", none)
		without = "IgnoreFingerprint: the parameters are not compared, so that %s has no effect; leave one of the two out"
		f.addIf(len(k.headers) > 0, "Key", without, "RequestHeaders")
	case p.Compare == RawBody:
		f.addIf(!g.chosen(), "Compare", "is for keys that somebody has chosen: Header, Func, BodyKey, CallerEvent")
		without = "%s: Compare is RawBody, which counts the whole body; leave one of the two out"
	}
	if without != "" {
		f.addIf(len(k.excluded) > 0, "Key", without, "Exclude")
		f.addIf(k.withoutFiles, "Key", without, "WithoutFiles")
		f.addIf(k.withoutFileNames, "Key", without, "WithoutFileNames")
	}
	f.addIf(forbidden && !g.ignores && !g.engine.digests.written(), "Digest", "must be SHA256 under FIPS 140")
	f.addIf(k.withoutFiles && k.withoutFileNames, "Key",
		"WithoutFileNames has no effect with WithoutFiles, which leaves the names out as well; leave one of the two out")
	f.addIf(p.Compare > RawBody, "Compare", "is unknown: %d", p.Compare)

	g.headers = slices.Clone(k.headers)
	for i, name := range g.headers {
		f.addIf(!isFieldName(name), "Key", "RequestHeaders: %q is no header field name", name)
		name = http.CanonicalHeaderKey(name)
		f.addIf(slices.Contains(conditions[:], name), "Key", "RequestHeaders: %s counts in any case; leave it out", name)
		f.addIf(name == k.field, "Key", "RequestHeaders: %s is the key; leave it out", name)
		f.addIf(contains(neverStored, name), "Key",
			"RequestHeaders: %s belongs to one message, and is not seen alike through every adapter; leave it out", name)
		f.addIf(slices.Contains(g.headers[:i], name), "Key", "RequestHeaders: %s is named twice", name)
		g.headers[i] = name
	}
	g.params = canon.Rules{Algorithm: p.Digest, RawBody: p.Compare == RawBody,
		WithoutFiles: k.withoutFiles, WithoutFileNames: k.withoutFileNames}
	excluded := k.excluded
	if k.path != "" {
		excluded = append(slices.Clone(excluded), k.path)
	}
	g.params.Exclude = compilePaths(f, "Exclude", excluded)
	if d := g.engine.digests; d != nil {
		plain, keyed := g.params, g.params
		keyed.Algorithm, keyed.MAC = canon.SHA256, d.mac
		own, other := forms(d, &plain, &keyed)
		if g.params = *own; other != &plain || !forbidden {
			g.other = other
		}
	}
}

// checkExcludedFields reports fields that Exclude covers, and excluded paths that are within no field.
func checkExcludedFields(f *faults, excluded, fields []string) {
	for _, field := range fields {
		for _, path := range excluded {
			f.addIf(canon.Covers(path, field), "Key", "Exclude: %q leaves nothing of the field %q; take one of the two away", path, field)
		}
	}
	for _, path := range excluded {
		touches := func(field string) bool { return canon.Touch(path, field) }
		f.addIf(!slices.ContainsFunc(fields, touches), "Key", "Exclude: %q has no effect: it is in none of the fields; leave it out", path)
	}
}

// compilePaths compiles the paths of an option, and reports malformed ones and those that another one covers.
func compilePaths(f *faults, option string, paths []string) *canon.Paths {
	if len(paths) == 0 {
		return nil
	}
	compiled, err := canon.CompilePaths(paths)
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			f.add("Key", "%s: %v", option, err)
		}
	} else if err != nil {
		f.add("Key", "%s: %v", option, err)
	} else {
		for i, path := range paths {
			for j, other := range paths {
				if i != j && canon.Covers(other, path) && (j < i || !canon.Covers(path, other)) {
					f.add("Key", "%s: %q has no effect, because %q covers it; leave it out", option, path, other)
					break
				}
			}
		}
	}
	return compiled
}
