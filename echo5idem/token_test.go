package echo5idem_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/echo5idem"
)

// Who has no tokens to issue learns it when the routes are made, and not by the first request.
func TestIssueTokenWithoutTokens(t *testing.T) {
	e := core.MustNew(core.Config{User: core.SharedByAllCallers()})
	assert.PanicsWithValue(t, `idem: the key of the policy "orders" is no Token: there is nothing to issue`, func() {
		echo5idem.IssueToken(e.MustGuard(core.Policy{Name: "orders"}))
	})
}
