package idemclient

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"
)

// host is a guarded host, with what may be sent to it again.
type host struct {
	name, port string // lower case; an empty port is any
	budget     budget
}

func parseHosts(names []string) ([]host, error) {
	hosts := make([]host, len(names))
	for i, name := range names {
		u, err := url.Parse("//" + name)
		if err != nil || u.Host != name || hostname(u) == "" || strings.Contains(name, "*") ||
			strings.Contains(u.Hostname(), ":") && name[0] != '[' {
			return nil, fmt.Errorf(
				"idemclient: Transport.Hosts: %q is not a host (api.example.com) or a host with a port (api.example.com:8443)", name)
		}
		hosts[i].name, hosts[i].port = hostname(u), u.Port()
	}
	return hosts, nil
}

// hostname returns the name of the host in lower case, without the dot that may end it.
func hostname(u *url.URL) string { return strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")) }

// guarded returns the guarded host to which u leads. Nil: it leads to another one.
func (t *Transport) guarded(u *url.URL) (*host, error) {
	t.once.Do(func() { t.hosts, t.fault = parseHosts(t.Hosts) })
	name, port := hostname(u), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	for i := range t.hosts {
		if h := &t.hosts[i]; h.name == name && (h.port == "" || h.port == port) {
			return h, nil
		}
	}
	return nil, t.fault
}

// budget bounds how often requests are sent again, by all callers together: a number in each second, and one more for ten
// answers. What is not used up is kept for a second.
type budget struct {
	mu   sync.Mutex
	used time.Time // when what is taken will have come in
}

// take returns when the caller's turn is, and false if that is later than within.
func (b *budget) take(perSecond int, within time.Duration) (wait time.Duration, ok bool) {
	if perSecond < 0 {
		return 0, true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	used := b.used
	if kept := now.Add(-time.Second); used.Before(kept) {
		used = kept
	}
	used = used.Add(time.Second / time.Duration(perSecond))
	if wait = used.Sub(now); wait > within {
		return 0, false
	}
	b.used = used
	return max(wait, 0), true
}

// answered adds what an answer is worth.
func (b *budget) answered(perSecond int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used = b.used.Add(-time.Second / time.Duration(perSecond) / 10)
}
