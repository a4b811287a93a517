package canon_test

import (
	"bytes"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/internal/canon"
	"github.com/idem-go/idem/internal/race"
)

const (
	typeJSON = "application/json"
	typeForm = "application/x-www-form-urlencoded"
)

func text(r canon.Rules, in canon.Input) (string, canon.Info) {
	b, info := r.AppendCanonical(nil, &in)
	return string(b), info
}

func digest(r canon.Rules, in canon.Input) string {
	b, _ := r.AppendDigest(nil, &in)
	return string(b)
}

func jsonInput(body string) canon.Input {
	return canon.Input{ContentType: typeJSON, Body: []byte(body)}
}

func paths(t testing.TB, list ...string) *canon.Paths {
	t.Helper()
	p, err := canon.CompilePaths(list)
	require.NoError(t, err)
	return p
}

func TestKnownDigest(t *testing.T) {
	const body = `{"requestKey":"key","requestTime":"20190101120001","requestValue":"1000"}`
	in := jsonInput(body)
	assert.Equal(t, "c2a36fed15128e9e878583caaafefde9", digest(canon.Rules{DefaultNames: true}, in))
	got, info := text(canon.Rules{DefaultNames: true}, in)
	assert.Equal(t, `{"requestKey":"key","requestValue":"1000"}`, got)
	assert.Zero(t, info)

	in = jsonInput(`{ "requestValue":"1000", "request_time":"20990101120001", "requestKey":"\u006bey" }`)
	assert.Equal(t, "c2a36fed15128e9e878583caaafefde9", digest(canon.Rules{DefaultNames: true}, in))

	assert.Equal(t, "d41d8cd98f00b204e9800998ecf8427e", digest(canon.Rules{}, canon.Input{}), "the digest of nothing")
}

// Each way of arriving at the text (hashed in place, copied, both) must hash the text.
func TestDigestIsThatOfTheText(t *testing.T) {
	inputs := []canon.Input{
		{},
		{RawQuery: "b=1&a=2"},
		jsonInput(`{"a":1}`),
		jsonInput(` {"b":1,"a":2} `),
		{RawQuery: "x=1", ContentType: typeJSON, Body: []byte(`{"a":1}`)},
		{RawQuery: "x=1", ContentType: typeJSON, Body: []byte(`{"b":1,"a":2}`)},
		{Body: []byte("\x00raw")},
		{RawQuery: "x=1", Body: []byte("\x00raw")},
		{ContentType: typeForm, Body: []byte("b=1&a=2")},
	}
	for _, in := range inputs {
		in.Header = []pair{{Name: "range", Value: "bytes=0-9"}, {Name: "if-match", Value: "*"}}
		inputs = append(inputs, in)
	}
	for _, in := range inputs {
		want, wantInfo := text(canon.Rules{}, in)
		prefix := []byte("P=")

		got, info := (&canon.Rules{}).AppendDigest(prefix, &in)
		sum := md5.Sum([]byte(want))
		assert.Equal(t, "P="+hex.EncodeToString(sum[:]), string(got), "%q", want)
		assert.Equal(t, wantInfo, info)

		got, _ = (&canon.Rules{Algorithm: canon.SHA256}).AppendDigest(prefix, &in)
		sum256 := sha256.Sum256([]byte(want))
		assert.Equal(t, "P="+hex.EncodeToString(sum256[:]), string(got), "%q", want)
	}
}

