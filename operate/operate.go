// Package operate is a web page for operators. It lists an engine's operations (those that need attention first) and lets authorised
// people release, settle and forget them.
//
//	page, err := operate.New(engine, operate.Options{Authorize: func(r *http.Request) (operate.Actor, operate.Access, error) {
//		name, password, _ := r.BasicAuth()
//		if !known(name, password) {
//			return "", operate.None, nil
//		}
//		return operate.Actor(name), operate.Change, nil
//	}})
//	if err != nil {
//		return err
//	}
//	mux.Handle("/admin/idempotency/", page)
//
// The page is an [http.Handler], and can be mounted under any path: all links are relative. It loads nothing from other sites, and runs no
// script. Other frameworks mount it with their own wrappers: gin.WrapH, echo.WrapHandler, adaptor.HTTPHandler of Fiber.
//
// An action needs a reason. It is a POST that is accepted only from the page itself ([http.CrossOriginProtection], see
// [Options].TrustedOrigins), and this process guards it: a double click acts once. It changes the record that the operator saw, or nothing.
// The page's own requests are not operations of the engine.
//
// No address contains a user or a key: searches for them are POSTs, and the cursor in the link to more operations is encrypted under a
// key of this process.
package operate

import (
	"bytes"
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/operations"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/httpidem"
)

// Actor is the name of the person who acts, as the audit and the record show it.
type Actor string

// Access is what a person may do. The zero Access is [None].
type Access uint8

// The kinds of access.
const (
	None   Access = iota // 401, and a browser asks for a password
	Read                 // see operations, users, keys and results
	Change               // also release, settle and forget operations
)

// Options are the options of a page.
type Options struct {
	// Authorize says who sends a request, and what they may do. It is required: there is no page without it. An error is a 403,
	// and its text is not shown. It is called concurrently.
	Authorize func(r *http.Request) (Actor, Access, error)

	// Audit is called before an action, and an error forbids it: see [operations.Options]. Nil: everyone with [Change] may do
	// every action.
	Audit func(ctx context.Context, a operations.Action) error

	// Format makes a stored body readable for the page: it may decode, indent, or leave out confidential parts. Nil: a body that
	// is text is shown unchanged.
	Format func(op operations.Operation, contentType string, body []byte) string

	// TrustedOrigins are origins, such as "https://ops.example.com", whose forms are accepted in addition to those of the request's Host.
	// Behind a proxy that rewrites Host, name the page as browsers see it.
	TrustedOrigins []string
}

// Handler is the page. It is safe for concurrent use.
type Handler struct {
	ops        *operations.Operations
	unsettled  func() int
	options    Options
	protection *http.CrossOriginProtection
	act        http.Handler
	cursors    cipher.AEAD
}

// New returns the page of an engine. The error is [operations.ErrNoInspector], or for options without Authorize or with a malformed origin.
func New(engine *core.Engine, o Options) (*Handler, error) {
	if o.Authorize == nil {
		return nil, errors.New("operate: Options.Authorize is nil: nobody could see the page")
	}
	ops, err := operations.Of(engine, operations.Options{Audit: o.Audit})
	if err != nil {
		return nil, err
	}
	h := &Handler{ops: ops, unsettled: engine.Unsettled, options: o, protection: http.NewCrossOriginProtection()}
	for _, origin := range o.TrustedOrigins {
		if err := h.protection.AddTrustedOrigin(origin); err != nil {
			return nil, fmt.Errorf("operate: Options.TrustedOrigins: %w", err)
		}
	}
	own, err := core.New(core.Config{}) // what the page does is none of the service's operations
	if err != nil {
		return nil, err
	}
	guard, err := own.Guard(core.Policy{Name: "operate", User: core.UserFromHeader(actorHeader)})
	if err != nil {
		return nil, err
	}
	h.act = httpidem.New(guard)(http.HandlerFunc(h.serveAct))
	key := make([]byte, 32)
	_, _ = rand.Read(key) // which never fails
	block, err := aes.NewCipher(key)
	if err == nil {
		h.cursors, err = cipher.NewGCMWithRandomNonce(block)
	}
	return h, err
}

// actorHeader is set by the page itself, in place of what a client sends.
const actorHeader = "Idem-Operator"

