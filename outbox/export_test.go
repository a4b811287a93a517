package outbox

// PurgeBatch is how many messages one statement of Purge removes.
const PurgeBatch = maxList

// OptionsOf returns a relay's options, with the defaults in the places of zeros.
func OptionsOf(r *Relay) RelayConfig { return r.config }
