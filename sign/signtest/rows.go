package signtest

import (
	"slices"

	"github.com/idem-go/idem/sign"
)

// groups is the whole table.
var groups = slices.Concat(timeGroups, nonceGroups, keyGroups, headerGroups, targetGroups, bodyGroups, answerGroups, rfc9421Groups)

var (
	missing     = refused(sign.ErrMissing)
	malformed   = refused(sign.ErrMalformed)
	duplicate   = refused(sign.ErrDuplicateHeader)
	expired     = refused(sign.ErrExpired)
	notYetValid = refused(sign.ErrNotYetValid)
	replayed    = refused(sign.ErrReplayed)
	badMAC      = refused(sign.ErrBadSignature)
	wrongAlg    = refused(sign.ErrWrongAlgorithm)
	notCovered  = refused(sign.ErrUncovered)
	unavailable = refused(sign.ErrStoreUnavailable)
	tooLarge    = refused(sign.ErrBodyTooLarge)
)

// one is a row of one request.
func one(name, why string, r request, w want) row {
	return row{name: name, why: why, steps: []step{ask{request: r, want: w}}}
}
