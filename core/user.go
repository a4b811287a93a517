package core

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// User is the sender of a request, as a part of keys.
type User struct {
	// ID identifies the user among all users, or among all users of the Issuer.
	ID string
	// Issuer is the party that has given the ID, if the ID is unique only there: the issuer of a token (RFC 7519, section 4.1.1).
	Issuer string
	// Credential says that ID may be, or contain, a secret. Then only a hash of it is stored. An ID of more than 64 bytes is always
	// stored as a hash.
	Credential bool
	// Shared says that all callers are one user. ID may then be empty.
	Shared bool

	// source tells the sources of one policy apart: the place within FirstUser (and within a nested
	// FirstUser), "" for the first. Verified callers and the issuers of tokens have words.
	source string
}

// ErrNoUser is what a user source returns for a request that does not name its user. The request gets 400
// user_missing.
var ErrNoUser = errors.New("idem: the request does not say who sends it")

// NoUserUnder is the error of a user source, such as the adapters' UserFromContext, for requests in whose context nothing is under
// key. To errors.Is it is [ErrNoUser]. For each call of NoUserUnder, the first refusal with its error is reported as a fault, which
// [LogEvents] logs as a warning: the authentication may use another key. It is safe for concurrent use.
func NoUserUnder(key any) error { return &emptyKey{key: key} }

type emptyKey struct {
	key  any
	told atomic.Bool
}

func (e *emptyKey) Error() string {
	return fmt.Sprintf("idem: the request does not say who sends it: nothing is in its context under the key %#v; "+
		"the authentication goes outside the guard, and leaves the user under that key", e.key)
}

func (e *emptyKey) Is(target error) bool { return target == ErrNoUser }

// tellOnce makes the first error of an emptyKey one that is not [ErrNoUser].
func tellOnce(err error) error {
	if e, ok := errors.AsType[*emptyKey](err); ok && e.told.CompareAndSwap(false, true) {
		return errors.New(e.Error())
	}
	return err
}

var errUserTwice = errors.New("idem: the header field that names the user was sent twice")

// UserSource finds the user of a request. The zero UserSource means that none is configured. It is safe for
// concurrent use if its function is.
type UserSource struct {
	find func(*Request) (User, error)
	// refine finds what tells the users of one verified caller apart. Nil: find does.
	refine func(*Request) (User, error)
	caller bool // there must be a verified caller, also where no user is needed
	all    bool // it knows a user for every request
	fault  string
}

func (s UserSource) isZero() bool { return s.find == nil && s.fault == "" }

// UserFunc makes a user source of fn, which must be safe for concurrent use. fn returns [ErrNoUser] for a request without a user;
// an empty ID without Shared means the same. Any other error also refuses with 400 user_missing, and goes to the observer.
func UserFunc(fn func(r *Request) (User, error)) UserSource {
	if fn == nil {
		return UserSource{fault: "UserFunc was given no function"}
	}
	return UserSource{find: func(r *Request) (User, error) {
		u, err := fn(r)
		if u.Issuer != "" && u.ID != "" { // a blank, which is escaped in the issuer, separates the two
			u.ID, u.source = url.QueryEscape(u.Issuer)+" "+u.ID, "iss"
		}
		return u, err
	}}
}

// SharedByAllCallers makes all callers one user: the first caller's answer is replayed to every other
// caller. As [Config].User it does not apply to verified callers ([WithCaller]); as [Policy].User it does.
func SharedByAllCallers() UserSource {
	return UserSource{find: func(*Request) (User, error) { return User{Shared: true}, nil }, refine: noUser, all: true}
}

// UserFromHeader takes the user from a header field that a trusted party in front of the service has set. A request with two such
// fields is refused.
//
// If the name suggests a secret, only a hash of the value is stored, as by [UserFromSecretHeader]. It does if its last word is
// auth, or if one of its words is authorization, authentication, bearer, jwt, saml, token, tokens, authtoken, accesstoken, csrf,
// csrftoken, xsrf, xsrftoken, key, keys, keyid, apikey, apikeys, apikeyid, accesskey, secret, secrets, pass, password, passwd,
// passphrase, passcode, pwd, pin, otp, cookie, session, sessionid, sid, credential, credentials, signature or sig. Words are
// separated by '-', '_' and '.', and their case does not count. Use UserFromSecretHeader for all other secrets.
func UserFromHeader(name string) UserSource {
	return userFromHeader("UserFromHeader", name, tellsOfSecret(name))
}

// UserFromSecretHeader takes the user from a header field that is itself a secret, such as an API key. Only a hash of it is stored.
// A caller with a new secret is another user, for whom every retry runs again. Prefer the adapters' UserFromContext, which takes
// the owner of the secret from the middleware that verifies it.
func UserFromSecretHeader(name string) UserSource {
	return userFromHeader("UserFromSecretHeader", name, true)
}

