package canon

import (
	"bytes"
	"io"
	"mime"
	"mime/multipart"
	"strings"
)

// multipart adds the fields and files of a multipart/form-data body to the pairs. If
// the body is malformed it adds nothing and returns false.
//
// What counts is what [mime/multipart] makes of the body: it reads the form for the handler
// too, so that both see the same one. But parts that are written as every client writes them
// are read here, without copies. At the first one that is not, mime/multipart takes over.
func (s *scratch) multipart(r *Rules, contentType string, body []byte) bool {
	out, pairs, selected, notes := len(s.out), len(s.pairs), s.selected, s.notes
	if s.addParts(r, contentType, body) {
		return true
	}
	s.out, s.pairs, s.selected, s.notes = s.out[:out], s.pairs[:pairs], selected, notes
	return false
}

func (s *scratch) addParts(r *Rules, contentType string, body []byte) bool {
	boundary, ok := plainBoundary(contentType)
	if ok {
		if body = s.addPlainParts(r, boundary, body); body == nil {
			return true
		}
	} else {
		_, params, err := mime.ParseMediaType(contentType)
		if err != nil || params["boundary"] == "" {
			return false
		}
		boundary = params["boundary"]
	}
	reader := multipart.NewReader(bytes.NewReader(body), boundary)
	for {
		part, err := reader.NextPart()
		if err == io.EOF { // and not a wrapped one, which means that the end is missing
			return true
		}
		if err != nil || !s.addPart(r, part) {
			return false
		}
	}
}

// addPlainParts adds parts that are written as every client writes them. It returns the rest of
// the body, which begins with the delimiter of the first part that is not, or nil if
// the form has come to its end.
func (s *scratch) addPlainParts(r *Rules, boundary string, body []byte) (rest []byte) {
	s.raw = append(append(s.raw[:0], "\r\n--"...), boundary...)
	delimiter := s.raw
	first := delimiter[len("\r\n"):]
	if !bytes.HasPrefix(body, first) || !beginsLine(body[len(first):]) {
		return body
	}
	for {
		p, content, ok := plainHeader(body[len(first)+len("\r\n"):])
		if !ok || bytes.HasPrefix(content, first) {
			return body
		}
		end := bytes.Index(content, delimiter)
		if end < 0 {
			return body
		}
		behind := content[end+len(delimiter):]
		last := bytes.HasPrefix(behind, []byte("--")) && (len(behind) == len("--") || beginsLine(behind[len("--"):]))
		if !last && !beginsLine(behind) {
			return body
		}
		s.addPlainPart(r, p, content[:end])
		if last {
			return nil
		}
		body = content[end+len("\r\n"):]
	}
}

func beginsLine(text []byte) bool { return len(text) >= 2 && text[0] == '\r' && text[1] == '\n' }

// plainPart is what counts in the header of a part.
type plainPart struct {
	name, file []byte // file is empty for a field
}

func (s *scratch) addPlainPart(r *Rules, p plainPart, content []byte) {
	isFile := len(p.file) > 0
	if !s.admitsPart(r, p.name, isFile) {
		return
	}
	start := s.startPart(p.name, isFile)
	if isFile {
		s.out = r.Algorithm.appendSum(s.out, content)
		s.out = appendFileName(s.out, r, p.file)
	} else {
		s.out = appendQueryEscape(s.out, content)
	}
	s.endPair(start)
}

// Larger headers than these are left to [mime/multipart], which has limits of its own.
const (
	maxPlainFields = 16
	maxPlainLine   = 4 << 10
	maxBoundary    = 70 // RFC 2046, section 5.1.1
)

// plainHeader reads the header of a part, if it is one that can be read in one way only. What
// follows is the content of the part. Without a Content-Disposition it is a field without a
// name.
func plainHeader(text []byte) (p plainPart, content []byte, ok bool) {
	named := false
	for range maxPlainFields {
		n := bytes.IndexByte(text[:min(len(text), maxPlainLine)], '\n')
		if n < 1 || text[n-1] != '\r' {
			return p, nil, false
		}
		line := text[:n-1]
		text = text[n+1:]
		if len(line) == 0 {
			return p, text, true
		}
		colon := 0
		for colon < len(line) && tokenBytes[line[colon]] {
			colon++
		}
		if colon == 0 || colon == len(line) || line[colon] != ':' || !validValue(line[colon+1:]) {
			return p, nil, false
		}
		value := bytes.Trim(line[colon+1:], " \t")
		switch field := line[:colon]; {
		case equalFold(field, "content-disposition"):
			if named {
				return p, nil, false
			}
			if p, ok = plainDisposition(value); !ok {
				return p, nil, false
			}
			named = true
		case equalFold(field, "content-transfer-encoding") && equalFold(value, "quoted-printable"):
			return p, nil, false
		}
	}
	return p, nil, false
}

