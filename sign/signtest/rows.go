package signtest

import (
	"slices"

	"github.com/idem-go/idem/sign"
)

// groups is the whole table.
var groups = slices.Concat(timeGroups, nonceGroups, keyGroups, headerGroups, targetGroups, bodyGroups, answerGroups, rfc9421Groups)

var (
	missing     = refused(sign.CodeMissing)
	malformed   = refused(sign.CodeMalformed)
	duplicate   = refused(sign.CodeDuplicateHeader)
	expired     = refused(sign.CodeExpired)
	notYetValid = refused(sign.CodeNotYetValid)
	replayed    = refused(sign.CodeReplayed)
	badMAC      = refused(sign.ReasonBadSignature)
	wrongAlg    = refused(sign.ReasonWrongAlgorithm)
	notCovered  = refused(sign.ReasonUncovered)
	limited     = refused(sign.CodeRateLimited)
	unavailable = refused(sign.CodeStoreUnavailable)
	tooLarge    = refused(sign.CodeBodyTooLarge)
	otherHost   = refused(sign.CodeInvalid)
)

// one2 is a row of one request over HTTP/2.
func one2(name, why, authority string, r request, w want) row {
	return row{name: name, why: why, steps: []step{ask2{authority, r, w}}}
}

// one is a row of one request.
func one(name, why string, r request, w want) row {
	return row{name: name, why: why, steps: []step{ask{request: r, want: w}}}
}
