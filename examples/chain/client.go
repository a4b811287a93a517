package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/idemclient"
)

// client is the shop's customer. It does not give up.
type client struct {
	url  string
	http http.Client
	link *link

	sent, replayed atomic.Int64
}

func newClient(o options) *client {
	c := &client{url: "http://" + o.shop, link: newLink(o)}
	c.http.Transport = &idemclient.Transport{
		Hosts:    []string{o.shop},
		Base:     c.link,
		MaxTries: 1000, Budget: -1, MaxWait: 5 * time.Second, // longer than a lease; a person would give up earlier
		Observe: func(idemclient.Try) { c.sent.Add(1) },
	}
	return c
}

// order sends an order, until there is an answer.
func (c *client) order(ctx context.Context, number int) (o order, err error) {
	// With a key of the customer's own the order can be sent once more, as somebody does who has lost the answer.
	ctx = idemclient.WithKey(ctx, fmt.Sprintf(`"order-%d"`, number), time.Now())
	for range 2 {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost,
			fmt.Sprintf("%s/orders/%d", c.url, number), strings.NewReader(`{}`))
		if err != nil {
			return o, err
		}
		request.Header.Set("X-User", "ann")
		request.Header.Set("Content-Type", "application/json")
		answer, err := c.http.Do(request)
		if err != nil {
			return o, err
		}
		defer answer.Body.Close()
		if answer.Header.Get("Idempotent-Replayed") != "" {
			c.replayed.Add(1)
		}
		if answer.StatusCode != http.StatusCreated {
			body, _ := io.ReadAll(answer.Body)
			return o, fmt.Errorf("%s: %s", answer.Status, body)
		}
		var got order
		if err := json.NewDecoder(answer.Body).Decode(&got); err != nil {
			return o, err
		}
		if o.Order != "" && !slices.Equal(o.Receipts, got.Receipts) {
			return o, fmt.Errorf("the answer was %v, and is %v now", o, got)
		}
		o = got
	}
	return o, nil
}

// compare prints the ledgers, and compares them with the answers.
func compare(o options, c *client, answers []order) error {
	ctx := context.Background()
	shop, err := openLedger(ctx, o.file("shop"))
	if err != nil {
		return err
	}
	defer shop.Close()
	bank, err := openLedger(ctx, o.file("bank"))
	if err != nil {
		return err
	}
	defer bank.Close()
	var orders, runs, entries int
	if err := shop.QueryRow("SELECT COUNT(DISTINCT customer_order), COUNT(*) FROM ledger").Scan(&orders, &runs); err != nil {
		return err
	}
	fmt.Printf("the client:        %5d orders sent in %d tries, each until it was answered twice; the link has "+
		"lost %d times; %d answers were replays\n",
		len(answers), c.sent.Load(), c.link.lost.Load(), c.replayed.Load())
	fmt.Printf("the shop's ledger: %5d orders, in %d runs of the handler\n", orders, runs)

	rows, err := bank.Query("SELECT id, effect, customer_order FROM ledger")
	if err != nil {
		return err
	}
	defer rows.Close()
	booked := map[string]string{} // the receipt, by effect and order
	var twice []string
	for rows.Next() {
		var id int
		var effect, of string
		if err := rows.Scan(&id, &effect, &of); err != nil {
			return err
		}
		entries++
		if booked[effect+" "+of] != "" {
			twice = append(twice, effect+" "+of)
		}
		booked[effect+" "+of] = fmt.Sprintf("%s-%d", effect, id)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	fmt.Printf("the bank's ledger: %5d effects, %d of them twice\n", entries, len(twice))
	if len(twice) > 0 {
		return fmt.Errorf("the bank has done twice: %v", twice)
	}
	if entries != len(o.effects)*len(answers) || orders != len(answers) {
		return errors.New("the ledgers have not as many entries as there are orders")
	}
	for _, a := range answers {
		for i, effect := range o.effects {
			if want := booked[effect+" "+a.Order]; want == "" || a.Receipts[i] != want {
				return fmt.Errorf("order %s was answered with the receipt %q for what the bank calls %q", a.Order, a.Receipts[i], want)
			}
		}
	}
	fmt.Println("each order has each of its effects once, and the client has the receipts")
	return nil
}
