package signtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/idem-go/idem/sign"
)

// statuses are those that docs/problems.md names.
var statuses = map[sign.Code]int{
	sign.CodeMissing: 401, sign.CodeInvalid: 401, sign.CodeExpired: 401, sign.CodeNotYetValid: 401, sign.CodeReplayed: 401,
	sign.CodeMalformed: 400, sign.CodeDuplicateHeader: 400, sign.CodeBodyTooLarge: 413, sign.CodeRateLimited: 429, sign.CodeStoreUnavailable: 503,
}

// codeOf returns the code that goes out for a kind.
func codeOf(kind sign.Kind) sign.Code {
	if code, ok := kind.(sign.Code); ok {
		return code
	}
	return sign.CodeInvalid // of which reasons are
}

// CheckRefusal returns what is wrong with an answer that has to be the refusal of a message of scheme v1 for
// an error of a kind: its status, its body, and each field that belongs to it. Nil: nothing. Of Date it looks only whether
// there is one.
func CheckRefusal(kind sign.Kind, status int, header http.Header, body []byte) (faults []string) {
	code := codeOf(kind)
	if status != statuses[code] {
		return []string{fmt.Sprintf("the status is %d, and not the %d of %s: %s", status, statuses[code], code, body)}
	}
	return append(checkFields(code, "v1", header), CheckProblem(status, string(code), header, body)...)
}

// CheckProblem returns what is wrong with an answer that has to be a problem (RFC 9457) with a code, of a
// verifier or of a guard. Nil: nothing.
func CheckProblem(status int, code string, header http.Header, body []byte) (faults []string) {
	var got problemDetails
	if err := json.Unmarshal(body, &got); err != nil {
		faults = append(faults, fmt.Sprintf("the body is no problem: %v: %s", err, body))
	} else if got.Code != code || got.Status != status || got.Title == "" || got.Detail == "" || !strings.HasSuffix(got.Type, "#"+code) {
		faults = append(faults, fmt.Sprintf("the problem is %s; the code is %s", body, code))
	}
	faults = append(faults, checkField(header, "Content-Type", "application/problem+json")...)
	faults = append(faults, checkField(header, "Content-Length", strconv.Itoa(len(body)))...)
	faults = append(faults, checkField(header, refusedHeader, code)...)
	return append(faults, checkField(header, "Cache-Control", "no-store")...)
}

// refusedHeader tells everybody on the way, and guards further out, that the answer is a refusal.
const refusedHeader = "Idempotency-Refused"

// problemDetails is the body of a refusal (RFC 9457, section 3.1).
type problemDetails struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Code   string `json:"code"`
}

// checkFields checks what every refusal has, whatever its body is.
func checkFields(code sign.Code, scheme string, header http.Header) (faults []string) {
	faults = append(checkField(header, "Cache-Control", "no-store"), checkField(header, refusedHeader, string(code))...)
	if statuses[code] == http.StatusUnauthorized {
		faults = append(faults, checkField(header, "Www-Authenticate", `Signature scheme="`+scheme+`"`)...)
	}
	if (code == sign.CodeStoreUnavailable || code == sign.CodeRateLimited) && header.Get("Retry-After") == "" {
		faults = append(faults, "there is no Retry-After")
	}
	if date := header.Values("Date"); len(date) != 1 {
		faults = append(faults, fmt.Sprintf("the Date fields are %q", date))
	}
	return faults
}

func checkField(header http.Header, name, value string) []string {
	if got := header.Values(name); !slices.Equal(got, []string{value}) {
		return []string{fmt.Sprintf("%s is %q, not %q", name, got, value)}
	}
	return nil
}
