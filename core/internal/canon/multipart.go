package canon

import (
	"bytes"
	"hash"
	"io"
	"mime"
	"mime/multipart"
)

// multipart adds the fields and files of a multipart/form-data body to the pairs. If
// the body is malformed it adds nothing and returns false.
//
// It leans on [mime/multipart], which reads the form for the handler too, so that both
// see the same one.
func (s *scratch) multipart(r *Rules, contentType string, body []byte) bool {
	out, names, pairs, selected := len(s.out), len(s.names), len(s.pairs), s.selected
	if s.addParts(r, contentType, body) {
		return true
	}
	s.out, s.names, s.pairs, s.selected = s.out[:out], s.names[:names], s.pairs[:pairs], selected
	return false
}

func (s *scratch) addParts(r *Rules, contentType string, body []byte) bool {
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil || params["boundary"] == "" {
		return false
	}
	reader := multipart.NewReader(bytes.NewReader(body), params["boundary"])
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

func (s *scratch) addPart(r *Rules, part *multipart.Part) bool {
	isFile := part.FileName() != ""
	name, start := len(s.names), len(s.out)
	s.names = append(s.names, part.FormName()...)
	counts := !(isFile && r.WithoutFiles) && s.admits(r, s.names[name:], !isFile)
	s.out = appendQueryEscape(s.out, s.names[name:])
	s.out = append(s.out, '=')
	// A part that does not count is read all the same: it may be malformed.
	if isFile {
		h := s.hash(r.Algorithm)
		if !s.drain(h, part) {
			return false
		}
		s.out = append(s.out, '@')
		s.out = s.appendHash(s.out, h)
	} else {
		value := bytes.NewBuffer(s.raw[:0])
		_, err := value.ReadFrom(part)
		s.raw = value.Bytes()
		if err != nil {
			return false
		}
		s.out = appendQueryEscape(s.out, s.raw)
	}
	if !counts {
		s.names, s.out = s.names[:name], s.out[:start]
		return true
	}
	s.files = s.files || isFile
	s.endPair(name, start)
	return true
}

// drain hashes all of part.
func (s *scratch) drain(h hash.Hash, part io.Reader) bool {
	if s.chunk == nil {
		s.chunk = make([]byte, 16<<10)
	}
	for {
		n, err := part.Read(s.chunk)
		h.Write(s.chunk[:n])
		if err != nil {
			return err == io.EOF
		}
	}
}
