package rowguard

// Faults and what they are, for tests.
const (
	ClassOther     = classOther
	ClassUndone    = classUndone
	ClassBusy      = classBusy
	ClassRefused   = classRefused
	ClassDuplicate = classDuplicate
)

var (
	ClassOf    = classOf
	RolledBack = rolledBack
)
