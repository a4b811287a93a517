package shop

import (
	"bytes"
	"io"
	"mime"
	"mime/multipart"
)

// picture returns the first file of a multipart form, or else the whole body.
func picture(r *Request) []byte {
	media, params, err := mime.ParseMediaType(r.ContentType)
	if err != nil || media != "multipart/form-data" {
		return r.Body
	}
	form := multipart.NewReader(bytes.NewReader(r.Body), params["boundary"])
	for {
		part, err := form.NextPart() // decodes quoted-printable, as all that read forms do
		if err != nil {              // the end, or no form after all
			return r.Body
		}
		if part.FileName() == "" {
			continue
		}
		file, err := io.ReadAll(part)
		if err != nil {
			return r.Body
		}
		return file
	}
}
