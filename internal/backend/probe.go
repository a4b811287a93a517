package backend

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"
)

// A probe asks a server for a sign of life, in as few bytes as its protocol allows. It
// returns nil if the server is ready for clients. What it cannot ask (a password is
// wanted, or TLS) it takes for an answer: the driver will say what is wrong.

// greet connects to the URL's host, says hello, and has check read the answer, unless TLS comes first.
func greet(u *url.URL, port, hello string, check func(answer *bufio.Reader) error) error {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port)), patience)
	if err != nil {
		return err
	}
	defer conn.Close()
	if u.Scheme == "rediss" || u.Scheme == "amqps" {
		return nil
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, hello); err != nil {
		return err
	}
	return check(bufio.NewReader(io.LimitReader(conn, 1<<16)))
}

func probeRedis(u *url.URL) error {
	return greet(u, "6379", "PING\r\n", func(answer *bufio.Reader) error {
		line, err := answer.ReadString('\n')
		if err == nil && line != "+PONG\r\n" && !strings.HasPrefix(line, "-NOAUTH") {
			err = fmt.Errorf("PING was answered with %q", line)
		}
		return err
	})
}

// probePostgres begins to log in, for a server accepts connections some time before it accepts clients.
func probePostgres(u *url.URL) error {
	startup := fmt.Sprintf("\x00\x03\x00\x00user\x00%s\x00database\x00%s\x00\x00", u.User.Username(), strings.TrimPrefix(u.Path, "/"))
	length := binary.BigEndian.AppendUint32(nil, uint32(4+len(startup)))
	return greet(u, "5432", string(length)+startup, func(answer *bufio.Reader) error {
		kind, err := answer.ReadByte()
		if kind != 'E' {
			return err
		}
		if text, _ := io.ReadAll(answer); strings.Contains(string(text), "57P03") { // cannot_connect_now
			return fmt.Errorf("it says %q", text)
		}
		return nil
	})
}

// probeMySQL waits for the greeting: a packet that begins with the protocol's version, or with 0xff for an error.
func probeMySQL(u *url.URL) error {
	return greet(u, "3306", "", func(answer *bufio.Reader) error {
		head, err := answer.Peek(5)
		if err == nil && head[4] != 10 {
			text, _ := io.ReadAll(answer)
			err = fmt.Errorf("a greeting of %q", text)
		}
		return err
	})
}

func probeAMQP(u *url.URL) error {
	return greet(u, "5672", "AMQP\x00\x00\x09\x01", func(answer *bufio.Reader) error {
		frame, err := answer.Peek(3)
		if err == nil && string(frame) != "\x01\x00\x00" { // a method on channel 0: Connection.Start
			err = fmt.Errorf("not AMQP 0-9-1: %q", frame)
		}
		return err
	})
}

// probeNATS reads what a server says of itself to whoever connects. JetStream is off unless its
// configuration asks for it.
func probeNATS(u *url.URL) error {
	return greet(u, "4222", "", func(answer *bufio.Reader) error {
		line, err := answer.ReadString('\n')
		if err != nil {
			return err
		}
		text, ok := strings.CutPrefix(line, "INFO ")
		var info struct{ JetStream bool }
		if !ok || json.Unmarshal([]byte(text), &info) != nil {
			return fmt.Errorf("not NATS: %q", line)
		}
		if !info.JetStream {
			return errors.New("it has no JetStream; start it with -js")
		}
		return nil
	})
}
