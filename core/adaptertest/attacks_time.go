package adaptertest

import (
	"strconv"
	"time"
)

const window = 60 // seconds; the verifier's default

// timestamp is an attack with a timestamp of the wrong form: properly signed in that form, and put in the place of the
// right one, which a lenient parser would make the same number of.
func timestamp(name, why, text string, w verdict) attack {
	return attack{name: name, why: why, steps: []attackStep{
		sendSigned{request: good.with(set("X-Timestamp", text)), want: w},
		sendSigned{request: good.then(set("X-Timestamp", text)), want: w},
	}}
}

var timeGroups = []attackGroup{
	{
		name: "time",
		attacks: []attack{
			single("-W", "the window is inclusive: just W old is in time", good.with(secondsAhead(-window)), accepted),
			single("-W-1", "older than W is expired, although the signature is good", good.with(secondsAhead(-window-1)), expired),
			single("+W", "the window is symmetric: clocks differ in both directions", good.with(secondsAhead(window)), accepted),
			single("+W+1", "the window has two sides: a message that is signed for later than W is not yet valid", good.with(secondsAhead(window+1)), notYetValid),
			{
				name: "fractions of a second",
				why:  "whole seconds are compared, on both sides: the last moment of the last second is in time",
				steps: []attackStep{
					clockAt(999 * time.Millisecond),
					sendSigned{request: good.with(secondsAhead(-window)), want: accepted},
					sendSigned{request: good.with(secondsAhead(window)), want: accepted},
					sendSigned{request: good.with(secondsAhead(window + 1)), want: notYetValid},
					clockAt(time.Second),
					sendSigned{request: good.with(secondsAhead(-window)), want: expired},
				},
			},
			{
				name: "the clock is the verifier's",
				why:  "a message is in time by the clock at which it arrives, not by one that it brings along",
				steps: []attackStep{
					sendSigned{request: good.with(secondsAhead(-window-1), last("Date", "Tue, 14 Nov 2023 22:12:19 GMT")), want: expired},
					clockAt(time.Hour),
					sendSigned{request: good, want: expired},
					sendSigned{request: good.with(secondsAhead(3600)), want: accepted},
				},
			},
			{
				name: "a body that is held back",
				why:  "the time is checked again when the body has come: a recorded message could begin in time, and end when its nonce is forgotten",
				steps: []attackStep{
					sendSlowly{request: good, takes: window * time.Second, want: accepted},
					sendSlowly{request: good, takes: (window + 1) * time.Second, want: expired},
				},
			},
			{
				name: "a time that was changed",
				why:  "the timestamp is signed: an old message is not made young by writing another time on it",
				steps: []attackStep{
					sendSigned{request: good.with(secondsAhead(-window - 1)).then(secondsAhead(0)), want: badMAC},
					sendSigned{request: good.then(secondsAhead(1)), want: badMAC},
				},
			},
			single("a time in front of a bad signature", "the timestamp is checked before the key and the body: a stale message costs nothing",
				good.with(secondsAhead(-window-1)).then(signature(zeros)), expired),
			single("a time in front of an unknown key", "what is refused for its time tells nothing of keys", good.with(by(stranger), secondsAhead(3600)), notYetValid),
		},
	},
	{
		name: "timestamps",
		attacks: []attack{
			timestamp("plus sign", "a timestamp is digits only, although ParseInt takes a sign", "+1700000000", malformed),
			timestamp("minus sign", "a timestamp is digits only, although ParseInt takes a sign", "-1700000000", malformed),
			timestamp("minus zero", "the parameter is digits only", "-0", malformed),
			timestamp("inner blank", "the whole value is the timestamp: nothing after a blank is ignored", "1700000000 1", malformed),
			timestamp("inner tab", "the whole value is the timestamp: nothing after a tab is ignored", "17000\t00000", malformed),
			timestamp("leading zero", "a timestamp has no leading zero: one number has one form", "01700000000", malformed),
			timestamp("exponent", "a timestamp is digits only, although ParseFloat takes more", "17e8", malformed),
			timestamp("fraction", "a timestamp is in whole seconds", "1700000000.0", malformed),
			timestamp("hexadecimal", "a timestamp is decimal, although ParseInt with base 0 takes more", "0x6553f100", malformed),
			timestamp("underscores", "a timestamp is digits only, although ParseInt with base 0 takes underscores", "1_700_000_000", malformed),
			timestamp("separators", "the parameter is digits only", "1,700,000,000", malformed),
			timestamp("full-width digits", "a timestamp is made of ASCII digits, although unicode.IsDigit takes others", "１７０００００００００", malformed.orFront()),
			timestamp("Arabic digits", "a timestamp is made of ASCII digits, although unicode.IsDigit takes others", "١٧٠٠٠٠٠٠٠٠", malformed.orFront()),
			timestamp("a date", "the parameter is digits only", "2023-11-14T22:13:20Z", malformed),
			timestamp("two in a list", "a list is refused: readers differ about which item counts", "1700000000, 1700000000", malformed),
			timestamp("quoted", "the parameter is digits only", `"1700000000"`, malformed),
			timestamp("NaN", "NaN is no timestamp: every comparison with it is false", "NaN", malformed),
			timestamp("Inf", "a timestamp is digits only, although ParseFloat takes more", "Inf", malformed),
			timestamp("overflow by one", "a timestamp must not wrap around: 2^63 would be in the far past", "9223372036854775808", malformed),
			timestamp("overflow of 64 bits", "a timestamp must not wrap around: 2^64 + 1700000000 would be now", "18446744075409551616", malformed),
			timestamp("a thousand digits", "a timestamp of a thousand digits is refused", "1"+string(manyOf('0', 999)), malformed),
			timestamp("NUL", "a NUL is a byte like any other: nothing ends at it", "1700000000\x00", malformed.orFront()),
			timestamp("empty", "an empty field is treated as a missing one", "", missing),
			single("the largest number", "neither now + W nor a message's age overflows", good.with(set("X-Timestamp", strconv.FormatInt(1<<63-1, 10))), notYetValid),
			single("milliseconds", "the time is in seconds: milliseconds are in the year 55841", good.with(set("X-Timestamp", "1700000000000")), notYetValid),
			single("zero", "zero is the time 1970, and expired", good.with(set("X-Timestamp", "0")), expired),
			single("missing", "a timestamp is required", good.with(drop("X-Timestamp")), missing),
			single("space around it", "RFC 9110, section 5.5: the space around a value is not part of it", good.then(raw("X-Timestamp", " \t1700000000 \t")), accepted),
		},
	},
}

func manyOf(c byte, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = c
	}
	return b
}
