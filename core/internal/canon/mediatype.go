package canon

import "strings"

// bodyKind is how a body is read.
type bodyKind uint8

const (
	noBody bodyKind = iota
	rawBody
	jsonBody
	formBody
	multipartBody
)

// kindOf tells from a media type how the body is to be read. Its parameters do not count: none of these types has a
// charset (RFC 8259, section 11; RFC 7578, section 8; the registration of application/x-www-form-urlencoded).
func kindOf(mediaType string) bodyKind {
	switch {
	case isJSON(mediaType):
		return jsonBody
	case equalFold(mediaType, "application/x-www-form-urlencoded"):
		return formBody
	case equalFold(mediaType, "multipart/form-data"):
		return multipartBody
	}
	return rawBody
}

// IsJSON reports whether a Content-Type is one of JSON, whatever its parameters.
func IsJSON(contentType string) bool {
	return isJSON(mediaTypeOf(contentType))
}

func isJSON(mediaType string) bool {
	return equalFold(mediaType, "application/json") || isStructuredJSON(mediaType)
}

func mediaTypeOf(contentType string) string {
	mediaType, _, _ := strings.Cut(contentType, ";")
	return strings.Trim(mediaType, " \t")
}

// isStructuredJSON recognises the structured syntax suffix of RFC 6839, section 3.1.
func isStructuredJSON(mediaType string) bool {
	const suffix = "+json"
	slash := strings.IndexByte(mediaType, '/')
	plus := len(mediaType) - len(suffix)
	return slash > 0 && plus > slash+1 && equalFold(mediaType[plus:], suffix)
}

// isIdentity reports whether a body with this Content-Encoding is not encoded.
func isIdentity(contentEncoding string) bool {
	contentEncoding = strings.Trim(contentEncoding, " \t")
	return contentEncoding == "" || equalFold(contentEncoding, "identity")
}

// equalFold compares s with lower, which is in lower case, without regard to the case
// of ASCII letters. ([strings.EqualFold] also takes U+017F for an s.)
func equalFold[T string | []byte](s T, lower string) bool {
	if len(s) != len(lower) {
		return false
	}
	for i := 0; i < len(s); i++ {
		if lowerASCII(s[i]) != lower[i] {
			return false
		}
	}
	return true
}

func lowerASCII(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + ('a' - 'A')
	}
	return c
}
