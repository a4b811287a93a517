package core

import (
	"fmt"
	"net/url"
	"reflect"
)

// jwtClaims is implemented by the claims of golang-jwt v5: registered, map and custom ones.
type jwtClaims interface {
	GetSubject() (string, error)
	GetIssuer() (string, error)
}

// userFromJWT finds the subject of a verified token of golang-jwt v5, or of its claims. It knows the token by the form
// of its fields, so that core need not import it: examples/jwt_test.go runs the library. ok is false if v is neither.
func userFromJWT(v any) (u User, ok bool, err error) {
	claims, ok := v.(jwtClaims)
	if value := reflect.Indirect(reflect.ValueOf(v)); !ok && value.Kind() == reflect.Struct {
		inner, valid := exported(value, "Claims"), exported(value, "Valid")
		if inner.Kind() != reflect.Interface || valid.Kind() != reflect.Bool {
			return User{}, false, nil
		}
		if !valid.Bool() {
			return User{}, true, fmt.Errorf("idem: the %T in the context has not been verified", v)
		}
		claims, ok = inner.Interface().(jwtClaims)
	}
	if !ok {
		return User{}, false, nil
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
		return User{ID: url.QueryEscape(issuer) + " " + sub, source: "iss"}, true, nil
	}
	return User{ID: sub}, true, err
}

// exported returns a field of a struct, or of what it embeds, or the zero Value.
func exported(of reflect.Value, name string) (field reflect.Value) {
	if f, ok := of.Type().FieldByName(name); ok {
		field, _ = of.FieldByIndexErr(f.Index) // zero if an embedded pointer is nil
	}
	return field
}
