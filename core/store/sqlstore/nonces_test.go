package sqlstore_test

import (
	"testing"

	"github.com/idem-go/idem/internal/backend/nonces"
)

func TestNonces(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		store, _, _ := fresh(t, url)
		nonces.Test(t, store)
	})
}