func TestText(t *testing.T) {
	id := []canon.Pair{{Name: "id", Value: "7/8"}}
	tests := []struct {
		name string
		in   canon.Input
		want string
		raw  bool
	}{
		{"nothing", canon.Input{}, "", false},
		{"empty body of any kind", canon.Input{ContentType: typeForm, ContentEncoding: "gzip"}, "", false},
		{"path parameters", canon.Input{PathParams: id}, "id=7%2F8", false},
		{"pairs and JSON", canon.Input{PathParams: id, RawQuery: "a=1", ContentType: typeJSON, Body: []byte("[1 ]")},
			"a=1&id=7%2F8\n[1]", false},
		{"pairs and raw", canon.Input{RawQuery: "a=1", Body: []byte("[1 ]")}, "a=1\n\x00[1 ]", true},
		{"path before query before form", canon.Input{PathParams: []canon.Pair{{Name: "a", Value: "1"}}, RawQuery: "a=2&b",
			ContentType: typeForm, Body: []byte("b=2&a=3")}, "a=1&a=2&b=&body:a=3&body:b=2", false},
		{"no type", canon.Input{Body: []byte(`{ }`)}, "\x00" + `{ }`, true},
		{"another type", canon.Input{ContentType: "text/plain", Body: []byte(`{ }`)}, "type:text/plain\n\x00" + `{ }`, true},
		{"type in any case", canon.Input{ContentType: "Application/JSON", Body: []byte(`{ }`)}, `{}`, false},
		{"type with parameters",
			canon.Input{ContentType: ` application/json ; x="a;charset=latin1"; Charset="UTF-8"`, Body: []byte(`{ }`)}, `{}`, false},
		{"type with an empty parameter", canon.Input{ContentType: `application/json; `, Body: []byte(`{ }`)}, `{}`, false},
		{"structured type", canon.Input{ContentType: "application/vnd.api+JSON", Body: []byte(`{ }`)},
			"{}\ntype:application/vnd.api+json", false},
		{"nothing before +json", canon.Input{ContentType: "application/+json", Body: []byte(`{ }`)},
			"type:application/+json\n\x00{ }", true},
		{"another charset", canon.Input{ContentType: "application/json;a=b;charset=latin1", Body: []byte(`{ }`)}, `{}`, false},
		{"in another charset", canon.Input{ContentType: "application/json;charset=latin1", Body: []byte("\"\xe9\"")}, "\x00\"\xe9\"", true},
		{"another charset of a form", canon.Input{ContentType: typeForm + ";charset=gbk", Body: []byte(`b&a`)}, "body:a=&body:b=", false},
		{"encoded", canon.Input{ContentType: typeJSON, ContentEncoding: "gzip", Body: []byte(`{ }`)}, "\x00" + `{ }`, true},
		{"encoded form", canon.Input{ContentType: typeForm, ContentEncoding: "br", Body: []byte(`b&a`)}, "\x00" + `b&a`, true},
		{"not encoded", canon.Input{ContentType: typeJSON, ContentEncoding: " Identity", Body: []byte(`{ }`)}, `{}`, false},
		{"malformed JSON", jsonInput(`{"b":1,"a":}`), "\x00" + `{"b":1,"a":}`, true},
		{"pairs like a mark", canon.Input{RawQuery: "\x00X"}, "%00X=", false},
		{"blank JSON", jsonInput(" \n"), "\x00 \n", true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, info := text(canon.Rules{}, test.in)
			assert.Equal(t, test.want, got)
			assert.Equal(t, canon.Info{Raw: test.raw}, info)
		})
	}
}

// raw reports whether the body of in counts as raw bytes.
func raw(in canon.Input) bool {
	_, info := text(canon.Rules{}, in)
	return info.Raw
}

func TestDefaultNames(t *testing.T) {
	rules := canon.Rules{DefaultNames: true}
	for _, name := range []string{
		"timestamp", "ts", "_t", "requestTime", "nonce", "sign", "signature",
		"lat", "lng", "lon", "latitude", "longitude",
		"TIMESTAMP", "time_stamp", "time-stamp", "request_time", "Request-Time", "REQUEST__TIME", "_T", "_sign_", "T_S",
	} {
		got, _ := text(rules, canon.Input{RawQuery: name + "=1&a=1&ts=1"})
		assert.Equal(t, "a=1", got, "query %s", name)
		got, _ = text(rules, canon.Input{ContentType: typeForm, Body: []byte("a=1&ts&" + name)})
		assert.Equal(t, "body:a=1", got, "form %s", name)
		got, _ = text(rules, jsonInput(`{"`+name+`":[1],"a":1,"Ts":2}`))
		assert.Equal(t, `{"a":1}`, got, "JSON %s", name)
		got, _ = text(rules, canon.Input{PathParams: []canon.Pair{{Name: name, Value: "1"}}})
		assert.NotEmpty(t, got, "path %s", name)
		got, _ = text(rules, jsonInput(`{"a":{"`+name+`":1}}`))
		assert.Contains(t, got, name, "deeper")
		got, _ = text(canon.Rules{DefaultNames: true, Exclude: paths(t, "**.x")}, jsonInput(`{"a":{"`+name+`":1}}`))
		assert.Contains(t, got, name, "deeper, where another rule looks")
		got, _ = text(rules, jsonInput(`[{"`+name+`":1}]`))
		assert.Contains(t, got, name, "not an object's member at the top")
		got, _ = text(canon.Rules{}, jsonInput(`{"`+name+`":1}`))
		assert.Contains(t, got, name, "not asked for")
	}
	for _, name := range []string{"t", "T", "-t", "__t", "time", "date", "location", "address", "tss", "signed", "request",
		"requesttimes", "lati", "", "ſign", "timestampx"} {
		got, _ := text(rules, jsonInput(`{"`+name+`":1}`))
		assert.Equal(t, `{"`+name+`":1}`, got, "carries meaning")
	}
	got, _ := text(rules, canon.Input{RawQuery: "%74s=1&n+once=1&b=1"})
	assert.Equal(t, "b=1&n+once=1", got, "compared decoded")
	got, _ = text(rules, jsonInput(`{"\u0074s":1,"ts\u0000":2}`))
	assert.Equal(t, `{"ts\u0000":2}`, got, "compared decoded")
}

