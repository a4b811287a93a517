package ginidem_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/ginidem"
	"github.com/idem-go/idem/idemtest"
)

// compressing compresses as gin-contrib/gzip does: what it does about a response is
// decided at the first write, by the status that it was told.
type compressing struct {
	gin.ResponseWriter
	to     *gzip.Writer
	status int
}

func compress(c *gin.Context) {
	if c.GetHeader("Accept-Encoding") != "gzip" {
		return
	}
	c.Header("Content-Encoding", "gzip")
	w := &compressing{c.Writer, gzip.NewWriter(c.Writer), 0}
	c.Writer = w
	c.Next()
	if w.status < 400 && w.Size() > 0 {
		_ = w.to.Close()
	}
}

func (w *compressing) WriteHeader(status int) {
	w.status = status
	w.Header().Del("Content-Length")
	w.ResponseWriter.WriteHeader(status)
}

func (w *compressing) Write(b []byte) (int, error) {
	w.Header().Del("Content-Length")
	if w.status >= 400 {
		w.Header().Del("Content-Encoding")
		return w.ResponseWriter.Write(b)
	}
	return w.to.Write(b)
}

func (w *compressing) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

func TestCompressionOutside(t *testing.T) {
	text := strings.Repeat("abc", 1000)
	for _, status := range []int{200, 201, 422} {
		engine := gin.New()
		engine.Use(compress)
		engine.POST("/x", ginidem.New(guard(core.Policy{}).Guard), func(c *gin.Context) { c.String(status, text) })
		for i, accept := range []string{"gzip", "", "gzip"} {
			r := httptest.NewRequest("POST", "/x", nil)
			r.Header.Set("X-User", "alice")
			r.Header.Set("Accept-Encoding", accept)
			w := httptest.NewRecorder()
			engine.ServeHTTP(w, r)
			require.Equal(t, status, w.Code)
			body := w.Body.String()
			if accept == "gzip" && status < 400 {
				require.Equal(t, "gzip", w.Header().Get("Content-Encoding"), i)
				plain, err := gzip.NewReader(w.Body)
				require.NoError(t, err)
				decoded, err := io.ReadAll(plain)
				require.NoError(t, err)
				body = string(decoded)
			} else {
				require.Empty(t, w.Header()["Content-Encoding"], i)
			}
			require.Equal(t, text, body)
		}
	}
}

func TestAStatusWithoutABodyIsSent(t *testing.T) {
	engine := gin.New()
	written := false
	engine.Use(func(c *gin.Context) {
		c.Next()
		written = c.Writer.Written()
	})
	engine.POST("/x", ginidem.New(guard(core.Policy{}).Guard), func(c *gin.Context) { c.AbortWithStatus(201) })
	for _, again := range []bool{false, true} {
		w := post(engine, "/x", "")
		require.Equal(t, 201, w.Code)
		require.Equal(t, again, replayed(w))
		require.True(t, written)
	}
}

// What has gone out past the recorder, or before it was there, is delivered and not replayed:
// nobody knows all of it.
func TestAnswersThatWereNotSeenWhole(t *testing.T) {
	begin := func(c *gin.Context) { c.String(200, "in front, ") }
	keep := func(c *gin.Context) { c.Set("writer", c.Writer) }
	past := func(c *gin.Context) { _, _ = c.MustGet("writer").(io.Writer).Write([]byte("past it")) }
	for name, c := range map[string]struct {
		front, handler gin.HandlerFunc
		body, again    string
		ran            int
	}{
		"begun in front":         {begin, func(c *gin.Context) { c.String(200, "behind") }, "in front, behind", "result_unavailable", 1},
		"begun in front, failed": {begin, func(c *gin.Context) { c.Error(errBroke) }, "in front, ", "", 2},
		"past it":                {keep, past, "past it", "result_unavailable", 1},
		"past it, with an error": {keep, func(c *gin.Context) { past(c); c.Error(errBroke) }, "past it", "result_unavailable", 1},
	} {
		for _, finish := range []bool{false, true} {
			t.Run(fmt.Sprint(name, finish), func(t *testing.T) {
				ran := 0
				e := gin.New()
				if finish {
					e.Use(ginidem.Finish())
				}
				e.POST("/orders", c.front, ginidem.New(guard(core.Policy{}).Guard), func(gc *gin.Context) { ran++; c.handler(gc) })
				require.Equal(t, c.body, post(e, "/orders", "{}").Body.String())
				again := post(e, "/orders", "{}")
				require.Equal(t, c.again, code(again))
				require.Equal(t, c.ran, ran)
			})
		}
	}
}