//go:embed page.html style.css
var files embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"span": operations.Span, "number": number, "text": func(s string) string { return operations.Printable(s) },
	"past": past, "left": func(op *operations.Operation) float64 { return 100 - past(op) },
	"ends": func(op *operations.Operation) string {
		return time.Now().Add(op.Remaining).UTC().Format("2006-01-02 15:04")
	},
	// An action of an operator replaces the remark, see operations.Operations.
	"did": func(what string, op *operations.Operation) bool { return strings.HasPrefix(op.Remark, what+" by ") },
}).ParseFS(files, "page.html"))

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Security-Policy",
		"default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "same-origin")
	actor, access, err := h.options.Authorize(r)
	switch {
	case err != nil:
		h.fail(w, http.StatusForbidden, "You may not see this page.")
		return
	case access == None || actor == "":
		header.Set("WWW-Authenticate", `Basic realm="operations", charset="UTF-8"`)
		h.fail(w, http.StatusUnauthorized, "Log in to see this page.")
		return
	}
	if h.protection.Check(r) != nil {
		h.failOrigin(w, r)
		return
	}
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	sent, _, _ := strings.Cut(r.RequestURI, "?") // with what a mount has cut off
	switch name := path.Base(sent); {
	case strings.HasSuffix(sent, "/") && (read || r.Method == http.MethodPost):
		h.serveList(w, r)
	case name == "operation" && read:
		h.serveOperation(w, r, access)
	case name == "act" && r.Method == http.MethodPost && access < Change:
		h.fail(w, http.StatusForbidden, "You may look at operations, but not change them.")
	case name == "act" && r.Method == http.MethodPost:
		r = r.Clone(r.Context())
		r.Header.Set(actorHeader, string(actor))
		h.act.ServeHTTP(w, r)
	case name == "style.css" && read:
		style, _ := fs.ReadFile(files, "style.css")
		header.Set("Content-Type", "text/css; charset=utf-8")
		_, _ = w.Write(style)
	case read && name != "act":
		redirect(w, "./"+name+"/") // the mount without its slash; a name may look like a scheme
	default:
		header.Set("Allow", "GET, HEAD")
		h.fail(w, http.StatusMethodNotAllowed, "This address takes no such request.")
	}
}

// view is what a page shows.
type view struct {
	Title   string
	Message string

	// Unsettled is how many runs of this process are unsettled: see core.Engine.Unsettled.
	Unsettled int

	// the list
	Overview   bool // nobody has searched
	Abandoned  []operations.Operation
	Long       []operations.Operation // they run for very long
	More       bool                   // there may be more of these two
	Query      url.Values
	States     []store.State
	Counts     []count
	Operations []operations.Operation
	Next       string
	Broken     bool // the list is not whole

	// an operation
	Op        *operations.Operation
	Answer    *core.Response
	Body      string
	ShowsBody bool
	MayChange bool
}

// Searched says what was searched for.
func (v *view) Searched() string {
	var fields []string
	for _, name := range []string{"find", "state", "user", "route", "key", "policy", "older"} {
		if text := v.Query.Get(name); text != "" {
			fields = append(fields, name+" "+text)
		}
	}
	return strings.Join(fields, ", ")
}

type count struct {
	State store.State
	N     string
}

// pageSize is how many operations a page has.
const pageSize = 50

func (h *Handler) serveList(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		h.fail(w, http.StatusBadRequest, "The form could not be read.")
		return
	}
	v := view{Title: "Operations", Query: r.PostForm, States: operations.States(), Unsettled: h.unsettled(),
		Overview: r.Method != http.MethodPost && r.URL.RawQuery == ""}
	if r.Method != http.MethodPost {
		if v.Query = r.URL.Query(); v.Query.Has("user") || v.Query.Has("key") { // of somebody else's link
			v.Message = "The address of this page contains a user or a key, and logs keep addresses. Use the search form instead."
		}
	}
	status := http.StatusOK
	from := ""
	if v.Query.Has("from") {
		var ok bool
		if from, ok = h.openCursor(v.Query); !ok {
			status = http.StatusBadRequest
			v.Message = "The list starts over: only the process that showed its first part can continue it, " +
				"and only until that process ends."
		}
		v.Query.Del("from")
	}
	get := func(name string) string { return strings.TrimSpace(v.Query.Get(name)) }
	var missing error // why the one operation that is asked for is not shown
	if text := get("find"); text != "" {
		op, err := h.ops.Lookup(r.Context(), text)
		if err == nil {
			redirect(w, "operation?digest="+op.Digest)
			return
		}
		v.Message, missing = sentence(err), err
	}
	q := operations.Query{User: get("user"), Route: get("route"), Policy: get("policy"), From: from, Limit: pageSize}
	if state, _ := store.ParseState(get("state")); slices.Contains(v.States, state) {
		q.States = []store.State{state}
	}
	if text := get("older"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			v.Message = "“Begun before” takes a duration such as 90s, 15m or 2h."
		}
		q.OlderThan = d
	}
	if get("key") != "" {
		op, err := h.ops.LookupKey(r.Context(), q.User, q.Route, get("key"))
		if err == nil {
			redirect(w, "operation?digest="+op.Digest)
			return
		}
		v.Message, missing = sentence(err), err
	}
	if !errors.Is(missing, operations.ErrNotFound) { // else all keys have been looked through already
		for op, err := range h.ops.List(r.Context(), q) {
			if err != nil {
				v.Message, v.Broken = sentence(err), true
				break
			}
			v.Operations = append(v.Operations, op)
		}
	}
	if missing != nil {
		v.Operations = nil
	}
	if n := len(v.Operations); n >= pageSize && v.Operations[n-1].Next != "" {
		v.Next = "?" + h.withCursor(v.Query, v.Operations[n-1].Next).Encode()
	}
	v.Counts = h.counts(r.Context())
	if v.Broken {
		status = http.StatusServiceUnavailable
	} else if v.Overview {
		h.needs(r.Context(), &v)
	}
	h.render(w, status, "list", &v)
}

