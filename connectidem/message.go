package connectidem

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"connectrpc.com/connect"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"

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
	m := request.(proto.Message).ProtoReflect()
	if f := stringField(m.Descriptor(), name); f != nil && m.Get(f).String() != "" {
		return []string{m.Get(f).String()}
	}
	return nil
}

var errNoMessage = errors.New("connectidem: not a Protobuf message")

// deterministic is how requests are marshalled to be compared.
var deterministic = proto.MarshalOptions{Deterministic: true}

// digest returns the fingerprint of a request.
func digest(request any) (string, error) {
	m, ok := request.(proto.Message)
	if !ok {
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

// encode returns what is stored of a response, or of an error if that is not nil. The error says that it can't be.
func encode(response any, failed *connect.Error) (*rpckit.Answer, error) {
	if failed != nil {
		// What is no UTF-8 becomes U+FFFD, as on the wire.
		s := &spb.Status{Code: int32(failed.Code()), Message: string([]rune(failed.Message()))}
		for _, d := range failed.Details() {
			s.Details = append(s.Details, &anypb.Any{TypeUrl: "type.googleapis.com/" + d.Type(), Value: d.Bytes()})
		}
		b, err := proto.Marshal(s)
		return &rpckit.Answer{Status: b}, err
	}
	m, ok := response.(proto.Message)
	if !ok {
		return nil, errNoMessage
	}
	b, err := proto.Marshal(m)
	return &rpckit.Answer{Type: string(m.ProtoReflect().Descriptor().FullName()), Body: b}, err
}

// decode returns the message, or the error, that is stored. It reports false if the program does not know the message.
func decode(a *rpckit.Answer) (m proto.Message, failed *connect.Error, ok bool) {
	if len(a.Status) > 0 {
		var s spb.Status
		if proto.Unmarshal(a.Status, &s) != nil {
			return nil, nil, false
		}
		failed = connect.NewError(connect.Code(s.GetCode()), errors.New(s.GetMessage()))
		for _, d := range s.GetDetails() {
			detail, err := connect.NewErrorDetail(d)
			if err != nil {
				return nil, nil, false
			}
			failed.AddDetail(detail)
		}
		return nil, failed, true
	}
	t, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(a.Type))
	if err != nil {
		return nil, nil, false
	}
	m = t.New().Interface()
	return m, nil, proto.Unmarshal(a.Body, m) == nil
}

// Encode returns what is stored of an answer: response or, if err is not nil, what that is on the wire. It is for
// [core.Finished], in the function of [core.Uncertain], and for [github.com/idem-go/idem/core/operations.Operations.SettleTask],
// where somebody has found out that an abandoned run took effect. The error says that response can't be stored.
func Encode(response proto.Message, err error) ([]byte, error) {
	var failed *connect.Error
	if err != nil {
		failed, _ = asError(err)
	}
	a, err := encode(response, failed)
	return a.Encode(), err
}
