package fasthttpkit

import (
	"runtime"
	"testing"
	"weak"

	"github.com/stretchr/testify/assert"
)

type testRoute struct{ pattern *string }

// A place is looked up once; one that is held weakly is forgotten with its application.
func TestPlacesAreKeptAsLongAsTheirRoutes(t *testing.T) {
	found := 0
	places := &Places[*testRoute, testRoute, Place]{
		Route: func(r *testRoute) *testRoute { return r },
		Find: func(r *testRoute) (*Place, bool) {
			found++
			return &Place{Route: *r.pattern}, *r.pattern != ""
		},
	}
	for _, of := range []func(*testRoute) *Place{places.Of, places.Weakly} {
		found = 0
		pattern, none := "/pages/:id", ""
		route := &testRoute{&pattern}
		assert.Same(t, of(route), of(route))
		assert.Equal(t, "/pages/:id", of(route).Route)
		assert.Equal(t, 1, found)
		passing := &testRoute{&none}
		of(passing)
		of(passing)
		assert.Equal(t, 3, found, "what is made up anew is not kept")
	}

	var key weak.Pointer[testRoute]
	known := func() bool {
		_, ok := places.m.Load(key)
		return ok
	}
	func() {
		pattern := "/orders"
		route := &testRoute{&pattern}
		key = weak.Make(route)
		places.Weakly(route)
		assert.True(t, known())
		runtime.KeepAlive(route)
	}()
	for known() { // until the test's own deadline
		runtime.GC()
	}
}
