package sortedparams

import (
	"bytes"
	"encoding/json"
	"io"
	"strconv"

	"github.com/idem-go/idem/sign"
)

// addJSON adds the members of a flat object. Numbers keep their exact text, and null is empty. For what is not UTF-8, and for half
// of a surrogate pair, encoding/json returns U+FFFD, which add refuses.
func (l *params) addJSON(body []byte) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if begin, err := d.Token(); err != nil || begin != json.Delim('{') {
		return errJSON
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return errJSON
		}
		member, err := d.Token()
		if err != nil {
			return errJSON
		}
		value := ""
		switch v := member.(type) {
		case string:
			value = v
		case json.Number:
			value = v.String()
		case bool:
			value = strconv.FormatBool(v)
		case json.Delim:
			return sign.Errorf(sign.CodeMalformed, "a member of the JSON object is an object or an array")
		}
		if err := l.add(name.(string), value); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil { // the object's end
		return errJSON
	}
	if _, err := d.Token(); err != io.EOF {
		return errJSON
	}
	return nil
}

var errJSON = sign.Errorf(sign.CodeMalformed, "the body is not a JSON object")

// appendJSON returns a copy of an object with more members, which are strings.
func appendJSON(object []byte, added []param) []byte {
	members := bytes.Trim(object, "{} \t\r\n") // the last member is no object
	b := append([]byte("{"), members...)
	for _, p := range added {
		if len(b) > 1 {
			b = append(b, ',')
		}
		name, _ := json.Marshal(p.name) // a string: cannot fail
		value, _ := json.Marshal(p.value)
		b = append(append(append(b, name...), ':'), value...)
	}
	return append(b, '}')
}
