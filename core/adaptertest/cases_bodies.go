package adaptertest

import (
	"bytes"
	"fmt"
	"mime/multipart"
	"net/url"
	"slices"
	"strings"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
)

// bodyCases: a middleware in front of the guard has read the body. What the handler still gets of it differs
// between frameworks, so there are no transcripts; that the key is the one of the unread body is said
// by a replay.
var bodyCases = slices.Concat(
	formCases(FormReader), formCases(CSRF), formCases(KeyAuth), formCases(Limiter, FormReader), replacedCases, counted(replacedCases),
	[]testCase{
		{
			name: "a method from a form",
			why: "a form that somebody in front has read is taken from what was parsed, also if its method was " +
				"changed after that",
			needs:   Features{Front: []Front{MethodOverride}},
			app:     App{Front: []Front{MethodOverride}},
			routes:  []route{{method: "PATCH", policy: new(core.Policy)}},
			handler: echoForm,
			loose:   true,
			steps: []step{
				ask{overridden("A-1"), created, ""},
				ask{overridden("A-1"), replayed, ""},
				ask{unread(asPatch(overridden("A-1"))), replayed, ""},
				ask{overridden("B-2"), created, ""},
			},
		},
		{
			name: "JSON that was read away",
			why: "a key is never made of less than what was sent: of a body that is gone there is none, " +
				"and all orders of a user would be one: 500 body_consumed, and nothing is recorded",
			needs:  Features{BodyStreams: true, Front: []Front{JSONBinder}},
			app:    App{Front: []Front{JSONBinder}},
			routes: []route{{policy: new(core.Policy)}, {pattern: "/payments", policy: &clientKey}},
			loose:  true,
			steps:  readAway(anOrder, chunked(anOrder)),
		},
		{
			name:   "JSON that was read in part",
			why:    "the same for a body of which the first bytes are missing, whatever limits it",
			needs:  Features{BodyStreams: true, Front: []Front{Peeker, Limiter}},
			app:    App{Front: []Front{Limiter, Peeker}},
			routes: []route{{policy: new(core.Policy)}, {pattern: "/payments", policy: &clientKey}},
			loose:  true,
			steps:  readAway(anOrder),
		},
		{
			name: "a body in chunks that was read in part",
			why: "nobody behind can see that the beginning of a body in chunks is missing; Finish in front sees it, and that " +
				"a body was empty from the start",
			needs:  Features{BodyStreams: true, Counts: true, Front: []Front{Peeker, Limiter}},
			app:    App{Finish: true, Front: []Front{Limiter, Peeker}},
			routes: []route{{policy: new(core.Policy)}, {pattern: "/payments", policy: &clientKey}},
			loose:  true,
			steps: append(readAway(anOrder, chunked(anOrder)),
				ask{unread(request{chunked: true}), created, ""},
				ask{unread(request{chunked: true}), replayed, ""},
				ask{unread(request{}), replayed, ""},
			),
		},
		{
			name:    "a form read in front of what was counted",
			why:     "what Finish counts tells also of a form in chunks whether all of it was parsed",
			needs:   Features{BodyStreams: true, Counts: true, Front: []Front{FormReader}},
			app:     App{Finish: true, Front: []Front{FormReader}},
			handler: echoForm,
			loose:   true,
			steps: []step{
				ask{chunked(aForm("A-1")), created, ""},
				ask{aForm("A-1"), replayed, ""},
				ask{unread(aForm("A-1")), replayed, ""},
				ask{chunked(someParts("A-1", "meow")), created, ""},
				ask{unread(someParts("A-1", "meow")), replayed, ""},
				ask{chunked(unreadable), refused(codes.BodyConsumed), ""},
			},
		},
		{
			name:    "a form over the limit that was read in front",
			why:     "413 body_too_large, by its length, or by what it comes to when it is put together again",
			needs:   Features{BodyStreams: true, Front: []Front{FormReader}},
			app:     App{Front: []Front{FormReader}},
			policy:  core.Policy{BodyLimit: 600},
			handler: echoForm,
			loose:   true,
			steps: []step{
				ask{aForm(strings.Repeat("A", 600)), refused(codes.BodyTooLarge), ""},
				ask{chunked(aForm(strings.Repeat("A", 600))), refused(codes.BodyTooLarge), ""},
				ask{someParts("A-1", strings.Repeat("meow", 150)), refused(codes.BodyTooLarge), ""},
				ask{chunked(someParts("A-1", strings.Repeat("meow", 150))), refused(codes.BodyTooLarge), ""},
				executions(0),
				ask{aForm(strings.Repeat("A", 400)), created, ""},
				ask{form("quantity=2&sku=" + strings.Repeat("é", 200)), created, ""}, // with more bytes when it is put together
			},
		},
		{
			name:  "a body limit of the framework's",
			why:   "Exchange.ReadBody: 413 also if something in front has drawn the line, in whatever words the framework says so",
			needs: Features{Front: []Front{Limiter}},
			app:   App{Front: []Front{Limiter}},
			loose: true,
			steps: []step{
				ask{chunked(request{body: strings.Repeat("x", 1001), media: "text/plain"}), refused(codes.BodyTooLarge), ""},
				ask{request{body: strings.Repeat("x", 1001), media: "text/plain"}, want{status: 413, kind: foreign}, ""},
				executions(0),
				ask{request{body: strings.Repeat("x", 1000), media: "text/plain"}, created, ""},
				ask{chunked(request{body: strings.Repeat("x", 1000), media: "text/plain"}), replayed, ""},
			},
		},
	},
)