// plainDisposition reads form-data; name="..."; filename="...". A file name that may be a path,
// on whatever system, is left to [mime/multipart], which cuts it down to its base.
func plainDisposition(value []byte) (p plainPart, ok bool) {
	kind, params, found := bytes.Cut(value, []byte(";"))
	if !found || !equalFold(bytes.TrimRight(kind, " \t"), "form-data") {
		return p, false
	}
	named, filed := false, false
	for more := true; more; {
		var param, text []byte
		if param, text, params, more, ok = cutPlainParam(params); !ok {
			return p, false
		}
		switch {
		case equalFold(param, "name") && !named:
			p.name, named = text, true
		case equalFold(param, "filename") && !filed && !bytes.ContainsAny(text, "/:"):
			p.file, filed = text, true
		default:
			return p, false
		}
	}
	return p, true
}

// plainBoundary returns the boundary of a Content-Type that has no other parameter but a
// charset.
func plainBoundary(contentType string) (boundary string, ok bool) {
	_, params, more := strings.Cut(contentType, ";")
	charset := false
	for more {
		var param, text string
		if param, text, params, more, ok = cutPlainParam(params); !ok {
			return "", false
		}
		switch {
		case equalFold(param, "boundary") && boundary == "":
			boundary = text
		case equalFold(param, "charset") && !charset:
			charset = true
		default:
			return "", false
		}
	}
	return boundary, boundary != "" && len(boundary) <= maxBoundary
}

// cutPlainParam takes the first parameter off params: name=token or name="text", with nothing
// escaped. more tells whether there is another one after it.
func cutPlainParam[T string | []byte](params T) (name, value, rest T, more, ok bool) {
	i := 0
	skip := func(set *[256]bool) (begin int) {
		begin = i
		for i < len(params) && set[params[i]] {
			i++
		}
		return begin
	}
	skip(&blankBytes)
	name = params[skip(&tokenBytes):i]
	if len(name) == 0 || i == len(params) || params[i] != '=' {
		return name, value, rest, false, false
	}
	i++
	if i < len(params) && params[i] == '"' {
		i++
		value = params[skip(&quotedBytes):i]
		if i == len(params) || params[i] != '"' {
			return name, value, rest, false, false
		}
		i++
	} else if value = params[skip(&tokenBytes):i]; len(value) == 0 {
		return name, value, rest, false, false
	}
	skip(&blankBytes)
	if i == len(params) {
		return name, value, rest, false, true
	}
	return name, value, params[i+1:], true, params[i] == ';'
}

var (
	blankBytes = byteSet(" \t")
	// tokenBytes are those of a token (RFC 9110, section 5.6.2), without those that begin
	// or stand for something else in a parameter (RFC 2231).
	tokenBytes = byteSet("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!#$&+-.^_`|~")
	// valueBytes are those that the value of a header field may hold.
	valueBytes = func() (set [256]bool) {
		for c := range set {
			set[c] = c == '\t' || c >= ' ' && c != 0x7f
		}
		return set
	}()
	// quotedBytes are those that stand for themselves between quotes.
	quotedBytes = func() [256]bool {
		set := valueBytes
		set['"'], set['\\'] = false, false
		return set
	}()
)

func validValue(value []byte) bool {
	for _, c := range value {
		if !valueBytes[c] {
			return false
		}
	}
	return true
}

// addPart adds a part that [mime/multipart] reads.
func (s *scratch) addPart(r *Rules, part *multipart.Part) bool {
	file := part.FileName()
	isFile := file != ""
	s.names = append(s.names[:0], part.FormName()...)
	counts := s.admitsPart(r, s.names, isFile)
	start := s.startPart(s.names, isFile)
	// A part that does not count is read all the same: it may be malformed.
	if isFile {
		h := s.hash(r.Algorithm)
		if s.chunk == nil {
			s.chunk = make([]byte, 16<<10)
		}
		if _, err := io.CopyBuffer(h, part, s.chunk); err != nil {
			return false
		}
		s.out = s.appendHash(s.out, h)
		s.out = appendFileName(s.out, r, file)
	} else {
		value := bytes.NewBuffer(s.raw[:0])
		_, err := value.ReadFrom(part)
		s.raw = value.Bytes()
		if err != nil {
			return false
		}
		s.out = appendQueryEscape(s.out, s.raw)
	}
	if counts {
		s.endPair(start)
	} else {
		s.out = s.out[:start]
	}
	return true
}

// admitsPart is admits for a part of a multipart form.
func (s *scratch) admitsPart(r *Rules, name []byte, isFile bool) bool {
	return !(isFile && r.WithoutFiles) && s.admits(r, name, isFile)
}

// appendFileName appends what follows the digest of a file.
func appendFileName[T string | []byte](dst []byte, r *Rules, file T) []byte {
	if r.WithoutFileNames {
		return dst
	}
	return appendQueryEscape(append(dst, ';'), file)
}

// startPart writes what comes before the value of a part. It returns where its pair begins.
func (s *scratch) startPart(name []byte, isFile bool) (start int) {
	start = len(s.out)
	s.out = append(s.out, s.prefix...)
	s.out = appendQueryEscape(s.out, name)
	s.out = append(s.out, '=')
	if isFile {
		s.out = append(s.out, '@')
	}
	return start
}
