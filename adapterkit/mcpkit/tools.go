package mcpkit

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/idem-go/idem/core"
)

// Tool describes a tool that a server lists.
type Tool struct {
	Name string
	// ReadOnly and Idempotent are its hints.
	ReadOnly, Idempotent bool
	// Unseen says why the SDK lets no middleware see the tool's calls; empty: it does.
	Unseen string
}

// Named returns the rule that the Config has for a tool of this name, or ByHints.
func (g *Guard) Named(name string) Rule { return g.config.Tools[name] }

// Rule returns the rule of a tool, which is never ByHints. own is what a function of the service says. decided reports whether anybody
// has decided: the Config, the function or a hint.
func (g *Guard) Rule(t *Tool, own Rule) (rule Rule, decided bool) {
	switch named := g.config.Tools[t.Name]; {
	case named != ByHints:
		return named, true
	case own != ByHints:
		return own, true
	case t.ReadOnly, t.Idempotent && g.config.PassIdempotent:
		return Pass, true
	case g.config.Default != ByHints:
		return g.config.Default, true
	}
	return Optional, false
}

// Report says how the tools of a server are guarded. Each list is sorted by name.
type Report struct {
	// Passing are the tools whose calls pass unguarded.
	Passing []string
	// Optional are guarded if a call has a key; Required refuse calls without one; Arguments make one of the arguments.
	Optional, Required, Arguments []string
	// Undecided are those of Optional about which nobody has decided: they have no readOnlyHint, and the Config does not name them.
	Undecided []string
}

// String returns the lists, for a log at the start.
func (r *Report) String() string {
	var b strings.Builder
	for _, list := range []struct {
		name  string
		tools []string
	}{{"passing", r.Passing}, {"key optional", r.Optional}, {"key required", r.Required}, {"key made of arguments", r.Arguments},
		{"undecided", r.Undecided}} {
		if len(list.tools) > 0 {
			fmt.Fprintf(&b, "; %s: %s", list.name, strings.Join(list.tools, ", "))
		}
	}
	return strings.TrimPrefix(b.String(), "; ")
}

// Check reports how tools are guarded; own returns what a function of the service says about the tool with an index. The error joins a
// *[core.ConfigError] for each tool that is meant to be guarded and can't be, or that is named and isn't there.
func (g *Guard) Check(tools []Tool, own func(i int) Rule) (*Report, error) {
	var errs []error
	fault := func(name, problem string) {
		errs = append(errs, &core.ConfigError{Field: g.config.Package + ".Config.Tools", Problem: name + " " + problem})
	}
	r := new(Report)
	missing := maps.Clone(g.config.Tools)
	for i, t := range tools {
		delete(missing, t.Name)
		rule, decided := g.Rule(&t, own(i))
		if rule != Pass && t.Unseen != "" {
			fault(t.Name, t.Unseen)
			continue
		}
		list := map[Rule]*[]string{Pass: &r.Passing, Optional: &r.Optional, Required: &r.Required, Arguments: &r.Arguments}[rule]
		*list = append(*list, t.Name)
		if !decided {
			r.Undecided = append(r.Undecided, t.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		fault(name, "is not a tool of the server")
	}
	for _, list := range []*[]string{&r.Passing, &r.Optional, &r.Required, &r.Arguments, &r.Undecided} {
		slices.Sort(*list)
	}
	return r, errors.Join(errs...)
}
