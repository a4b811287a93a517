// Package mcpkit is shared by mcpidem and mcpgoidem: how a call of an MCP tool becomes the operation of a [core.Task], which tools are
// guarded, where the key comes from, which part of a result is stored, and what a model reads instead of one. It knows no SDK. Users do
// not need it.
package mcpkit