// What is left out for its name can be all that there is, or content.
func TestDefaultNamesThatCount(t *testing.T) {
	x := func(names ...string) canon.Rules { return canon.Rules{DefaultNames: true, Exclude: paths(t, names...)} }
	only := func(names ...string) canon.Rules { return canon.Rules{DefaultNames: true, Select: paths(t, names...)} }
	rules := canon.Rules{DefaultNames: true}
	for name, tc := range map[string]struct {
		rules canon.Rules
		query string
		body  string // JSON, a form, or raw bytes
		want  string
	}{
		"a place":                              {rules, "", `{"lat":1,"lng":2}`, `{"lat":1,"lng":2}`},
		"a place in a query":                   {rules, "lat=1&LNG=2", "", "LNG=2&lat=1"},
		"a place in a form":                    {rules, "", "lat=1&lng=2", "body:lat=1&body:lng=2"},
		"a place, half here and half there":    {rules, "lat=1", `{"lng":2}`, "lat=1\n{\"lng\":2}"},
		"a place and when":                     {rules, "ts=1", `{"lat":1,"_t":2}`, `{"lat":1}`},
		"a place, and a member":                {rules, "", `{"lat":1,"a":2}`, `{"a":2}`},
		"a place, and an empty member":         {rules, "", `{"lat":1,"a":{}}`, `{"a":{}}`},
		"a place, and a pair of the query":     {rules, "a=2", `{"lat":1}`, "a=2\n{}"},
		"a place, and a field of the form":     {rules, "lat=1", "a=2", "body:a=2"},
		"a place, and an empty object":         {rules, "lat=1", `{}`, "lat=1\n{}"},
		"a place, and an array":                {rules, "lat=1", `[]`, "[]"},
		"a place, and a text":                  {rules, "lat=1", `"a"`, `"a"`},
		"a place, and bytes":                   {rules, "lat=1", "\x01", "\x00\x01"},
		"a place, and malformed JSON":          {rules, "lat=1", `{"lat":`, "\x00{\"lat\":"},
		"a place, and what is excluded":        {x("a"), "a=1", `{"lat":1,"a":2}`, `{"lat":1}`},
		"a place that is excluded":             {x("lat"), "", `{"lat":1,"lng":2}`, `{"lng":2}`},
		"a place, the rest of which counts":    {x("a.b"), "", `{"lat":1,"a":{"b":1}}`, `{"a":{}}`},
		"a place, and a signature of content":  {rules, "", `{"lat":1,"sign":"-"}`, `{"sign":"-"}`},
		"a place, and a signature of this try": {rules, "ts=1&sign=x", `{"lat":1}`, `{"lat":1}`},
		"a sign":                               {rules, "", `{"sign":"-","amount":5}`, `{"amount":5,"sign":"-"}`},
		"a signature":                          {rules, "", `{"signature":"me"}`, `{"signature":"me"}`},
		"a sign, and _t":                       {rules, "_t=1", `{"sign":"-"}`, `{"sign":"-"}`},
		"a sign, and a timestamp":              {rules, "", `{"sign":"-","timestamp":1,"a":1}`, `{"a":1}`},
		"a sign in a form, a nonce in a query": {rules, "Nonce=1", "sign=-&a=1", "body:a=1"},
		"a sign, and a timestamp deeper":       {rules, "", `{"sign":"-","a":{"timestamp":1}}`, `{"a":{"timestamp":1},"sign":"-"}`},
		"a sign, and a consumed nonce":         {rules, "eaten=1&nonce=2", `{"sign":"-"}`, `{"sign":"-"}`},
		"a sign that is excluded":              {x("sign"), "", `{"sign":"-","a":1}`, `{"a":1}`},
		"a selected sign":                      {only("sign", "a"), "ts=1", `{"sign":"-","a":1,"timestamp":1}`, `{"a":1,"sign":"-"}`},
		"a selected place":                     {only("lat", "lng"), "", `{"lat":1,"lng":2,"a":1}`, `{"lat":1,"lng":2}`},
		"a selected place, and more":           {only("lat", "a"), "", `{"lat":1,"lng":2,"a":1}`, `{"a":1}`},
		"beneath a place":                      {only("lat.deg"), "", `{"lat":{"deg":1},"a":1}`, `{"lat":{"deg":1}}`},
	} {
		in := canon.Input{RawQuery: tc.query, Body: []byte(tc.body)}
		switch {
		case strings.ContainsAny(tc.body, `{["`):
			in.ContentType = typeJSON
		case strings.Contains(tc.body, "="):
			in.ContentType = typeForm
		}
		if strings.Contains(tc.query, "eaten") {
			in.Consumed = []string{"eaten", "nonce"}
		}
		got, _ := text(tc.rules, in)
		assert.Equal(t, tc.want, got, name)
	}
	got, _ := text(rules, canon.Input{RawQuery: "lat=1", PathParams: []canon.Pair{{Name: "id", Value: "7"}}, ContentType: "image/png",
		Header: []canon.Pair{{Name: "if-match", Value: "1"}}})
	assert.Equal(t, "id=7&lat=1\nif-match:1\ntype:image/png", got, "path, header and type say nothing of a place")
}

