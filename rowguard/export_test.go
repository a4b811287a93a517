package rowguard

// Faults and what they are, for tests.
const (
	FaultOther     = faultOther
	FaultUndone    = faultUndone
	FaultBusy      = faultBusy
	FaultRefused   = faultRefused
	FaultDuplicate = faultDuplicate
)

var (
	FaultOf    = faultOf
	RolledBack = rolledBack
)