// How the pages say that a handler reports what RunTx and core.Allow return: no error is a success, whoever is in front.
func TestReportedByAbortWithError(t *testing.T) {
	busy := fmt.Errorf("order: %w", core.NewRefusal(codes.InProgress, nil))
	for name, tc := range map[string]struct {
		guards []gin.HandlerFunc
		err    error
		status int
		code   string
	}{
		"a refusal": {[]gin.HandlerFunc{ginidem.New(guard(core.Policy{}).Guard)}, busy, 409, "in_progress"},
		"a refusal, under Finish": {[]gin.HandlerFunc{ginidem.Finish(), ginidem.New(guard(core.Policy{}).Guard)},
			busy, 409, "in_progress"},
		"a fault":                   {[]gin.HandlerFunc{ginidem.New(guard(core.Policy{}).Guard)}, errBroke, 500, ""},
		"a fault, under Finish":     {[]gin.HandlerFunc{ginidem.Finish(), ginidem.New(guard(core.Policy{}).Guard)}, errBroke, 500, ""},
		"a refusal without a guard": {nil, busy, 500, ""},
	} {
		ran := 0
		e := gin.New()
		e.POST("/x", append(tc.guards, func(c *gin.Context) { ran++; c.AbortWithError(500, tc.err) })...)
		for range 2 {
			w := post(e, "/x", "")
			require.Equal(t, tc.status, w.Code, name)
			require.Equal(t, tc.code, code(w), name)
		}
		require.Equal(t, 2, ran, name)
	}
}

// Gin's own context leads to the run only if the engine says so.
func TestTheRunOfGinsContext(t *testing.T) {
	for _, fallback := range []bool{false, true} {
		e := gin.New()
		e.ContextWithFallback = fallback
		e.POST("/x", ginidem.New(guard(core.Policy{}).Guard), func(c *gin.Context) {
			run, err := core.RequireRun(c)
			if fallback {
				require.Same(t, ginidem.Run(c), run)
				return
			}
			require.ErrorContains(t, err, "c.Request.Context() in Gin")
			c.AbortWithError(500, err)
		})
		w := post(e, "/x", "")
		require.Equal(t, fallback, w.Code == 200)
		require.Equal(t, !fallback, code(w) == "no_run")
	}
}

// HandleContext gives the context Gin's own writer, past the guard's and all others: what is written to it is the answer.
func TestHandleContext(t *testing.T) {
	long := strings.Repeat("long", 1000)
	for name, tc := range map[string]struct {
		handler gin.HandlerFunc
		code    string // of the duplicate; "": it is replayed
	}{
		"a body":          {func(c *gin.Context) { c.JSON(201, gin.H{"id": 1}) }, ""},
		"no body":         {func(c *gin.Context) { c.Header("Location", "/1"); c.Status(204) }, ""},
		"written already": {func(c *gin.Context) { c.String(200, ", behind") }, ""},
		"over the limit":  {func(c *gin.Context) { c.String(201, long) }, "result_unavailable"},
		"flushed":         {func(c *gin.Context) { c.String(201, "one"); c.Writer.Flush(); c.String(201, "two") }, "result_unavailable"},
		"no route":        {nil, ""},
		"guarded, too":    {func(c *gin.Context) { c.String(201, "made") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			answers := func(guarded bool) (answers []*httptest.ResponseRecorder) {
				e, g := gin.New(), guard(core.Policy{ResponseLimit: 1000, Failed: func(*adapter.Response) bool { return false }}).Guard
				e.Use(compress)
				forward := []gin.HandlerFunc{func(c *gin.Context) {
					if name == "written already" {
						c.String(200, "in front")
					}
					c.Request.URL.Path = "/behind"
					e.HandleContext(c)
				}}
				if guarded {
					forward = append([]gin.HandlerFunc{ginidem.New(g)}, forward...)
				}
				e.POST("/x", forward...)
				if name == "guarded, too" && guarded {
					e.POST("/behind", ginidem.New(g), tc.handler)
				} else if tc.handler != nil {
					e.POST("/behind", tc.handler)
				}
				for range 2 {
					answers = append(answers, post(e, "/x", ""))
				}
				return answers
			}
			bare, got := answers(false)[0], answers(true)
			require.Equal(t, bare.Result(), got[0].Result())
			if require.Equal(t, tc.code, code(got[1])); tc.code == "" {
				require.True(t, replayed(got[1]))
				require.Equal(t, bare.Code, got[1].Code)
				require.Equal(t, bare.Body.String(), got[1].Body.String())
				require.Equal(t, bare.Header().Get("Location"), got[1].Header().Get("Location"))
			}
		})
	}
	t.Run("a panic", func(t *testing.T) {
		e := gin.New()
		e.POST("/x", gin.CustomRecoveryWithWriter(nil, func(c *gin.Context, _ any) { c.Writer.WriteString("recovered") }),
			func(c *gin.Context) { c.Status(500) }, ginidem.New(guard(core.Policy{}).Guard),
			func(c *gin.Context) { c.Request.URL.Path = "/behind"; e.HandleContext(c) })
		e.POST("/behind", func(c *gin.Context) { c.String(201, "made"); panic("oops") })
		for range 2 {
			w := post(e, "/x", "")
			require.Equal(t, 500, w.Code)
			require.Equal(t, "recovered", w.Body.String())
		}
	})
}