func TestExclude(t *testing.T) {
	const body = `{"z":1,"device":{"gps":[1,2],"os":"x"},"items":[{"sku":"a","ts":1},{"ts":2},3],"traceId":"r",` +
		`"deep":[[{"traceId":5,"k":{"traceId":{}}}]],"a.b":1,"0":2}`
	tests := []struct{ path, want string }{
		{"device.gps", `{"0":2,"a.b":1,"deep":[[{"k":{"traceId":{}},"traceId":5}]],"device":{"os":"x"},` +
			`"items":[{"sku":"a","ts":1},{"ts":2},3],"traceId":"r","z":1}`},
		{"items.*.ts", `{"0":2,"a.b":1,"deep":[[{"k":{"traceId":{}},"traceId":5}]],"device":{"gps":[1,2],"os":"x"},` +
			`"items":[{"sku":"a"},{},3],"traceId":"r","z":1}`},
		{"items.1", `{"0":2,"a.b":1,"deep":[[{"k":{"traceId":{}},"traceId":5}]],"device":{"gps":[1,2],"os":"x"},` +
			`"items":[{"sku":"a","ts":1},3],"traceId":"r","z":1}`},
		{"items.01", `{"0":2,"a.b":1,"deep":[[{"k":{"traceId":{}},"traceId":5}]],"device":{"gps":[1,2],"os":"x"},` +
			`"items":[{"sku":"a","ts":1},{"ts":2},3],"traceId":"r","z":1}`},
		{"**.traceId", `{"0":2,"a.b":1,"deep":[[{"k":{}}]],"device":{"gps":[1,2],"os":"x"},"items":[{"sku":"a","ts":1},{"ts":2},3],"z":1}`},
		{"deep.**.traceId", `{"0":2,"a.b":1,"deep":[[{"k":{}}]],"device":{"gps":[1,2],"os":"x"},` +
			`"items":[{"sku":"a","ts":1},{"ts":2},3],"traceId":"r","z":1}`},
		{"deep.0.0.k.**.*", `{"0":2,"a.b":1,"deep":[[{"k":{},"traceId":5}]],"device":{"gps":[1,2],"os":"x"},` +
			`"items":[{"sku":"a","ts":1},{"ts":2},3],"traceId":"r","z":1}`},
		{`a\.b`, `{"0":2,"deep":[[{"k":{"traceId":{}},"traceId":5}]],"device":{"gps":[1,2],"os":"x"},` +
			`"items":[{"sku":"a","ts":1},{"ts":2},3],"traceId":"r","z":1}`},
		{"0", `{"a.b":1,"deep":[[{"k":{"traceId":{}},"traceId":5}]],"device":{"gps":[1,2],"os":"x"},` +
			`"items":[{"sku":"a","ts":1},{"ts":2},3],"traceId":"r","z":1}`},
		{"TRACEID", `{"0":2,"a.b":1,"deep":[[{"k":{"traceId":{}},"traceId":5}]],"device":{"gps":[1,2],"os":"x"},` +
			`"items":[{"sku":"a","ts":1},{"ts":2},3],"traceId":"r","z":1}`},
		{"*", `{}`},
		{"**.*", `{}`},
		{"*.*", `{"0":2,"a.b":1,"deep":[],"device":{},"items":[],"traceId":"r","z":1}`},
	}
	for _, test := range tests {
		t.Run(test.path, func(t *testing.T) {
			got, info := text(canon.Rules{Exclude: paths(t, test.path)}, jsonInput(body))
			assert.Equal(t, test.want, got)
			assert.False(t, info.Raw)
		})
	}

	got, _ := text(canon.Rules{Exclude: paths(t, "*.1")}, jsonInput(`[[1,2,3],[4],{"1":5,"2":6}]`))
	assert.Equal(t, `[[1,3],[4],{"2":6}]`, got)

	// Names that need escapes in JSON.
	got, _ = text(canon.Rules{Exclude: paths(t, "a\"\n\x01\\\\")}, jsonInput(`{"\u0061\"\u000a\u0001\\":1,"b":2}`))
	assert.Equal(t, `{"b":2}`, got)

	// Pairs are paths of one segment.
	for path, want := range map[string]string{
		"a": "a.b=2&c=3", `a\.b`: "a=1&c=3", "a.b": "a=1&a.b=2&c=3", "*": "", "**.c": "a=1&a.b=2", "**.a.**.b": "a=1&a.b=2&c=3",
	} {
		got, _ := text(canon.Rules{Exclude: paths(t, path)}, canon.Input{RawQuery: "%61=1&a.b=2&c=3"})
		assert.Equal(t, want, got, path)
	}

	// What does not count must still be well-formed.
	for _, body := range []string{`{"a":1,"x":{"y":1,"y":2}}`, `{"x":1,"a":1,"x":2}`, `{"x":[}`, `{"x":1e9999999999999999999}`} {
		got, info := text(canon.Rules{Exclude: paths(t, "x")}, jsonInput(body))
		assert.Equal(t, "\x00"+body, got)
		assert.True(t, info.Raw)
	}
}

