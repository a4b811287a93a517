package watermillidem

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/idem-go/idem/core"
)

// Settled is the verdict of a [core.Policy].Reconcile which has found out that an abandoned run did take
// effect. A duplicate of its message produces these messages, none if there are none. They must be those that
// the handler would have produced, UUIDs included. The error is that of a message that can't be stored.
func Settled(msgs ...*message.Message) (core.Verdict, error) {
	value, err := json.Marshal(produced(msgs))
	if err != nil {
		return core.Unknown(), err
	}
	return core.SettledValue(value), nil
}

// produced is what a handler has produced; it is stored as JSON.
type produced []*message.Message

// storedMessage has names of its own, so that records outlive changes of Watermill's type.
type storedMessage struct {
	UUID     string            `json:"uuid"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Payload  []byte            `json:"payload,omitempty"`
}

var errNilMessage = errors.New("watermillidem: a nil message was produced")

// MarshalJSON fails where the messages would not come back as they were: JSON has no other text than UTF-8.
func (p produced) MarshalJSON() ([]byte, error) {
	if len(p) == 0 {
		return []byte("[]"), nil // what most handlers produce costs next to nothing
	}
	stored := make([]storedMessage, len(p))
	for i, m := range p {
		if m == nil {
			return nil, errNilMessage
		}
		valid := utf8.ValidString(m.UUID)
		for name, value := range m.Metadata {
			valid = valid && utf8.ValidString(name) && utf8.ValidString(value)
		}
		if !valid {
			return nil, fmt.Errorf("watermillidem: message %q was produced with a UUID or metadata that is not valid UTF-8", m.UUID)
		}
		stored[i] = storedMessage{m.UUID, m.Metadata, m.Payload}
	}
	return json.Marshal(stored)
}

func (p *produced) UnmarshalJSON(b []byte) error {
	var stored []storedMessage
	if err := json.Unmarshal(b, &stored); err != nil {
		return err
	}
	*p = make(produced, len(stored))
	for i, s := range stored {
		m := message.NewMessage(s.UUID, s.Payload)
		for name, value := range s.Metadata {
			m.Metadata[name] = value
		}
		(*p)[i] = m
	}
	return nil
}
