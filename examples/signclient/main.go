// Command signclient sends signed requests to the shop's webhooks: a good one, three that must
// be refused, and a retry of the good one, as a client makes it that has not got the answer. It
// prints what has become of each, and ends with code 1 unless that is as expected.
//
//	go run ./examples/gin &
//	go run ./examples/signclient
package main

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"text/tabwriter"
	"time"

	"github.com/idem-go/idem/examples/shop"
	"github.com/idem-go/idem/sign"
)

func main() {
	c, err := parse(flag.CommandLine, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if err := c.run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// client sends the requests, all of them to one URL and signed with one key.
type client struct {
	url  string
	key  *sign.Key
	http *http.Client
}

func parse(flags *flag.FlagSet, args []string) (*client, error) {
	to := flags.String("url", "http://127.0.0.1:8080/webhooks", "`URL` to send to")
	id := flags.String("key", shop.KeyID, "`id` of the key to sign with")
	secret := flags.String("secret", shop.DefaultSecret, "the key's `secret`, at least 32 bytes")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if u, err := url.Parse(*to); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("-url must be http://… or https://…") // what it is may hold a password
	}
	key, err := sign.NewHMACKey(sign.KeyConfig{ID: *id}, []byte(*secret))
	if err != nil {
		return nil, fmt.Errorf("-key and -secret: %w", err)
	}
	return &client{*to, key, &http.Client{Timeout: 10 * time.Second}}, nil
}

// outcome is what a client sees of an answer.
type outcome struct {
	status   int
	code     string // of a refusal
	replayed string // the header field Idempotent-Replayed
}

// String returns the columns of the table.
func (o outcome) String() string {
	return fmt.Sprintf("%d\t%s\t%s", o.status, cmp.Or(o.code, "-"), cmp.Or(o.replayed, "-"))
}

// run sends the requests, and writes a table of the outcomes.
func (c *client) run(out io.Writer) error {
	// The operation is one: it keeps its key however often it is sent. The nonce is the
	// request's, a new one each time.
	operation := rand.Text()
	good, err := c.signed(operation, time.Now)
	if err != nil {
		return err
	}

	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "request\tstatus\tcode\tIdempotent-Replayed")
	failed := 0
	for _, request := range []struct {
		kind string
		send func() (*http.Response, error)
		want outcome
	}{
		{"good", func() (*http.Response, error) {
			return c.http.Do(again(good, event))
		}, outcome{202, "", ""}},

		{"stale", func() (*http.Response, error) {
			r, err := c.signed(operation, twoHoursAgo)
			if err != nil {
				return nil, err
			}
			return c.http.Do(r)
		}, outcome{401, "expired", ""}},

		{"tampered", func() (*http.Response, error) {
			r, err := c.signed(operation, time.Now)
			if err != nil {
				return nil, err
			}
			return c.http.Do(again(r, bytes.Replace(event, []byte("500"), []byte("900"), 1)))
		}, outcome{401, "invalid", ""}},

		{"replayed", func() (*http.Response, error) {
			return c.http.Do(again(good, event))
		}, outcome{401, "replayed", ""}},

		// This is how clients should do it: the transport signs each attempt anew, and makes
		// another one by itself when the connection breaks or the server is too busy.
		{"retry", func() (*http.Response, error) {
			signing := &http.Client{Transport: &sign.Transport{Key: c.key}, Timeout: c.http.Timeout}
			r, err := c.unsigned(operation)
			if err != nil {
				return nil, err
			}
			return signing.Do(r)
		}, outcome{202, "", "true"}},
	} {
		got, err := see(request.send())
		if err != nil {
			table.Flush()
			return fmt.Errorf("%s: %w", request.kind, err)
		}
		row := fmt.Sprintf("%s\t%v", request.kind, got)
		if got != request.want {
			failed++
			row += fmt.Sprintf("\tbut expected:\t%v", request.want)
		}
		fmt.Fprintln(table, row)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%d of the answers are not what they should be", failed)
	}
	return nil
}

var event = []byte(`{"event":"paid","amount":500}`)

func twoHoursAgo() time.Time { return time.Now().Add(-2 * time.Hour) }

func (c *client) unsigned(operation string) (*http.Request, error) {
	r, err := http.NewRequest(http.MethodPost, c.url, bytes.NewReader(event))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", operation) // before signing: it is signed, too
	return r, nil
}

func (c *client) signed(operation string, clock func() time.Time) (*http.Request, error) {
	r, err := c.unsigned(operation)
	if err != nil {
		return nil, err
	}
	return r, sign.Request(r, c.key, sign.RequestOptions{Clock: clock})
}

// again is r with its signature, as somebody would send it who has seen it, with any body.
func again(r *http.Request, body []byte) *http.Request {
	r = r.Clone(r.Context())
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	return r
}

// see reads an answer.
func see(resp *http.Response, err error) (outcome, error) {
	if err != nil {
		return outcome{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return outcome{}, err
	}
	var problem struct {
		Code string `json:"code"`
	}
	_ = json.Unmarshal(body, &problem) // not everything is a problem, nor JSON
	return outcome{resp.StatusCode, problem.Code, resp.Header.Get("Idempotent-Replayed")}, nil
}
