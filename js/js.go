// Package js has idem.js, the script that belongs to the suite, for programs that serve it
// themselves:
//
//	mux.HandleFunc("GET /idem.js", js.Serve)                         // net/http
//	r.GET("/idem.js", gin.WrapF(js.Serve))                           // Gin
//	e.GET("/idem.js", echo.WrapHandler(http.HandlerFunc(js.Serve)))  // Echo
//	app.Get("/idem.js", adaptor.HTTPHandlerFunc(js.Serve))           // Fiber
//
// A page loads it with <script src="/idem.js" defer></script>. What it does there is in README.md
// beside this file.
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

// Serve answers with [Script], or with 304 to a client that has it (RFC 9110, section 13.1.2).
// Clients and caches may keep it for an hour; then they ask whether it is still the same. Serve is
// safe for concurrent use.
func Serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/javascript; charset=utf-8")
	h.Set("Cache-Control", "public, max-age=3600")
	h.Set("ETag", etag())
	h.Set("X-Content-Type-Options", "nosniff")
	http.ServeContent(w, r, "idem.js", time.Time{}, strings.NewReader(Script))
}