// An error that a middleware in front has reported before the guard is not the handler's.
func TestErrorsReportedInFront(t *testing.T) {
	for _, finish := range []bool{false, true} {
		for _, body := range []string{"", "made"} {
			t.Run(fmt.Sprintf("%t %q", finish, body), func(t *testing.T) {
				ran := 0
				g := guard(core.Policy{})
				e := gin.New()
				if finish {
					e.Use(ginidem.Finish())
				}
				e.Use(func(c *gin.Context) { c.Error(errBroke) }) // and goes on
				e.POST("/orders", ginidem.New(g.Guard), func(c *gin.Context) {
					ran++
					c.Status(201)
					_, _ = c.Writer.WriteString(body)
				})
				require.Equal(t, 201, post(e, "/orders", "{}").Code)
				require.Equal(t, core.Completed, g.last().Kind)
				require.NoError(t, g.last().Err)
				again := post(e, "/orders", "{}")
				require.Equal(t, 201, again.Code)
				require.Equal(t, body, again.Body.String())
				require.True(t, replayed(again))
				require.Equal(t, 1, ran)
			})
		}
	}
}

// A 1xx that a handler sends by Gin's own writer goes out at once, and is not the status.
func TestHintsThroughGinsWriter(t *testing.T) {
	for _, body := range []string{"", "made"} {
		t.Run(body, func(t *testing.T) {
			ran := 0
			serve := func(mw ...gin.HandlerFunc) *httptest.Server {
				e := gin.New()
				e.POST("/orders", append(mw, func(c *gin.Context) {
					ran++
					c.Header("Link", "</style.css>; rel=preload")
					c.Status(http.StatusEarlyHints)
					c.Writer.WriteHeaderNow()
					if body != "" {
						_, _ = c.Writer.WriteString(body)
					}
				})...)
				return server(t, e)
			}
			ask := func(s *httptest.Server) (reply, []int) {
				var hints []int
				r := over(t, s, httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
					hints = append(hints, code)
					return nil
				}})
				return r, hints
			}
			want, hints := ask(serve())
			require.Equal(t, []int{103}, hints)
			guarded := serve(ginidem.New(guard(core.Policy{}).Guard))
			first, hints := ask(guarded)
			require.Equal(t, want, first)
			require.Equal(t, []int{103}, hints)

			ran = 0
			again, hints := ask(guarded)
			require.Zero(t, ran)
			require.Empty(t, hints)
			require.Equal(t, "true", again.header.Get(core.ReplayedHeader))
			again.header.Del(core.ReplayedHeader)
			require.Equal(t, want, again)
		})
	}
}

