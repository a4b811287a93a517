package main

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"go/doc/comment"
	"io"
	"strings"
	"time"

	"github.com/idem-go/idem/core/operations"
	"github.com/idem-go/idem/core/store"
)

//go:embed main.go
var source string

// help is the comment of the package.
var help = func() string {
	text, _, _ := strings.Cut(source, "\npackage main")
	text = strings.ReplaceAll(strings.ReplaceAll("\n"+text, "\n//\n", "\n\n"), "\n// ", "\n")
	return string((&comment.Printer{TextWidth: -1}).Text(new(comment.Parser).Parse(strings.ReplaceAll(text, "\n//\t", "\n\t"))))
}()

// printer prints operations for people, or for programs.
type printer struct {
	out     io.Writer
	errs    io.Writer
	json    bool
	reveal  bool
	ops     *operations.Operations
	started bool
}

// object is an operation for programs.
type object struct {
	Digest    string  `json:"digest"`
	ID        string  `json:"id"`
	State     string  `json:"state"`
	Expired   bool    `json:"expired,omitempty"` // done, and its result is no longer kept
	Attempt   uint64  `json:"attempt"`
	Policy    string  `json:"policy"`
	Route     string  `json:"route"`
	User      string  `json:"user"`
	Age       float64 `json:"age_seconds"`
	Remaining float64 `json:"remaining_seconds"`
	Status    int     `json:"status,omitempty"`
	Bytes     int     `json:"bytes"`
	Creator   string  `json:"creator"`
	Remark    string  `json:"remark"`
	Key       string  `json:"key,omitempty"`  // with -reveal
	Body      *string `json:"body,omitempty"` // with -body
	Unopened  string  `json:"unopened,omitempty"`
}

func (p *printer) object(op operations.Operation) object {
	o := object{Digest: op.Digest, ID: op.ID.String(), State: op.State.String(), Expired: op.Expired,
		Attempt: op.Attempt, Policy: op.Policy, Route: op.Route,
		User: p.user(op.User), Remaining: op.Remaining.Seconds(), Bytes: op.Size, Creator: op.Creator, Remark: op.Remark}
	if !op.Begun.IsZero() {
		o.Age = time.Since(op.Begun).Seconds()
	}
	if p.reveal {
		o.Key = op.Key
	}
	return o
}

// user returns a user, or a digest of it.
func (p *printer) user(user string) string {
	if p.reveal || user == "" {
		return user
	}
	sum := sha256.Sum256([]byte(user))
	return "~" + hex.EncodeToString(sum[:4])
}

const columns = "%-16s  %-9s %7s %10s %10s %8s  %-12s %-24s %-9s %s\n"

// line prints an operation of a list.
func (p *printer) line(op operations.Operation) error {
	o := p.object(op)
	if p.json {
		return json.NewEncoder(p.out).Encode(o)
	}
	if !p.started {
		p.started = true
		fmt.Fprintf(p.out, columns, "DIGEST", "STATE", "ATTEMPT", "AGE", "REMAINING", "BYTES", "POLICY", "ROUTE", "USER", "REMARK")
	}
	_, err := fmt.Fprintf(p.out, columns, o.Digest, o.State, fmt.Sprint(o.Attempt), op.Age(), operations.Span(op.Remaining),
		fmt.Sprint(o.Bytes), operations.Printable(o.Policy), operations.Printable(o.Route),
		operations.Printable(o.User), operations.Printable(o.Remark))
	return err
}

// more says on standard error, also beside -json, that a list goes on.
func (p *printer) more(n int, next string) {
	goesOn := "-reveal prints a cursor for the rest"
	if p.reveal { // it contains a stored key
		goesOn = "-from " + next + " continues"
	}
	fmt.Fprintf(p.errs, "… the first %d; -all lists all, and %s\n", n, goesOn)
}

func (p *printer) count(c operations.Count) error {
	if p.json {
		return json.NewEncoder(p.out).Encode(map[string]any{"state": c.State.String(), "count": c.N, "more": c.More})
	}
	plus := ""
	if c.More {
		plus = "+"
	}
	_, err := fmt.Fprintf(p.out, "%-10v %d%s\n", c.State, c.N, plus)
	return err
}

// show prints all about an operation.
func (p *printer) show(op operations.Operation, withBody bool) error {
	o := p.object(op)
	answer, answered := p.ops.Answer(op)
	if answered {
		o.Status = answer.Status
	}
	if op.Unopened != nil {
		o.Unopened = strings.TrimPrefix(op.Unopened.Error(), "idem: ")
	} else if withBody && op.State == store.Done {
		text := string(op.Result)
		if answered {
			text = string(answer.Body)
		}
		o.Body = &text
	}
	if p.json {
		return json.NewEncoder(p.out).Encode(o)
	}
	begun := "-"
	if !op.Begun.IsZero() {
		begun = op.Begun.Local().Format(time.RFC3339Nano) + ", " + op.Age() + " ago"
	}
	rows := [][2]string{
		{"digest", o.Digest}, {"operation", o.ID}, {"state", op.Explain()}, {"attempt", fmt.Sprint(o.Attempt)}, {"policy", o.Policy},
		{"route", o.Route}, {"user", o.User}, {"key", o.Key}, {"begun", begun}, {"claimed by", o.Creator}, {"remark", o.Remark},
	}
	if answered {
		rows = append(rows, [2]string{"status", fmt.Sprint(o.Status)})
		for _, f := range answer.Header {
			rows = append(rows, [2]string{"field", f.Name + ": " + f.Value})
		}
	}
	if op.State == store.Done {
		rows = append(rows, [2]string{"stored", fmt.Sprintf("%d bytes", o.Bytes)}, [2]string{"unopened", o.Unopened})
	}
	for _, row := range rows {
		if row[1] != "" {
			fmt.Fprintf(p.out, "%-11s %s\n", row[0], operations.Printable(row[1]))
		}
	}
	if o.Body != nil {
		fmt.Fprintf(p.out, "\n%s\n", operations.Printable(*o.Body, '\n', '\t'))
	}
	return nil
}