// replacedCases: somebody in front has read the body, and has put another one in its place.
var replacedCases = []testCase{
	{
		name:   "a body that was put back",
		why:    "a body that somebody has read and replaced is whole",
		needs:  Features{Front: []Front{PutterBack}},
		app:    App{Front: []Front{PutterBack}},
		routes: []route{{policy: new(core.Policy)}, {pattern: "/payments", policy: &clientKey}},
		loose:  true,
		steps:  whole,
	},
	{
		name:   "a body that was kept",
		why:    "gin's ShouldBindBodyWith reads the body away, but keeps it for the next one who binds it: that is the whole body",
		needs:  Features{Front: []Front{Keeper}},
		app:    App{Front: []Front{Keeper}},
		routes: []route{{policy: new(core.Policy)}, {pattern: "/payments", policy: &clientKey}},
		loose:  true,
		steps:  whole,
	},
	{
		name:  "a body that was decompressed and kept",
		why:   "what was kept is the whole body, and its length is not that of what was sent",
		needs: Features{Front: []Front{Decompressor, Keeper}},
		app:   App{Front: []Front{Decompressor, Keeper}},
		loose: true,
		steps: []step{
			ask{compressed(request{body: `{"a":1}`}), created, ""},
			ask{compressed(request{body: `{"a":1}`}), replayed, ""},
			ask{compressed(request{body: `{"a":2}`}), created, ""},
		},
	},
	{
		name: "a body that was decompressed",
		why: "a replaced body is trusted, whatever length it has: a small one is longer when compressed, and with a " +
			"limit around it, it is still not what the server has received",
		needs: Features{Front: []Front{Decompressor, Limiter, FormReader}},
		app:   App{Front: []Front{Decompressor, Limiter}},
		loose: true,
		steps: []step{
			ask{compressed(request{body: `{"a":1}`}), created, ""},
			ask{compressed(request{body: `{"a":1}`}), replayed, ""},
			ask{compressed(request{body: `{"a":2}`}), created, ""},
			ask{chunked(compressed(request{body: `{"a":2}`})), replayed, ""},
			ask{compressed(request{body: `{"ts":1,"a":2}`}), replayed, ""},
			ask{unread(request{body: `{"a":2}`}), replayed, ""},
			ask{compressed(aForm(strings.Repeat("A", 500))), created, ""},
			ask{compressed(aForm(strings.Repeat("A", 501))), created, ""},
			ask{anOrder, created, ""},
		},
	},
	{
		name:  "a compressed body behind a limit",
		why:   "a limit puts its reader in front of the server's, and changes nothing of the body, which counts by its raw bytes",
		needs: Features{Front: []Front{Limiter}},
		app:   App{Front: []Front{Limiter}},
		loose: true,
		steps: []step{
			ask{compressed(aForm("A-1")), created, ""},
			ask{unread(compressed(aForm("A-1"))), replayed, ""},
		},
	},
}

// counted are all of them once more, behind Finish.
func counted(all []testCase) (cases []testCase) {
	for _, c := range all {
		c.name += ", behind Finish"
		c.needs.Counts, c.app.Finish = true, true
		cases = append(cases, c)
	}
	return cases
}

// whole: the body counts as if nobody had read it.
var whole = []step{
	ask{anOrder, created, ""},
	ask{chunked(anOrder), replayed, ""},
	ask{unread(anOrder), replayed, ""},
	ask{posted("", `{"sku":"B-2","quantity":2}`), created, ""},
	ask{chunked(request{body: order, media: "-"}), created, ""},
	ask{chunked(request{body: `{"sku":"B-2","quantity":2}`, media: "-"}), created, ""},
	ask{at("/payments", keyed("k-1")), created, ""},
	ask{at("/payments", keyed("k-1")), replayed, ""},
	ask{at("/payments", request{keys: []string{"k-1"}, body: `{"sku":"B-2","quantity":2}`}), refused(codes.KeyReused), ""},
}

// readAway: all of these requests are refused and leave nothing behind.
func readAway(all ...request) (steps []step) {
	for _, r := range all {
		steps = append(steps,
			ask{r, refused(codes.BodyConsumed), ""},
			ask{at("/payments", withKey(r, "k-1")), refused(codes.BodyConsumed), ""})
	}
	return append(steps, observed(core.Refused), executions(0),
		then(func(s *env) { s.unrecorded("a body that was read away") }),
		ask{unread(all[0]), created, ""},
	)
}

