package adaptertest

import (
	"slices"

	"github.com/idem-go/idem/sign"
)

// attackGroups is the whole table.
var attackGroups = slices.Concat(timeGroups, nonceGroups, keyGroups, headerGroups, targetGroups, bodyGroups, answerGroups, rfc9421Groups)

var (
	missing     = refusedBy(sign.CodeMissing)
	malformed   = refusedBy(sign.CodeMalformed)
	duplicate   = refusedBy(sign.CodeDuplicateHeader)
	expired     = refusedBy(sign.CodeExpired)
	notYetValid = refusedBy(sign.CodeNotYetValid)
	nonceUsed   = refusedBy(sign.CodeReplayed)
	badMAC      = refusedBy(sign.ReasonBadSignature)
	wrongAlg    = refusedBy(sign.ReasonWrongAlgorithm)
	notCovered  = refusedBy(sign.ReasonUncovered)
	limited     = refusedBy(sign.CodeRateLimited)
	unavailable = refusedBy(sign.CodeStoreUnavailable)
	tooLarge    = refusedBy(sign.CodeBodyTooLarge)
	otherHost   = refusedBy(sign.CodeInvalid)
)

// singleHTTP2 is an attack of one request over HTTP/2.
func singleHTTP2(name, why, authority string, r signedRequest, w verdict) attack {
	return attack{name: name, why: why, steps: []attackStep{sendHTTP2{authority, r, w}}}
}

// single is an attack of one request.
func single(name, why string, r signedRequest, w verdict) attack {
	return attack{name: name, why: why, steps: []attackStep{sendSigned{request: r, want: w}}}
}

// attackGroup are attacks that need the same configuration. They share a server.
type attackGroup struct {
	name string
	// change changes the service. Nil: nothing.
	change func(*signedEnv, *service)
	// servers is how many servers there are, each with a verifier of its own. 0: one.
	servers int
	// shared puts the servers on Harness.Nonces.
	shared  bool
	needs   Features
	attacks []attack
}

// attack is one attack, or what must work beside it.
type attack struct {
	name string
	why  string // the rule, or what has gone wrong without it
	// steps are carried out one after the other; each attack begins with the clock at noon.
	steps []attackStep
}

// attackStep is a part of an attack.
type attackStep interface{ do(p *attackRun) }

// attackFunc is a step that is a function.
type attackFunc func(p *attackRun)

func (f attackFunc) do(p *attackRun) { f(p) }
