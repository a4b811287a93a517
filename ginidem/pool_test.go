package ginidem

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/idem-go/idem/core"
)

// What goes back into the pool holds nothing.
func TestThePoolHoldsNothing(t *testing.T) {
	engine := core.MustNew(core.Config{User: core.SharedByAllCallers()})
	e := gin.New()
	e.POST("/", New(engine.MustGuard(core.Policy{})), func(c *gin.Context) { c.Status(201) })
	e.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader("body")))
	if x := exchanges.Get().(*exchange); !reflect.DeepEqual(*x, exchange{}) {
		t.Errorf("an exchange in the pool has %+v", x)
	}
}

// A timeout of somebody's own gives the context back while the handler runs on. What stands there then is another request's.
func TestTheGroundOfAnotherRequestStays(t *testing.T) {
	c, other := gin.CreateTestContextOnly(httptest.NewRecorder(), gin.New()), httptest.NewRecorder()
	w := new(writer)
	w.ground.lay(c, w)
	*belowGin(c) = other
	w.ground.lift()
	if *belowGin(c) != http.ResponseWriter(other) {
		t.Errorf("the other request has got %v", *belowGin(c))
	}
}