// formCases are the cases of a form that the last of front has read.
func formCases(front ...Front) []testCase {
	first := front[len(front)-1]
	what := ", read by " + string(first)
	if len(front) > 1 {
		what += " behind " + string(front[0])
	}
	alike := replayed
	alike.other = []string{"Vary"} // CSRF says that it has looked
	common := testCase{
		needs:   Features{Front: front},
		app:     App{Front: front},
		handler: echoForm,
		loose:   true,
		noBare:  first == CSRF, // its cookie tells the time
	}
	params, client := common, common
	params.name, client.name = "two forms"+what, "two forms with one key"+what
	params.why = "a form that somebody in front has read is taken from what was parsed: \"700 to eve\" must not be answered " +
		"with \"sent 5 to bob\""
	params.steps = []step{
		ask{aForm("A-1"), created, ""},
		ask{aForm("A-1"), replayed, ""},
		ask{chunked(aForm("A-1")), replayed, ""},
		ask{unread(aForm("A-1")), alike, ""},
		ask{aForm("B 2&c=d+\"é"), created, ""},
		ask{unread(aForm("B 2&c=d+\"é")), alike, ""},
		ask{someParts("A-1", "meow"), created, ""},
		ask{chunked(someParts("A-1", "meow")), replayed, ""},
		ask{unread(someParts("A-1", "meow")), alike, ""},
		ask{someParts("B 2&c=d+\"é", "meow"), created, ""},
		ask{unread(someParts("B 2&c=d+\"é", "meow")), alike, ""},
		ask{someParts("A-1", "woof"), created, ""},
		ask{unread(someParts("A-1", "woof")), alike, ""},
	}
	client.why = "other parameters with a used key get 422, also if somebody in front has read them"
	client.policy = clientKey
	client.steps = []step{
		ask{withKey(aForm("A-1"), "k-1"), created, ""},
		ask{withKey(aForm("A-1"), "k-1"), replayed, ""},
		ask{withKey(unread(aForm("A-1")), "k-1"), alike, ""},
		ask{withKey(aForm("B-2"), "k-1"), refused(codes.KeyReused), ""},
		ask{withKey(chunked(aForm("B-2")), "k-1"), refused(codes.KeyReused), ""},
		ask{withKey(someParts("A-1", "meow"), "k-2"), created, ""},
		ask{withKey(unread(someParts("A-1", "meow")), "k-2"), alike, ""},
		ask{withKey(someParts("A-1", "woof"), "k-2"), refused(codes.KeyReused), ""},
		ask{withKey(chunked(someParts("B-2", "meow")), "k-2"), refused(codes.KeyReused), ""},
	}
	return []testCase{params, client}
}

// echoForm says what the handler has found in a form.
func echoForm(_ *probe, c Call, n int) error {
	var in struct {
		SKU      string `json:"sku" form:"sku"`
		Quantity int    `json:"quantity" form:"quantity"`
	}
	if err := c.Bind(&in); err != nil {
		return err
	}
	return c.Blob(201, "text/plain", fmt.Appendf(nil, "%d: %s times %d", n, in.SKU, in.Quantity))
}

// aForm has what each Front wants.
func aForm(sku string) request {
	return withCookie(form("csrf=" + csrfToken + "&api-key=secret&quantity=2&sku=" + url.QueryEscape(sku)))
}

// someParts is the same, in parts, with a file.
func someParts(sku, file string) request {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	// Writing to a buffer cannot fail, and the boundary is the suite's own.
	_ = w.SetBoundary("b-1")
	for _, p := range []adapter.Pair{{Name: "sku", Value: sku}, {Name: "csrf", Value: csrfToken}, {Name: "api-key", Value: "secret"},
		{Name: "quantity", Value: "2"}} {
		_ = w.WriteField(p.Name, p.Value)
	}
	part, _ := w.CreateFormFile("file", "cat.png")
	_, _ = part.Write([]byte(file))
	_ = w.Close()
	return withCookie(request{body: b.String(), media: w.FormDataContentType()})
}

// unreadable is a form most of which net/url drops.
var unreadable = form("sku=A-1&quantity=2&x=" + strings.Repeat("%zz", 100))

func withCookie(r request) request {
	r.fields = append(slices.Clone(r.fields), field("Cookie", "_csrf="+csrfToken))
	return r
}

// unread is r as nobody in front reads it.
func unread(r request) request {
	r.fields = append(slices.Clone(r.fields), field(UnreadHeader, "1"))
	return r
}

func chunked(r request) request { r.chunked = true; return r }

func at(target string, r request) request { r.target = target; return r }

func withKey(r request, key string) request { r.keys = []string{key}; return r }

func compressed(r request) request {
	r.body = gzipped(r.body)
	r.fields = append(slices.Clone(r.fields), field("Content-Encoding", "gzip"))
	return r
}

func overridden(sku string) request { return form("_method=PATCH&quantity=2&sku=" + sku) }

func asPatch(r request) request { r.method = "PATCH"; return r }
