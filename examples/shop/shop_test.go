package shop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"mime/multipart"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/memstore"
	"github.com/idem-go/idem/sign"
)

// request makes a request whose demo header fields are pairs of name and value.
func request(body string, fields ...string) *Request {
	h := http.Header{}
	for i := 0; i < len(fields); i += 2 {
		h.Set(fields[i], fields[i+1])
	}
	return &Request{User: "ann", ID: "7", ContentType: h.Get("Content-Type"), Body: []byte(body), Header: h.Get}
}

func newShop(t *testing.T) *Shop {
	t.Helper()
	store, err := memstore.New(memstore.Config{})
	require.NoError(t, err)
	guards, err := NewGuards(Options{Secret: DefaultSecret, Lease: 30 * time.Second}, &Store{Store: store})
	require.NoError(t, err)
	return New(guards)
}

func answer(t *testing.T, reply *Reply, err error) map[string]any {
	t.Helper()
	require.NoError(t, err)
	var body map[string]any
	require.NoError(t, json.Unmarshal(reply.Body, &body))
	return body
}

func TestEveryRouteTakesAnyBodyAndAnswersWithAnIDOfItsOwn(t *testing.T) {
	s := newShop(t)
	for _, route := range []struct {
		name   string
		handle Handler
		status int
		id     string
	}{
		{RouteOrders, s.CreateOrder, 201, "order_id"},
		{RoutePay, s.PayOrder, 200, "payment_id"},
		{RoutePayments, s.CreatePayment, 201, "payment_id"},
		{RouteTransfers, s.CreateTransfer, 201, "transfer_id"},
		{RouteLikes, s.Like, 200, "like_id"},
		{RouteCoupons, s.TakeCoupon, 200, "coupon_id"},
		{RouteAvatars, s.SetAvatar, 201, "avatar_id"},
		{RouteWebhooks, s.ReceiveWebhook, 202, "webhook_id"},
		{RouteRegistrations, s.Register, 201, "registration_id"},
	} {
		seen := map[string]bool{}
		bodies := []string{"", "{}", "[1]", "null", `{"sku":1,"qty":"x","amount":"x","post":[]}`, "\xff\x00", "a=1&b=2"}
		for _, body := range bodies {
			reply, err := route.handle(t.Context(), request(body))
			got := answer(t, reply, err)
			require.Equal(t, route.status, reply.Status, route.name)
			id, _ := got[route.id].(string)
			require.NotEmpty(t, id, "%s %q", route.name, body)
			require.False(t, seen[id], "%s: %s twice", route.name, id)
			seen[id] = true
		}
		require.Equal(t, len(bodies), s.executions[route.name], route.name)
	}
}

func TestOrders(t *testing.T) {
	s := newShop(t)
	reply, err := s.CreateOrder(t.Context(), request(`{"sku":"cup","qty":3}`))
	got := answer(t, reply, err)
	id := got["order_id"].(string)
	require.Equal(t, "/orders/"+id, reply.Location)
	require.Equal(t, "cup", got["sku"])
	require.Equal(t, &order{user: "ann", sku: "cup", qty: 3}, s.orders[id])

	pay := request("")
	pay.ID = id
	reply, err = s.PayOrder(t.Context(), pay)
	require.Equal(t, id, answer(t, reply, err)["order_id"])
	require.True(t, s.orders[id].paid)
}

func TestMoney(t *testing.T) {
	s := newShop(t)
	_, err := s.CreatePayment(t.Context(), request(`{"amount":500}`))
	require.NoError(t, err)
	require.Equal(t, 500, s.revenue)

	_, err = s.CreateTransfer(t.Context(), request(`{"to":"carl","amount":5}`))
	require.NoError(t, err)
	require.Equal(t, map[string]int{"ann": -5, "carl": 5}, s.balances)
}

func TestLikesAndCouponsAreCounted(t *testing.T) {
	s := newShop(t)
	s.coupons = 1
	for i, left := range []float64{0, 0} {
		reply, err := s.TakeCoupon(t.Context(), request(""))
		require.Equal(t, left, answer(t, reply, err)["left"])
		reply, err = s.Like(t.Context(), request(`{"post":"42"}`))
		require.Equal(t, float64(i+1), answer(t, reply, err)["likes"])
	}
}

func TestAvatarIsTheFileOrTheBody(t *testing.T) {
	const digest = "039058c6f2c0cb492c533b0a4d14ef77cc0f78abccced5287d84a1a2011cfb81" // of 1 2 3
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	require.NoError(t, form.WriteField("title", "me"))
	file, err := form.CreateFormFile("picture", "me.png")
	require.NoError(t, err)
	_, err = file.Write([]byte{1, 2, 3})
	require.NoError(t, err)
	require.NoError(t, form.Close())

	s := newShop(t)
	for _, r := range []*Request{
		request(b.String(), "Content-Type", form.FormDataContentType()),
		request("\x01\x02\x03", "Content-Type", "image/png"),
		request("\x01\x02\x03", "Content-Type", `multipart/form-data; boundary=b`), // is none
		request("\x01\x02\x03", "Content-Type", `multipart/form-data`),
	} {
		reply, err := s.SetAvatar(t.Context(), r)
		require.Equal(t, digest, answer(t, reply, err)["sha256"])
		require.Equal(t, avatar{digest, 3}, s.avatars["ann"])
	}
}

