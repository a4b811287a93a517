// Package js has idem.js, idem's script for web pages, for programs that serve it themselves:
//
//	mux.HandleFunc("GET /idem.js", js.Serve)                         // net/http
//	r.GET("/idem.js", gin.WrapF(js.Serve))                           // Gin
//	e.GET("/idem.js", echo.WrapHandler(http.HandlerFunc(js.Serve)))  // Echo
//	app.Get("/idem.js", adaptor.HTTPHandlerFunc(js.Serve))           // Fiber
//
// A page loads it with <script src="/idem.js" defer></script>. README.md in this directory says what it does.
package js

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Script is idem.js. It runs as a classic script and as a module.
//
//go:embed idem.js
var Script string

var etag = sync.OnceValue(func() string {
	sum := sha256.Sum256([]byte(Script))
	return `"` + hex.EncodeToString(sum[:8]) + `"`
})

// Serve answers with [Script], or with 304 if the client has it already (RFC 9110, section 13.1.2). Clients and caches may keep it
// for an hour before they ask again. Serve is safe for concurrent use.
func Serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/javascript; charset=utf-8")
	h.Set("Cache-Control", "public, max-age=3600")
	h.Set("ETag", etag())
	h.Set("X-Content-Type-Options", "nosniff")
	http.ServeContent(w, r, "idem.js", time.Time{}, strings.NewReader(Script))
}
