package shop

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/operate"
)

// PathAdmin is where the operator's page is.
const PathAdmin = "/admin/idempotency/"

// isLogin says whether login has the form user:password.
func isLogin(login string) bool {
	name, password, _ := strings.Cut(login, ":")
	return name != "" && password != ""
}

// newAdmin is the operator's page, for the one who knows login. A service has users of its own, and no password on its command line.
func newAdmin(login string, engine *core.Engine) (http.Handler, error) {
	want := sha256.Sum256([]byte(login))
	return operate.New(engine, operate.Options{Authorize: func(r *http.Request) (operate.Actor, operate.Access, error) {
		name, password, _ := r.BasicAuth()
		got := sha256.Sum256([]byte(name + ":" + password))
		if subtle.ConstantTimeCompare(got[:], want[:]) == 0 {
			return "", operate.None, nil
		}
		return operate.Actor(name), operate.Change, nil
	}})
}
