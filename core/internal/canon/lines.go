package canon

import (
	"cmp"
	"slices"
	"strings"
)

// addLines adds the header fields that count, and the media type. more says that something
// comes before them that is not in s.out.
func (s *scratch) addLines(header []Pair, mediaType string, more bool) {
	s.order = s.order[:0]
	for i := range header {
		s.order = append(s.order, i)
	}
	slices.SortFunc(s.order, func(a, b int) int {
		return cmp.Or(strings.Compare(header[a].Name, header[b].Name), cmp.Compare(a, b))
	})
	for _, i := range s.order {
		field := &header[i]
		s.beginLine(more)
		s.out = append(s.out, field.Name...)
		s.out = append(s.out, ':')
		if field.Name == "body" || field.Name == "type" {
			s.out = append(s.out, ' ')
		}
		s.appendLine(strings.Trim(field.Value, " \t"))
	}
	if mediaType == "" || isUsualType(mediaType) {
		return
	}
	s.beginLine(more)
	s.out = append(s.out, "type:"...)
	begin := len(s.out)
	s.appendLine(mediaType)
	for i := begin; i < len(s.out); i++ {
		s.out[i] = lowerASCII(s.out[i])
	}
}

// beginLine ends the line before, if there is one: more says so if it is not in s.out.
func (s *scratch) beginLine(more bool) {
	if more || len(s.out) > 0 {
		s.out = append(s.out, '\n')
	}
}

// appendLine writes value so that it cannot read as more than one line.
func (s *scratch) appendLine(value string) {
	for {
		end := strings.IndexByte(value, '\n') + 1
		if end == 0 {
			s.out = append(s.out, value...)
			return
		}
		s.out = append(s.out, value[:end]...)
		s.out = append(s.out, ' ')
		value = value[end:]
	}
}

// isUsualType reports whether a media type has no line: how a body of this type was read shows
// in the text.
func isUsualType(mediaType string) bool {
	const anyMultipart = "multipart/"
	return equalFold(mediaType, "application/json") || equalFold(mediaType, "application/x-www-form-urlencoded") ||
		len(mediaType) > len(anyMultipart) && equalFold(mediaType[:len(anyMultipart)], anyMultipart)
}
