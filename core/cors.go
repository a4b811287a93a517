package core

// CORSAllowHeaders returns the names of the request header fields that a script of another origin must be
// allowed to send (Access-Control-Allow-Headers). Add the name given to [Named], and the fields
// that the service itself reads, such as Content-Type and Authorization.
func CORSAllowHeaders() []string { return []string{DefaultKeyHeader, TokenHeader} }

// CORSExposeHeaders returns the names of the response header fields that a script of another origin must
// be allowed to read (Access-Control-Expose-Headers): all that a guard adds to answers, but those that
// scripts may always read, such as Content-Type. Add the fields of the handlers, such as Location.
//
// Mount the middleware that sets Access-Control fields outside of the guards, so that refusals and
// replays have them, too, each for its own origin.
func CORSExposeHeaders() []string {
	return []string{ReplayedHeader, RefusedHeader, DefaultKeyHeader, ExpiresHeader, "Retry-After"}
}
