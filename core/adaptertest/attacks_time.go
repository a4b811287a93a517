package adaptertest

import (
	"strconv"
	"time"
)

const window = 60 // seconds; the verifier's default

// timestamp is a row for a timestamp of the wrong form: properly signed in that form, and put in the place of the
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
			one("-W", "the window is inclusive: just W old is in time", good.with(secondsAhead(-window)), accepted),
			one("-W-1", "older than W is expired, although the signature is good", good.with(secondsAhead(-window-1)), expired),
			one("+W", "the window is symmetric: clocks differ in both directions", good.with(secondsAhead(window)), accepted),
			one("+W+1", "a window checked on one side only lets messages in that are signed for next year", good.with(secondsAhead(window+1)), notYetValid),
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
				why:  "who has recorded a message may begin to send it in time, and end when its nonce is forgotten: it is refused when its time is over",
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
			one("a time in front of a bad signature", "the timestamp is checked before the key and the body: a stale message costs nothing",
				good.with(secondsAhead(-window-1)).then(signature(zeros)), expired),
			one("a time in front of an unknown key", "what is refused for its time tells nothing of keys", good.with(by(stranger), secondsAhead(3600)), notYetValid),
		},
	},
	{
		name: "timestamps",
		attacks: []attack{
			timestamp("plus sign", "ParseInt takes it; digits only", "+1700000000", malformed),
			timestamp("minus sign", "ParseInt takes it; digits only", "-1700000000", malformed),
			timestamp("minus zero", "digits only", "-0", malformed),
			timestamp("inner blank", "Sscanf stops at the blank and forgets the rest", "1700000000 1", malformed),
			timestamp("inner tab", "as with a blank", "17000\t00000", malformed),
			timestamp("leading zero", "one number has one form, or the message is another one that means the same", "01700000000", malformed),
			timestamp("exponent", "ParseFloat takes it", "17e8", malformed),
			timestamp("fraction", "ParseFloat takes it; whole seconds", "1700000000.0", malformed),
			timestamp("hexadecimal", "ParseInt with base 0 takes it", "0x6553f100", malformed),
			timestamp("underscores", "ParseInt with base 0 takes them", "1_700_000_000", malformed),
			timestamp("separators", "digits only", "1,700,000,000", malformed),
			timestamp("full-width digits", "unicode.IsDigit takes them", "１７０００００００００", malformed.orFront()),
			timestamp("Arabic digits", "unicode.IsDigit takes them", "١٧٠٠٠٠٠٠٠٠", malformed.orFront()),
			timestamp("a date", "digits only", "2023-11-14T22:13:20Z", malformed),
			timestamp("two in a list", "the first or the last is somebody's choice", "1700000000, 1700000000", malformed),
			timestamp("quoted", "digits only", `"1700000000"`, malformed),
			timestamp("NaN", "every comparison with it is false, so it is in every window", "NaN", malformed),
			timestamp("Inf", "ParseFloat takes it", "Inf", malformed),
			timestamp("overflow by one", "2^63 wraps around to the far past", "9223372036854775808", malformed),
			timestamp("overflow of 64 bits", "2^64 + 1700000000 wraps around to now", "18446744075409551616", malformed),
			timestamp("a thousand digits", "no number is that long", "1"+string(manyOf('0', 999)), malformed),
			timestamp("NUL", "C ends a string there", "1700000000\x00", malformed.orFront()),
			timestamp("empty", "what is empty is not there", "", missing),
			one("the largest number", "now + W must not overflow, nor the message's age", good.with(set("X-Timestamp", strconv.FormatInt(1<<63-1, 10))), notYetValid),
			one("milliseconds", "they are seconds of the year 55841", good.with(set("X-Timestamp", "1700000000000")), notYetValid),
			one("zero", "1970 is a time, and long ago", good.with(set("X-Timestamp", "0")), expired),
			one("missing", "401 missing; no timestamp is not a timestamp of any time", good.with(drop("X-Timestamp")), missing),
			one("space around it", "RFC 9110, section 5.5: space around a value is not of it", good.then(raw("X-Timestamp", " \t1700000000 \t")), accepted),
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