func userFromHeader(source, name string, secret bool) UserSource {
	if !isFieldName(name) {
		return UserSource{fault: source + " was given " + quote(name) + ", which is no header field name"}
	}
	name = http.CanonicalHeaderKey(name)
	return UserFunc(func(r *Request) (User, error) {
		id, err := oneHeader(r, name)
		return User{ID: id, Credential: secret}, err
	})
}

// tellsOfSecret reports whether a header field of that name is likely to contain a credential. Only whole words tell: a
// hash hides each X-Author-Id from operators.
func tellsOfSecret(name string) bool {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == '-' || r == '_' || r == '.' })
	return len(words) > 0 && words[len(words)-1] == "auth" ||
		slices.ContainsFunc(words, func(word string) bool { return slices.Contains(secretWords, word) })
}

// secretWords are those that [UserFromHeader] names.
var secretWords = []string{"authorization", "authentication", "bearer", "jwt", "saml", "token", "tokens", "authtoken", "accesstoken",
	"csrf", "csrftoken", "xsrf", "xsrftoken", "key", "keys", "keyid", "apikey", "apikeys", "apikeyid", "accesskey", "secret", "secrets",
	"pass", "password", "passwd", "passphrase", "passcode", "pwd", "pin", "otp", "cookie", "session", "sessionid", "sid",
	"credential", "credentials", "signature", "sig"}

// UserFromRealIP takes the user from the X-Real-IP header field. A proxy in front must set it, and replace any value that the
// client sends. All clients behind one address are one user.
func UserFromRealIP() UserSource {
	s := UserFromHeader("X-Real-IP")
	s.refine = noUser
	return s
}

// UserFromRemoteAddr takes the IP address of the connection's peer as the user.
// All clients behind one address (a NAT, a proxy) are one user.
func UserFromRemoteAddr() UserSource {
	s := UserFunc(func(r *Request) (User, error) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			return User{}, ErrNoUser
		}
		return User{ID: host}, nil
	})
	s.refine = noUser
	return s
}

// FirstUser calls sources in turn until one finds a user. Users from different sources are always different, even if their IDs are
// equal.
func FirstUser(sources ...UserSource) UserSource {
	if len(sources) == 0 {
		return UserSource{fault: "FirstUser was given no sources"}
	}
	for i, s := range sources {
		switch {
		case s.find == nil:
			return UserSource{fault: "FirstUser: " + s.problem()}
		case s.all && i < len(sources)-1:
			return UserSource{fault: "FirstUser: a source after SharedByAllCallers is never asked"}
		}
	}
	first := func(r *Request, ask func(UserSource, *Request) (User, error)) (User, error) {
		none := ErrNoUser
		for i, s := range sources {
			u, err := ask(s, r)
			if errors.Is(err, ErrNoUser) || err == nil && u.ID == "" && !u.Shared {
				if none == ErrNoUser && err != nil {
					none = err
				}
				continue
			}
			switch {
			case u.source != "":
				u.source = strconv.Itoa(i) + "." + u.source
			case i > 0:
				u.source = strconv.Itoa(i)
			}
			return u, err
		}
		return User{}, none
	}
	return UserSource{
		find:   func(r *Request) (User, error) { return first(r, UserSource.ask) },
		refine: func(r *Request) (User, error) { return first(r, UserSource.askFor) },
	}
}

func (s UserSource) ask(r *Request) (User, error) { return s.find(r) }

// askFor asks for the user of a verified caller.
func (s UserSource) askFor(r *Request) (User, error) {
	if s.refine != nil {
		return s.refine(r)
	}
	return s.find(r)
}

// of finds the user of a request from a verified caller: the caller, and the user that the source finds, if
// any.
func (s UserSource) of(r *Request) (User, error) {
	u, err := s.askFor(r)
	switch {
	case errors.Is(err, ErrNoUser), err == nil && u.ID == "":
		return verified(r.Caller), nil
	case err != nil:
		return User{}, err
	}
	return refined(r.Caller, u), nil
}

func (s UserSource) problem() string {
	if s.fault != "" {
		return s.fault
	}
	return "a zero UserSource"
}

func oneHeader(r *Request, name string) (string, error) {
	v, lines := r.Headers.Header(name, 0)
	if lines > 1 {
		return "", errUserTwice // not ErrNoUser: nothing may stand in for it
	}
	if v == "" {
		return "", ErrNoUser
	}
	return v, nil
}

// appendUser appends the user part of a key. A '#' is never left by appendPart, so that
// what follows one can't be a plain ID.
func appendUser(k []byte, u User) []byte {
	if u.source != "" {
		k = append(k, u.source...)
		k = append(k, '#')
	}
	if !u.Credential && len(u.ID) <= 64 {
		return appendPart(k, u.ID)
	}
	sum := sha256.Sum256([]byte(u.ID))
	k = append(k, '#')
	return base64.RawURLEncoding.AppendEncode(k, sum[:])
}
