package store

import (
	"strings"
	"testing"
	"time"
)

func TestClaimValidate(t *testing.T) {
	good := Claim{Owner: NewOwner(), Fingerprint: strings.Repeat("f", maxFingerprint), Secret: strings.Repeat("s", maxSecret), Lease: 1}
	if err := good.Validate(); err != nil {
		t.Fatalf("a claim at the limits is refused: %v", err)
	}
	for name, spoil := range map[string]func(*Claim){
		"no owner":           func(c *Claim) { c.Owner = Owner{} },
		"no lease":           func(c *Claim) { c.Lease = 0 },
		"negative lease":     func(c *Claim) { c.Lease = -time.Second },
		"negative retention": func(c *Claim) { c.Retention = -1 },
		"long fingerprint":   func(c *Claim) { c.Fingerprint += "f" },
		"long secret":        func(c *Claim) { c.Secret += "s" },
		"secret of no text":  func(c *Claim) { c.Secret = "\xff" },
	} {
		t.Run(name, func(t *testing.T) {
			bad := good
			spoil(&bad)
			if bad.Validate() == nil {
				t.Error("the claim is accepted")
			}
		})
	}
}

func TestStateString(t *testing.T) {
	for s, want := range map[State]string{
		0: "invalid", Acquired: "acquired", Running: "running", Abandoned: "abandoned", Done: "done",
	} {
		if got := s.String(); got != want {
			t.Errorf("State(%d).String() = %q, want %q", s, got, want)
		}
	}
}

func TestOwner(t *testing.T) {
	a, b := NewOwner(), NewOwner()
	if a == b || a.IsZero() {
		t.Errorf("owners %v and %v are not two random ones", a, b)
	}
	if got := (Owner{0: 0xab, 15: 1}).String(); got != "ab000000000000000000000000000001" {
		t.Errorf("String() = %q", got)
	}
	if !(Owner{}).IsZero() {
		t.Error("the zero Owner is not zero")
	}
}
