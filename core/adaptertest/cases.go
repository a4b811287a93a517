package adaptertest

import "slices"

// cases is the whole table. The transcripts stand in testdata in this order.
var cases = slices.Concat(duplicateCases, clientKeyCases, parameterCases, requestCases, responseCases,
	failureCases, runCases, waitCases, storeCases, mountCases, hostileCases)
