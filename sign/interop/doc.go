// Package interop tests package sign against other implementations of its schemes, in both directions, and against the vectors of
// published profiles of RFC 9421. It is a module of its own, so that no other go.mod names them. docs/signing.md has the table.
package interop
