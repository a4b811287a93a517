package adaptertest

import (
	"slices"
	"strings"
)

// apart are attacks for two spellings that routers take for one: each is accepted as it was signed, and is
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

// methods are an attack for each: signed it is accepted, and exchanged for another it is not.
func methods(names ...string) (all []attack) {
	for i, name := range names {
		other := names[(i+1)%len(names)]
		why := "the method is signed, whichever it is"
		all = append(all, attack{name: name, why: why, steps: []attackStep{
			sendSigned{request: good.with(method(name), empty()), want: accepted},
			sendSigned{request: good.with(method(name), empty()).then(method(other)), want: badMAC},
			sendSigned{request: good.with(method(name), empty(), uncovered()), want: accepted},
			sendSigned{request: good.with(method(name), empty()).then(drop("X-Signature")), want: missing},
		}})
	}
	return all
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
				single("post", "methods are case-sensitive (RFC 9110, section 9.1)", good.then(method("post")), badMAC.orFront()),
				single("PUT with a body", "the body is signed under every method", good.with(method("PUT")).then(flip(0)), badMAC),
				single("PATCH with a body", "the body is signed under every method", good.with(method("PATCH")).then(flip(0)), badMAC),
				single("DELETE with a body", "the body is signed under every method", good.with(method("DELETE")).then(flip(0)), badMAC),
				single("GET with a body", "the body is signed under every method: one that the signature does not cover is refused, or nobody sees it", good.with(method("GET"), empty()).then(body("x=1")), verdict{err: badMAC.err, front: true}),
				single("OPTIONS *", "RFC 9112, section 3.2.4: a server may answer it by itself", good.with(method("OPTIONS"), target("*"), empty()), verdict{either: true, itself: true}),
			},
		),
	},
	{
		name: "paths",
		attacks: slices.Concat(
			apart("%2F and /", "the path is signed as it was sent: /a%2Fb and /a/b are two resources", "/transfers/a%2Fb", "/transfers/a/b"),
			apart("%2F and %2f", "escapes are signed as sent", "/transfers/a%2Fb", "/transfers/a%2fb"),
			apart("%61 and a", "escapes are signed as sent, also those that need not be", "/transfers/%61b", "/transfers/ab"),
			apart("%25 and %", "what is decoded twice is another path", "/transfers/%2561", "/transfers/%61"),
			apart("%20 and +", "in a path a plus sign is no blank", "/transfers/a%20b", "/transfers/a+b"),
			apart("%3F and ?", "an escaped question mark begins no query", "/transfers%3Fx=1", "/transfers?x=1"),
			apart("%3B and ;", "the parameters of a segment are part of the path", "/transfers%3Bv=1", "/transfers;v=1"),
			apart("; and nothing", "the parameters of a segment are signed, although some servers drop them", "/transfers;admin=1", "/transfers"),
			apart("// and /", "the path is signed as it was sent, although routers merge slashes", "/transfers//a", "/transfers/a"),
			apart("// at the start", "a path that begins with two slashes is a path, although it looks like an authority", "//transfers/a", "/transfers/a"),
			[]attack{single("// and a URL", "a path that holds a URL is refused, or the handler sees what was signed: servers differ about its host", good.with(target("//evil.example.com/a://b")), verdict{either: true})},
			apart("..", "the path is signed as it was sent, although routers remove dot segments", "/transfers/../admin", "/admin"),
			apart(". and nothing", "the path is signed as it was sent, although routers remove dot segments", "/transfers/./a", "/transfers/a"),
			apart("%2e%2e and ..", "the path is signed as it was sent, although routers remove dot segments once they are decoded", "/transfers/%2e%2e/admin", "/transfers/../admin"),
			apart("a trailing slash", "the path is signed as it was sent, although routers may ignore a trailing slash", "/transfers/", "/transfers"),
			apart("case", "the path is signed as it was sent, although some file systems ignore case", "/Transfers", "/transfers"),
			apart("a backslash", "the path is signed as it was sent, although some servers take a backslash for a slash", `/transfers\a`, "/transfers/a"),
			apart("%5C and a backslash", "escapes are signed as sent", "/transfers/%5Ca", `/transfers/\a`),
			apart("non-ASCII letters", "one letter in two forms makes two paths", "/transfers/%C3%A9", "/transfers/e%CC%81"),
			apart("the root", "the root is not its index page", "/", "/index.html"),
			[]attack{
				single("another path", "the path is signed: a signature for one resource is good for no other", good.then(target("/transfers/c?x=2&x=1")), badMAC),
				single("a longer path", "the whole path is signed, not a prefix of it", good.then(target("/transfers/a%2Fb/c?x=2&x=1")), badMAC),
				single("bytes beyond ASCII", "the path is signed as it was sent, if the server takes it at all", good.with(target("/transfers/é")), accepted.orFront()),
				single("%00", "an escaped NUL does not end the path", good.with(target("/transfers/a%00b")), accepted.orFront()),
				single("%0A", "an escaped line feed does not end a line of the signing string", good.with(target("/transfers/a%0Ab")), accepted),
				single("a bad escape", "nothing is decoded, so a bad escape is no error; a server may refuse it", good.with(target("/transfers/%zz")), accepted.orFront()),
				single("a fragment", "RFC 9112, section 3.2: a target has no fragment, which would hide a part of the path", good.with(target("/transfers")).then(target("/transfers#/../admin")), malformed.orFront()),
				single("a blank in the target", "RFC 9112, section 3: a request line has three parts", good.with(target("/transfers")).then(target("/transfers /admin")), badMAC.orFront()),
				single("a very long path", "a path has no limit but the server's", good.with(target("/"+strings.Repeat("p", 4000))), accepted.orFront()),
			},
		),
	},
	{
		name:   "a route with a parameter",
		change: func(_ *signedEnv, s *service) { s.pattern = "/accounts/:id" },
		attacks: slices.Concat(
			apart("%61 and a", "what a router decodes for the handler is not what was signed", "/accounts/%61b", "/accounts/ab"),
			apart("a parameter", "the value of a path parameter is signed", "/accounts/7", "/accounts/8"),
			[]attack{single("with a query", "the query is signed on a route as well", good.with(target("/accounts/7?x=1")).then(target("/accounts/7?x=2")), badMAC)},
		),
	},
	{
		name: "queries",
		attacks: slices.Concat(
			apart("order", "the query is signed in the order sent: nothing is sorted", "/t?a=1&b=2", "/t?b=2&a=1"),
			apart("order of one name", "the order of equal names is signed: which counts is the handler's choice", "/t?x=2&x=1", "/t?x=1&x=2"),
			apart("a value twice", "a pair that is there twice is signed twice", "/t?x=1&x=1", "/t?x=1"),
			apart("; and &", "the query is signed as it was sent, although URL.Query() drops pairs with ';'", "/t?a=1;b=2", "/t?a=1&b=2"),
			apart("; and nothing", "the query is signed as it was sent, although URL.Query() drops pairs with ';'", "/t?a=1&b=2;c=3", "/t?a=1"),
			apart("a bad escape and nothing", "the query is signed as it was sent, although URL.Query() drops pairs with bad escapes", "/t?a=1&b=%zz", "/t?a=1"),
			apart("two bad escapes", "the query is signed as it was sent, although URL.Query() drops pairs with bad escapes", "/t?a=%zz", "/t?a=%zy"),
			apart("a cut escape", "the query is signed as it was sent, although URL.Query() drops pairs with bad escapes", "/t?a=%", "/t?a="),
			apart("+ and %20", "escapes are signed as sent, although a form takes + and %20 for a blank", "/t?a=b+c", "/t?a=b%20c"),
			apart("+ and %2B", "escapes are signed as sent: of + and %2B one is a blank", "/t?a=b+c", "/t?a=b%2Bc"),
			apart("%61 and a", "escapes are signed as sent", "/t?%61=1", "/t?a=1"),
			apart("%2F and %2f", "escapes are signed as sent", "/t?a=%2F", "/t?a=%2f"),
			apart("%26 and &", "an escaped separator separates nothing", "/t?a=1%26b=2", "/t?a=1&b=2"),
			apart("case of a name", "names of algorithms are compared exactly", "/t?A=1", "/t?a=1"),
			apart("an empty value", "no value is not an empty value", "/t?a=", "/t?a"),
			apart("empty pairs", "empty pairs are signed as sent", "/t?&&a=1&", "/t?a=1"),
			apart("a second question mark", "the first question mark begins the query", "/t?a=1?b=2", "/t?a=1"),
			apart("brackets", "brackets are signed as sent, escaped or not", "/t?a[]=1", "/t?a%5B%5D=1"),
			[]attack{
				single("key, secret and sign", "parameters with these names are parameters like others under this scheme", good.with(target("/t?key=k&secret=s&sign=0af3&signature=1&nonce=2&timestamp=3")), accepted),
				single("sign changed", "no parameter is left out of what is signed, whatever it is called", good.with(target("/t?a=1&sign=0af3")).then(target("/t?a=1&sign=0af4")), badMAC),
				single("key appended", "no parameter is left out of what is signed, whatever it is called", good.with(target("/t?a=1")).then(target("/t?a=1&key=k")), badMAC),
				single("a query added", "an empty line is signed, not nothing", good.with(target("/t")).then(target("/t?admin=1")), badMAC),
				single("the query removed", "the query is signed", good.with(target("/t?limit=1")).then(target("/t")), badMAC),
				single("a value changed", "the query is signed", good.with(target("/t?limit=1")).then(target("/t?limit=9")), badMAC),
				single("the query moved into the path", "path and query are signed on lines of their own", good.with(target("/t?a=1")).then(target("/t%3Fa=1")), badMAC),
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
			single("another host", "a signature for one service is not good at its neighbour's", good.then(host("evil.example.com")), badMAC),
			single("in capitals", "the host is signed in lower case (RFC 9110, section 4.2.3)", good.then(host("API.Example.COM")), accepted),
			single("a port", "the host is signed with the port, if one was sent", good.with(host("api.example.com:8443")), accepted),
			single("a port added", "the host is signed with the port, if one was sent", good.then(host("api.example.com:8443")), badMAC),
			single("a port removed", "the host is signed with the port, if one was sent", good.with(host("api.example.com:8443")).then(host("api.example.com")), badMAC),
			single("the default port added", "nothing is normalised but the case", good.then(host("api.example.com:80")), badMAC),
			single("another port", "two ports are two services", good.with(host("api.example.com:8443")).then(host("api.example.com:8444")), badMAC),
			single("an empty port", "nothing is normalised but the case", good.then(host("api.example.com:")), badMAC.orFront()),
			single("a trailing dot", "nothing is normalised but the case", good.then(host("api.example.com.")), badMAC),
			single("an IPv6 address", "the host is signed with the brackets of an IPv6 address", good.with(host("[::1]:8080")), accepted),
			single("empty", "a request names its host", good.with(host("")), malformed.orFront()),
			single("missing", "RFC 9112, section 3.2: a request without Host is refused", good.then(drop("Host")), malformed.orFront()),
			single("with a path", "a host has no slash: the line for the path is another one", good.with(host("api.example.com/transfers")), malformed.orFront()),
			single("with a user", "a host has no @", good.with(host("api.example.com@evil.example.com")), malformed.orFront()),
			single("with a blank", "a host has no blank", good.with(host("api.example.com evil")), malformed.orFront()),
			single("two in a list", "a request names one host", good.with(host("api.example.com, evil.example.com")), malformed.orFront()),
			single("a host of another name that begins the same", "all bytes of the signature are compared", good.then(host("api.example.com.evil.org")), badMAC),

			single("absolute form", "RFC 9112, section 3.2.2: path and query of a target in absolute form are those behind its host",
				good.with(target("http://api.example.com/t?x=1"), signs("api.example.com", "/t", "x=1")), accepted),
			single("absolute form over https", "v1 signs no scheme", good.with(target("https://api.example.com/t?x=1"), signs("api.example.com", "/t", "x=1")), accepted),
			single("absolute form in capitals", "the host is signed in lower case", good.with(target("http://API.example.com/T?X=1"), signs("api.example.com", "/T", "X=1")), accepted),
			single("absolute form without a path", "RFC 9112, section 3.2.2: an empty path is /", good.with(target("http://api.example.com"), signs("api.example.com", "/", "")), verdict{unrouted: true}),
			single("absolute form with a query alone", "RFC 9112, section 3.2.2: an empty path is /", good.with(target("http://api.example.com?x=1"), signs("api.example.com", "/", "x=1")), verdict{unrouted: true}),
			single("absolute form over another Host", "what is verified must be what is routed; a server that shows no Host but the target's (RFC 9112, section 3.2.2) may go by that",
				good.with(target("http://api.example.com/t"), host("proxy.example.com"), signs("api.example.com", "/t", "")), malformed.orHidden(accepted)),
			single("absolute form against the Host field", "what is verified must be what is routed: a signature for what Host says is not good for what the target says",
				good.with(target("http://evil.example.com/t"), signs("api.example.com", "/t", "")), malformed.orHidden(badMAC)),
			single("absolute form for a path", "what is verified must be what is routed: the path is not the whole target", good.with(target("/t")).then(target("http://evil.example.com/t")), malformed.orHidden(badMAC)),
			single("absolute form with another port", "what is verified must be what is routed: two ports are two services",
				good.with(target("http://api.example.com:8443/t"), signs("api.example.com:8443", "/t", "")), malformed.orHidden(accepted)),
			single("absolute form with another path", "the path of a target in absolute form is signed", good.with(target("/t")).then(target("http://api.example.com/admin")), badMAC),
			single("absolute form with a user", "credentials in a target are no part of a host", good.with(target("http://demo@api.example.com/t"), signs("api.example.com", "/t", "")), malformed.orFront()),
			single("absolute form with an encoded path", "the path of a target in absolute form is signed as it was sent", good.with(target("http://api.example.com/a%2Fb"), signs("api.example.com", "/a%2Fb", "")).then(target("http://api.example.com/a/b")), badMAC),
		},
	},
	{
		name:   "a public host",
		change: publicHost,
		attacks: []attack{
			single("signed for it", "behind a proxy that changes Host, the configured name is what clients sign", good.with(host("10.0.0.7:8080"), signsHost("api.example.com")), accepted),
			single("signed for the inner one", "the configured name alone counts", good.with(host("10.0.0.7:8080")), badMAC),
			single("absolute form", "the configured name alone counts", good.with(target("http://10.0.0.7:8080/t"), host("10.0.0.7:8080"), signs("api.example.com", "/t", "")), accepted),
			single("X-Forwarded-Host", "the configured name alone counts", good.with(host("10.0.0.7:8080")).then(last("X-Forwarded-Host", "10.0.0.7:8080")), badMAC),
			single("sent to another", "what was sent is compared: the proxy sends to the inner one only", good.with(host("10.0.0.8:8080"), signsHost("api.example.com")), otherHost),
			single("sent to the public one", "a request that was sent to the public host itself has come past the proxy", good, otherHost),
		},
	},
	{
		name:   "two hosts",
		change: twoHosts,
		attacks: []attack{
			single("the first", "a service may have several names, each signed as it was sent", good, accepted),
			single("the second, in other capitals", "hosts are compared in any case", good.with(host("www.EXAMPLE.com:8443"), signsHost("www.example.com:8443")), accepted),
			single("the second without its port", "the port is part of the host", good.with(host("www.example.com")), otherHost),
			single("a third", "what was signed for another service with the same key is not for this one", good.with(host("staging.example.com")), otherHost),
			single("the first, signed for the second", "a signature for one of the hosts is not good at the other", good.with(signsHost("www.example.com:8443")), badMAC),
			single("absolute form of a third", "the target's host is compared, too", good.with(target("http://staging.example.com/t"), host("staging.example.com"), signs("staging.example.com", "/t", "")), otherHost),
			single("absolute form of the second over the first", "a request is for one host, also if both are the service's",
				good.with(target("http://www.example.com:8443/t"), signs("www.example.com:8443", "/t", "")), malformed.orHidden(accepted)),
		},
	},
	{
		name:  "HTTP 2",
		needs: Features{HTTP2: true},
		attacks: []attack{
			singleHTTP2("as signed", "RFC 9113, section 8.3.1: :authority stands for Host", "api.example.com", good.with(drop("Host"), signsHost("api.example.com")), accepted),
			singleHTTP2("Host alone", "RFC 9113, section 8.3.1: a request that was translated from HTTP/1.1 may have Host in place of :authority", "", good, accepted),
			singleHTTP2("Host beside it", "RFC 9113, section 8.3.1: :authority and Host may both be there if they are the same", "api.example.com", good, accepted),
			singleHTTP2("another :authority", "the host is signed", "evil.example.com", good.with(drop("Host"), signsHost("api.example.com")), badMAC),
			singleHTTP2("another Host", "RFC 9113, section 8.3.1: :authority and Host must not differ: a router may go by one and a service behind it by the other", "api.example.com", good.with(host("evil.example.com"), signsHost("api.example.com")), malformed),
			singleHTTP2("an absolute :path", "a target in absolute form names the same host", "api.example.com", good.with(drop("Host"), target("http://api.example.com/t?x=1"), signs("api.example.com", "/t", "x=1")), accepted.orFrontFrom("go1.27")),
			singleHTTP2("an absolute :path of another host", "verifier and router must take the host from one place: else a signature for one host is good at another",
				"evil.example.com", good.with(drop("Host"), target("http://api.example.com/t"), signs("api.example.com", "/t", "")), malformed.orFrontFrom("go1.27")),
			singleHTTP2("an absolute :path against :authority", "what was signed without a body cannot be given one",
				"api.example.com", good.with(drop("Host"), target("http://evil.example.com/t"), signs("api.example.com", "/t", "")), malformed.orFrontFrom("go1.27")),
		},
	},
}
