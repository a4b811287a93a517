// Package interop tests package sign against other implementations of its schemes, in both directions. It is a module of its own,
// so that no other go.mod names them. docs/interop.md has the table.
package interop
