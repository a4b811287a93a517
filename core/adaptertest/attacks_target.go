package adaptertest

import (
	"slices"
	"strings"
)

// apart are rows for two spellings that routers take for one: each is accepted as it was signed, and is
// not the other.
func apart(name, why, a, b string) []attack {
	return []attack{{
		name: name, why: why, steps: []attackStep{
			sendSigned{request: good.with(target(a)), want: accepted},
			sendSigned{request: good.with(target(b)), want: accepted},
			sendSigned{request: good.with(target(a)).then(target(b)), want: badMAC},
			sendSigned{request: good.with(target(b)).then(target(a)), want: badMAC},
		},
	}}
}

// methods are a row for each: signed it is accepted, and exchanged for another it is not.
func methods(names ...string) (rows []attack) {
	for i, name := range names {
		other := names[(i+1)%len(names)]
		why := "methods left out (PATCH): whatever the method is, it is signed"
		rows = append(rows, attack{name: name, why: why, steps: []attackStep{
			sendSigned{request: good.with(method(name), empty()), want: accepted},
			sendSigned{request: good.with(method(name), empty()).then(method(other)), want: badMAC},
			sendSigned{request: good.with(method(name), empty(), uncovered()), want: accepted},
			sendSigned{request: good.with(method(name), empty()).then(drop("X-Signature")), want: missing},
		}})
	}
	return rows
}

