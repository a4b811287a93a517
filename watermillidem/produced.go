package watermillidem

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/idem-go/idem/core"
)

// Finished returns the verdict for the function of [core.Uncertain] that has found out that an abandoned run took effect.
// Duplicates of its message then produce msgs, which must be the messages that the handler would have produced, UUIDs
// included. It returns an error if a message is nil, or a UUID or metadata is not valid UTF-8.
func Finished(msgs ...*message.Message) (core.Verdict, error) {
	value, err := json.Marshal(produced(msgs))
	if err != nil {
		return core.Unknown(), err
	}
	return core.Finished(value), nil
}

// produced are the messages that a handler has produced. They are stored as JSON.
type produced []*message.Message

// storedMessage has JSON names of its own, so that records outlive changes of Watermill's type.
type storedMessage struct {
	UUID     string            `json:"uuid"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Payload  []byte            `json:"payload,omitempty"`
}

var errNilMessage = errors.New("watermillidem: a nil message was produced")

// MarshalJSON returns an error if the messages would not come back unchanged: JSON has only UTF-8.
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
