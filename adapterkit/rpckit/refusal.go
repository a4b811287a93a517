package rpckit

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
)

// The status codes of gRPC and Connect, which are the same numbers.
const (
	ok uint32 = iota
	canceled
	unknown
	invalidArgument
	deadlineExceeded
	_ // NOT_FOUND
	alreadyExists
	permissionDenied
	resourceExhausted
	failedPrecondition
	aborted
	_ // OUT_OF_RANGE
	unimplemented
	internal
	unavailable
	dataLoss
	unauthenticated
)

const (
	// Domain is the domain of a refusal's google.rpc.ErrorInfo.
	Domain = "github.com/idem-go/idem"
	// Replayed is the metadata of a replay. Its value is "true".
	Replayed = "idempotent-replayed"
	// Pushback is the metadata that tells a client of gRPC when to try again (gRFC A6).
	Pushback = "grpc-retry-pushback-ms"
	// KeyName is the metadata that has the key.
	KeyName = "idempotency-key"
)

// Failed reports whether a status code means that nothing was done, or nothing that is known, and that another try makes sense. To
// clients, a code that there is none of is UNKNOWN.
func Failed(code uint32) bool {
	switch code {
	case canceled, unknown, deadlineExceeded, resourceExhausted, aborted, unimplemented, internal, unavailable, dataLoss:
		return true
	}
	return code > unauthenticated
}

// Status returns the status code of a refusal, the reason in its google.rpc.ErrorInfo, and its Pushback; empty: none.
func Status(r *core.Refusal) (code uint32, reason, pushback string) {
	reason, pushback = strings.ToUpper(string(r.Code)), "-1"
	switch status := r.Code.Status(); {
	case r.Code == codes.InProgress, status == http.StatusTooManyRequests:
		pushback = strconv.FormatInt(max(r.RetryAfter.Milliseconds(), 1), 10)
	case status == http.StatusServiceUnavailable:
		pushback = ""
	}
	return statusCode(r.Code), reason, pushback
}

func statusCode(c codes.Code) uint32 {
	switch c {
	case codes.InProgress:
		return unavailable
	case codes.Duplicate:
		return alreadyExists
	case codes.UserMissing:
		return unauthenticated
	}
	switch c.Status() {
	case http.StatusServiceUnavailable:
		return unavailable
	case http.StatusForbidden:
		return permissionDenied
	case http.StatusRequestEntityTooLarge, http.StatusTooManyRequests:
		return resourceExhausted
	case http.StatusInternalServerError:
		return internal
	case http.StatusBadRequest:
		return invalidArgument
	}
	return failedPrecondition // 409, 410, 422
}

// Code returns the code of a refusal from the domain and the reason of a google.rpc.ErrorInfo, or "".
func Code(domain, reason string) codes.Code {
	if domain != Domain {
		return ""
	}
	return codes.Code(strings.ToLower(reason))
}
