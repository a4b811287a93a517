package shop

import (
	"context"
	"fmt"
	"html/template"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/idem-go/idem/core"
)

const (
	priceOfTin = 950 // cents
	maxTins    = 99

	// declinedCard is for trying out what happens when a card is declined.
	declinedCard = "0000"
)

var teas = []string{"Assam", "Darjeeling", "Sencha"}

// receipt is an order that has come of a form.
type receipt struct {
	user string
	key  core.Key // of the operation
	name string
	tea  string
	tins int
}

// form is the order form, as somebody has filled it in.
type form struct {
	Token  string
	Fields []*field
}

// field is one field of the form.
type field struct {
	Name, Label, Hint       string
	Value, Error            string
	Choices                 []string
	Autocomplete, InputMode string
	Required                bool
}

// DescribedBy are the ids of the elements that say more about the field.
func (f *field) DescribedBy() string {
	var ids []string
	if f.Hint != "" {
		ids = append(ids, f.Name+"-hint")
	}
	if f.Error != "" {
		ids = append(ids, f.Name+"-error")
	}
	return strings.Join(ids, " ")
}

// readForm reads the form that was sent. A browser sends each field; a program may leave them to the shop.
func readForm(contentType string, body []byte) form {
	var sent url.Values
	if media, _, _ := mime.ParseMediaType(contentType); media == "application/x-www-form-urlencoded" {
		sent, _ = url.ParseQuery(string(body)) // what can't be read is not there
	}
	return fill(sent, url.Values{"name": {"a guest"}, "tea": teas[:1], "tins": {"1"}})
}

// fill makes the form of what was sent, and of defaults for what was not.
func fill(sent, defaults url.Values) form {
	for name, values := range sent {
		defaults[name] = values
	}
	sent = defaults
	text := func(name string) string { return strings.TrimSpace(sent.Get(name)) }
	return form{Token: sent.Get(core.TokenField), Fields: []*field{
		{Name: "name", Label: "Your name", Value: text("name"), Autocomplete: "name", Required: true},
		{Name: "tea", Label: "Tea", Hint: euros(priceOfTin) + " a tin", Value: text("tea"), Choices: teas},
		{Name: "tins", Label: "Tins", Value: text("tins"), InputMode: "numeric", Required: true},
		{Name: "card", Label: "Gift card (optional)", Hint: "To see one declined, enter " + declinedCard + ".",
			Value: text("card"), InputMode: "numeric"},
	}}
}

func (f *form) field(name string) *field {
	return f.Fields[slices.IndexFunc(f.Fields, func(field *field) bool { return field.Name == name })]
}

// TokenInput is the hidden field that makes one operation of all submits of this form.
func (f form) TokenInput() template.HTML { return core.TokenInput(f.Token) }

// check fills in what is wrong with each field, and returns an order if nothing is.
func (f *form) check() (r receipt, ok bool) {
	name, tea, tins, card := f.field("name"), f.field("tea"), f.field("tins"), f.field("card")
	if n := len([]rune(name.Value)); n == 0 || n > 100 {
		name.Error = "Enter your name, in at most 100 characters."
	}
	if !slices.Contains(teas, tea.Value) {
		tea.Error = "Choose a tea."
	}
	n, err := strconv.Atoi(tins.Value)
	if err != nil || n < 1 || n > maxTins {
		tins.Error = fmt.Sprintf("Enter a number of tins from 1 to %d.", maxTins)
	}
	if card.Value == declinedCard {
		card.Error = "The gift card was declined. Enter another one, or none."
	}
	faulty := slices.ContainsFunc(f.Fields, func(field *field) bool { return field.Error != "" })
	return receipt{name: name.Value, tea: tea.Value, tins: n}, !faulty
}

// checkoutPage is the form, with what there is to say about it.
type checkoutPage struct {
	Title  string
	Notice *notice
	form
}

// CheckoutForm shows the form, with a token for it. err is what the guard has said instead of issuing one.
func (s *Shop) CheckoutForm(token string, err error) Handler {
	return func(ctx context.Context, r *Request) (*Reply, error) {
		if err != nil {
			return refused(ctx, r, err)
		}
		f := fill(nil, url.Values{core.TokenField: {token}, "tea": teas[:1], "tins": {"1"}})
		return page(http.StatusOK, "checkout.html", checkoutPage{Title: "Checkout", form: f}), nil
	}
}

// Checkout takes an order from the form, and sends the browser on to its receipt, so that a reload is no
// other submit (Post/Redirect/Get). Any other answer gives the token back: what was typed is still there,
// and can be submitted once more.
func (s *Shop) Checkout(ctx context.Context, r *Request) (*Reply, error) {
	return s.execute(ctx, RouteCheckout, r, func() (*Reply, error) {
		f := readForm(r.ContentType, r.Body)
		order, ok := f.check()
		if !ok {
			n := notice{Heading: "Nothing was ordered yet"}
			for _, field := range f.Fields {
				if field.Error != "" {
					n.Links = append(n.Links, link{"#" + field.Name, field.Error})
				}
			}
			return page(http.StatusUnprocessableEntity, "checkout.html", checkoutPage{"Error: Checkout", &n, f}), nil
		}
		if d, _ := parseDemo(r.Header); d.status >= 400 { // execute has found it well-formed
			n := notice{Heading: "Nothing was ordered yet", Text: "The shop could not take the order. Please send it again."}
			return page(d.status, "checkout.html", checkoutPage{"Error: Checkout", &n, f}), nil
		}
		order.user, order.key = r.User, core.RunFrom(ctx).Key()
		id := newID("rcp")
		s.receipts[id] = order
		to := "/receipts/" + id
		return &Reply{Status: http.StatusSeeOther, Location: to, ContentType: "text/plain; charset=utf-8",
			Body: []byte("See " + to + "\n")}, nil
	})
}

// Receipt shows a receipt to the user whose order it is.
func (s *Shop) Receipt(_ context.Context, r *Request) (*Reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.receipts[r.ID]
	if !ok || found.user != r.User {
		return nil, &Problem{http.StatusNotFound, "There is no such receipt of yours here."}
	}
	orders := 0
	for _, other := range s.receipts {
		if other.key == found.key {
			orders++
		}
	}
	return page(http.StatusOK, "receipt.html", map[string]any{
		"Title": "Receipt", "ID": r.ID, "Name": found.name, "Tea": found.tea, "Tins": found.tins,
		"Total": euros(found.tins * priceOfTin), "Submits": s.submits.of(found.key), "Orders": orders,
	}), nil
}

func euros(cents int) string { return fmt.Sprintf("%d.%02d €", cents/100, cents%100) }

// Register registers the user for the tasting, {"name": "Ann"}.
func (s *Shop) Register(ctx context.Context, r *Request) (*Reply, error) {
	return s.execute(ctx, RouteRegistrations, r, func() (*Reply, error) {
		in := struct {
			Name string `json:"name"`
		}{Name: "a guest"}
		decode(r, &in)
		id := newID("reg")
		s.registrations[id] = in.Name
		return created("", object{"registration_id": id, "name": in.Name})
	})
}
