package rfc9421

import (
	"net/url"
	"slices"
	"strings"

	"github.com/dunglas/httpsfv"

	"github.com/idem-go/idem/sign"
)

// wellKnown is where the directory of an origin is (draft-ietf-webbotauth-httpsig-protocol, section 8.1).
const wellKnown = "/.well-known/http-message-signatures-directory"

// A component that is the member of a dictionary (RFC 9421, section 2.1.2) is held as what is between the first and the last
// quotation mark of its identifier: signature-agent";key="sig1. Only Signature-Agent can be one.
const memberPrefix = `signature-agent";key="`

// member returns the name of the member that a component is, or "".
func member(component string) string {
	key, ok := strings.CutPrefix(component, memberPrefix)
	if !ok {
		return ""
	}
	return key
}

// agents parses Signature-Agent. A string, as in earlier drafts, is the member of label.
func agents(m *sign.Message, label string) (*httpsfv.Dictionary, error) {
	value, err := m.Required(agentField.Canonical)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(value, `"`) {
		return parseDictionary(agentField.Canonical, value)
	}
	item, err := httpsfv.UnmarshalItem([]string{value})
	if err != nil {
		return nil, sign.Errorf(sign.CodeMalformed, "%s: %w", agentField.Canonical, err)
	}
	d := httpsfv.NewDictionary()
	d.Add(label, item)
	return d, nil
}

// coveredAgents returns the members that a signature covers. whole is true if it covers the whole field.
func coveredAgents(p parameters) (keys []string, whole bool) {
	for _, c := range p.components {
		if key := member(c); key != "" {
			keys = append(keys, key)
		}
	}
	return keys, slices.Contains(p.components, agentField.Lower)
}

// checkAgent checks that Signature-Agent is covered.
func checkAgent(m *sign.Message, p parameters) error {
	if _, err := m.Required(agentField.Canonical); err != nil {
		return err
	}
	if keys, whole := coveredAgents(p); len(keys) == 0 && !whole {
		return sign.Errorf(sign.ReasonUncovered, "%s must be covered", agentField.Lower)
	}
	return nil
}

// locateAgent returns the URL that Signature-Agent gives for the keys: that of the member of the signature's label or, as an
// intermediary may change labels, of the only member that is covered. Members with parameters are ignored.
func locateAgent(m *sign.Message, p parameters, label string) (string, error) {
	return locateMember(m, p, label, func(item httpsfv.Item) bool { return len(item.Params.Names()) == 0 })
}

// locateTyped is locateAgent for members whose parameter type says how the keys are found.
func locateTyped(m *sign.Message, p parameters, label string) (string, error) {
	return locateMember(m, p, label, func(httpsfv.Item) bool { return true })
}

func locateMember(m *sign.Message, p parameters, label string, counts func(httpsfv.Item) bool) (string, error) {
	d, err := agents(m, label)
	if err != nil {
		return "", err
	}
	values := make(map[string]httpsfv.Item)
	for _, name := range d.Names() {
		found, _ := d.Get(name)
		if item, ok := found.(httpsfv.Item); ok && counts(item) {
			values[name] = item
		}
	}
	keys, whole := coveredAgents(p)
	keys = slices.DeleteFunc(keys, func(key string) bool { _, ok := values[key]; return !ok })
	key := label
	if !whole && !slices.Contains(keys, label) {
		if len(keys) != 1 {
			return "", sign.Errorf(sign.CodeMalformed, "%d usable members of %s are covered, and none of them has the label %s",
				len(keys), agentField.Canonical, label)
		}
		key = keys[0]
	}
	text, ok := values[key].Value.(string)
	if !ok {
		return "", sign.Errorf(sign.CodeMalformed, "%s has no usable string %s", agentField.Canonical, key)
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return "", sign.Errorf(sign.CodeMalformed, "%s must name an https URL", agentField.Canonical)
	}
	origin := (u.Path == "" || u.Path == "/") && u.RawQuery == "" && u.Fragment == ""
	kind, typed := values[key].Params.Get("type")
	switch {
	case typed && kind != httpsfv.Token("directory") && kind != httpsfv.Token("jwks_uri"):
		return "", sign.Errorf(sign.CodeInvalid, "%s has a type that is not known here", agentField.Canonical)
	case kind == httpsfv.Token("directory") && !origin:
		return "", sign.Errorf(sign.CodeInvalid, "the directory is not an origin")
	case origin && kind != httpsfv.Token("jwks_uri"): // where nobody has a JWK Set
		return "https://" + u.Host + wellKnown, nil
	}
	return text, nil
}

// coverAgent returns the component by which a client covers Signature-Agent: the member of label, or the only one.
func coverAgent(m *sign.Message, label string) (string, error) {
	d, err := agents(m, label)
	if err != nil {
		return "", err
	}
	if names := d.Names(); len(names) == 1 {
		label = names[0]
	}
	return memberPrefix + label, nil
}

// agentValue returns the value of a component that is a member, in its serialised form.
func agentValue(m *sign.Message, key string) (string, error) {
	d, err := agents(m, "")
	if err != nil {
		return "", err
	}
	found, ok := d.Get(key)
	if !ok {
		return "", sign.Errorf(sign.ReasonUncovered, "%s has no member %s, which is listed as covered", agentField.Canonical, key)
	}
	text, err := httpsfv.Marshal(found)
	if err != nil {
		return "", sign.Errorf(sign.CodeMalformed, "%s: %w", agentField.Canonical, err)
	}
	return text, nil
}

// profileURL returns the URL in UCP-Agent.
func profileURL(value string) (string, error) {
	d, err := parseDictionary(ucpAgent.Canonical, value)
	if err != nil {
		return "", err
	}
	found, _ := d.Get("profile")
	item, _ := found.(httpsfv.Item)
	text, ok := item.Value.(string)
	if !ok || !strings.HasPrefix(text, "https://") {
		return "", sign.Errorf(sign.CodeMalformed, "%s must have a string profile that is an https URL", ucpAgent.Canonical)
	}
	return text, nil
}
