package jwk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/form"
	"github.com/idem-go/idem/sign/internal/keys"
)

const (
	// refreshAfter is how long fetched keys are used without asking again. Then they are fetched behind the answer.
	refreshAfter = 4 * time.Minute
	// freshFor is how long they are used without waiting for that.
	freshFor = 5 * time.Minute
	// usableFor is how long they are used if their URL does not answer.
	usableFor = time.Hour
	// pause is the least time between two fetches from a URL, whatever ids are asked for.
	pause = time.Minute
	// fetchTimeout is how long a fetch may take, from the lookup of the name to the last byte.
	fetchTimeout = 5 * time.Second
	// maxBytes and maxHeader are how long an answer may be.
	maxBytes, maxHeader = 256 << 10, 16 << 10
	// maxSets is how many URLs are remembered, whether they answer or not.
	maxSets = 256
	// maxForgotten is how many more URLs are known as asked within pause.
	maxForgotten = 4096
	// maxFetches is how many fetches run at a time of URLs whose keys are known, and as many of others.
	maxFetches = 16
	// maxHostFetches is how many of either are of one host.
	maxHostFetches = 4
)

// Source is a [sign.KeyStore] for keys on the web. Each URL has one set of keys (RFC 7517, section 5), published by the owner of
// the URL. Build a Source with [NewSource]. It is safe for concurrent use.
//
// A key is looked up by URL and id together: among the keys at the URL that the message names ([sign.Signature].KeyURL), those
// whose kid or [sign.Key.Thumbprint] is the id. Therefore nobody can sign for a URL with a key that another URL publishes. The
// owner of the key is the URL.
//
// The sender of a message chooses the URL before anything is verified. Therefore these limits apply:
//
//   - Only https URLs that allow accepts have keys; for others the error is [sign.ReasonUnknownKey]. A URL has one spelling: at
//     most 128 characters, without user, query, fragment, dot segments and percent-escapes. Host and port are normalised:
//     capitals, the default port, leading zeros, IPv6 addresses.
//   - Connections go only to public addresses, and only to the address that was checked, however often a name changes its address.
//     Proxies from the environment are not used.
//   - Only the answer 200 counts. Redirects are not followed.
//   - A fetch takes at most 5 s and 256 KiB, uncompressed. A set has at most 64 keys. At most one fetch runs for a URL, 4 for a
//     host, and 16 in total. URLs whose keys are known have a separate limit of the same size.
//   - 256 URLs are remembered. To make room, the Source first drops a URL without keys, then one of the host with the most URLs,
//     then the one that has not been named for longest.
//   - A URL is asked at most once a minute, whatever ids messages name, and whether or not it answers or is remembered.
//
// Keys that are older than 4 minutes are fetched again in the background. Keys that are older than 5 minutes are fetched before
// the message is answered, unless the URL did not answer last time. An unknown id leads to an earlier fetch, within the limit of
// one a minute. A key that is no longer published is refused from the next fetch on. While a URL does not answer, its keys are
// used for at most an hour. If there are none, the message is refused with 503 store_unavailable, without a reason; the fetch goes
// on, and its result serves the next message. Keys that specifications publish for tests, with their private parts, are left out.
type Source struct {
	allow  func(url string) bool
	client *http.Client
	dialer *net.Dialer
	public func(netip.Addr) bool
	now    func() time.Time

	mu        sync.Mutex
	sets      map[string]*keySet
	forgotten map[string]time.Time // when URLs were asked that are no longer in sets
	running   map[fetchPlace]int   // fetches, also with an empty host: of all hosts
}

// fetchPlace is where a fetch counts.
type fetchPlace struct {
	host  string
	known bool // the URL has keys
}

// keySet is what is known of a URL. The source's mutex guards it.
type keySet struct {
	host     string
	keys     []*sign.Key
	fetched  time.Time     // the keys; zero: never
	tried    time.Time     // the last fetch began; zero: none did
	used     time.Time     // somebody asked
	err      error         // of the last fetch
	fetching chan struct{} // is closed when the fetch that is running has ended; nil: none is
}

