package adapter

import "github.com/idem-go/idem/core/internal/canon"

// Request holds the plain values of one HTTP request, as an adapter found them.
//
// Its strings and bytes may belong to a framework that reuses their memory. They are valid until
// core.Guard.Serve returns; a hook that keeps one must copy it (strings.Clone).
type Request struct {
	// Method is the request's method, as sent.
	Method string
	// Route is the pattern of the route in the spelling that all adapters share: parameters as
	// ":name", a trailing wildcard as "*", a host only if the pattern, or that of a router further
	// out, names one. Without a matched route it is the escaped path as sent.
	Route string
	// PathParams are the decoded values of the route's parameters, in the order
	// of the pattern. A trailing wildcard has the name "*" and no leading slash. In its value, which may
	// have several segments, reserved characters and % stay escaped where they were sent so, with
	// upper-case digits: "a%2fb%20c" is "a%2Fb c", another value than "a/b c" (RFC 3986, section 6.2.2).
	PathParams []Pair
	// RawQuery is the query as sent, without the question mark.
	RawQuery string
	// ContentType and ContentEncoding are the header fields of these names. ContentEncoding is empty if a
	// outer middleware has replaced the body's reader, as one that decodes the body does.
	ContentType     string
	ContentEncoding string
	// Host is the host that the client asked for, in lower case, with the port if one was sent.
	Host string
	// RemoteAddr is the network address of the peer, "IP:port".
	RemoteAddr string
	// Unmatched says that Route contains the path as sent, or a part of it, because no pattern is
	// known for it. Events then show Mount in its place: the pattern under which the guard is
	// mounted, such as "/api/*", or "" if that is not known either.
	Unmatched bool
	Mount     string
	// Preforked says that the application is served by several processes that share nothing.
	Preforked bool
	// Headers gives access to all header fields.
	Headers Headers
	// Caller is the verified caller (core.WithCaller), or "" if there is none. The engine fills it
	// in, not the adapter.
	Caller string
	// CallerEvent is the id of the event that the request reports (core.WithCallerEvent), or "" if it
	// is not known. The engine fills it in.
	CallerEvent string
	// Consumed are the names of parameters that a verifier has consumed, see core.WithCaller. The
	// engine fills it in.
	Consumed []string
	// Native is the framework's own context: *http.Request, *gin.Context, echo.Context (of Echo v5
	// *echo.Context), or *fiber.Ctx (of Fiber v3 fiber.Ctx).
	Native any
	// Body is the whole body as sent, not decompressed, or as an outer middleware has decoded it. It must
	// not be changed. The engine fills it in, not the adapter.
	Body []byte
	// Expired is the one-shot token that a refusal with token_expired has refused, for core.Guard.NewToken. The engine
	// fills it in.
	Expired string
}

// Headers looks up the header fields of a request.
type Headers interface {
	// Header returns the value of the ith field line (from 0) called name, or "" if there is none,
	// and the number of lines of that name. name is in canonical form, such as "Idempotency-Key".
	// "Host" is [Request.Host], one line, whatever the framework makes of it.
	Header(name string, i int) (value string, lines int)
}

// Pair is a parameter: a name and its value, both decoded.
type Pair = canon.Pair

// ParseKey returns the key that the value of an Idempotency-Key field means, for protocols whose keys are not in a header field: the
// text of an RFC 8941 string, or a bare token, of at most 255 bytes. The error says what is wrong, and holds nothing of the value.
func ParseKey(field string) (string, error) { return canon.ParseClientKey(field) }

// AppendJSON appends the canonical text of a JSON value to dst: equal values have equal texts, whatever their blanks, the order of
// members and the spelling of numbers, of which none loses a digit. The members of the outermost object that leaveOut names are left out.
// What has no canonical text (it is malformed, or has a member twice) is appended as it is, behind a byte 0x00. See docs/records.md.
func AppendJSON(dst, text []byte, leaveOut ...string) []byte {
	dst, _ = new(canon.Rules).AppendCanonical(dst, &canon.Input{ContentType: "application/json", Body: text, Consumed: leaveOut})
	return dst
}
