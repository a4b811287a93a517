package backend

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// ask sends one command to a Redis server, on a connection of its own, and returns the
// reply: a string, an int64, nil or a []any of these. An error reply is an error.
func ask(addr string, command ...string) (any, error) {
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(command))
	for _, word := range command {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := io.WriteString(conn, b.String()); err != nil {
		return nil, err
	}
	return readReply(bufio.NewReader(conn))
}

// readReply reads one reply of the protocol's second version.
func readReply(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return nil, errors.New("an empty reply")
	}
	kind, text := line[0], line[1:]
	if kind == '+' {
		return text, nil
	}
	if kind == '-' {
		return nil, errors.New(text)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		return nil, fmt.Errorf("not a Redis reply: %q", line)
	case kind == ':':
		return n, nil
	case n < 0:
		return nil, nil
	case kind == '$':
		b := make([]byte, n+2)
		_, err := io.ReadFull(r, b)
		return string(b[:n]), err
	case kind == '*':
		list := make([]any, n)
		for i := range list {
			if list[i], err = readReply(r); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	return nil, fmt.Errorf("not a Redis reply: %q", line)
}

// says is nil if the server's reply to command, an INFO of some kind, has all the lines.
func says(addr string, command []string, lines ...string) error {
	reply, err := ask(addr, command...)
	if err != nil {
		return err
	}
	for _, line := range lines {
		if text, _ := reply.(string); !strings.Contains("\n"+text, "\n"+line+"\r") {
			return fmt.Errorf("%s at %s does not say %s: %q", strings.Join(command, " "), addr, line, reply)
		}
	}
	return nil
}
