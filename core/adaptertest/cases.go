package adaptertest

import "slices"

// cases is the whole table. The transcripts stand in testdata in this order.
var cases = slices.Concat(duplicateCases, clientKeyCases, tokenCases, parameterCases, requestCases, responseCases,
	failureCases, runCases, finishCases, waitCases, mountCases, frontCases, bodyCases,
	nestingCases, hostCases, eventCases, outcomeCases, limitCases, webhookCases)