// counts returns how many operations of each state there are, where the store can tell without going through all.
func (h *Handler) counts(ctx context.Context) (each []count) {
	var counts []operations.Count
	if h.ops.Counts() {
		counts, _ = h.ops.Count(ctx) // none of an error
	}
	for i, state := range operations.States() {
		c := count{State: state}
		switch {
		case !h.ops.Counts():
		case counts == nil:
			c.N = "?"
		case counts[i].More:
			c.N = number(uint64(counts[i].N)) + "+"
		default:
			c.N = number(uint64(counts[i].N))
		}
		each = append(each, c)
	}
	return each
}

const (
	longRun = 15 * time.Minute // page.html has it, too
	needing = 10               // how many that need somebody are shown
	looking = 3 * time.Second  // how long they are looked for, in a store that has to go through all
)

// needs fills in which operations need somebody: those that are abandoned, and those that run for very long.
func (h *Handler) needs(ctx context.Context, v *view) {
	ctx, cancel := context.WithTimeout(ctx, looking)
	defer cancel()
	q := operations.Query{Limit: needing + 1} // of which they are the first
	if !h.ops.Counts() {
		q = operations.Query{States: []store.State{store.Abandoned, store.Running}}
	}
	for op, err := range h.ops.List(ctx, q) {
		switch {
		case err != nil, len(v.Abandoned)+len(v.Long) == needing:
			v.More = true
			return
		case op.State == store.Abandoned:
			v.Abandoned = append(v.Abandoned, op)
		case op.State == store.Running && !op.Begun.IsZero() && time.Since(op.Begun) >= longRun:
			v.Long = append(v.Long, op)
		}
	}
}

// past returns the part of an operation's time that has passed, from 0 to 100.
func past(op *operations.Operation) float64 {
	passed := max(time.Since(op.Begun), 0)
	return 100 * float64(passed) / float64(max(passed+op.Remaining, 1))
}

// withCursor returns what of a search may be in an address, with an encrypted cursor, which has the user, too. It is good for this search
// only.
func (h *Handler) withCursor(search url.Values, next string) url.Values {
	address := maps.Clone(search)
	for _, name := range []string{"find", "user", "key"} {
		address.Del(name)
	}
	private := url.Values{"user": {search.Get("user")}, "next": {next}}
	sealed := h.cursors.Seal(nil, nil, []byte(private.Encode()), []byte(address.Encode()))
	address.Set("from", base64.RawURLEncoding.EncodeToString(sealed))
	return address
}

// openCursor returns the cursor of an address, and puts its user into the search. It is false for one that this process has not made for
// the search.
func (h *Handler) openCursor(search url.Values) (next string, ok bool) {
	address := maps.Clone(search)
	address.Del("from")
	sealed, err := base64.RawURLEncoding.DecodeString(search.Get("from"))
	if err != nil || len(sealed) < h.cursors.Overhead() {
		return "", false
	}
	text, err := h.cursors.Open(nil, nil, sealed, []byte(address.Encode()))
	if err != nil {
		return "", false
	}
	private, err := url.ParseQuery(string(text))
	if user := private.Get("user"); user != "" {
		search.Set("user", user)
	}
	return private.Get("next"), err == nil
}

func (h *Handler) serveOperation(w http.ResponseWriter, r *http.Request, access Access) {
	op, err := h.ops.Lookup(r.Context(), r.URL.Query().Get("digest"))
	if err != nil {
		h.fail(w, http.StatusNotFound, sentence(err))
		return
	}
	v := view{Title: "Operation " + op.Digest, Op: &op, MayChange: access >= Change}
	if op.State == store.Abandoned {
		v.Unsettled = h.unsettled() // it may be one of these
	}
	body := op.Result
	if answer, ok := h.ops.Answer(op); ok {
		v.Answer, body = &answer, answer.Body
	}
	if v.ShowsBody = r.URL.Query().Has("body") && op.Unopened == nil; v.ShowsBody {
		contentType := ""
		if v.Answer != nil {
			contentType = v.Answer.Get("Content-Type")
		}
		switch {
		case h.options.Format != nil:
			v.Body = h.options.Format(op, contentType, body)
		case utf8.Valid(body):
			v.Body = string(body)
		default:
			v.Body = strconv.Itoa(len(body)) + " bytes that are not text"
		}
	}
	h.render(w, http.StatusOK, "operation", &v)
}

