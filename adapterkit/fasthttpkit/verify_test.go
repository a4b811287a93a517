package fasthttpkit_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttputil"

	"github.com/idem-go/idem/adapterkit/fasthttpkit"
	"github.com/idem-go/idem/internal/fibertest"
	"github.com/idem-go/idem/sign/signtest"
)

// RFC 9110, section 6.5.1: nothing of a trailer becomes a part of the header. Nobody has signed it, and whoever is on the way can
// add one. What was signed, and what somebody in front has made of it, stays.
func TestATrailerBringsNothing(t *testing.T) {
	verifier := signtest.NewVerifier()
	// Whose line is whose can't be told, unless the trailer comes after the verification has begun.
	refused := map[string]string{"one that was sent": "malformed", "one that was replaced": "malformed", "in small letters": "malformed",
		"one that is kept apart": "malformed", "one that was signed": "duplicate_header"}
	for _, stream := range []bool{false, true} {
		for _, asSent := range []bool{false, true} {
			for name, lines := range map[string]string{
				"nothing":                "",
				"a field":                "X-Role: admin\r\n",
				"two of them":            "X-Role: admin\r\nX-Role: root\r\n",
				"one that was sent":      "X-User: mallory\r\n",
				"one that was replaced":  "X-Tenant: mallory\r\n",
				"one that was removed":   "X-Gone: mallory\r\n",
				"in small letters":       "x-user: mallory\r\nx-role: admin\r\nuser-agent: theirs\r\n",
				"one that is kept apart": "User-Agent: theirs\r\n",
				"one that was signed":    "X-Signed: mallory\r\n",
				"small letters":          "x-role: admin\r\n",
			} {
				for _, announced := range []string{"", "Trailer: X-Role, X-User, User-Agent\r\n"} {
					t.Run(fmt.Sprint(name, ", streamed ", stream, ", as sent ", asSent, ", announced ",
						announced != ""), func(t *testing.T) {
						var seen []string
						see := func(ctx *fasthttp.RequestCtx) {
							seen = nil
							h := &ctx.Request.Header
							h.VisitAll(func(k, v []byte) {
								switch strings.ToLower(string(k)) {
								case "content-length", "transfer-encoding", "trailer": // the body's
								default:
									seen = append(seen, strings.ToLower(string(k))+":"+string(v))
								}
							})
							for _, name := range []string{"X-Role", "x-role", "X-User", "x-user", "X-Gone", "User-Agent",
								"user-agent", "X-Tenant", "X-Front"} {
								for _, v := range h.PeekAll(name) {
									seen = append(seen, name+"="+string(v))
								}
								seen = append(seen, name+"="+string(h.Peek(name)))
							}
							slices.Sort(seen)
						}
						server := &fasthttp.Server{StreamRequestBody: stream, DisableHeaderNamesNormalizing: asSent,
							Handler: func(ctx *fasthttp.RequestCtx) {
								ctx.Request.Header.Set("X-Tenant", "ours")
								ctx.Request.Header.Set("X-Front", "ours")
								ctx.Request.Header.Del("X-Gone")
								if _, ok := fasthttpkit.Verify(context.Background(), verifier, ctx, "POST", false); ok {
									see(ctx)
									ctx.SetBodyString("reached " + string(ctx.Request.Body()))
								}
							}}
						send := func(lines, announced string) []string {
							r := signtest.NewRequest(t, signtest.Demo, "http://a.example.com/", "{}", "X-Signed", "bob")
							for name, value := range map[string]string{"User-Agent": "ours", "X-User": "bob",
								"X-Tenant": "bob", "X-Gone": "bob"} {
								r.Header.Set(name, value)
							}
							var head bytes.Buffer
							require.NoError(t, r.Header.Write(&head))
							message := "POST / HTTP/1.1\r\nHost: a.example.com\r\nTransfer-Encoding: chunked\r\n" + announced +
								head.String() + "\r\n2\r\n{}\r\n0\r\n" + lines + "\r\n"
							seen = nil
							got := exchangeOne(t, server, message)
							if code := refused[name]; lines == "" || stream || code == "" {
								assert.Equal(t, "reached {}", got)
							} else {
								assert.Contains(t, got, `"code":"`+code+`"`)
							}
							return slices.DeleteFunc(seen, func(line string) bool {
								return strings.HasPrefix(line, "x-nonce") || strings.HasPrefix(line, "x-signature") ||
									strings.HasPrefix(line, "x-timestamp")
							})
						}
						want := slices.Clone(send("", ""))
						require.Contains(t, want, "X-User=bob")
						require.Contains(t, want, "X-Tenant=ours")
						if stream {
							require.Contains(t, want, "X-Front=ours")
						} else { // it can't be told from what a trailer has brought
							require.Contains(t, want, "X-Front=")
							require.NotContains(t, want, "X-Front=ours")
						}
						if got := send(lines, announced); got != nil {
							assert.Equal(t, want, got)
						}
					})
				}
			}
		}
	}
}

