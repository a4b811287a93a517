package adaptertest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// overHTTP2 is an attack of one request by HTTP/2. Its Host line, if it has one, stands beside :authority, which is left out
// if it is empty. Of the answer it looks only whether there is one.
func overHTTP2(name, why, authority string, r signedRequest, want verdict) attack {
	return attack{name: name, why: why, front: want.front, do: func(p *attackRun) {
		refused := false
		s := p.try(r.message(), func(m *message) (reply, error) {
			err := send2(p.e.addr, authority, m)
			if refused = errors.Is(err, errMalformed2) && want.front; refused {
				err = nil
			}
			return reply{}, err
		})
		if refused && s.runs+s.nonces+len(s.events) > 0 {
			p.problem("%v, and it has been verified", errMalformed2)
		}
		if refused || s.err != nil {
			return
		}
		p.checkEvents(s, want)
		if accepted := want.err == nil; accepted != (s.runs == 1) {
			p.problem("the handler has run %d times", s.runs)
		}
	}}
}

// errMalformed2 is the server's own refusal of a malformed request (RFC 9113, section 8.1.1).
var errMalformed2 = errors.New("the server has reset the stream: PROTOCOL_ERROR")

// Frames of HTTP/2 (RFC 9113, section 6), and their flags.
const (
	frameData     = 0
	frameHeaders  = 1
	frameReset    = 3
	frameSettings = 4
	endStream     = 1
	endHeaders    = 4
)

func appendFrame(b []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	b = append(b, byte(len(payload)>>16), byte(len(payload)>>8), byte(len(payload)), kind, flags)
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// appendLine appends a line of a header that is not indexed and not compressed (RFC 7541, section 6.2.2).
func appendLine(b []byte, name, value string) []byte {
	b = append(b, 0)
	for _, s := range [2]string{name, value} {
		if len(s) < 127 {
			b = append(b, byte(len(s)))
		} else {
			b = binary.AppendUvarint(append(b, 127), uint64(len(s)-127)) // RFC 7541, section 5.1, has the same form
		}
		b = append(b, s...)
	}
	return b
}

// send2 sends m by HTTP/2, on a connection of its own, and waits until it is answered.
func send2(addr, authority string, m *message) error {
	c, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))

	header := appendLine(nil, ":method", m.method)
	header = appendLine(header, ":scheme", "http")
	header = appendLine(header, ":path", m.target)
	if authority != "" {
		header = appendLine(header, ":authority", authority)
	}
	for _, l := range m.lines {
		header = appendLine(header, strings.ToLower(l.name), strings.Trim(l.value, " \t"))
	}
	b := appendFrame([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frameSettings, 0, 0, nil)
	b = appendFrame(b, frameHeaders, endHeaders, 1, header)
	b = appendFrame(b, frameData, endStream, 1, m.body)
	if _, err := c.Write(b); err != nil {
		return err
	}
	var frame [9]byte
	for {
		if _, err := io.ReadFull(c, frame[:]); err != nil {
			return err
		}
		payload := make([]byte, int(frame[0])<<16|int(frame[1])<<8|int(frame[2]))
		if _, err := io.ReadFull(c, payload); err != nil {
			return err
		}
		if binary.BigEndian.Uint32(frame[5:]) != 1 {
			continue
		}
		switch answers := frame[3] == frameData || frame[3] == frameHeaders; {
		case answers && frame[4]&endStream != 0:
			return nil
		case frame[3] == frameReset && bytes.Equal(payload, []byte{0, 0, 0, 1}):
			return errMalformed2
		case frame[3] == frameReset:
			return fmt.Errorf("the server has reset the stream: %x", payload)
		}
	}
}