// NewSource returns a source of the keys at URLs that allow accepts. allow gets a URL in its normalised form. It must be quick,
// and safe for concurrent use. It may look the URL up in a list of partners, or accept every URL if anyone may sign. Nil accepts
// none. In Web Bot Auth, the directory of an origin is https://<host>/.well-known/http-message-signatures-directory.
//
// Use the Source as [sign.Config].Keys for schemes whose messages name the URL of their key (rfc9421.WebBotAuth, rfc9421.UCP). For
// other schemes see [Source.At].
func NewSource(allow func(url string) bool) *Source {
	s := &Source{allow: allow, public: isPublic, now: time.Now}
	s.sets, s.forgotten, s.running = make(map[string]*keySet), make(map[string]time.Time), make(map[fetchPlace]int)
	s.dialer = &net.Dialer{Control: s.control}
	s.client = &http.Client{
		Timeout: fetchTimeout,
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				return s.dialer.DialContext(ctx, network, address)
			},
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: maxHeader,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return s
}

// Keys implements [sign.KeyStore] for messages that name no URL: there are no keys.
func (s *Source) Keys(context.Context, string) ([]*sign.Key, error) {
	return nil, sign.Errorf(sign.ReasonUnknownKey, "the message does not say where its key is published")
}

// At returns a [sign.KeyStore] of the keys at one URL, for messages that name a key and no URL (rfc9421.AdCP). allow must accept it
// too. Give each partner a verifier of its own.
func (s *Source) At(url string) sign.KeyStore { return sourceAt{s, url} }

var _ sign.URLKeyStore = (*Source)(nil)

type sourceAt struct {
	source *Source
	url    string
}

func (a sourceAt) Keys(ctx context.Context, id string) ([]*sign.Key, error) {
	return a.source.KeysAt(ctx, a.url, id)
}

// KeysAt returns the keys of that id that are published at url. See [sign.KeyStore] for the errors.
func (s *Source) KeysAt(ctx context.Context, url, id string) ([]*sign.Key, error) {
	url, host, ok := normalised(url)
	if !ok || s.allow == nil || !s.allow(url) {
		return nil, sign.Errorf(sign.ReasonUnknownKey, "keys may not be taken from that URL")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if s.sets[url] == nil && (s.isFull(fetchPlace{host: host}) || s.wasAsked(url)) {
			return nil, errBusy // nothing is forgotten for a URL that cannot be asked
		}
		set, now := s.set(url, host), s.now()
		age := now.Sub(set.fetched)
		found, err := set.find(id, age)
		due := set.fetching == nil && (set.tried.IsZero() || now.Sub(set.tried) >= pause)
		switch full := s.isFull(set.place()); {
		case len(found) > 0 && age < refreshAfter:
			return found, nil
		case due && !full:
			s.start(url, set, now)
		case set.fetching == nil && len(found) > 0:
			return found, nil
		case set.fetching == nil && full && due:
			return nil, errBusy
		case set.fetching == nil:
			return nil, err
		}
		if len(found) > 0 && (age < freshFor || set.err != nil) {
			return found, nil // the fetch serves the next message
		}
		if err := s.wait(ctx, set.fetching); err != nil {
			if len(found) == 0 {
				return nil, err
			}
			return found, nil
		}
	}
}

