package canon_test

import (
	"bytes"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"mime/multipart"
	"net/textproto"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/internal/canon"
)

// part is a field of a multipart form, or a file if it has a filename.
type part struct {
	name, filename, content string
	header                  []string // more header fields: name, value
}

func multipartInput(t testing.TB, boundary string, parts ...part) canon.Input {
	t.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	require.NoError(t, w.SetBoundary(boundary))
	for _, p := range parts {
		disposition := fmt.Sprintf("form-data; name=%q", p.name)
		if p.filename != "" {
			disposition += fmt.Sprintf("; filename=%q", p.filename)
		}
		header := textproto.MIMEHeader{"Content-Disposition": {disposition}}
		for i := 0; i < len(p.header); i += 2 {
			header.Set(p.header[i], p.header[i+1])
		}
		pw, err := w.CreatePart(header)
		require.NoError(t, err)
		_, err = pw.Write([]byte(p.content))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return canon.Input{ContentType: w.FormDataContentType(), Body: body.Bytes()}
}

func md5Hex(s string) string {
	sum := md5.Sum([]byte(s))
	return hex.EncodeToString(sum[:])
}

func TestMultipart(t *testing.T) {
	file := part{name: "photo", filename: "a.png", content: "\x89PNG\r\n--x"}
	fields := []part{{name: "z", content: "1&2"}, file, {name: "a b", content: "é"}, {name: "z", content: ""}}
	photo := "body:photo=@" + md5Hex(file.content)
	want := "body:a+b=%C3%A9&" + photo + ";a.png&body:z=1%262&body:z="
	in := multipartInput(t, "bbb", fields...)

	got, info := text(canon.Rules{}, in)
	assert.Equal(t, want, got)
	assert.Zero(t, info)

	for name, other := range map[string]canon.Input{
		"boundary": multipartInput(t, "another", fields...),
		"order":    multipartInput(t, "bbb", fields[2], fields[0], file, fields[3]),
		"headers": multipartInput(t, "bbb", fields[0], part{name: "photo", filename: "a.png", content: file.content,
			header: []string{"Content-Type", "image/png", "X-Other", "1"}}, fields[2], fields[3]),
	} {
		got, _ := text(canon.Rules{}, other)
		assert.Equal(t, want, got, "%s does not count", name)
	}
	preamble := in
	preamble.Body = []byte("hello\r\n" + string(in.Body) + "bye")
	got, _ = text(canon.Rules{}, preamble)
	assert.Equal(t, want, got)

	got, _ = text(canon.Rules{WithoutFiles: true}, in)
	assert.Equal(t, "body:a+b=%C3%A9&body:z=1%262&body:z=", got)
	got, _ = text(canon.Rules{WithoutFileNames: true}, in)
	assert.Equal(t, strings.Replace(want, ";a.png", "", 1), got)

	sum := sha256.Sum256([]byte(file.content))
	got, _ = text(canon.Rules{Algorithm: canon.SHA256}, in)
	assert.Contains(t, got, "body:photo=@"+hex.EncodeToString(sum[:])+";a.png&")

	query := in
	query.RawQuery = "a+b=0&y=2"
	got, _ = text(canon.Rules{}, query)
	assert.Equal(t, "a+b=0&"+want+"&y=2", got, "together with the query")

	got, _ = text(canon.Rules{Exclude: paths(t, "z", "photo")}, in)
	assert.Equal(t, "body:a+b=%C3%A9", got)
	got, info = text(canon.Rules{Select: paths(t, "z", "photo")}, in)
	assert.Equal(t, photo+";a.png&body:z=1%262&body:z=", got)
	assert.Equal(t, 3, info.Selected)
	got, info = text(canon.Rules{Select: paths(t, "photo"), WithoutFiles: true}, in)
	assert.Empty(t, got)
	assert.Zero(t, info)
}

func TestMultipartDefaultNames(t *testing.T) {
	in := multipartInput(t, "b",
		part{name: "sign", content: "x"}, part{name: "Request-Time", content: "1"}, part{name: "a", content: "1"},
		part{name: "signature", filename: "signature.png", content: "ink"})
	got, _ := text(canon.Rules{DefaultNames: true}, in)
	assert.Equal(t, "body:a=1&body:signature=@"+md5Hex("ink")+";signature.png", got, "a file is content, whatever its name")
}

// readParts reads a form by mime/multipart alone.
func readParts(contentType string, body []byte) (spans []span, ok bool) {
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil || params["boundary"] == "" {
		return nil, false
	}
	r := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	for {
		p, err := r.NextPart()
		if err == io.EOF {
			return spans, true
		}
		if err != nil {
			return nil, false
		}
		content, err := io.ReadAll(p)
		if err != nil {
			return nil, false
		}
		s := span{name: "body:" + p.FormName(), isFile: p.FileName() != ""}
		s.text = "body:" + url.QueryEscape(p.FormName()) + "="
		if s.isFile {
			s.text += "@" + md5Hex(string(content)) + ";" + url.QueryEscape(p.FileName())
		} else {
			s.text += url.QueryEscape(string(content))
		}
		spans = append(spans, s)
	}
}

// multipartText is the canonical text of a multipart body that is not empty, and a query, by
// way of mime/multipart.
func multipartText(query, contentType string, body []byte) (text string, raw bool) {
	spans := segments("", query)
	parts, ok := readParts(contentType, body)
	if ok {
		return joined(append(spans, parts...)), false
	}
	return joined(spans) + "\n\x00" + string(body), true
}

// piece draws the usual piece, or now and then one of the others.
func piece(r *rand.Rand, usual string, others ...string) string {
	if r.IntN(15) > 0 {
		return usual
	}
	return oneOf(r, others...)
}

func oneOf(r *rand.Rand, list ...string) string { return list[r.IntN(len(list))] }

// drawForm draws a form, most of whose parts are as every client writes them, and its
// Content-Type.
func drawForm(r *rand.Rand) (contentType string, body []byte) {
	contentType = "multipart/form-data" + piece(r, "; boundary=b", `;boundary="b"`, "; boundary=b; charset=utf-8",
		"; Boundary=b ;", "; boundary=b;boundary=b",
		`; boundary="\b"`, "; boundary*=utf-8''b", "; boundary=b*", "; boundary=", `; boundary=""`, ` ; boundary= b`,
		"; charset=utf-8", "; boundary=b; x=y")
	var b strings.Builder
	b.WriteString(piece(r, "", "preamble\r\n", "\r\n", "--b--\r\n", "\n"))
	for range r.IntN(4) {
		end := piece(r, "\r\n", "\n", " \r\n", "x\r\n", "\r\r\n", "\x00\r\n")
		b.WriteString("--b" + piece(r, "\r\n", " \r\n", "\n", "-\r\n", "x\r\n", "\r", "--\r\n", "\t\r\n"))
		b.WriteString(piece(r, "", "X-First: 1"+end, " folded: 1\r\n", "no colon\r\n", ": no name\r\n", "9: digit\r\n",
			"With space : 1\r\n", "Content-Type: text/plain\r\n folded\r\n",
			"Content-Disposition: form-data; name=first\r\n", "X-Long: "+strings.Repeat("x", 5000)+"\r\n", strings.Repeat("X: 1\r\n", 20)))
		b.WriteString(piece(r, "Content-Disposition", "content-disposition", "CONTENT-DISPOSITION",
			"Content-Disposition ", "X-Disposition"))
		b.WriteString(":" + piece(r, " ", "", "\t ", "\r\n "))
		b.WriteString(piece(r, "form-data", "Form-Data", "attachment", "form-data ", "form-data\u00a0", "form data", ""))
		name := oneOf(r, "a", "b", "c d", "é", "Z")
		b.WriteString(piece(r, fmt.Sprintf(`; name="%s"`, name), "; name=a", ";name=a", "; NAME=a", "; name = a", "; name= a",
			`; name="a\"b"`, `; name="a\b"`, `; name="a\\b"`, `; name="a\"; filename="b"`, "; name*=utf-8''%c3%a9", "; name*0=a; name*1=b",
			"; name=a; name=a", "; name=a; name=b", `; name=""`, "; name=", "; name=a'b", "; name=a*", "; name={a}", "; name=é",
			`; name="a" b`, "; x=y", "", ";", `; name="a`, `; name="a;b=c"`, `; name="a	b"`))
		b.WriteString(piece(r, oneOf(r, "", `; filename="f.png"`), `; filename=""`, `; filename="d/f"`,
			`; filename="c:f"`, `; filename="f/"`, "; filename=f", `; filename="/"`, `; filename="C:\f"`, "; filename*=utf-8''f",
			`; filename="é"`, ";", "; filename",
			`; filename="übung 1;x=&.png"`, `; filename="../../d.png"`, `; filename="e\".png"`, `; filename*=utf-8''%e2%82%ac.png`,
			`; filename*0="f."; filename*1=png`, `; filename="."`, "; filename=\"g\xff\""))
		b.WriteString(end)
		b.WriteString(piece(r, "", "Content-Transfer-Encoding: quoted-printable\r\n", "content-transfer-encoding: Quoted-Printable \r\n",
			"Content-Transfer-Encoding: binary\r\n", "Content-Type: image/png\r\n",
			"Content-Disposition: form-data; name=second\r\n", "X: \x7f\r\n", "X: \xff\r\n", "X:\r\n", "X: 1\r\n\tfolded\r\n"))
		b.WriteString(piece(r, "\r\n", "\n", "", " \r\n", "\r\n\r\n", "\r"))
		b.WriteString(piece(r, oneOf(r, "", "1", "é &", "\r\n", "=3D=\r\n"), "\r\n--bx", "\r\n--b-x", "--bx", "--b", "\n--b\n", "\r\n--",
			"\r\r\n--", "\r\n--\r\n--b", strings.Repeat("\r\n--", 2000),
			strings.Repeat("x", 4085), "\x01", "=zz"))
		b.WriteString(piece(r, "\r\n", "\n", "", "\r", "\r\n\r\n"))
	}
	b.WriteString(piece(r, "--b--\r\n", "--b--", "--b-- \r\n", "--b--\n", "--b--x\r\n", "--b--\r", "--b-- ", "--b", "--b\r\n", "",
		"--b--\r\nepilogue\r\n--b\r\n", "--b\r\n--b--"))
	return contentType, []byte(b.String())
}

// What counts is what mime/multipart makes of a body, whether or not it has a hand in it: what it can't read is raw, what has
// no name counts too, and a file has the name that [multipart.Part.FileName] gives it. Fields come before files of their name,
// since a framework that has parsed the form hands them out apart.
func TestMultipartSameAsStandard(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	understood, some := 0, paths(t, "a")
	const forms = 20_000
	for range forms {
		contentType, body := drawForm(r)
		query := oneOf(r, "", "q=1", "b=1&a=%zz")
		got, info := text(canon.Rules{}, canon.Input{RawQuery: query, ContentType: contentType, Body: body})
		want, raw := multipartText(query, contentType, body)
		if raw && query == "" {
			want = want[len("\n"):]
		}
		if len(body) == 0 {
			want, raw = joined(segments("", query)), false
		}
		require.Equal(t, want, got, "%s, %q", contentType, body)
		require.Equal(t, raw, info.Raw, "%s, %q", contentType, body)
		_, part := text(canon.Rules{WithoutFiles: true, DefaultNames: true, Select: some},
			canon.Input{RawQuery: query, ContentType: contentType, Body: body})
		require.Equal(t, raw, part.Raw, "it does not depend on the rules: %q", body)
		if !raw {
			understood++
		}
	}
	assert.Greater(t, understood, forms/10)
	assert.Less(t, understood, forms*9/10)
}