func TestSelect(t *testing.T) {
	tests := []struct {
		name, paths, body, want string
		selected                int
	}{
		{"member", "order.id", `{"z":1,"order":{"x":2,"id":3}}`, `{"order":{"id":3}}`, 1},
		{"everything under it", "order", `{"z":1,"order":{"x":2,"id":[{}]}}`, `{"order":{"id":[{}],"x":2}}`, 1},
		{"null is a value", "a", `{"a":null}`, `{"a":null}`, 1},
		{"empty is a value", "a,b", `{"b":[],"a":{},"c":1}`, `{"a":{},"b":[]}`, 2},
		{"none", "a.b", `{"b":1,"a":{"c":1}}`, ``, 0},
		{"none of a scalar", "a", `5`, ``, 0},
		{"no way through a scalar", "a.b", `{"a":5}`, ``, 0},
		{"places in arrays are kept", "items.*.sku", `{"items":[{"q":1},{"sku":"a"},7,[],{"sku":"b","q":1},{"q":2}]}`,
			`{"items":[,{"sku":"a"},,,{"sku":"b"}]}`, 2},
		{"index", "items.1", `{"items":[1,2,3]}`, `{"items":[,2]}`, 1},
		{"top array", "*.id", `[{"id":1,"x":2},{"id":2}]`, `[{"id":1},{"id":2}]`, 2},
		{"overlapping", "a,a.b,**.b", `{"a":{"b":1},"c":{"b":2}}`, `{"a":{"b":1},"c":{"b":2}}`, 2},
		{"ways without an end are dropped", "**.id", `{"a":{"b":{}},"c":[[],{"id":1}]}`, `{"c":[,{"id":1}]}`, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			rules := canon.Rules{Select: paths(t, strings.Split(test.paths, ",")...)}
			got, info := text(rules, jsonInput(test.body))
			assert.Equal(t, test.want, got)
			assert.Equal(t, canon.Info{Selected: test.selected}, info)
		})
	}

	both := canon.Rules{Select: paths(t, "a", "b.c"), Exclude: paths(t, "b.c.x", "b.d", "**.q"), DefaultNames: true}
	got, info := text(both, jsonInput(`{"ts":1,"b":{"d":1,"c":{"y":1,"x":2},"q":1},"a":[{"q":1,"r":2}]}`))
	assert.Equal(t, `{"a":[{"r":2}],"b":{"c":{"y":1}}}`, got)
	assert.Equal(t, 2, info.Selected)

	got, info = text(both, canon.Input{
		PathParams: []canon.Pair{{Name: "id", Value: "1"}}, RawQuery: "a=1&z=2&a=3",
		ContentType: typeJSON, Body: []byte(`{"z":1}`),
	})
	assert.Equal(t, "a=1&a=3&id=1", got, "no line feed without a body")
	assert.Equal(t, 2, info.Selected)

	got, info = text(both, canon.Input{RawQuery: "a=1", ContentType: typeJSON, Body: []byte(`{"a":1,`)})
	assert.Equal(t, "a=1\n\x00{\"a\":1,", got, "raw bodies count whole")
	assert.Equal(t, canon.Info{Raw: true, Selected: 1}, info)

	got, info = text(canon.Rules{Select: paths(t)}, jsonInput(`{"a":1}`))
	assert.Empty(t, got, "an empty selection selects nothing")
	assert.Zero(t, info)
}

