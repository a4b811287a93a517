package backend

import (
	"bufio"
	"bytes"
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

// dial connects to the URL's host. Reads and writes on the connection end after limit.
func dial(u *url.URL, port string, limit time.Duration) (net.Conn, error) {
	if u.Port() != "" {
		port = u.Port()
	}
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(u.Hostname(), port), limit)
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(time.Now().Add(limit))
}

func probeRedis(u *url.URL, limit time.Duration) error {
	conn, err := dial(u, "6379", limit)
	if err != nil {
		return err
	}
	defer conn.Close()
	if u.Scheme == "rediss" {
		return nil
	}
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return err
	}
	switch reply, err := readReply(bufio.NewReader(conn)); {
	case err != nil && strings.HasPrefix(err.Error(), "NOAUTH"):
		return nil
	case err != nil:
		return err
	case reply != "PONG":
		return fmt.Errorf("PING was answered with %q", reply)
	}
	return nil
}

// probePostgres logs in, for a server accepts connections some time before it accepts
// clients. Where TLS is allowed, it only asks for TLS, and any answer will do.
func probePostgres(u *url.URL, limit time.Duration) error {
	conn, err := dial(u, "5432", limit)
	if err != nil {
		return err
	}
	defer conn.Close()

	message := func(code uint32, text string) []byte {
		b := binary.BigEndian.AppendUint32(nil, uint32(8+len(text)))
		return append(binary.BigEndian.AppendUint32(b, code), text...)
	}
	if u.Query().Get("sslmode") != "disable" {
		if _, err := conn.Write(message(80877103, "")); err != nil { // SSLRequest
			return err
		}
		_, err := io.ReadFull(conn, make([]byte, 1))
		return err
	}
	startup := fmt.Sprintf("user\x00%s\x00database\x00%s\x00\x00", u.User.Username(), strings.TrimPrefix(u.Path, "/"))
	if _, err := conn.Write(message(3<<16, startup)); err != nil { // protocol 3.0
		return err
	}
	for {
		var head [5]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return err
		}
		body := make([]byte, max(4, min(binary.BigEndian.Uint32(head[1:]), 1<<16))-4)
		if _, err := io.ReadFull(conn, body); err != nil {
			return err
		}
		switch head[0] {
		case 'R':
			if !bytes.Equal(body, []byte{0, 0, 0, 0}) {
				return nil // it wants a password
			}
		case 'Z': // ReadyForQuery
			_, err := conn.Write([]byte{'X', 0, 0, 0, 4}) // Terminate
			return err
		case 'E':
			return fmt.Errorf("it says %q", bytes.ReplaceAll(body, []byte{0}, []byte(" ")))
		}
	}
}

// probeMySQL logs in without a password. It does not leave after the greeting, for a
// server blocks a host that does so too often.
func probeMySQL(u *url.URL, limit time.Duration) error {
	conn, err := dial(u, "3306", limit)
	if err != nil {
		return err
	}
	defer conn.Close()

	read := func() ([]byte, error) {
		var head [4]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return nil, err
		}
		body := make([]byte, int(head[0])|int(head[1])<<8|int(head[2])<<16)
		if _, err := io.ReadFull(conn, body); err != nil {
			return nil, err
		}
		switch {
		case len(body) == 0:
			return nil, errors.New("an empty packet")
		case body[0] == 0xff: // ERR: code, text
			return nil, fmt.Errorf("%q", body[min(3, len(body)):])
		}
		return body, nil
	}
	write := func(number byte, body []byte) error {
		_, err := conn.Write(append([]byte{byte(len(body)), byte(len(body) >> 8), 0, number}, body...))
		return err
	}
	greeting, err := read()
	if err != nil {
		return err
	}
	if greeting[0] != 10 {
		return fmt.Errorf("a greeting of version %d", greeting[0])
	}
	const (
		connectWithDB    = 1 << 3
		protocol41       = 1 << 9
		secureConnection = 1 << 15
	)
	login := binary.LittleEndian.AppendUint32(nil, connectWithDB|protocol41|secureConnection)
	login = binary.LittleEndian.AppendUint32(login, 1<<24) // the largest packet
	login = append(login, 45)                              // utf8mb4
	login = append(login, make([]byte, 23)...)
	login = append(login, u.User.Username()+"\x00"...)
	login = append(login, 0) // no bytes of password
	login = append(login, strings.TrimPrefix(u.Path, "/")+"\x00"...)
	if err := write(1, login); err != nil {
		return err
	}
	answer, err := read()
	if err != nil {
		if _, has := u.User.Password(); has {
			return nil // it wants the password
		}
		return err
	}
	if answer[0] == 0 { // OK
		return write(0, []byte{1}) // COM_QUIT
	}
	return nil // it wants something else than a password
}

func probeAMQP(u *url.URL, limit time.Duration) error {
	conn, err := dial(u, "5672", limit)
	if err != nil {
		return err
	}
	defer conn.Close()
	if u.Scheme == "amqps" {
		return nil
	}
	if _, err := io.WriteString(conn, "AMQP\x00\x00\x09\x01"); err != nil {
		return err
	}
	// A method frame on channel 0: Connection.Start.
	var frame [3]byte
	if _, err := io.ReadFull(conn, frame[:]); err != nil {
		return err
	}
	if frame != [3]byte{1, 0, 0} {
		return fmt.Errorf("not AMQP 0-9-1: %q", frame)
	}
	return nil
}

// probeNATS reads what a server says of itself to whoever connects. JetStream is off unless its
// configuration asks for it.
func probeNATS(u *url.URL, limit time.Duration) error {
	conn, err := dial(u, "4222", limit)
	if err != nil {
		return err
	}
	defer conn.Close()
	line, err := bufio.NewReader(io.LimitReader(conn, 1<<16)).ReadString('\n')
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
}