// A Cookie in the trailer adds nothing, signed or not. Newer versions of fasthttp refuse it themselves: when they read it, which
// is before the handler, or, of a stream, in Verify.
func TestACookieInTheTrailer(t *testing.T) {
	const chunks = "\r\n2\r\n{}\r\n0\r\n%s: admin=1\r\n\r\n"
	verifier := signtest.NewVerifier()
	plain := &fasthttp.Server{Handler: func(*fasthttp.RequestCtx) {},
		ErrorHandler: func(ctx *fasthttp.RequestCtx, err error) { ctx.SetBodyString(err.Error()) }}
	newer := strings.Contains(exchangeOne(t, plain, "POST / HTTP/1.1\r\nHost: a.example.com\r\nTransfer-Encoding: chunked\r\n"+
		fmt.Sprintf(chunks, "Cookie")), "forbidden trailer")
	for _, stream := range []bool{false, true} {
		for _, sent := range []string{"", "sent", "signed"} {
			for _, name := range []string{"Cookie", "cookie"} {
				cookies, passed := "", false
				server := &fasthttp.Server{StreamRequestBody: stream, Handler: func(ctx *fasthttp.RequestCtx) {
					if _, passed = fasthttpkit.Verify(context.Background(), verifier, ctx, "POST", false); passed {
						ctx.Request.Header.VisitAllCookie(func(name, value []byte) { cookies += string(name) + "=" + string(value) + ";" })
					}
				}}
				var fields []string
				if sent == "signed" {
					fields = []string{"Cookie", "a=1; b=2"}
				}
				r := signtest.NewRequest(t, signtest.Demo, "http://a.example.com/", "{}", fields...)
				if sent == "sent" {
					r.Header.Set("Cookie", "a=1; b=2")
				}
				var head bytes.Buffer
				require.NoError(t, r.Header.Write(&head))
				got := exchangeOne(t, server, "POST / HTTP/1.1\r\nHost: a.example.com\r\nTransfer-Encoding: chunked\r\n"+
					head.String()+fmt.Sprintf(chunks, name))
				assert.NotContains(t, cookies, "admin")
				if cookies != "" {
					assert.Equal(t, "a=1;b=2;", cookies)
				}
				assert.False(t, passed && !stream && sent != "", "whose cookies they are can't be told")
				if newer {
					assert.False(t, passed)
				} else if !passed && sent == "signed" {
					assert.Contains(t, got, `"code":"duplicate_header"`)
				}
			}
		}
	}
}

// A request that did not come in chunks has no trailer: what somebody in front has added to its header stays.
func TestWhatSomebodyInFrontHasAddedStays(t *testing.T) {
	verifier, front := signtest.NewVerifier(), ""
	server := &fasthttp.Server{Handler: func(ctx *fasthttp.RequestCtx) {
		ctx.Request.Header.Set("X-Front", "ours")
		if _, ok := fasthttpkit.Verify(context.Background(), verifier, ctx, "POST", false); ok {
			front = string(ctx.Request.Header.Peek("X-Front"))
		}
	}}
	var head bytes.Buffer
	require.NoError(t, signtest.NewRequest(t, signtest.Demo, "http://a.example.com/", "{}").Header.Write(&head))
	exchangeOne(t, server, "POST / HTTP/1.1\r\nHost: a.example.com\r\nContent-Length: 2\r\n"+head.String()+"\r\n{}")
	assert.Equal(t, "ours", front)
}

// fasthttp 1.69 does not tell the lines of a header any more that ends with a bare line feed before the empty line.
func TestAHeaderThatCantBeReadAgain(t *testing.T) {
	verifier := signtest.NewVerifier()
	role := ""
	server := &fasthttp.Server{Handler: func(ctx *fasthttp.RequestCtx) {
		if _, ok := fasthttpkit.Verify(context.Background(), verifier, ctx, "POST", false); ok {
			role += string(ctx.Request.Header.Peek("X-Role"))
		}
	}}
	for _, end := range []string{"\r\n\r\n", "\n\r\n", "\n\n"} {
		r := signtest.NewRequest(t, signtest.Demo, "http://a.example.com/", "{}")
		var head bytes.Buffer
		require.NoError(t, r.Header.Write(&head))
		exchangeOne(t, server, "POST / HTTP/1.1\r\nHost: a.example.com\r\nTransfer-Encoding: chunked\r\n"+
			strings.TrimSuffix(head.String(), "\r\n")+end+"2\r\n{}\r\n0\r\nX-Role: admin\r\n\r\n")
		assert.Empty(t, role)
	}
}

// exchangeOne sends one message to server, and returns the body of the answer.
func exchangeOne(t *testing.T, server *fasthttp.Server, message string) string {
	t.Helper()
	if server.Logger == nil { // else a connection of before may still be reading it
		server.Logger = log.New(io.Discard, "", 0)
	}
	listener := fasthttputil.NewInmemoryListener()
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := listener.Dial()
	require.NoError(t, err)
	_, err = conn.Write([]byte(message))
	require.NoError(t, err)
	body := fibertest.ReadReply(t, bufio.NewReader(conn)).Body
	require.NoError(t, conn.Close())
	require.NoError(t, listener.Close())
	<-served
	return body
}
