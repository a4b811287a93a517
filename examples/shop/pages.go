package shop

import (
	"bytes"
	"context"
	"embed"
	"html/template"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/idem-go/idem/core"
)

//go:embed pages
var files embed.FS

var pages = template.Must(template.ParseFS(files, "pages/*.html"))

var pageHeader = []core.Field{
	// Nothing on a page runs, looks or is sent anywhere that is not the shop's own.
	{Name: "Content-Security-Policy",
		Value: "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; " +
			"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"},
	{Name: "X-Content-Type-Options", Value: "nosniff"},
	{Name: "Referrer-Policy", Value: "same-origin"},
	// Each visit asks for the page, and gets a token of its own. But a browser that goes back shows the form
	// as it was, with the token that it had: submitted again it is the same order. With no-store it
	// would be a new form, and another order.
	{Name: "Cache-Control", Value: "private, no-cache"},
}

// page fills in a page.
func page(status int, name string, data any) *Reply {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name, data); err != nil {
		panic(err) // a template and its data do not fit: a fault of the program
	}
	return &Reply{Status: status, ContentType: "text/html; charset=utf-8", Header: pageHeader, Body: b.Bytes()}
}

// notice is what a person has to know before anything else.
type notice struct {
	Heading, Text string
	Links         []link
	Calm          bool // nothing is wrong
}

type link struct{ URL, Text string }

// message is a page that has nothing but a notice.
type message struct {
	Title  string
	Notice notice
}

// ErrorReply answers what has gone wrong outside of the shop's handlers, or was reported by them: a page to a
// browser, {"message": "..."} to a program.
func ErrorReply(header func(string) string, status int, text string) *Reply {
	if prefersHTML(header("Accept")) {
		return page(status, "message.html", message{
			Title:  strconv.Itoa(status) + " " + http.StatusText(status),
			Notice: notice{Heading: "That did not work", Text: text, Links: []link{{pathCheckout, "To the checkout"}}},
		})
	}
	answer, err := reply(status, "", object{"message": text})
	if err != nil {
		panic(err) // a string can't fail
	}
	return answer
}

// prefersHTML reports whether an Accept header field (RFC 9110, section 12.5.1) is a browser's that is
// about to show a page: it names HTML, and JSON with no higher weight. "*/*" is anybody's.
func prefersHTML(accept string) bool {
	var html, json float64
	for part := range strings.SplitSeq(accept, ",") {
		media, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		weight, err := strconv.ParseFloat(params["q"], 64)
		if err != nil {
			weight = 1
		}
		switch media {
		case "text/html", "application/xhtml+xml":
			html = max(html, weight)
		case "application/json", "application/problem+json":
			json = max(json, weight)
		}
	}
	return html > 0 && html >= json
}

// asset returns a handler that serves a file which all pages use.
func asset(contentType string, body []byte) Handler {
	header := []core.Field{
		{Name: "X-Content-Type-Options", Value: "nosniff"},
		{Name: "Cache-Control", Value: "public, max-age=300"},
	}
	return func(context.Context, *Request) (*Reply, error) {
		return &Reply{Status: http.StatusOK, ContentType: contentType, Header: header, Body: body}, nil
	}
}

// Style serves the style sheet of the pages.
var Style = asset("text/css; charset=utf-8", must(files.ReadFile("pages/style.css")))

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}
