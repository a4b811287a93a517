package storetest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/idem-go/idem/core/store"
)

// TestTracesOfFaults: the trace of a store that keeps the contract passes, and that of one which does not is refused at some time.
func TestTracesOfFaults(t *testing.T) {
	refused := func(p plant) error {
		s := newPlantedStore(p, 0)
		s.ticks = true
		e := &env{TB: t, Instance: Instance{Store: s}, can: s.Capabilities()}
		var trace traceBuffer
		e.runClients("trace", 2, 20, func(int) store.Store { return Traced(s, &trace) }, nil)
		return CheckTrace(&trace)
	}
	for range 20 {
		if err := refused(plant{}); err != nil {
			t.Fatal(err)
		}
	}
	names := []string{"looks, then acts", "takes over what is running", "takes over with other parameters", "takes over any attempt",
		"anybody may do anything", "finished records can be changed"}
	for _, f := range faults {
		i := slices.Index(names, f.name)
		if i < 0 {
			continue
		}
		names = slices.Delete(names, i, i+1)
		t.Run(f.name, func(t *testing.T) {
			for range 50 {
				if err := refused(f.plant); err != nil {
					if !strings.Contains(err.Error(), "has no order") {
						t.Error(err)
					}
					return
				}
			}
			t.Error("it passes")
		})
	}
	if len(names) > 0 {
		t.Errorf("no fault is named %q", names)
	}
}

// TestTraceLines: what is no trace is an error, but for the half of a line that a killed process leaves.
func TestTraceLines(t *testing.T) {
	var trace traceBuffer
	s := Traced(newPlantedStore(plant{}, 0), &trace)
	if _, err := s.Acquire(t.Context(), "k", standing()); err != nil {
		t.Fatal(err)
	}
	lines := trace.String()
	begun, _, _ := strings.Cut(lines, "\n")
	for text, wants := range map[string]string{
		lines:                                 "",
		lines + begun[:20]:                    "",
		begun:                                 "",
		"":                                    "no calls",
		begun[:20]:                            "no calls",
		lines + "x":                           "line 3",
		strings.Replace(lines, "Acq", "Q", 1): "line 1",
		strings.Replace(lines, `"acquired"`, `"lent"`, 1):       "line 2",
		strings.TrimPrefix(lines, begun):                        "line 1",
		strings.Replace(lines, `"attempt":1`, `"attempt":2`, 1): "has no order",
	} {
		err := CheckTrace(strings.NewReader(text))
		if said := fmt.Sprint(err); err == nil != (wants == "") || !strings.Contains(said, wants) && wants != "" {
			t.Errorf("%s\nsays %v, want %q", text, err, wants)
		}
	}

	file, err := os.Open(os.DevNull) // for reading
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s = Traced(newPlantedStore(plant{}, 0), file)
	if _, err := s.Acquire(t.Context(), "k", standing()); !strings.Contains(fmt.Sprint(err), "the trace can't be written") {
		t.Errorf("a trace that can't be written says %v", err)
	}
}
