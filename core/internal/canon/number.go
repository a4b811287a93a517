package canon

import "strconv"

// maxExponentDigits keeps exponents well within an int64, whatever the position of the
// decimal point adds to them.
const maxExponentDigits = 18

// maxPlainDigits is the number of digits up to which ECMAScript writes a number
// without an exponent.
const maxPlainDigits = 21

// number reads the number at src[i] and returns where it ends, or -1. Numbers that are
// in their canonical form already, which most are, are left where they are.
func (j *jsonReader) number(i int) int {
	src := j.src
	start := i
	if src[i] == '-' {
		i++
	}
	intStart := i
	i = skipDigits(src, i)
	intEnd := i
	if intEnd == intStart || src[intStart] == '0' && intEnd > intStart+1 {
		return -1
	}
	fracStart := i
	if i < len(src) && src[i] == '.' {
		fracStart = i + 1
		i = skipDigits(src, fracStart)
		if i == fracStart {
			return -1
		}
	}
	fracEnd := i
	if i == len(src) || src[i]|0x20 != 'e' {
		if isPlain(src[start] == '-', src[intStart:intEnd], src[fracStart:fracEnd]) {
			return i
		}
		j.cut(start, i)
		j.out = appendDecimal(j.out, src[start] == '-', src[intStart:intEnd], src[fracStart:fracEnd], 0)
		return i
	}

	i++
	expNegative := false
	if i < len(src) && (src[i] == '+' || src[i] == '-') {
		expNegative = src[i] == '-'
		i++
	}
	expStart := i
	i = skipDigits(src, i)
	if i == expStart {
		return -1
	}
	for expStart < i && src[expStart] == '0' {
		expStart++
	}
	exp := int64(0)
	if i-expStart <= maxExponentDigits {
		for _, c := range src[expStart:i] {
			exp = exp*10 + int64(c-'0')
		}
	} else if !isZero(src[intStart:intEnd]) || !isZero(src[fracStart:fracEnd]) {
		return -1
	}
	if expNegative {
		exp = -exp
	}
	j.cut(start, i)
	j.out = appendDecimal(j.out, src[start] == '-', src[intStart:intEnd], src[fracStart:fracEnd], exp)
	return i
}

func skipDigits(src []byte, i int) int {
	for i < len(src) && src[i]-'0' <= 9 {
		i++
	}
	return i
}

func isZero(digits []byte) bool { return trimZeros(digits) == len(digits) }

// trimZeros returns the number of leading zeros.
func trimZeros(digits []byte) int {
	n := 0
	for n < len(digits) && digits[n] == '0' {
		n++
	}
	return n
}

// isPlain reports whether a number without an exponent is in canonical form.
func isPlain(negative bool, whole, frac []byte) bool {
	if len(whole) > maxPlainDigits {
		return false
	}
	if len(frac) == 0 {
		return whole[0] != '0' || !negative
	}
	if frac[len(frac)-1] == '0' {
		return false
	}
	return whole[0] != '0' || trimZeros(frac) <= 5
}

// appendDecimal appends the number whole.frac * 10^exp in the form that ECMAScript's
// Number::toString gives to a float64 (RFC 8785, section 3.2.2.3), but with all of its
// digits. Equal numbers give equal text: leading and trailing zeros are dropped, the
// point is moved to where it belongs, and there is one zero.
func appendDecimal(dst []byte, negative bool, whole, frac []byte, exp int64) []byte {
	whole = whole[trimZeros(whole):]
	point := int64(len(whole)) + exp // the value is 0.DIGITS * 10^point
	if len(whole) == 0 {
		zeros := trimZeros(frac)
		frac = frac[zeros:]
		point -= int64(zeros)
	}
	for len(frac) > 0 && frac[len(frac)-1] == '0' {
		frac = frac[:len(frac)-1]
	}
	if len(frac) == 0 {
		for len(whole) > 0 && whole[len(whole)-1] == '0' {
			whole = whole[:len(whole)-1]
		}
	}
	k := len(whole) + len(frac)
	if k == 0 {
		return append(dst, '0')
	}
	digits := func(dst []byte, from, to int) []byte {
		if w := len(whole); from < w {
			dst = append(dst, whole[from:min(to, w)]...)
			from = w
		}
		if w := len(whole); to > w {
			dst = append(dst, frac[from-w:to-w]...)
		}
		return dst
	}
	if negative {
		dst = append(dst, '-')
	}
	switch {
	case 0 < point && point <= maxPlainDigits && int64(k) <= point:
		dst = digits(dst, 0, k)
		for range point - int64(k) {
			dst = append(dst, '0')
		}
	case 0 < point && point <= maxPlainDigits:
		dst = digits(dst, 0, int(point))
		dst = append(dst, '.')
		dst = digits(dst, int(point), k)
	case -6 < point && point <= 0:
		dst = append(dst, "0."...)
		for range -point {
			dst = append(dst, '0')
		}
		dst = digits(dst, 0, k)
	default:
		dst = digits(dst, 0, 1)
		if k > 1 {
			dst = append(dst, '.')
			dst = digits(dst, 1, k)
		}
		dst = append(dst, 'e')
		if point > 0 {
			dst = append(dst, '+')
		}
		dst = strconv.AppendInt(dst, point-1, 10)
	}
	return dst
}
