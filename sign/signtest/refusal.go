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

// statuses are those of DESIGN, section 7.
var statuses = map[sign.Code]int{
	sign.CodeMissing: 401, sign.CodeInvalid: 401, sign.CodeExpired: 401, sign.CodeNotYetValid: 401, sign.CodeReplayed: 401,
	sign.CodeMalformed: 400, sign.CodeDuplicateHeader: 400, sign.CodeBodyTooLarge: 413, sign.CodeStoreUnavailable: 503,
}

// CheckRefusal returns what is wrong with an answer that has to be the refusal of a message of scheme v1 for
// err: its status, its body, and each field that belongs to it. Nil: nothing. Of Date it looks only whether
// there is one.
func CheckRefusal(err *sign.Error, status int, header http.Header, body []byte) (faults []string) {
	if status != statuses[err.Code] {
		return []string{fmt.Sprintf("the status is %d, and not the %d of %s: %s", status, statuses[err.Code], err.Code, body)}
	}
	return append(checkFields(err, "v1", header), CheckProblem(status, string(err.Code), header, body)...)
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
	return append(faults, checkField(header, "Cache-Control", "no-store")...)
}

// problemDetails is the body of a refusal (RFC 9457, section 3.1).
type problemDetails struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Code   string `json:"code"`
}

// checkFields checks what every refusal has, whatever its body is.
func checkFields(err *sign.Error, scheme string, header http.Header) (faults []string) {
	faults = checkField(header, "Cache-Control", "no-store")
	if statuses[err.Code] == http.StatusUnauthorized {
		faults = append(faults, checkField(header, "Www-Authenticate", `Signature scheme="`+scheme+`"`)...)
	}
	if err.Code == sign.CodeStoreUnavailable && header.Get("Retry-After") == "" {
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
