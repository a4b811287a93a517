// Command nethttp is the shop on net/http's own mux. Chi, gorilla/mux and all others that
// take a func(http.Handler) http.Handler are used in the same way.
package main

import (
	"errors"
	"flag"
	"io"
	"log"
	"net/http"
	"os"
	"runtime/debug"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/examples/shop"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/js"
)

func main() {
	options, err := shop.ParseOptions(flag.CommandLine, os.Args[1:])
	if err != nil {
		os.Exit(2)
	}
	store, err := shop.OpenStore(options)
	if err != nil {
		log.Fatal(err)
	}
	guards, err := shop.NewGuards(options, store)
	if err != nil {
		log.Print(err)
		os.Exit(2)
	}
	err = shop.Serve(options, guards, shop.HTTPServer(newHandler(guards)))
	store.Close()
	if err != nil {
		log.Fatal(err)
	}
}

func newHandler(g *shop.Guards) http.Handler {
	s := shop.New(g)
	mux := http.NewServeMux()
	protect := func(g *core.Guard, h shop.Handler) http.Handler {
		// Errors are rendered inside the guard, so that it sees what the client gets.
		return httpidem.New(g)(render(h))
	}
	mux.Handle("POST /orders", protect(g.Orders, s.CreateOrder))
	mux.Handle("POST /orders/{id}/pay", protect(g.Pay, s.PayOrder))
	mux.Handle("POST /payments", protect(g.Payments, s.CreatePayment))
	mux.Handle("POST /transfers", protect(g.Transfers, s.CreateTransfer))
	mux.Handle("POST /charges", protect(g.Charges, s.Charge))
	mux.Handle("POST /likes", protect(g.Likes, s.Like))
	mux.Handle("POST /coupons", protect(g.Coupons, s.TakeCoupon))
	mux.Handle("POST /avatars", protect(g.Avatars, s.SetAvatar))
	// A request whose signature is refused does not get to the guard, and leaves no record.
	mux.Handle("POST /webhooks", httpidem.Verify(g.Signed)(protect(g.Webhooks, s.ReceiveWebhook)))
	mux.Handle("GET /stats", render(s.Stats))
	if g.Admin != nil {
		mux.Handle(shop.PathAdmin, g.Admin)
	}

	// A program asks for a token, and sends it in X-Idempotency-Token.
	mux.Handle("GET /tokens", httpidem.IssueToken(g.Registrations))
	mux.Handle("POST /registrations", protect(g.Registrations, s.Register))

	// A person gets it with the form. A visitor needs a session: a token is one user's.
	mux.Handle("GET /checkout", session(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := httpidem.NewToken(r, g.Checkout)
		render(s.CheckoutForm(token, err)).ServeHTTP(w, r)
	})))
	mux.Handle("POST /checkout", session(protect(g.Checkout, s.Checkout)))
	mux.Handle("GET /receipts/{id}", render(s.Receipt))
	mux.Handle("GET /style.css", render(shop.Style))
	mux.HandleFunc("GET /idem.js", js.Serve)

	// The page that shows what idem does.
	mux.Handle("GET /try", render(shop.TryPage))
	mux.Handle("GET /try.js", render(shop.TryScript))
	mux.Handle("/try/", shop.NewTry())

	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { renderError(w, r, shop.ErrNotFound) })

	// What a page of somebody else's has sent gets no further than this: a token alone does not
	// keep it out.
	crossOrigin := http.NewCrossOriginProtection()
	crossOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		renderError(w, r, shop.ErrCrossOrigin)
	}))

	// Recovery is outside the guards: a panic passes them on its way, and they
	// forget the run, so that the next try runs.
	return recovery(crossOrigin.Handler(mux))
}

// session gives a visitor who comes without a session a new one, in time for this request.
func session(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if cookie := shop.NewSession(r.Header.Get); cookie != nil {
			http.SetCookie(w, cookie)
			r.AddCookie(cookie)
		}
		next.ServeHTTP(w, r)
	})
}

// render translates between net/http and the shop: it answers what h returns, be it a
// reply or an error.
func render(h shop.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			renderError(w, r, &shop.Problem{Status: http.StatusBadRequest, Message: "the body could not be read"})
			return
		}
		// Under a guard the request's context also ends when the lease is lost.
		reply, err := h(r.Context(), &shop.Request{
			User:        shop.User(r.Header.Get),
			ID:          r.PathValue("id"),
			ContentType: r.Header.Get("Content-Type"),
			Body:        body,
			Header:      r.Header.Get,
		})
		if err != nil {
			renderError(w, r, err)
			return
		}
		if reply != nil {
			write(w, reply)
		}
	})
}

func write(w http.ResponseWriter, reply *shop.Reply) {
	for _, field := range reply.Header {
		w.Header().Set(field.Name, field.Value)
	}
	w.Header().Set("Content-Type", reply.ContentType)
	if reply.Location != "" {
		w.Header().Set("Location", reply.Location)
	}
	w.WriteHeader(reply.Status)
	w.Write(reply.Body) // an error means that the client has gone
}

func renderError(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusInternalServerError
	var problem *shop.Problem
	if errors.As(err, &problem) {
		status = problem.Status
	}
	write(w, shop.ErrorReply(r.Header.Get, status, err.Error()))
}

// recovery answers 500 to a request whose handler has panicked.
func recovery(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			switch v := recover(); v {
			case nil:
			case http.ErrAbortHandler: // means: close the connection, and say nothing
				panic(v)
			default:
				log.Printf("panic: %v\n%s", v, debug.Stack())
				renderError(w, r, errors.New("internal error"))
			}
		}()
		next.ServeHTTP(w, r)
	})
}
