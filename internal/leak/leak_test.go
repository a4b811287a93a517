package leak_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idem-go/idem/internal/leak"
)

// late leaves a goroutine behind that ends when end is closed.
type late struct{ end chan struct{} }

func (l late) Run() int {
	go func() { <-l.end }()
	return 7
}

func TestPatient(t *testing.T) {
	ignored := goleak.IgnoreCurrent()
	end := make(chan struct{})
	code := make(chan int)
	go func() { code <- leak.Patient(late{end}, ignored, goleak.IgnoreAnyFunction("testing.tRunner")).Run() }()
	select {
	case <-code:
		t.Error("it did not wait")
	case <-time.After(50 * time.Millisecond):
	}
	close(end)
	require.Equal(t, 7, <-code)
}
