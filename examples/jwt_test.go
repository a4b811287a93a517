package examples_test

import (
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
)

// adapterkit.UserFromValue knows the tokens of golang-jwt by their form. This is the library.
func TestTokensOfGolangJWT(t *testing.T) {
	type custom struct {
		jwt.RegisteredClaims
		Role string
	}
	registered := jwt.RegisteredClaims{Issuer: "https://id", Subject: "u1", ExpiresAt: jwt.NewNumericDate(time.Now().Add(time.Hour))}
	secret := []byte("0123456789abcdef0123456789abcdef")
	known := func(*jwt.Token) (any, error) { return secret, nil }
	for _, claims := range []jwt.Claims{&jwt.MapClaims{"iss": "https://id", "sub": "u1"}, &registered, &custom{registered, "admin"}} {
		signed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(secret)
		require.NoError(t, err)
		token, err := jwt.ParseWithClaims(signed, claims, known)
		require.NoError(t, err)
		for _, left := range []any{token, *token, token.Claims} {
			user, err := adapterkit.UserFromValue(left)
			require.NoError(t, err, "%T of %T", left, claims)
			require.Equal(t, core.User{ID: "u1", Issuer: "https://id"}, user)
		}
		unverified, _, err := jwt.NewParser().ParseUnverified(signed, claims)
		require.NoError(t, err)
		_, err = adapterkit.UserFromValue(unverified)
		require.ErrorContains(t, err, "has not been verified")
	}
}
