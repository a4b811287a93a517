package adapterkit_test

import (
	"encoding/json"
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
)

// These have the form of golang-jwt's types: the names of the fields that count, the methods,
// and what is embedded in what. examples/jwt_test.go has the library.

type (
	claimsV5 interface {
		GetIssuer() (string, error)
		GetSubject() (string, error)
	}
	tokenV5 struct {
		Raw    string
		Header map[string]any
		Claims claimsV5
		Valid  bool
	}
	mapClaimsV5        map[string]any
	registeredClaimsV5 struct {
		Issuer  string `json:"iss,omitempty"`
		Subject string `json:"sub,omitempty"`
	}
	customClaimsV5 struct {
		registeredClaimsV5
		Role string
	}
	// A token of v4: its claims have no GetSubject.
	tokenV4 struct {
		Claims interface{ Valid() error }
		Valid  bool
	}
	mapClaimsV4 map[string]any
	wrapped     struct{ *tokenV5 }
)

func (m mapClaimsV5) GetIssuer() (string, error)  { return m.text("iss") }
func (m mapClaimsV5) GetSubject() (string, error) { return m.text("sub") }

func (m mapClaimsV5) text(name string) (string, error) {
	raw, ok := m[name]
	if !ok {
		return "", nil
	}
	s, ok := raw.(string)
	if !ok {
		return "", errors.New("it is no string")
	}
	return s, nil
}

func (c registeredClaimsV5) GetIssuer() (string, error)  { return c.Issuer, nil }
func (c registeredClaimsV5) GetSubject() (string, error) { return c.Subject, nil }

func (mapClaimsV4) Valid() error { return nil }

func TestUserFromValue(t *testing.T) {
	inIssuer := core.User{ID: "u1", Issuer: "https://id"}
	for name, tc := range map[string]struct {
		value any
		want  core.User
	}{
		"a string":             {"s", core.User{ID: "s"}},
		"an int":               {-1, core.User{ID: "-1"}},
		"an int32":             {int32(2), core.User{ID: "2"}},
		"an int64":             {int64(3), core.User{ID: "3"}},
		"a uint":               {uint(4), core.User{ID: "4"}},
		"a uint32":             {uint32(5), core.User{ID: "5"}},
		"a uint64":             {uint64(6), core.User{ID: "6"}},
		"as gin-jwt leaves it": {float64(1<<53 - 1), core.User{ID: "9007199254740991"}},
		"a number":             {json.Number("9007199254740993"), core.User{ID: "9007199254740993"}},
		"a stringer":           {netip.MustParseAddr("10.0.0.1"), core.User{ID: "10.0.0.1"}},
		"map":                  {&tokenV5{Claims: mapClaimsV5{"iss": "https://id", "sub": "u1"}, Valid: true}, inIssuer},
		"registered":           {&tokenV5{Claims: registeredClaimsV5{"https://id", "u1"}, Valid: true}, inIssuer},
		"pointer":              {&tokenV5{Claims: &registeredClaimsV5{"https://id", "u1"}, Valid: true}, inIssuer},
		"custom":               {&tokenV5{Claims: &customClaimsV5{registeredClaimsV5{"https://id", "u1"}, "admin"}, Valid: true}, inIssuer},
		"claims alone":         {&customClaimsV5{registeredClaimsV5{"https://id", "u1"}, "admin"}, inIssuer},
		"map alone":            {mapClaimsV5{"iss": "https://id", "sub": "u1"}, inIssuer},
		"wrapped":              {wrapped{tokenV5: &tokenV5{Claims: mapClaimsV5{"iss": "https://id", "sub": "u1"}, Valid: true}}, inIssuer},
		"no issuer":            {&tokenV5{Claims: mapClaimsV5{"sub": "u1"}, Valid: true}, core.User{ID: "u1"}},
	} {
		u, err := adapterkit.UserFromValue(tc.value)
		assert.NoError(t, err, name)
		assert.Equal(t, tc.want, u, name)
	}
	for _, nobody := range []any{nil, (*customClaimsV5)(nil)} {
		_, err := adapterkit.UserFromValue(nobody)
		assert.ErrorIs(t, err, core.ErrNoUser)
	}
	// What names nobody is an error, which says what to write instead.
	for name, v := range map[string]any{
		"no subject":          &tokenV5{Claims: mapClaimsV5{"user_id": "u1"}, Valid: true},
		"a number":            &tokenV5{Claims: mapClaimsV5{"sub": 7.0}, Valid: true},
		"a number as issuer":  &tokenV5{Claims: mapClaimsV5{"sub": "u1", "iss": 7.0}, Valid: true},
		"v4":                  &tokenV4{Claims: mapClaimsV4{"sub": "u1"}, Valid: true},
		"a map":               map[string]any{"sub": "u1"},
		"nothing wrapped":     wrapped{},
		"no claims":           &tokenV5{Valid: true},
		"a model":             &struct{ ID int }{7},
		"a fraction":          1.5,
		"two ids may be this": float64(1 << 53),
	} {
		_, err := adapterkit.UserFromValue(v)
		assert.ErrorContains(t, err, "core.UserFunc(", name)
		assert.NotErrorIs(t, err, core.ErrNoUser, name)
	}
	_, err := adapterkit.UserFromValue(&tokenV5{Claims: mapClaimsV5{"sub": "u1"}})
	assert.ErrorContains(t, err, "has not been verified")
}