// maxForm is the greatest form of an action, with the body of a settled answer.
const maxForm = 1 << 20

func (h *Handler) serveAct(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		h.fail(w, http.StatusBadRequest, "The form could not be read.")
		return
	}
	get := func(name string) string { return strings.TrimSpace(r.PostForm.Get(name)) }
	op, err := h.ops.Lookup(r.Context(), get("digest"))
	if err != nil {
		h.fail(w, http.StatusNotFound, sentence(err))
		return
	}
	// What the operator has seen, and not what is there now.
	id, _ := store.ParseID(get("id"))
	attempt, err := strconv.ParseUint(get("attempt"), 10, 64)
	if err != nil {
		h.fail(w, http.StatusBadRequest, "The form does not say which state you saw.")
		return
	}
	op.ID, op.Attempt = id, attempt
	op.State, _ = store.ParseState(get("state"))
	by := operations.By{Actor: r.Header.Get(actorHeader), Reason: get("reason")}
	switch action := get("action"); {
	case get("sure") == "":
		err = errors.New("nothing was changed: tick the box to confirm it")
	case action == "release":
		err = h.ops.Release(r.Context(), op, by)
	case action == "forget":
		err = h.ops.Forget(r.Context(), op, get("running") != "", by)
	case action == "settle":
		retention, parseErr := time.ParseDuration(cmp.Or(get("retain"), "24h"))
		status, statusErr := strconv.Atoi(get("status"))
		switch {
		case parseErr != nil:
			err = errors.New("“kept for” takes a duration such as 30m or 24h")
		case op.Task:
			err = h.ops.SettleTask(r.Context(), op, []byte(r.PostForm.Get("body")), retention, by)
		case statusErr != nil:
			err = errors.New("the status must be a number from 200 to 999")
		default:
			answer := &core.Response{Status: status, Body: []byte(r.PostForm.Get("body"))}
			if t := get("type"); t != "" && len(answer.Body) > 0 {
				answer.Header = []core.Field{{Name: "Content-Type", Value: t}}
			}
			err = h.ops.Settle(r.Context(), op, answer, retention, by)
		}
	default:
		err = errors.New("unknown action")
	}
	switch {
	case errors.Is(err, store.ErrMovedOn), errors.Is(err, store.ErrNoRecord):
		h.fail(w, http.StatusConflict,
			"Nothing was changed. Since you saw the operation, another run or another operator has changed it. Look again.")
	case err != nil:
		h.fail(w, http.StatusUnprocessableEntity, sentence(err))
	case get("action") == "forget":
		redirect(w, "./")
	default:
		redirect(w, "operation?digest="+op.Digest)
	}
}

// redirect sends a browser to a link that is relative to where it is: http.Redirect would make it absolute, and a mount may have cut
// off what is in front.
func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// fail shows what went wrong.
func (h *Handler) fail(w http.ResponseWriter, status int, message string) {
	h.render(w, status, "failure", &view{Title: http.StatusText(status), Message: message})
}

// failOrigin says why a form is refused, and what to set if it is the page's own.
func (h *Handler) failOrigin(w http.ResponseWriter, r *http.Request) {
	message := "Nothing was changed: the browser says that the form comes from another site."
	if origin := r.Header.Get("Origin"); origin != "" {
		message = "Nothing was changed: the browser says that the form comes from “" + origin + "”, but the request is for “" + r.Host +
			"”. If you see the page under the first address, a proxy rewrites Host: " +
			"let it keep Host, or add “" + origin + "” to operate.Options.TrustedOrigins."
	}
	h.fail(w, http.StatusForbidden, message)
}

func (h *Handler) render(w http.ResponseWriter, status int, name string, v *view) {
	var page bytes.Buffer
	if err := pages.ExecuteTemplate(&page, name, v); err != nil {
		http.Error(w, "the page could not be made", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = page.WriteTo(w)
}

// sentence makes an error one.
func sentence(err error) string {
	text := strings.TrimPrefix(err.Error(), "idem: ")
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// number is a whole number with its thousands apart: no digit of one beyond 2^53 is lost.
func number(n uint64) string {
	text := strconv.FormatUint(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
