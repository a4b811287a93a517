// Package mcptest has no code of its own: its tests are the cases of mcpidem and mcpgoidem, over real connections, with the servers and
// clients of both SDKs: streamable HTTP with and without sessions, and stdio.
package mcptest
