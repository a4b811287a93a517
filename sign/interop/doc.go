// Package interop holds tests of package sign against other implementations of its schemes, in both directions. It is
// a module of its own, so that they are in nobody else's go.mod. docs/interop.md has the table.
package interop
