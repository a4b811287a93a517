package sign

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// addJSON adds the members of a flat object.
func (l *params) addJSON(body []byte) error {
	// The decoder does not look at what comes after the object. It makes U+FFFD of invalid UTF-8, which
	// add refuses.
	if !json.Valid(body) {
		return errSortedJSON
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber() // its exact text
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errSortedJSON
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return errSortedJSON
		}
		value, err := d.Token()
		if err != nil {
			return errSortedJSON
		}
		var text string
		switch v := value.(type) {
		case string:
			text = v
		case json.Number:
			text = v.String()
		case bool:
			text = strconv.FormatBool(v)
		case nil: // null is empty
		default:
			return Errorf(ErrMalformed, "a member of the JSON object is an object or an array")
		}
		if err := l.add(name.(string), text); err != nil {
			return err
		}
	}
	return nil
}

var errSortedJSON = Errorf(ErrMalformed, "the body is not a JSON object")

// appendJSON returns an object with more members. They are strings.
func appendJSON(object []byte, added []param) ([]byte, error) {
	b := bytes.TrimRight(object, " \t\r\n")
	if len(b) == 0 {
		b = []byte("{}")
	}
	b = bytes.TrimRight(b[:len(b)-1], " \t\r\n")
	b = append([]byte(nil), b...)
	for _, p := range added {
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		name, err := json.Marshal(p.name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(p.value)
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, name...), ':'), value...)
	}
	return append(b, '}'), nil
}
