package adapterkit

import (
	"fmt"
	"math"
	"reflect"
	"strconv"

	"github.com/idem-go/idem/core"
)

// UserFromValue makes a user of a value that authentication middleware has left in a request's context:
//
//   - a string, or an integer, also as a float64 without a fraction, which is how JSON decodes one;
//   - a verified JSON Web Token of golang-jwt v5: a *jwt.Token, or its claims (with the methods GetSubject and
//     GetIssuer); the user is the subject within the issuer;
//   - a [fmt.Stringer], such as a UUID.
//
// For nil it returns [core.ErrNoUser], for any other value an error that says what to write instead. The adapters'
// UserFromContext are built on it.
func UserFromValue(v any) (core.User, error) {
	switch v := v.(type) {
	case nil:
		return core.User{}, core.ErrNoUser
	case string:
		return core.User{ID: v}, nil
	case int:
		return core.User{ID: strconv.Itoa(v)}, nil
	case int32:
		return core.User{ID: strconv.FormatInt(int64(v), 10)}, nil
	case int64:
		return core.User{ID: strconv.FormatInt(v, 10)}, nil
	case uint:
		return core.User{ID: strconv.FormatUint(uint64(v), 10)}, nil
	case uint32:
		return core.User{ID: strconv.FormatUint(uint64(v), 10)}, nil
	case uint64:
		return core.User{ID: strconv.FormatUint(v, 10)}, nil
	case float64: // a claim that is a number; beyond 2^53 two of them may have become one
		if v != math.Trunc(v) || math.Abs(v) >= 1<<53 {
			return core.User{},
				fmt.Errorf("idem: %v in the context is not a whole number below 2^53, so it does not name a user; %s", v, takeItYourself)
		}
		return core.User{ID: strconv.FormatInt(int64(v), 10)}, nil
	}
	if value := reflect.ValueOf(v); value.Kind() == reflect.Pointer && value.IsNil() {
		return core.User{}, core.ErrNoUser
	}
	if u, ok, err := userFromJWT(v); ok {
		return u, err
	}
	if s, ok := v.(fmt.Stringer); ok {
		return core.User{ID: s.String()}, nil
	}
	return core.User{}, fmt.Errorf("idem: a %T in the context does not name a user; %s", v, takeItYourself)
}

const takeItYourself = "get the user from it with core.UserFunc(func(r *core.Request) (core.User, error) { … r.Native … })"

// jwtClaims is implemented by the claims of golang-jwt v5: registered, map and custom ones.
type jwtClaims interface {
	GetSubject() (string, error)
	GetIssuer() (string, error)
}

// userFromJWT finds the subject of a verified token of golang-jwt v5, or of its claims. It knows the token by the form
// of its fields, so that nobody need import it: examples/jwt_test.go runs the library. ok is false if v is neither.
func userFromJWT(v any) (u core.User, ok bool, err error) {
	claims, ok := v.(jwtClaims)
	if value := reflect.Indirect(reflect.ValueOf(v)); !ok && value.Kind() == reflect.Struct {
		inner, valid := exported(value, "Claims"), exported(value, "Valid")
		if inner.Kind() != reflect.Interface || valid.Kind() != reflect.Bool {
			return core.User{}, false, nil
		}
		if !valid.Bool() {
			return core.User{}, true, fmt.Errorf("idem: the %T in the context has not been verified", v)
		}
		claims, ok = inner.Interface().(jwtClaims)
	}
	if !ok {
		return core.User{}, false, nil
	}
	sub, err := claims.GetSubject()
	issuer := ""
	if err == nil {
		issuer, err = claims.GetIssuer()
	}
	switch {
	case err != nil:
		err = fmt.Errorf("idem: the %T in the context has no subject (sub) that names a user: %w; %s", v, err, takeItYourself)
	case sub == "":
		err = fmt.Errorf("idem: the %T in the context has no subject (sub); %s", v, takeItYourself)
	case issuer != "": // a subject is unique within its issuer only (RFC 7519, section 4.1.2)
		return core.User{ID: sub, Issuer: issuer}, true, nil
	}
	return core.User{ID: sub}, true, err
}

// exported returns a field of a struct, or of what it embeds, or the zero Value.
func exported(of reflect.Value, name string) (field reflect.Value) {
	if f, ok := of.Type().FieldByName(name); ok {
		field, _ = of.FieldByIndexErr(f.Index) // zero if an embedded pointer is nil
	}
	return field
}
