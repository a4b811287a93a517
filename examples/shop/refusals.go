package shop

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
)

// refuse is the engine's [core.Config.Refuse]: a browser gets a page; everybody else the default answer,
// application/problem+json.
func (g *Guards) refuse(ctx context.Context, r *core.Refusal) *core.Response {
	if accept, _ := r.Request.Headers.Header("Accept", 0); !prefersHTML(accept) {
		return nil
	}
	reply := refusalPage(r)
	if r.Request.Route == pathCheckout {
		sent := readForm(r.Request.ContentType, r.Request.Body)
		reply = checkoutRefusal(r, sent, func() (string, error) { return g.Checkout.NewToken(ctx, r.Request) })
	}
	header := append([]core.Field{{Name: "Content-Type", Value: reply.ContentType}}, reply.Header...)
	return &core.Response{Status: reply.Status, Header: header, Body: reply.Body}
}

// refusalPage says what a refusal says.
func refusalPage(r *core.Refusal) *Reply {
	return page(r.Status, "message.html", message{r.Code.Title(), notice{Heading: "That did not work", Text: r.Detail}})
}

// checkoutRefusal says what has become of the form, and what to do. Unless it has been ordered, what was
// typed is still there, with a fresh token where the old one is of no use.
func checkoutRefusal(r *core.Refusal, sent form, fresh func() (string, error)) *Reply {
	const sendAgain = " Nothing was ordered. Check the form, and send it again."
	show := func(title, text string) *Reply {
		return page(r.Status, "checkout.html", checkoutPage{title, &notice{Heading: title, Text: text}, sent})
	}
	showFresh := func(title, text string) *Reply {
		token, err := fresh()
		if err != nil {
			return refusalPage(r)
		}
		sent.Token = token
		return show(title, text)
	}
	switch {
	case r.Code == codes.TokenExpired:
		return showFresh("This form was open for too long", "It could be sent for a few minutes only."+sendAgain)
	case r.Code == codes.TokenInvalid:
		return showFresh("This form belongs to another session", "You may have logged in or out since it was opened."+sendAgain+
			" If you see this page once more, allow this site to set cookies: they tell the shop who you are.")
	case r.Code == codes.TokenMissing:
		return showFresh("Please send the form once more",
			"It came without the hidden field that keeps an order from being made twice."+sendAgain)
	case r.Code == codes.KeyReused:
		n := notice{Heading: "You have sent this form before", Calm: true,
			Text: "It said something else then, and nothing was changed by sending it again. " +
				"To order more, begin a new order."}
		if r.Stored != nil && r.Stored.Get("Location") != "" {
			n.Links = append(n.Links, link{r.Stored.Get("Location"), "See the receipt"})
		}
		n.Links = append(n.Links, link{pathCheckout, "Begin a new order"})
		return page(r.Status, "message.html", message{"Already ordered", n})
	case r.Code == codes.InProgress:
		return page(r.Status, "waiting.html", checkoutPage{"Your order is on its way", &notice{Heading: "One moment, please", Calm: true,
			Text: "The shop is still busy with it. You will not order twice by asking for the receipt."}, sent})
	case r.Status == http.StatusServiceUnavailable:
		return show("The shop is busy", "Please send the form again in a moment. It is not ordered twice.")
	default:
		return refusalPage(r)
	}
}

// refused answers what NewToken has refused, in the same way.
func refused(ctx context.Context, r *Request, err error) (*Reply, error) {
	var refusal *core.Refusal
	if !errors.As(err, &refusal) {
		return nil, err
	}
	answer := core.RefusalResponse(ctx, err, nil)
	reply := &Reply{Status: answer.Status, ContentType: answer.Get("Content-Type"), Body: answer.Body}
	if prefersHTML(r.Header("Accept")) {
		reply = refusalPage(refusal)
	}
	// The fields of a refusal take the place of those of a page: it is not to be cached.
	reply.Header = slices.DeleteFunc(append(slices.Clone(reply.Header), answer.Header...),
		func(f core.Field) bool { return f.Name == "Content-Type" })
	return reply, nil
}
