package grpcidem

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/idem-go/idem/adapterkit/rpckit"
)

// stringField returns a field of that name and type, or nil.
func stringField(d protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	f := d.Fields().ByName(protoreflect.Name(name))
	if f == nil || f.Kind() != protoreflect.StringKind || f.IsList() {
		return nil
	}
	return f
}

// keysInField returns the value of a field, if there is one.
func keysInField(request any, name string) []string {
	m := message(request).ProtoReflect()
	if f := stringField(m.Descriptor(), name); f != nil && m.Get(f).String() != "" {
		return []string{m.Get(f).String()}
	}
	return nil
}

// message returns v as a message, or nil.
func message(v any) proto.Message {
	switch v := v.(type) {
	case proto.Message:
		return v
	case protoadapt.MessageV1:
		return protoadapt.MessageV2Of(v)
	}
	return nil
}

var errNoMessage = errors.New("grpcidem: not a Protobuf message")

// deterministic is how requests are marshalled to be compared.
var deterministic = proto.MarshalOptions{Deterministic: true}

// digest returns the fingerprint of a request.
func digest(request any) (string, error) {
	m := message(request)
	if m == nil {
		return "", errNoMessage
	}
	holds := false
	eachAny(m.ProtoReflect(), func(protoreflect.Message) { holds = true })
	if holds {
		m = proto.Clone(m)
		canonical(m.ProtoReflect(), anyDepth)
	}
	b, err := deterministic.Marshal(m)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), err
}

// anyDepth is how deep messages in an Any in an Any are compared by their content. It bounds what a call costs.
const anyDepth = 8

// canonical marshals the messages that each Any in m holds anew, if the program knows their types: who has made them may have
// marshalled their maps in another order.
func canonical(m protoreflect.Message, depth int) {
	eachAny(m, func(a protoreflect.Message) {
		url, value := a.Descriptor().Fields().ByNumber(1), a.Descriptor().Fields().ByNumber(2)
		t, err := protoregistry.GlobalTypes.FindMessageByURL(a.Get(url).String())
		if err != nil || depth == 0 {
			return
		}
		held := t.New()
		if proto.Unmarshal(a.Get(value).Bytes(), held.Interface()) != nil {
			return
		}
		canonical(held, depth-1)
		if b, err := deterministic.Marshal(held.Interface()); err == nil {
			a.Set(value, protoreflect.ValueOfBytes(b))
		}
	})
}

// eachAny calls do with each google.protobuf.Any in m.
func eachAny(m protoreflect.Message, do func(protoreflect.Message)) {
	if m.Descriptor().FullName() == "google.protobuf.Any" {
		do(m)
		return
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Message() == nil, f.IsMap() && f.MapValue().Message() == nil:
		case f.IsMap():
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				eachAny(v.Message(), do)
				return true
			})
		case f.IsList():
			for i := range v.List().Len() {
				eachAny(v.List().Get(i).Message(), do)
			}
		default:
			eachAny(v.Message(), do)
		}
		return true
	})
}

// encode returns what is stored of a response, or of a status if that is not nil. The error says that it can't be.
func encode(response any, s *status.Status) (*rpckit.Answer, error) {
	if s != nil {
		p := s.Proto()
		p.Message = string([]rune(p.Message)) // what is no UTF-8 becomes U+FFFD, as on the wire
		b, err := proto.Marshal(p)
		return &rpckit.Answer{Status: b}, err
	}
	m := message(response)
	if m == nil {
		return nil, errNoMessage
	}
	b, err := proto.Marshal(m)
	return &rpckit.Answer{Type: string(m.ProtoReflect().Descriptor().FullName()), Body: b}, err
}

// decode returns the response, or the error, that is stored. It reports false if the program does not know the message.
func decode(a *rpckit.Answer) (response any, err error, ok bool) {
	if len(a.Status) > 0 {
		var s spb.Status
		if proto.Unmarshal(a.Status, &s) != nil {
			return nil, nil, false
		}
		return nil, status.FromProto(&s).Err(), true
	}
	t, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(a.Type))
	if err != nil {
		return nil, nil, false
	}
	m := t.New().Interface()
	return m, nil, proto.Unmarshal(a.Body, m) == nil
}

// Encode returns what is stored of an answer: response or, if err is not nil, its status. It is for [core.Finished], in the
// function of [core.Uncertain], and for [github.com/idem-go/idem/core/operations.Operations.SettleTask], where somebody has found
// out that an abandoned run took effect. The error says that response can't be stored.
func Encode(response proto.Message, err error) ([]byte, error) {
	var s *status.Status
	if err != nil {
		s = status.Convert(err)
	}
	a, err := encode(response, s)
	return a.Encode(), err
}