var targetGroups = []attackGroup{
	{
		name: "methods",
		attacks: slices.Concat(
			methods("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"),
			[]attack{
				{
					name: "PROPFIND", why: "a method that is not in a framework's list is signed as well", steps: []attackStep{
						sendSigned{request: good.with(method("PROPFIND")), want: accepted.orFront()},
						sendSigned{request: good.with(method("PROPFIND")).then(method("REPORT")), want: badMAC.orFront()},
						sendSigned{request: good.then(method("PROPFIND")), want: badMAC.orFront()},
					},
				},
				one("post", "methods are case-sensitive (RFC 9110, section 9.1)", good.then(method("post")), badMAC.orFront()),
				one("PUT with a body", "the body is signed under every method", good.with(method("PUT")).then(flip(0)), badMAC),
				one("PATCH with a body", "as above", good.with(method("PATCH")).then(flip(0)), badMAC),
				one("DELETE with a body", "as above", good.with(method("DELETE")).then(flip(0)), badMAC),
				one("GET with a body", "as above: a body that the signature does not have is refused, or nobody sees it", good.with(method("GET"), empty()).then(body("x=1")), verdict{err: badMAC.err, front: true}),
				one("OPTIONS *", "RFC 9112, section 3.2.4: a server may answer it by itself", good.with(method("OPTIONS"), target("*"), empty()), verdict{either: true, itself: true}),
			},
		),
	},
	{
		name: "paths",
		attacks: slices.Concat(
			apart("%2F and /", "decoded instead of raw paths: /a%2Fb and /a/b are two resources", "/transfers/a%2Fb", "/transfers/a/b"),
			apart("%2F and %2f", "escapes are signed as sent", "/transfers/a%2Fb", "/transfers/a%2fb"),
			apart("%61 and a", "escapes are signed as sent, also those that need not be", "/transfers/%61b", "/transfers/ab"),
			apart("%25 and %", "what is decoded twice is another path", "/transfers/%2561", "/transfers/%61"),
			apart("%20 and +", "a plus sign is a plus sign in a path", "/transfers/a%20b", "/transfers/a+b"),
			apart("%3F and ?", "an escaped question mark begins no query", "/transfers%3Fx=1", "/transfers?x=1"),
			apart("%3B and ;", "parameters of a segment are of the path", "/transfers%3Bv=1", "/transfers;v=1"),
			apart("; and nothing", "some servers drop a segment's parameters", "/transfers;admin=1", "/transfers"),
			apart("// and /", "routers merge slashes", "/transfers//a", "/transfers/a"),
			apart("// at the start", "it looks like an authority", "//transfers/a", "/transfers/a"),
			[]attack{one("// and a URL", "some servers take what follows for the host, and others for a path", good.with(target("//evil.example.com/a://b")), verdict{either: true})},
			apart("..", "routers take dots away", "/transfers/../admin", "/admin"),
			apart(". and nothing", "as above", "/transfers/./a", "/transfers/a"),
			apart("%2e%2e and ..", "as above, once decoded", "/transfers/%2e%2e/admin", "/transfers/../admin"),
			apart("a trailing slash", "routers redirect, or take both for one", "/transfers/", "/transfers"),
			apart("case", "some file systems take both for one", "/Transfers", "/transfers"),
			apart("a backslash", "some servers take it for a slash", `/transfers\a`, "/transfers/a"),
			apart("%5C and a backslash", "escapes are signed as sent", "/transfers/%5Ca", `/transfers/\a`),
			apart("non-ASCII letters", "one letter in two forms is two paths", "/transfers/%C3%A9", "/transfers/e%CC%81"),
			apart("the root", "nothing is taken for an index page", "/", "/index.html"),
			[]attack{
				one("another path", "signing without the path: a signature for one resource is good for all", good.then(target("/transfers/c?x=2&x=1")), badMAC),
				one("a longer path", "a prefix is not the path", good.then(target("/transfers/a%2Fb/c?x=2&x=1")), badMAC),
				one("bytes beyond ASCII", "as sent, if the server takes them at all", good.with(target("/transfers/é")), accepted.orFront()),
				one("%00", "an escaped NUL ends no path", good.with(target("/transfers/a%00b")), accepted.orFront()),
				one("%0A", "an escaped line feed ends no line of the signing string", good.with(target("/transfers/a%0Ab")), accepted),
				one("a bad escape", "nothing is decoded, so nothing can fail; a server may refuse it", good.with(target("/transfers/%zz")), accepted.orFront()),
				one("a fragment", "a request has none (RFC 9112, section 3.2); it is no way to hide a part of the path", good.with(target("/transfers")).then(target("/transfers#/../admin")), malformed.orFront()),
				one("a blank in the target", "RFC 9112, section 3: three parts", good.with(target("/transfers")).then(target("/transfers /admin")), badMAC.orFront()),
				one("a very long path", "there is no limit but the server's", good.with(target("/"+strings.Repeat("p", 4000))), accepted.orFront()),
			},
		),
	},
	{
		name:   "a route with a parameter",
		change: func(_ *signedEnv, s *service) { s.pattern = "/accounts/:id" },
		attacks: slices.Concat(
			apart("%61 and a", "what a router decodes for the handler is not what was signed", "/accounts/%61b", "/accounts/ab"),
			apart("a parameter", "the parameter's value is of the path", "/accounts/7", "/accounts/8"),
			[]attack{one("with a query", "the query is signed on a route as well", good.with(target("/accounts/7?x=1")).then(target("/accounts/7?x=2")), badMAC)},
		),
	},
	{
		name: "queries",
		attacks: slices.Concat(
			apart("order", "signing without the query, or a sorted one: nothing is sorted", "/t?a=1&b=2", "/t?b=2&a=1"),
			apart("order of one name", "which of two counts is the handler's choice", "/t?x=2&x=1", "/t?x=1&x=2"),
			apart("a value twice", "a map has one of them", "/t?x=1&x=1", "/t?x=1"),
			apart("; and &", "URL.Query() drops pairs with ';'", "/t?a=1;b=2", "/t?a=1&b=2"),
			apart("; and nothing", "as above", "/t?a=1&b=2;c=3", "/t?a=1"),
			apart("a bad escape and nothing", "URL.Query() drops pairs with bad escapes", "/t?a=1&b=%zz", "/t?a=1"),
			apart("two bad escapes", "as above", "/t?a=%zz", "/t?a=%zy"),
			apart("a cut escape", "as above", "/t?a=%", "/t?a="),
			apart("+ and %20", "both are a blank to a form", "/t?a=b+c", "/t?a=b%20c"),
			apart("+ and %2B", "one is a blank", "/t?a=b+c", "/t?a=b%2Bc"),
			apart("%61 and a", "escapes are signed as sent", "/t?%61=1", "/t?a=1"),
			apart("%2F and %2f", "escapes are signed as sent", "/t?a=%2F", "/t?a=%2f"),
			apart("%26 and &", "an escaped separator is none", "/t?a=1%26b=2", "/t?a=1&b=2"),
			apart("case of a name", "names are exact", "/t?A=1", "/t?a=1"),
			apart("an empty value", "no value is not an empty value", "/t?a=", "/t?a"),
			apart("empty pairs", "they are of the query as sent", "/t?&&a=1&", "/t?a=1"),
			apart("a second question mark", "the first one begins the query", "/t?a=1?b=2", "/t?a=1"),
			apart("brackets", "PHP's arrays", "/t?a[]=1", "/t?a%5B%5D=1"),
			[]attack{
				one("key, secret and sign", "parameters with these names are parameters like others under this scheme", good.with(target("/t?key=k&secret=s&sign=0af3&signature=1&nonce=2&timestamp=3")), accepted),
				one("sign changed", "a sign parameter that is left out of what is signed is anybody's", good.with(target("/t?a=1&sign=0af3")).then(target("/t?a=1&sign=0af4")), badMAC),
				one("key appended", "as above", good.with(target("/t?a=1")).then(target("/t?a=1&key=k")), badMAC),
				one("a query added", "an empty line is signed, not nothing", good.with(target("/t")).then(target("/t?admin=1")), badMAC),
				one("the query removed", "signing without the query", good.with(target("/t?limit=1")).then(target("/t")), badMAC),
				one("a value changed", "signing without the query", good.with(target("/t?limit=1")).then(target("/t?limit=9")), badMAC),
				one("the query moved into the path", "each has a line of its own", good.with(target("/t?a=1")).then(target("/t%3Fa=1")), badMAC),
				{
					name: "an empty query", why: "an empty line if there is none; a question mark alone is the same request", steps: []attackStep{
						sendSigned{request: good.with(target("/t?")), want: accepted},
						sendSigned{request: good.with(target("/t")).then(target("/t?")), want: accepted},
						sendSigned{request: good.with(target("/t?")).then(target("/t")), want: accepted},
					},
				},
			},
		),
	},
	{
		name: "hosts",
		attacks: []attack{
			one("another host", "a signature for one service is not good at its neighbour's", good.then(host("evil.example.com")), badMAC),
			one("in capitals", "the host is signed in lower case (RFC 9110, section 4.2.3)", good.then(host("API.Example.COM")), accepted),
			one("a port", "the host is signed with the port, if one was sent", good.with(host("api.example.com:8443")), accepted),
			one("a port added", "as above", good.then(host("api.example.com:8443")), badMAC),
			one("a port removed", "as above", good.with(host("api.example.com:8443")).then(host("api.example.com")), badMAC),
			one("the default port added", "nothing is normalised but the case", good.then(host("api.example.com:80")), badMAC),
			one("another port", "two ports are two services", good.with(host("api.example.com:8443")).then(host("api.example.com:8444")), badMAC),
			one("an empty port", "nothing is normalised but the case", good.then(host("api.example.com:")), badMAC.orFront()),
			one("a trailing dot", "nothing is normalised but the case", good.then(host("api.example.com.")), badMAC),
			one("an IPv6 address", "brackets and all", good.with(host("[::1]:8080")), accepted),
			one("empty", "which host it is for must be said", good.with(host("")), malformed.orFront()),
			one("missing", "RFC 9112, section 3.2: a server must refuse it", good.then(drop("Host")), malformed.orFront()),
			one("with a path", "a host has no slash: the line for the path is another one", good.with(host("api.example.com/transfers")), malformed.orFront()),
			one("with a user", "nor an @", good.with(host("api.example.com@evil.example.com")), malformed.orFront()),
			one("with a blank", "nor a blank", good.with(host("api.example.com evil")), malformed.orFront()),
			one("two in a list", "one host", good.with(host("api.example.com, evil.example.com")), malformed.orFront()),
			one("a host of another name that begins the same", "all of it is compared", good.then(host("api.example.com.evil.org")), badMAC),

			one("absolute form", "RFC 9112, section 3.2.2: path and query of a target in absolute form are those behind its host",
				good.with(target("http://api.example.com/t?x=1"), signs("api.example.com", "/t", "x=1")), accepted),
			one("absolute form over https", "v1 signs no scheme", good.with(target("https://api.example.com/t?x=1"), signs("api.example.com", "/t", "x=1")), accepted),
			one("absolute form in capitals", "the host is signed in lower case", good.with(target("http://API.example.com/T?X=1"), signs("api.example.com", "/T", "X=1")), accepted),
			one("absolute form without a path", "RFC 9112, section 3.2.2: an empty path is /", good.with(target("http://api.example.com"), signs("api.example.com", "/", "")), verdict{unrouted: true}),
			one("absolute form with a query alone", "as above", good.with(target("http://api.example.com?x=1"), signs("api.example.com", "/", "x=1")), verdict{unrouted: true}),
			one("absolute form over another Host", "what is verified must be what is routed. RFC 9112, section 3.2.2: a server that shows no Host but the target's may go by that",
				good.with(target("http://api.example.com/t"), host("proxy.example.com"), signs("api.example.com", "/t", "")), malformed.orHidden(accepted)),
			one("absolute form against the Host field", "as above: a signature for what Host says is not good for what the target says",
				good.with(target("http://evil.example.com/t"), signs("api.example.com", "/t", "")), malformed.orHidden(badMAC)),
			one("absolute form for a path", "as above: the path is not the whole target", good.with(target("/t")).then(target("http://evil.example.com/t")), malformed.orHidden(badMAC)),
			one("absolute form with another port", "as above: two ports are two services",
				good.with(target("http://api.example.com:8443/t"), signs("api.example.com:8443", "/t", "")), malformed.orHidden(accepted)),
			one("absolute form with another path", "the path in it is signed", good.with(target("/t")).then(target("http://api.example.com/admin")), badMAC),
			one("absolute form with a user", "credentials in a target are no part of a host", good.with(target("http://demo@api.example.com/t"), signs("api.example.com", "/t", "")), malformed.orFront()),
			one("absolute form with an encoded path", "raw, as in the other form", good.with(target("http://api.example.com/a%2Fb"), signs("api.example.com", "/a%2Fb", "")).then(target("http://api.example.com/a/b")), badMAC),
		},
	},
	{
		name:   "a public host",
		change: publicHost,
		attacks: []attack{
			one("signed for it", "behind a proxy that changes Host, the configured name is what clients sign", good.with(host("10.0.0.7:8080"), signsHost("api.example.com")), accepted),
			one("signed for the inner one", "the configured name alone counts", good.with(host("10.0.0.7:8080")), badMAC),
			one("absolute form", "as above", good.with(target("http://10.0.0.7:8080/t"), host("10.0.0.7:8080"), signs("api.example.com", "/t", "")), accepted),
			one("X-Forwarded-Host", "as above", good.with(host("10.0.0.7:8080")).then(last("X-Forwarded-Host", "10.0.0.7:8080")), badMAC),
			one("sent to another", "what was sent is compared: the proxy sends to the inner one only", good.with(host("10.0.0.8:8080"), signsHost("api.example.com")), otherHost),
			one("sent to the public one", "as above", good, otherHost),
		},
	},
	{
		name:   "two hosts",
		change: twoHosts,
		attacks: []attack{
			one("the first", "a service may have several names, each signed as it was sent", good, accepted),
			one("the second, in other capitals", "hosts are compared in any case", good.with(host("www.EXAMPLE.com:8443"), signsHost("www.example.com:8443")), accepted),
			one("the second without its port", "the port is of the host", good.with(host("www.example.com")), otherHost),
			one("a third", "what was signed for another service with the same key is not for this one", good.with(host("staging.example.com")), otherHost),
			one("the first, signed for the second", "each is a host of its own", good.with(signsHost("www.example.com:8443")), badMAC),
			one("absolute form of a third", "the target's host is compared, too", good.with(target("http://staging.example.com/t"), host("staging.example.com"), signs("staging.example.com", "/t", "")), otherHost),
			one("absolute form of the second over the first", "both are the service's, and the request is for one",
				good.with(target("http://www.example.com:8443/t"), signs("www.example.com:8443", "/t", "")), malformed.orHidden(accepted)),
		},
	},
	{
		name:  "HTTP 2",
		needs: Features{HTTP2: true},
		attacks: []attack{
			one2("as signed", "RFC 9113, section 8.3.1: :authority stands for Host", "api.example.com", good.with(drop("Host"), signsHost("api.example.com")), accepted),
			one2("Host alone", "as above: a request made of one of HTTP/1.1 may have no :authority", "", good, accepted),
			one2("Host beside it", "as above: both name one host", "api.example.com", good, accepted),
			one2("another :authority", "the host is signed", "evil.example.com", good.with(drop("Host"), signsHost("api.example.com")), badMAC),
			one2("another Host", "as above: they must not differ. The router goes by one, and somebody behind it by the other", "api.example.com", good.with(host("evil.example.com"), signsHost("api.example.com")), malformed),
			one2("an absolute :path", "it names the same host", "api.example.com", good.with(drop("Host"), target("http://api.example.com/t?x=1"), signs("api.example.com", "/t", "x=1")), accepted.orFrontFrom("go1.27")),
			one2("an absolute :path of another host", "a host taken from one place by the verifier and from another by the router: a signature for one host was good at the other",
				"evil.example.com", good.with(drop("Host"), target("http://api.example.com/t"), signs("api.example.com", "/t", "")), malformed.orFrontFrom("go1.27")),
			one2("an absolute :path against :authority", "nor the other way round",
				"api.example.com", good.with(drop("Host"), target("http://evil.example.com/t"), signs("api.example.com", "/t", "")), malformed.orFrontFrom("go1.27")),
		},
	},
}
