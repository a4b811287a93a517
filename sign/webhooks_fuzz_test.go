package sign_test

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
)

// FuzzWebhookSignatures takes any list of signatures apart: nothing panics, and what comes out is what
// the list says, by another way to read it.
func FuzzWebhookSignatures(f *testing.F) {
	f.Add(webhookHMAC)
	f.Add(webhookEd25519 + " " + webhookHMAC)
	f.Add("v2,x v1,\n" + webhookHMAC)
	f.Add(strings.Repeat("v1, ", 9))
	f.Add("v1,====")
	f.Add("        0,0") // what stands around a field's value is not part of it
	scheme := sign.Must(sign.NewStandardWebhooks(standardWebhooks))
	f.Fuzz(func(t *testing.T, list string) {
		m := &sign.Message{Method: "POST", Target: "/", Host: "h", Source: &fixture.Source{Header: http.Header{
			"Webhook-Id": {"msg_1"}, "Webhook-Timestamp": {"1614265330"}, "Webhook-Signature": {list},
		}}}
		var s sign.Signature
		if scheme.Parse(m, &s) != nil {
			return
		}
		var want [][]byte
		items := strings.Split(strings.Trim(list, " \t"), " ")
		require.LessOrEqual(t, len(items), 8)
		for _, item := range items {
			version, text, _ := strings.Cut(item, ",")
			size := map[string]int{"v1": 32, "v1a": 64}[version]
			if size == 0 {
				continue
			}
			value, err := base64.StdEncoding.DecodeString(text)
			require.NoError(t, err)
			require.Len(t, value, size)
			require.Equal(t, text, base64.StdEncoding.EncodeToString(value), "there is one text for a signature")
			want = append(want, value)
		}
		require.Equal(t, want, s.Values)
	})
}

// FuzzStandardWebhooks sends anything: nothing panics, nothing that was not signed is accepted, and what is
// accepted cannot be sent again.
func FuzzStandardWebhooks(f *testing.F) {
	f.Add(webhookMessageID, "1614265330", webhookHMAC, webhookPayload)
	f.Add(webhookMessageID, "1614265330", webhookEd25519+" "+webhookHMAC, webhookPayload)
	f.Add("msg.1", "1614265330.", "v1,", "\xff")
	f.Add("", "-1", " ", "")
	scheme := sign.Must(sign.NewStandardWebhooks(standardWebhooks))
	f.Fuzz(func(t *testing.T, id, timestamp, signatures, body string) {
		header := http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {timestamp}, "Webhook-Signature": {signatures}}
		m := sign.Message{Method: "POST", Target: "/", Host: "h", Source: &fixture.Source{Header: header, Body: []byte(body)}}
		v := webhookVerifier(standardWebhooks, webhookKey(webhookSecret))
		first, again := m, m
		_, err := v.Verify(t.Context(), &first)
		require.NotNil(t, v.Answer(t.Context(), err))
		scheme.SigningString(&first, &sign.Signature{Nonce: id + "." + timestamp}, nil)
		if err != nil {
			return
		}
		require.Equal(t, []string{webhookMessageID, "1614265330", webhookPayload}, []string{id, timestamp, body})
		require.Contains(t, strings.Split(signatures, " "), webhookHMAC)
		_, err = v.Verify(t.Context(), &again)
		require.ErrorIs(t, err, sign.CodeReplayed)
	})
}