// CloseNotify tells of the end of the run: what has been begun is finished, and c.Stream, which asks for it, goes on while
// the client is given its time.
func TestCloseNotifyTellsOfTheRun(t *testing.T) {
	for name, linger := range map[string]time.Duration{"at once": -1, "later": time.Hour} {
		t.Run(name, func(t *testing.T) {
			ctx, leave := context.WithCancel(t.Context())
			engine := gin.New()
			engine.POST("/x", ginidem.New(guard(core.Policy{Linger: linger}).Guard), func(c *gin.Context) {
				gone := c.Writer.CloseNotify()
				select {
				case <-gone:
					t.Error("it tells of the end before there is one")
				default:
				}
				leave()
				if linger < 0 {
					select {
					case <-gone:
					case <-time.After(10 * time.Second):
						t.Error("it does not tell")
					}
					return
				}
				select {
				case <-gone:
					t.Error("it tells of the client")
				case <-time.After(10 * time.Millisecond):
				}
			})
			r := httptest.NewRequestWithContext(ctx, "POST", "/x", nil)
			r.Header.Set("X-User", "alice")
			engine.ServeHTTP(closeNotifier{httptest.NewRecorder(), ctx}, r)
		})
	}
}

// closeNotifier tells when the client leaves, as the server's writer does.
type closeNotifier struct {
	*httptest.ResponseRecorder
	ctx context.Context
}

func (w closeNotifier) CloseNotify() <-chan bool {
	gone := make(chan bool, 1)
	context.AfterFunc(w.ctx, func() { gone <- true })
	return gone
}

// Whoever stands in front has its request back, and finds in it what net/http cleans up after.
func TestTheRequestIsGivenBack(t *testing.T) {
	for _, finish := range []bool{false, true} {
		for _, fails := range []bool{false, true} {
			for _, panics := range []bool{false, true} {
				t.Run(fmt.Sprint(finish, fails, panics), func(t *testing.T) {
					engine := idemtest.New(t, core.Config{User: core.SharedByAllCallers()})
					if fails {
						engine.Fail(idemtest.Acquire)
					}
					var before, after *http.Request
					e := gin.New()
					e.Use(func(c *gin.Context) {
						before = c.Request
						defer func() {
							_ = recover()
							after = c.Request
						}()
						c.Next()
					})
					if finish {
						e.Use(ginidem.Finish())
					}
					e.POST("/orders", ginidem.New(engine.MustGuard(core.Policy{FailOpen: true})), func(c *gin.Context) {
						require.Equal(t, "1", c.PostForm("a"))
						if panics {
							panic("oops")
						}
					})
					send(e, "/orders", "multipart/form-data; boundary=b",
						"--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--b--\r\n")
					require.Same(t, before, after)
					require.NotNil(t, after.MultipartForm)
				})
			}
		}
	}
}

// What ShouldBindBodyWith keeps counts, within the limit, if it is what was sent.
func TestKeptBodies(t *testing.T) {
	keep := func(c *gin.Context) { _ = c.ShouldBindBodyWithJSON(new(any)) }
	take := func(c *gin.Context) { _ = c.ShouldBindJSON(new(any)) }
	for name, tc := range map[string]struct {
		front []gin.HandlerFunc
		body  string
		want  string
	}{
		"kept, over the limit":   {[]gin.HandlerFunc{keep}, `{"a":"over the limit"}`, "body_too_large"},
		"kept after it was read": {[]gin.HandlerFunc{take, keep}, `{"a":1}`, "body_consumed"},
		"something else kept": {[]gin.HandlerFunc{take, func(c *gin.Context) { c.Set(gin.BodyBytesKey, []byte("{}")) }},
			`{"a":1}`, "body_consumed"},
	} {
		for _, finish := range []bool{false, true} {
			for _, chunked := range []bool{false, true} {
				if name == "something else kept" && chunked && !finish {
					continue // which nobody can tell
				}
				t.Run(fmt.Sprint(name, finish, chunked), func(t *testing.T) {
					e := gin.New()
					if finish {
						e.Use(ginidem.Finish())
					}
					e.POST("/orders", append(tc.front, ginidem.New(guard(core.Policy{BodyLimit: 10}).Guard), func(c *gin.Context) {
						require.NoError(t, c.Request.Body.Close())
						c.Status(201)
					})...)
					s := server(t, e)
					r, err := http.NewRequest("POST", s.URL+"/orders", strings.NewReader(tc.body))
					require.NoError(t, err)
					r.Header.Set("Content-Type", "application/json")
					r.Header.Set("X-User", "alice")
					if chunked {
						r.ContentLength = -1
					}
					resp, err := s.Client().Do(r)
					require.NoError(t, err)
					require.NoError(t, resp.Body.Close())
					require.Equal(t, tc.want, resp.Header.Get(core.RefusedHeader))
				})
			}
		}
	}
}

