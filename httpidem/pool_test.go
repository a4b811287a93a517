package httpidem

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/idem-go/idem/core"
)

// What goes back into the pool holds nothing.
func TestThePoolHoldsNothing(t *testing.T) {
	engine := core.MustNew(core.Config{User: core.SharedByAllCallers()})
	h := New(engine.MustGuard(core.Policy{}))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
	}))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader("body")))
	if x := exchanges.Get().(*exchange); !reflect.DeepEqual(*x, exchange{}) {
		t.Errorf("an exchange in the pool has %+v", x)
	}
}
