package core

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// User is who sends a request, as far as keys are concerned.
type User struct {
	// ID tells this user from all others.
	ID string
	// Credential says that ID may be, or may hold, a secret. It is then stored as a hash
	// only. An ID of more than 64 bytes is hashed in any case.
	Credential bool
	// Shared says that all callers are one.
	Shared bool

	// source tells the sources of one policy apart: the place within FirstUser (and within
	// one that stands in another), "" for the first. Those of verified callers, and of a
	// token's issuer, are words.
	source string
}

// ErrNoUser is returned by a user source for a request that does not say who sends it.
// The request then gets 400 user_missing.
var ErrNoUser = errors.New("idem: the request does not say who sends it")

var errUserTwice = errors.New("idem: the header field that names the user was sent twice")

// UserSource tells users apart. The zero UserSource is "not configured". It is safe
// for concurrent use if its function is.
type UserSource struct {
	find func(*Request) (User, error)
	// refine finds what tells the users of one verified caller apart. Nil: find does.
	refine func(*Request) (User, error)
	caller bool // there must be a verified caller, also where no user is needed
	fault  string
}

func (s UserSource) isZero() bool { return s.find == nil && s.fault == "" }

// UserFunc makes a user source from fn. fn returns [ErrNoUser] for a request without a
// user; so does an empty ID without Shared. Any other error refuses in the same way and
// goes to the observer.
func UserFunc(fn func(r *Request) (User, error)) UserSource {
	if fn == nil {
		return UserSource{fault: "UserFunc was given no function"}
	}
	return UserSource{find: fn}
}

// SharedByAllCallers says that the operation is the same whoever asks for it: the first
// caller's answer is replayed to every other caller. Only a policy that says so itself means
// callers that are verified (see [WithCaller]), too.
var SharedByAllCallers = UserSource{find: func(*Request) (User, error) { return User{Shared: true}, nil }, refine: nobody}

// UserFromHeader takes the user from a header field that a trusted party in front of
// the service has set. A field that is sent twice is refused.
func UserFromHeader(name string) UserSource {
	if name == "" {
		return UserSource{fault: "UserFromHeader was given an empty name"}
	}
	name = http.CanonicalHeaderKey(name)
	return UserFunc(func(r *Request) (User, error) {
		id, err := oneHeader(r, name)
		return User{ID: id}, err
	})
}

// UserFromAuthorization takes the whole Authorization header field as the user. It is
// stored as a hash. A user whose token is renewed becomes another user.
func UserFromAuthorization() UserSource {
	return UserFunc(func(r *Request) (User, error) {
		id, err := oneHeader(r, "Authorization")
		return User{ID: id, Credential: true}, err
	})
}

// UserFromJWTSubject takes the user from the "sub" claim of the bearer token (RFC 7519).
// It does NOT verify the token: mount the guard behind the middleware that does, else
// anybody can name any subject.
func UserFromJWTSubject() UserSource {
	return UserFunc(func(r *Request) (User, error) {
		auth, err := oneHeader(r, "Authorization")
		if err != nil {
			return User{}, err
		}
		scheme, token, ok := strings.Cut(auth, " ")
		if !ok || !strings.EqualFold(scheme, "Bearer") {
			return User{}, ErrNoUser
		}
		parts := strings.Split(token, ".")
		if len(parts) != 3 {
			return User{}, ErrNoUser
		}
		payload, err := base64.RawURLEncoding.DecodeString(parts[1])
		if err != nil {
			return User{}, ErrNoUser
		}
		var claims struct {
			Issuer  string `json:"iss"`
			Subject string `json:"sub"`
		}
		if json.Unmarshal(payload, &claims) != nil || claims.Subject == "" {
			return User{}, ErrNoUser
		}
		// A subject is unique within its issuer only (RFC 7519, section 4.1.2).
		if claims.Issuer != "" {
			return User{ID: url.QueryEscape(claims.Issuer) + " " + claims.Subject, source: "iss"}, nil
		}
		return User{ID: claims.Subject}, nil
	})
}

// UserFromRealIP takes the user from the X-Real-IP header field, which a proxy in front
// must set and must not let through from outside. Everybody behind one address is
// one user; as a fallback it is an explicit choice.
func UserFromRealIP() UserSource {
	s := UserFromHeader("X-Real-IP")
	s.refine = nobody
	return s
}

// UserFromRemoteAddr takes the IP address of the connection's peer as the user.
// Everybody behind one address (a NAT, a proxy) is one user.
func UserFromRemoteAddr() UserSource {
	s := UserFunc(func(r *Request) (User, error) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			return User{}, ErrNoUser
		}
		return User{ID: host}, nil
	})
	s.refine = nobody
	return s
}

// FirstUser asks sources in turn until one knows the user. Users from different sources
// are never one, even if their IDs are equal.
func FirstUser(sources ...UserSource) UserSource {
	if len(sources) == 0 {
		return UserSource{fault: "FirstUser was given no sources"}
	}
	for _, s := range sources {
		if s.find == nil {
			return UserSource{fault: "FirstUser: " + s.problem()}
		}
	}
	first := func(r *Request, ask func(UserSource, *Request) (User, error)) (User, error) {
		for i, s := range sources {
			u, err := ask(s, r)
			if errors.Is(err, ErrNoUser) || err == nil && u.ID == "" && !u.Shared {
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
		return User{}, ErrNoUser
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

// of finds the user of a request from a verified caller by default: it is the caller, or, if
// the source knows more, both.
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

// UserFromValue makes a user of what authentication middleware has left in a request's
// context: a string, an integer or a [fmt.Stringer] (a UUID, say). For nil it returns
// [ErrNoUser], for any other type an error that names it. Adapters build their native
// user sources on it.
func UserFromValue(v any) (User, error) {
	switch v := v.(type) {
	case nil:
		return User{}, ErrNoUser
	case string:
		return User{ID: v}, nil
	case int:
		return User{ID: strconv.Itoa(v)}, nil
	case int32:
		return User{ID: strconv.FormatInt(int64(v), 10)}, nil
	case int64:
		return User{ID: strconv.FormatInt(v, 10)}, nil
	case uint:
		return User{ID: strconv.FormatUint(uint64(v), 10)}, nil
	case uint32:
		return User{ID: strconv.FormatUint(uint64(v), 10)}, nil
	case uint64:
		return User{ID: strconv.FormatUint(v, 10)}, nil
	case fmt.Stringer:
		return User{ID: v.String()}, nil
	}
	return User{}, fmt.Errorf("idem: a %T does not name a user; use core.UserFunc to take the user out of it", v)
}

func oneHeader(r *Request, name string) (string, error) {
	v, lines := r.Headers.Header(name)
	if lines > 1 {
		return "", errUserTwice // not ErrNoUser: nothing may stand in for it
	}
	if v == "" {
		return "", ErrNoUser
	}
	return v, nil
}
