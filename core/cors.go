package core

// CORSAllowHeaders returns the names of the request header fields that a script of another origin
// must be allowed to send (Access-Control-Allow-Headers). A key under another name
// ([KeySource.Named]) is to be added, and so is what the service itself reads: Content-Type, Authorization.
func CORSAllowHeaders() []string { return []string{DefaultKeyHeader, TokenHeader} }

// CORSExposeHeaders returns the names of the response header fields that a script of another origin
// must be allowed to read (Access-Control-Expose-Headers): all that a guard adds to answers, if they
// are not readable anyway, as Content-Type is. Fields of the handler, such as Location, are the service's to
// expose; a replay has them as the first answer had.
//
// The middleware that sets Access-Control fields belongs outside of guards, so that refusals and
// replays have them too, each for its own origin.
func CORSExposeHeaders() []string {
	return []string{ReplayedHeader, RefusedHeader, DefaultKeyHeader, ExpiresHeader, "Retry-After"}
}