// wait waits for a fetch, without the lock that the caller holds.
func (s *Source) wait(ctx context.Context, fetching <-chan struct{}) error {
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-fetching:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errBusy = errors.New("jwk: too many JWK Sets are being fetched, or this one was forgotten within the minute")

// place returns where a fetch of the set counts.
func (set *keySet) place() fetchPlace { return fetchPlace{set.host, len(set.keys) > 0} }

// isFull reports whether no further fetch may run.
func (s *Source) isFull(p fetchPlace) bool {
	return s.running[p] >= maxHostFetches || s.running[fetchPlace{known: p.known}] >= maxFetches
}

// wasAsked reports whether a URL that is not remembered was asked within the minute, or may have been.
func (s *Source) wasAsked(url string) bool {
	if asked, ok := s.forgotten[url]; ok {
		return s.now().Sub(asked) < pause
	}
	if len(s.sets) < maxSets || len(s.forgotten) < maxForgotten {
		return false
	}
	s.dropForgotten()
	return len(s.forgotten) >= maxForgotten
}

func (s *Source) dropForgotten() {
	now := s.now()
	maps.DeleteFunc(s.forgotten, func(_ string, asked time.Time) bool { return now.Sub(asked) >= pause })
}

// set returns what is known of url. It forgets another one if there are too many.
func (s *Source) set(url, host string) *keySet {
	set := s.sets[url]
	if set == nil {
		if len(s.sets) >= maxSets {
			s.forget()
		}
		set = &keySet{host: host}
		s.sets[url] = set
		delete(s.forgotten, url)
	}
	set.used = s.now()
	return set
}

// forget removes one set: of those without keys, else of the host that has most, the one that was not asked for longest.
func (s *Source) forget() {
	sets := make(map[string]int)
	for _, set := range s.sets {
		sets[set.host]++
	}
	less := func(a, b *keySet) bool {
		if has := len(a.keys) > 0; has != (len(b.keys) > 0) {
			return !has
		}
		if sets[a.host] != sets[b.host] {
			return sets[a.host] > sets[b.host]
		}
		return a.used.Before(b.used)
	}
	least := ""
	for url, set := range s.sets {
		if set.fetching == nil && (least == "" || less(set, s.sets[least])) {
			least = url
		}
	}
	if s.now().Sub(s.sets[least].tried) < pause {
		s.dropForgotten()
		s.forgotten[least] = s.sets[least].tried
	}
	delete(s.sets, least)
}

// find returns the keys of that id in a set of that age, or why there are none.
func (set *keySet) find(id string, age time.Duration) (found []*sign.Key, err error) {
	if set.fetched.IsZero() || age >= usableFor {
		return nil, set.err
	}
	for _, k := range set.keys {
		if k.ID() == id || k.Thumbprint() == id {
			found = append(found, k)
		}
	}
	if len(found) == 0 {
		return nil, sign.ReasonUnknownKey
	}
	return found, nil
}

// start starts a fetch, which outlives the message that has asked for it.
func (s *Source) start(url string, set *keySet, now time.Time) {
	set.fetching, set.tried = make(chan struct{}), now
	place := set.place()
	all := fetchPlace{known: place.known}
	s.running[place]++
	s.running[all]++
	go func() {
		keys, err := s.fetch(url)
		s.mu.Lock()
		defer s.mu.Unlock()
		if set.err = err; err == nil {
			set.keys, set.fetched = keys, now
		}
		close(set.fetching)
		set.fetching = nil
		if s.running[place]--; s.running[place] == 0 {
			delete(s.running, place)
		}
		s.running[all]--
	}()
}

func (s *Source) fetch(url string) ([]*sign.Key, error) {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/http-message-signatures-directory+json, application/jwk-set+json, application/json")
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Encoding") != "" {
		return nil,
			fmt.Errorf("jwk: %s answers %d with Content-Encoding %q", url, response.StatusCode, response.Header.Get("Content-Encoding"))
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxBytes+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > maxBytes:
		return nil, fmt.Errorf("jwk: %s has more than %d bytes", url, maxBytes)
	}
	set, err := ParseSet(data, url)
	if err != nil {
		return nil, err
	}
	usable := set[:0]
	for _, k := range set {
		if !isTestKey[k.Thumbprint()] {
			keys.Of(k).Published = true
			usable = append(usable, k)
		}
	}
	return usable, nil
}