func TestWebhooksSayWhoHasSignedThem(t *testing.T) {
	s := newShop(t)
	ctx := sign.NewContext(t.Context(), sign.Verified{KeyID: "partner"})
	reply, err := s.ReceiveWebhook(ctx, request(`{"event":"paid"}`))
	got := answer(t, reply, err)
	require.Equal(t, "partner", got["key_id"])
	require.Equal(t, map[string]string{got["webhook_id"].(string): "partner"}, s.webhooks)
}

func TestShopIsSafeForConcurrentUse(t *testing.T) {
	s := newShop(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for _, h := range []Handler{s.CreateOrder, s.PayOrder, s.CreatePayment, s.CreateTransfer, s.Like, s.TakeCoupon,
				s.SetAvatar, s.ReceiveWebhook, s.Stats} {
				if _, err := h(context.Background(), request("")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 8, s.executions[RouteOrders])
}

func TestDemoStatusAndSize(t *testing.T) {
	s := newShop(t)
	reply, err := s.CreateOrder(t.Context(), request("", "X-Demo-Status", "503"))
	require.NotEmpty(t, answer(t, reply, err)["order_id"])
	require.Equal(t, 503, reply.Status)

	reply, err = s.CreateOrder(t.Context(), request("", "X-Demo-Bytes", "2000000"))
	require.NotEmpty(t, answer(t, reply, err)["order_id"])
	require.Len(t, reply.Body, 2_000_000)

	for _, n := range []string{"0", "7"} { // no JSON object fits
		reply, err = s.CreateOrder(t.Context(), request("", "X-Demo-Bytes", n))
		require.NoError(t, err)
		require.Equal(t, map[string]string{"0": "", "7": "......."}[n], string(reply.Body))
		require.Equal(t, "text/plain", reply.ContentType)
	}
	for _, status := range []string{"204", "304"} {
		reply, err = s.CreateOrder(t.Context(), request("", "X-Demo-Status", status, "X-Demo-Bytes", "9"))
		require.NoError(t, err)
		require.Empty(t, reply.Body)
	}
}

func TestDemoFailuresComeInOrderAndCountAsExecutions(t *testing.T) {
	s := newShop(t)
	both := request("", "X-Demo-Panic", "1", "X-Demo-Error", "422", "X-Demo-Status", "503")
	require.Panics(t, func() { s.CreateOrder(context.Background(), both) })

	_, err := s.CreateOrder(t.Context(), request("", "X-Demo-Panic", "0", "X-Demo-Error", "422", "X-Demo-Status", "503"))
	var problem *Problem
	require.ErrorAs(t, err, &problem)
	require.Equal(t, 422, problem.Status)

	require.Equal(t, 2, s.executions[RouteOrders])
	require.Empty(t, s.orders, "they come before the work")
}

func TestMalformedDemoFieldsAreBadRequests(t *testing.T) {
	s := newShop(t)
	for _, field := range [][2]string{
		{"X-Demo-Sleep", "300"}, {"X-Demo-Sleep", "-1s"}, {"X-Demo-Sleep", "1h"},
		{"X-Demo-Panic", "yes"},
		{"X-Demo-Error", "200"}, {"X-Demo-Error", "600"}, {"X-Demo-Error", "x"},
		{"X-Demo-Status", "100"}, {"X-Demo-Status", "600"}, {"X-Demo-Status", "4 2"},
		{"X-Demo-Bytes", "-1"}, {"X-Demo-Bytes", "1e6"}, {"X-Demo-Bytes", "99999999999"},
	} {
		_, err := s.CreateOrder(t.Context(), request("", field[0], field[1]))
		var problem *Problem
		require.ErrorAs(t, err, &problem, "%v", field)
		require.Equal(t, 400, problem.Status)
		require.Contains(t, problem.Message, field[0])
	}
}

func TestSleepGivesWayToALostLeaseOnly(t *testing.T) {
	for _, c := range []struct {
		name  string
		cause error
		slept time.Duration
		fails bool
	}{
		{"the client has gone", nil, time.Minute, false},
		{"the lease was lost", core.ErrLeaseLost, time.Second, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(c.cause) })
				start := time.Now()
				_, err := newShop(t).CreateOrder(ctx, request("", "X-Demo-Sleep", "1m"))
				require.Equal(t, c.slept, time.Since(start))
				var problem *Problem
				require.Equal(t, c.fails, errors.As(err, &problem))
			})
		})
	}
}
