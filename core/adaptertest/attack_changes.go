package adaptertest

import (
	"strconv"
	"strings"
)

// set sets a field, in the place where it stands.
func set(name, value string) change { return func(m *message) { m.set(name, " "+value) } }

// raw sets a field to a value that is written right after the colon.
func raw(name, value string) change { return func(m *message) { m.set(name, value) } }

// replace edits a field's value.
func replace(name string, edit func(value string) string) change {
	return func(m *message) { m.set(name, " "+edit(m.value(name))) }
}

func drop(names ...string) change {
	return func(m *message) {
		for _, name := range names {
			m.drop(name)
		}
	}
}

// first adds a line in front of all others, last behind them.
func first(name, value string) change {
	return func(m *message) { m.lines = append([]line{{name, " " + value}}, m.lines...) }
}

func last(name, value string) change {
	return func(m *message) { m.lines = append(m.lines, line{name, " " + value}) }
}

// twice adds a second line with the value of the first.
func twice(name string) change {
	return func(m *message) { m.lines = append(m.lines, line{name, " " + m.value(name)}) }
}

// rename changes the spelling of a field's name.
func rename(name, to string) change {
	return func(m *message) {
		for i := range m.lines {
			if strings.EqualFold(m.lines[i].name, name) {
				m.lines[i].name = to
			}
		}
	}
}

func method(name string) change { return func(m *message) { m.method = name } }

func target(t string) change { return func(m *message) { m.target = t } }

func host(h string) change { return set("Host", h) }

func body(b string) change { return func(m *message) { m.body = []byte(b) } }

// empty is a body of no bytes, and no type.
func empty() change {
	return func(m *message) {
		m.body = nil
		m.drop("Content-Type")
		m.set("X-Signed-Headers", " idempotency-key")
	}
}

// by has it signed by somebody else.
func by(p *signer) change {
	return func(m *message) {
		m.signer = p
		m.set("X-Key-Id", " "+p.id)
	}
}

// secondsAhead sets the timestamp, counted from noon.
func secondsAhead(n int64) change {
	return func(m *message) { m.set("X-Timestamp", " "+strconv.FormatInt(noon.Unix()+n, 10)) }
}

// cover sets the list of signed fields.
func cover(list string) change { return set("X-Signed-Headers", list) }

// uncovered leaves the list, and what must be on it, out.
func uncovered() change { return drop("X-Signed-Headers", "Idempotency-Key", "Content-Type") }

// signs says what is signed in the place of what target and Host make of it.
func signs(host, path, query string) change {
	return func(m *message) { m.signedHost, m.signedPath, m.signedQuery = &host, &path, &query }
}

func signsHost(host string) change { return func(m *message) { m.signedHost = &host } }

func signature(edit func(value string) string) change { return replace("X-Signature", edit) }

// forge puts a signature in that was made in another way.
func forge(f func(m *message) string) change {
	return func(m *message) { m.set("X-Signature", " "+f(m)) }
}

func inChunks() change { return func(m *message) { m.chunked = true } }

func trailer(name, value string) change {
	return func(m *message) {
		m.chunked = true
		m.trailers = append(m.trailers, line{name, value})
	}
}

// length says how long the body is, whatever it is.
func length(n string) change { return func(m *message) { m.length = n } }

// cutAfter sends n bytes of the body, says that there are more, and goes.
func cutAfter(n int) change {
	return func(m *message) {
		m.length = strconv.Itoa(len(m.body))
		m.body = m.body[:n]
		m.cut = true
	}
}

// cutOff sends the body, which is less than was said, and goes.
func cutOff() change { return func(m *message) { m.cut = true } }

func flip(i int) change {
	return func(m *message) { m.body[(i+len(m.body))%len(m.body)] ^= 0x20 }
}
