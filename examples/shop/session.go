package shop

import (
	"crypto/rand"
	"net/http"
	"regexp"

	"github.com/idem-go/idem/core"
)

// Somebody who is not logged in and comes with a browser is a user all the same, whom a cookie tells
// from the others. It is the whole session: nothing is stored.

const sessionCookie = "session"

// sessionID is what rand.Text returns. Nobody else's spelling is a session.
var sessionID = regexp.MustCompile(`^[A-Z2-7]{26}$`)

// NewSession begins a session for a visitor who has none and is not logged in: it returns the cookie to be
// set in the answer, and to be added to the request, for the inner handlers; else nil.
func NewSession(header func(string) string) *http.Cookie {
	if User(header) != "" {
		return nil
	}
	return &http.Cookie{
		Name: sessionCookie, Value: rand.Text(), Path: "/",
		HttpOnly: true, SameSite: http.SameSiteLaxMode, // and Secure, where the shop is served by TLS
	}
}

// User says who sends a request: the name that the login in front has put into X-User, or
// else the visitor's session. It is empty for a program without either.
func User(header func(string) string) string {
	if user := header("X-User"); user != "" {
		return user
	}
	if id := session(header("Cookie")); id != "" {
		return "session " + id
	}
	return ""
}

// session returns the session among a request's cookies, or "".
func session(cookies string) string {
	r := http.Request{Header: http.Header{"Cookie": {cookies}}}
	for _, cookie := range r.CookiesNamed(sessionCookie) {
		if sessionID.MatchString(cookie.Value) {
			return cookie.Value
		}
	}
	return ""
}

// userFromSession tells the visitors apart for the guards. Who has the cookie is that visitor, so that
// it is a credential, of which only a hash is stored.
func userFromSession() core.UserSource {
	return core.UserFunc(func(r *core.Request) (core.User, error) {
		cookies, _ := r.Headers.Header("Cookie", 0)
		id := session(cookies)
		if id == "" {
			return core.User{}, core.ErrNoUser
		}
		return core.User{ID: id, Credential: true}, nil
	})
}
