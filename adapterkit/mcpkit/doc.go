// Package mcpkit is what mcpidem and mcpgoidem share: how a call of an MCP tool becomes the operation of a [core.Task], which tools are
// guarded, where the key comes from, what is stored of a result, and what a model reads in place of one. It knows no SDK. Users do not
// need it.
package mcpkit
