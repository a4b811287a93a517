package adaptertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/sign"
)

// statuses are those that docs/problems.md names.
var statuses = map[sign.Code]int{
	sign.CodeMissing: 401, sign.CodeInvalid: 401, sign.CodeExpired: 401, sign.CodeNotYetValid: 401, sign.CodeReplayed: 401,
	sign.CodeMalformed: 400, sign.CodeDuplicateHeader: 400, sign.CodeBodyTooLarge: 413, sign.CodeRateLimited: 429, sign.CodeStoreUnavailable: 503,
}

// codeOf returns the code that goes out for a kind.
func codeOf(kind error) sign.Code {
	if code, ok := kind.(sign.Code); ok {
		return code
	}
	return sign.CodeInvalid // of which reasons are
}

// checkProblem returns what is wrong with an answer that has to be a problem (RFC 9457) with a code, of a verifier or of a
// guard. Nil: nothing.
func checkProblem(r reply, code string) (faults []string) {
	var got struct { // RFC 9457, section 3.1
		Type, Title, Detail, Code string
		Status                    int
	}
	if err := json.Unmarshal(r.body, &got); err != nil {
		faults = append(faults, fmt.Sprintf("status %d, and the body is no problem: %v: %s", r.status, err, abridged(r.body)))
	} else if got.Code != code || got.Status != r.status || got.Title == "" || got.Detail == "" || !strings.HasSuffix(got.Type, "#"+code) {
		faults = append(faults, fmt.Sprintf("status %d, and the problem is %s; the code should be %s", r.status, abridged(r.body), code))
	}
	faults = append(faults, checkField(r, "Content-Type", "application/problem+json")...)
	faults = append(faults, checkField(r, "Content-Length", strconv.Itoa(len(r.body)))...)
	faults = append(faults, checkField(r, core.RefusedHeader, code)...)
	return append(faults, checkField(r, "Cache-Control", "no-store")...)
}

// checkSignatureRefusal checks what every refusal of a verifier has, whatever its body is.
func checkSignatureRefusal(code sign.Code, scheme string, r reply) (faults []string) {
	faults = append(checkField(r, "Cache-Control", "no-store"), checkField(r, core.RefusedHeader, string(code))...)
	if statuses[code] == http.StatusUnauthorized {
		faults = append(faults, checkField(r, "Www-Authenticate", `Signature scheme="`+scheme+`"`)...)
	}
	if (code == sign.CodeStoreUnavailable || code == sign.CodeRateLimited) && r.get("Retry-After") == "" {
		faults = append(faults, "there is no Retry-After")
	}
	if date := r.lines("Date"); len(date) != 1 {
		faults = append(faults, fmt.Sprintf("the Date fields are %q", date))
	}
	return faults
}

func checkField(r reply, name, value string) []string {
	if got := r.lines(name); !slices.Equal(got, []string{value}) {
		return []string{fmt.Sprintf("%s is %q, not %q", name, got, value)}
	}
	return nil
}
