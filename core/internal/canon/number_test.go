package canon_test

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/idem-go/idem/core/internal/canon"
)

func TestNumbers(t *testing.T) {
	nines := strings.Repeat("9", 21)
	tests := map[string]string{
		"0": "0", "-0": "0", "0.0": "0", "-0.00e7": "0", "0e99999999999999999999": "0", "0.000E-99999999999999999999": "0",
		"1": "1", "-1": "-1", "10": "10", "1.0": "1", "1.10": "1.1", "100.00": "100", "-12.50": "-12.5",
		"1e0": "1", "1E+2": "100", "12e-1": "1.2", "1.5e1": "15", "1e-00000000000000000000001": "0.1",
		"0.1": "0.1", "0.10": "0.1", "0.000001": "0.000001", "0.0000010": "0.000001", "0.0000001": "1e-7", "0.00000012": "1.2e-7",
		"1e-6": "0.000001", "1e-7": "1e-7", "123e-9": "1.23e-7", "123e-8": "0.00000123", nines: nines,
		nines + "9": "9.999999999999999999999e+21", "100000000000000000000": "100000000000000000000", "1000000000000000000000": "1e+21",
		"1e20": "100000000000000000000", "1e21": "1e+21", "12e20": "1.2e+21", "12e19": "120000000000000000000", nines + ".5": nines + ".5",
		nines + "9.5": "9.9999999999999999999995e+21", nines + ".50": nines + ".5", "9007199254740993": "9007199254740993",
		"9007199254740993.0": "9007199254740993", "9007199254740992": "9007199254740992", "18446744073709551617": "18446744073709551617",
		"0.1000000000000000055511151231257827": "0.1000000000000000055511151231257827", "1e400": "1e+400", "1e-400": "1e-400",
		"10e399": "1e+400", "1.7976931348623157e308": "1.7976931348623157e+308", "1e999999999999999999": "1e+999999999999999999",
		"1e-999999999999999999": "1e-999999999999999999", "10e999999999999999999": "1e+1000000000000000000",
		"0.1e-999999999999999999": "1e-1000000000000000000", "4.50": "4.5", "2e-3": "0.002", "0.000000000000000000000000001": "1e-27",
		"333333333.33333329": "333333333.33333329",
	}
	for in, want := range tests {
		for _, frame := range []string{"%s", "[%s]", " %s ", `{"a":%s}`, "[1,%s ,2]"} {
			got, info := text(canon.Rules{}, jsonInput(fmt.Sprintf(frame, in)))
			assert.Equal(t, strings.ReplaceAll(fmt.Sprintf(frame, want), " ", ""), got, in)
			assert.False(t, info.Raw, in)
		}
	}
	for _, in := range []string{
		"-", "+1", ".1", "1.", "1.e1", "01", "-01", "00", "1e", "1e+", "1e-", "1E+-1", "0x1", "1_0", "- 1", "--1", "1.2.3", "1e1.0",
		"Infinity", "-Infinity", "١", "1e1000000000000000000", "1e-1000000000000000000", "0.1E99999999999999999999",
	} {
		for _, frame := range []string{"%s", "[%s]", "{\"a\":%s}"} {
			body := fmt.Sprintf(frame, in)
			got, info := text(canon.Rules{}, jsonInput(body))
			assert.Equal(t, "\x00"+body, got)
			assert.True(t, info.Raw, body)
		}
	}
}

// safeNumber generates numbers that a float64 holds, so that RFC 8785 applies.
var safeNumber = rapid.Custom(func(t *rapid.T) string {
	if rapid.Bool().Draw(t, "integer") {
		return strconv.FormatInt(rapid.Int64Range(-1<<53, 1<<53).Draw(t, "int"), 10)
	}
	f := rapid.Float64().Draw(t, "float")
	if math.IsInf(f, 0) || math.IsNaN(f) {
		f = 0.1
	}
	return strconv.FormatFloat(f, rapid.SampledFrom([]byte("eEf")).Draw(t, "format"), -1, 64)
})

// Two numbers have one text if, and only if, they are equal; and none has that of a
// string.
func TestNumberPropertyExact(t *testing.T) {
	literal := rapid.StringMatching(`-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,24})?([eE][+-]?[0-9]{1,2})?`)
	digits := rapid.StringMatching(`-?[1-9]0{0,3}[0-9]{0,3}0{0,20}`)
	shifted := rapid.Custom(func(t *rapid.T) string { // few values, many forms
		n := digits.Draw(t, "digits")
		if rapid.Bool().Draw(t, "point") {
			at := rapid.IntRange(1, len(n)).Draw(t, "at")
			if n[:at] != "-" {
				n = n[:at] + "." + n[at:] + "0"
			}
		}
		return n + fmt.Sprintf("e%d", rapid.IntRange(-24, 24).Draw(t, "exponent"))
	})
	any := rapid.OneOf(literal, shifted, rapid.Map(rapid.Int64(), func(i int64) string { return fmt.Sprint(i) }))
	rapid.Check(t, func(t *rapid.T) {
		a, b := any.Draw(t, "a"), any.Draw(t, "b")
		if rapid.Bool().Draw(t, "same value") {
			b = rewrite(t, a)
		}
		x, info := text(canon.Rules{}, jsonInput(a))
		y, _ := text(canon.Rules{}, jsonInput(b))
		if info.Raw {
			t.Fatalf("%s is raw", a)
		}
		if equal := rat(a).Cmp(rat(b)) == 0; (x == y) != equal {
			t.Fatalf("%s is %s, %s is %s", a, x, b, y)
		}
		if rat(a).Cmp(rat(x)) != 0 {
			t.Fatalf("%s became %s", a, x)
		}
		if s, _ := text(canon.Rules{}, jsonInput(`"`+a+`"`)); s == x {
			t.Fatalf("the string %s is the number", a)
		}
	})
}

func rat(s string) *big.Rat {
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		panic("no number: " + s)
	}
	return r
}

// rewrite writes the number n with another exponent.
func rewrite(t *rapid.T, n string) string {
	shift := rapid.IntRange(-30, 30).Draw(t, "shift")
	f := rat(n)
	scale := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(shift, -shift))), nil))
	if shift < 0 {
		scale.Inv(scale)
	}
	f.Mul(f, scale)
	return f.FloatString(250) + fmt.Sprintf("e%d", -shift)
}