// A status that was dropped after a panic is not that of whoever recovers; one that was only noted is, as in Gin.
func TestTheStatusAfterAPanic(t *testing.T) {
	for want, handler := range map[int]gin.HandlerFunc{
		200: func(c *gin.Context) { c.String(422, "made") },
		404: func(c *gin.Context) { c.Status(404) },
	} {
		for _, finish := range []bool{false, true} {
			e := gin.New()
			e.Use(func(c *gin.Context) {
				defer func() {
					_ = recover()
					_, _ = c.Writer.WriteString("recovered")
				}()
				c.Next()
			})
			if finish {
				e.Use(ginidem.Finish())
			}
			e.POST("/orders", ginidem.New(guard(core.Policy{}).Guard), func(c *gin.Context) {
				handler(c)
				panic("oops")
			})
			w := post(e, "/orders", "{}")
			require.Equal(t, want, w.Code)
			require.Equal(t, "recovered", w.Body.String())
		}
	}
}

// Behind what has been sent in front of the guard no refusal is written.
func TestNoRefusalBehindAnAnswer(t *testing.T) {
	for name, handler := range map[string]gin.HandlerFunc{
		"refused":  func(c *gin.Context) { c.Error(core.NewRefusal(codes.InProgress, nil)) },
		"given up": func(c *gin.Context) { <-c.Request.Context().Done() },
	} {
		for _, finish := range []bool{false, true} {
			t.Run(fmt.Sprint(name, finish), func(t *testing.T) {
				e := gin.New()
				if finish {
					e.Use(ginidem.Finish())
				}
				e.Use(func(c *gin.Context) {
					ctx, cancel := context.WithTimeout(c.Request.Context(), 10*time.Millisecond)
					defer cancel()
					c.Request = c.Request.WithContext(ctx)
					c.String(200, "in front")
					c.Next()
				})
				e.POST("/orders", ginidem.New(guard(core.Policy{}).Guard), handler)
				require.Equal(t, "in front", post(e, "/orders", "{}").Body.String())
			})
		}
	}
}

// A middleware that renders a handler's error, and then panics, has answered nothing: whoever recovers does, and finds
// neither that body nor its status.
func TestAPanicAfterRendering(t *testing.T) {
	e := gin.New()
	e.Use(func(c *gin.Context) {
		defer func() {
			_ = recover()
			_, _ = c.Writer.WriteString("recovered")
		}()
		c.Next()
	}, ginidem.Finish(), func(c *gin.Context) {
		c.Next()
		if len(c.Errors) > 0 {
			c.String(422, "rendered")
			panic("oops")
		}
	})
	e.POST("/orders", ginidem.New(guard(core.Policy{}).Guard), func(c *gin.Context) { c.Error(errBroke) })
	w := post(e, "/orders", "{}")
	require.Equal(t, 200, w.Code)
	require.Equal(t, "recovered", w.Body.String())
}

// A client that has asked for another protocol gets the status before the connection is hijacked: what WebSocket
// libraries do.
func TestSwitchingProtocolsIsSentAtOnce(t *testing.T) {
	e, sent, w := gin.New(), 0, httptest.NewRecorder()
	e.POST("/orders", ginidem.New(guard(core.Policy{}).Guard), func(c *gin.Context) {
		c.Status(http.StatusSwitchingProtocols)
		c.Writer.WriteHeaderNow()
		sent = w.Code
	})
	r := httptest.NewRequest("POST", "/orders", nil)
	r.Header.Set("X-User", "alice")
	e.ServeHTTP(w, r)
	require.Equal(t, http.StatusSwitchingProtocols, sent)
}

// A middleware under Finish that has set a writer of its own, and put back the one in front, has the last word: Finish leaves that.
func TestTheWriterIsGivenBack(t *testing.T) {
	var before, after gin.ResponseWriter
	e := gin.New()
	e.Use(func(c *gin.Context) {
		before = c.Writer
		c.Next()
		after = c.Writer
	}, ginidem.Finish(), func(c *gin.Context) {
		front := c.Writer
		c.Writer = &struct{ gin.ResponseWriter }{front}
		c.Next()
		c.Writer = front
		c.String(422, "rendered")
	})
	e.POST("/orders", ginidem.New(guard(core.Policy{}).Guard), func(c *gin.Context) { c.Error(errBroke) })
	require.Equal(t, 422, post(e, "/orders", "{}").Code)
	require.Same(t, before, after)
}
