package fibertest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
)

// Of a field with several lines, the handler gets the one that was seen in front of the guard, also if the body came in chunks.
func (s suite[C]) testTheFirstLineStaysFirst(t *testing.T) {
	for mode, config := range Modes {
		t.Run(mode, func(t *testing.T) {
			front := ""
			app := s.NewApp(config, nil)
			app.Use(func(c C) error {
				front = strings.Clone(c.Get("X-Tenant"))
				return c.Next()
			})
			app.Add("POST", "/", s.mounted(t, core.Policy{}), func(c C) error { return c.SendString(front + " " + c.Get("X-Tenant")) })
			service := s.serve(t, app)
			r, err := http.NewRequest("POST", "http://"+service.Addr, strings.NewReader("{}"))
			require.NoError(t, err)
			r.ContentLength = -1
			r.Header["X-Tenant"] = []string{"alice", "mallory"} // at the end of the header, behind Transfer-Encoding
			require.Equal(t, "alice alice", service.Do(r).Body)
		})
	}
}
