package echo5idem

import (
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/idem-go/idem/core"
)

// What goes back into the pool holds nothing.
func TestThePoolHoldsNothing(t *testing.T) {
	engine := core.MustNew(core.Config{User: core.SharedByAllCallers()})
	e := echo.New()
	e.POST("/", func(c *echo.Context) error { return c.NoContent(201) }, New(engine.MustGuard(core.Policy{})))
	e.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader("body")))
	if x := exchanges.Get().(*exchange); !reflect.DeepEqual(*x, exchange{}) {
		t.Errorf("an exchange in the pool has %+v", x)
	}
}
