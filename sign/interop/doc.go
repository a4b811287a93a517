// Package interop tests package sign against other implementations of its schemes, in both directions, and against the vectors of
// published profiles of RFC 9421. It is a separate module, so that no other go.mod requires them. README.md has the results.
package interop
