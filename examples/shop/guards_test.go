package shop

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store/memstore"
)

// Every lease goes with every retention: the routes' own settings never stand against the options.
func TestGuardsCompileUnderAllOptions(t *testing.T) {
	for _, lease := range []time.Duration{0, 100 * time.Millisecond, time.Second, 30 * time.Second, time.Hour} {
		for _, retain := range []time.Duration{0, 100 * time.Millisecond, 2 * time.Second, 48 * time.Hour} {
			store, err := memstore.New(memstore.Config{})
			require.NoError(t, err)
			_, err = NewGuards(Options{Lease: lease, Retain: retain, Secret: DefaultSecret}, &Store{Store: store})
			require.NoError(t, err, "-lease %v -retain %v", lease, retain)
		}
	}
}