func TestAllocations(t *testing.T) {
	race.Skip(t, "under the race detector sync.Pool drops what it is given at random")
	large := bytes.Repeat([]byte("x"), 1<<20)
	preconditions := []canon.Pair{{Name: "range", Value: " bytes=0-9 "},
		{Name: "if-match", Value: `"a\nb"`}, {Name: "if-match", Value: "*"}}
	rules := canon.Rules{DefaultNames: true, Exclude: paths(t, "**.traceId", "items.*.qty")}
	sel := canon.Rules{Select: paths(t, "items.*.sku", "requestKey")}
	sha256 := canon.Rules{Algorithm: canon.SHA256}
	tests := []struct {
		name  string
		rules *canon.Rules
		in    canon.Input
	}{
		{"JSON", &rules, jsonInput(body200)},
		{"JSON with selection", &sel, jsonInput(body200)},
		{"JSON and pairs", &rules, canon.Input{PathParams: []canon.Pair{{Name: "id", Value: "x y"}}, RawQuery: "b=%20&a=1",
			ContentType: typeJSON, Body: []byte(body200)}},
		{"JSON, long", &rules, orders(1 << 20)},
		{"JSON, many members", &rules, jsonInput(manyMembers(5000))},
		{"query", &rules, canon.Input{RawQuery: "b=2&a=%zz&ts=1&c=%41"}},
		{"form", &rules, canon.Input{ContentType: typeForm + "; charset=UTF-8", Body: []byte("b=2&a=1&ts=1")}},
		{"form, long", &rules, filled(typeForm, "", "field=leave+at+the+door&city=M%C3%BCnchen&", "")(1 << 19)},
		{"form, each escape another way", &rules, canon.Input{ContentType: typeForm, Body: []byte("%62+x=%c3%a9%zz&%61=é&%zz=%2B")}},
		{"multipart of a browser", &rules,
			canon.Input{ContentType: "multipart/form-data; boundary=----WebKitFormBoundaryABCDEFGHIJKLMNOP", Body: []byte(
				"------WebKitFormBoundaryABCDEFGHIJKLMNOP\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\ngrüße\r\n" +
					"------WebKitFormBoundaryABCDEFGHIJKLMNOP\r\nContent-Disposition: form-data; name=\"f\"; filename=\"übung.png\"\r\n" +
					"Content-Type: image/png\r\n\r\n\x89PNG\r\n\x00\r\n" +
					"------WebKitFormBoundaryABCDEFGHIJKLMNOP\r\nContent-Disposition: form-data; name=\"none\"; filename=\"\"\r\n" +
					"Content-Type: application/octet-stream\r\n\r\n\r\n" +
					"------WebKitFormBoundaryABCDEFGHIJKLMNOP--\r\n")}},
		{"multipart of OkHttp", &rules,
			canon.Input{ContentType: "multipart/form-data; boundary=2f0e0c51-1d1c-4b0c-9f0a-0123456789ab", Body: []byte(
				"--2f0e0c51-1d1c-4b0c-9f0a-0123456789ab\r\nContent-Disposition: form-data; name=\"a\"\r\n" +
					"Content-Transfer-Encoding: binary\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 1\r\n\r\n1\r\n" +
					"--2f0e0c51-1d1c-4b0c-9f0a-0123456789ab--\r\n")}},
		{"multipart of Apache HttpClient", &sha256,
			canon.Input{ContentType: "multipart/form-data; charset=UTF-8; boundary=abc_DEF", Body: []byte(
				"--abc_DEF\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.bin\"\r\n" +
					"Content-Type: application/octet-stream\r\n\r\n\x00\r\n--abc_DEF--\r\n")}},
		{"multipart of Go", &rules, multipartInput(t, strings.Repeat("0a1b2c3d4e", 6), part{name: "a", content: "1"},
			part{name: "f", filename: "f", content: string(large)})},
		{"JSON and lines", &rules, canon.Input{ContentType: "application/vnd.api+json", Body: []byte(body200), Header: preconditions}},
		{"JSON, consumed names", &canon.Rules{},
			canon.Input{ContentType: typeJSON, Body: []byte(body200), Consumed: []string{"requestTime", "no\nne"}}},
		{"query and form", &rules,
			canon.Input{RawQuery: "c=1&b=%zz", ContentType: typeForm, Body: []byte("b=%zz&a=2&sign=x"), Consumed: []string{"sign"}}},
		{"raw and lines", &rules, canon.Input{ContentType: "IMAGE/png", Body: large, Header: preconditions}},
		{"raw", &rules, canon.Input{ContentType: "image/png", Body: large}},
		{"raw and pairs", &rules, canon.Input{RawQuery: "a=1", ContentType: "image/png", Body: large}},
		{"SHA-256", &sha256, canon.Input{RawQuery: "a=1", ContentType: "image/png", Body: large}},
	}
	dst := make([]byte, 0, 64)
	for _, test := range tests {
		n := testing.AllocsPerRun(20, func() { dst, _ = test.rules.AppendDigest(dst[:0], &test.in) })
		assert.Zero(t, n, test.name)
	}
}

// A request's own bytes are never written to.
func TestInputIsNotChanged(t *testing.T) {
	for _, contentType := range []string{typeJSON, typeForm, "multipart/form-data; boundary=b", ""} {
		for _, body := range []string{` {"b" : 1.0, "a":"\u0041", "ts":[ ] }`, "b=%41&a=+",
			"--b\r\nContent-Disposition: form-data; name=z\r\n\r\nv\r\n--b--"} {
			in := canon.Input{RawQuery: "b&a", ContentType: contentType, Body: []byte(body),
				Header: []canon.Pair{{Name: "b", Value: " 1 "}, {Name: "a", Value: "2"}}, Consumed: []string{"b", "a"}}
			digest(canon.Rules{DefaultNames: true}, in)
			require.Equal(t, body, string(in.Body))
			require.Equal(t, []canon.Pair{{Name: "b", Value: " 1 "}, {Name: "a", Value: "2"}}, in.Header)
			require.Equal(t, []string{"b", "a"}, in.Consumed)
		}
	}
}
