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

// kindOf tells from a media type and its parameters how the body is to be read. It knows these
// only so far as to find a charset, and it is forgiving about them, because a client
// that sends "application/json;" does mean JSON.
func kindOf(mediaType, params string) bodyKind {
	var kind bodyKind
	switch {
	case isJSON(mediaType):
		kind = jsonBody
	case equalFold(mediaType, "application/x-www-form-urlencoded"):
		kind = formBody
	case equalFold(mediaType, "multipart/form-data"):
		kind = multipartBody
	default:
		return rawBody
	}
	for params != "" {
		var name, value string
		name, value, params = cutParam(params)
		if equalFold(name, "charset") && !isUTF8(value) {
			return rawBody
		}
	}
	return kind
}

// IsJSON reports whether a Content-Type is one of JSON, whatever its parameters.
func IsJSON(contentType string) bool {
	mediaType, _ := cutMediaType(contentType)
	return isJSON(mediaType)
}

func isJSON(mediaType string) bool {
	return equalFold(mediaType, "application/json") || isStructuredJSON(mediaType)
}

func cutMediaType(contentType string) (mediaType, params string) {
	mediaType, params, _ = strings.Cut(contentType, ";")
	return strings.Trim(mediaType, " \t"), params
}

// isStructuredJSON recognises the structured syntax suffix of RFC 6839, section 3.1.
func isStructuredJSON(mediaType string) bool {
	const suffix = "+json"
	slash := strings.IndexByte(mediaType, '/')
	plus := len(mediaType) - len(suffix)
	return slash > 0 && plus > slash+1 && equalFold(mediaType[plus:], suffix)
}

// cutParam takes the first parameter off params (RFC 9110, section 5.6.6). The value
// of a quoted string is returned without its quotes; its escapes are left alone,
// because no charset has any.
func cutParam(params string) (name, value, rest string) {
	end := strings.IndexAny(params, "=;")
	if end < 0 {
		return strings.Trim(params, " \t"), "", ""
	}
	name, rest = strings.Trim(params[:end], " \t"), params[end+1:]
	if params[end] == ';' {
		return name, "", rest
	}
	rest = strings.TrimLeft(rest, " \t")
	if !strings.HasPrefix(rest, `"`) {
		value, rest, _ = strings.Cut(rest, ";")
		return name, strings.Trim(value, " \t"), rest
	}
	i := 1
	for i < len(rest) && rest[i] != '"' {
		if rest[i] == '\\' {
			i++
		}
		i++
	}
	if i >= len(rest) {
		return name, rest[1:], ""
	}
	value = rest[1:i]
	_, rest, _ = strings.Cut(rest[i+1:], ";")
	return name, value, rest
}

// isUTF8 reports whether charset is UTF-8 or a subset of it. "utf8" is no registered
// name but a common one, and the Encoding Standard has it.
func isUTF8(charset string) bool {
	return equalFold(charset, "utf-8") || equalFold(charset, "us-ascii") || equalFold(charset, "utf8")
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