// isTestKey has the thumbprints of keys whose private parts everybody knows.
var isTestKey = map[string]bool{
	"poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U": true, // RFC 9421, appendix B.1, and Web Bot Auth: test-key-ed25519
	"oD0HwocPBSfpNy5W3bpJeyFGY_IQ_YpqxSjQ3Yd-CLA": true, // test-key-rsa-pss
	"ydQXMtvbsOsZyFir-Y7A8t7fKEM1gbKPvyFkdpu4fvI": true, // test-key-ecc-p256
	"UzIDv8saQJiAhqGpwv_q3rYCRiDqkoR_6ISmmHffTC0": true, // AdCP's vectors: test-ed25519-2026
	"kYxXVm3IzZuXqYpEcHzUfSHiaCLt1XU9tWDtwBK9YlI": true, // test-es256-2026
	"JoUQQAQt8Exl8R1HSPNa-GICLG89uMxP3nABQ9XengI": true, // test-revoked-2026
	"YYhIoEIzEuDUDimdho_KDwciVx8epx0X10UtdpCCKgg": true, // test-ed25519-webhook-2026
	"O-0pctemIOWm_AYxtgvFbtLK-snekisKoA5LwmDN_sQ": true, // test-es256-webhook-2026
	"0XL8P7Fzf4FOIzvMbfG5KGFjJ61q_tMK0AoKY7sWW-E": true, // test-wrong-purpose-2026
	"bcteWFViCCvEAhy3CCli7kmuTR7Z9APtp6tcnvSker8": true, // test-revoked-webhook-2026
}

// normalised returns the only spelling of the URL of a JWK Set, and its host. ok is false if it cannot be one.
func normalised(text string) (only, host string, ok bool) {
	if len(text) > form.MaxKeyID || strings.ContainsAny(text, "?#%\\") {
		return "", "", false
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.User != nil || u.Host == "" || !form.IsAuthority(u.Host) {
		return "", "", false
	}
	host, ok = normalisedHost(strings.ToLower(u.Hostname()), u.Host[0] == '[')
	authority := host
	switch port, err := strconv.ParseUint(u.Port(), 10, 16); {
	case !ok || strings.HasSuffix(u.Host, ":") || u.Port() != "" && (err != nil || port == 0):
		return "", "", false
	case u.Port() != "" && port != 443:
		authority += ":" + strconv.FormatUint(port, 10)
	}
	path := u.Path
	if path == "" {
		path = "/"
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == "." || part == ".." {
			return "", "", false
		}
	}
	only = "https://" + authority + path
	return only, host, form.CheckKeyID(only) == nil
}

// normalisedHost returns the only spelling of a host: a name, an IPv4 address or an IPv6 address in brackets.
func normalisedHost(host string, bracketed bool) (only string, ok bool) {
	address, err := netip.ParseAddr(host)
	if bracketed {
		return "[" + address.String() + "]", err == nil && address.Is6() && !address.Is4In6()
	}
	// Resolvers take 1.2.3 and 0x1020304 for addresses. No domain at the top begins with a digit.
	last := host[strings.LastIndexByte(host, '.')+1:]
	return host, err == nil && address.Is4() || last != "" && (last[0] < '0' || '9' < last[0])
}

// control refuses a connection to an address that is not public. The dialer calls it with the very address that it connects to,
// after the name was looked up.
func (s *Source) control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil || !s.public(to.Addr().Unmap()) {
		return errors.New("jwk: a JWK Set must have a public address")
	}
	return nil
}

// isPublic reports whether an address is one of the public internet (RFC 6890).
func isPublic(a netip.Addr) bool {
	if !a.IsGlobalUnicast() || a.IsPrivate() || a.Is6() && !everyIPv6.Contains(a) {
		return false
	}
	for _, special := range specialUse {
		if special.Contains(a) {
			return false
		}
	}
	return true
}

var (
	// everyIPv6 is what has been given out of IPv6 for global unicast.
	everyIPv6 = netip.MustParsePrefix("2000::/3")
	// specialUse is what IsGlobalUnicast and IsPrivate do not know.
	specialUse = func() (all []netip.Prefix) {
		for _, text := range []string{
			"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24",
			"203.0.113.0/24", "240.0.0.0/4", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
		} {
			all = append(all, netip.MustParsePrefix(text))
		}
		return all
	}()
)
