// Package profile has the policies of published protocols: [ACP], [UCP] and [AdCP]. Each is a plain [core.Policy] with the protocol's
// keys, comparison, retention and format of refusals. You may change its fields.
//
//	sessions := engine.MustGuard(profile.ACP())
//	router.POST("/checkout_sessions", ginidem.New(sessions), createSession)
//
// The user (core.Config.User) must be the party that the protocol authenticates: the agent or the platform. docs/agents.md says what
// each profile does and what is left to the application. README.md of this package lists where the specifications contradict themselves.
package profile

import (
	"encoding/json"

	"github.com/idem-go/idem/core"
)

// answer is an answer with a JSON body.
func answer(body any) *core.Response {
	text, _ := json.Marshal(body) // of strings, numbers, and JSON that has been read
	return &core.Response{Header: []core.Field{{Name: "Content-Type", Value: "application/json"}}, Body: text}
}
