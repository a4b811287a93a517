// Package mcpidem guards the tools of an MCP server on the official SDK (github.com/modelcontextprotocol/go-sdk). A call that an agent
// repeats, after a timeout, a broken stream or an answer that it did not understand, gets the first result.
//
//	engine, err := core.New(core.Config{Service: "shop", Store: store})
//	…
//	guard, err := mcpidem.New(engine, mcpidem.Config{Name: "shop", Argument: "action_id"})
//	…
//	server.AddReceivingMiddleware(guard.Middleware)
//	…                                   // add the tools
//	report, err := guard.Check(server)  // which tools are guarded, and how
//
// # What is one operation
//
// An operation is the server's name, the tool, the caller and the key. The key is the first of these that a call has:
// _meta["io.github.idem-go/idempotency-key"], the header Idempotency-Key of the HTTP request, the argument [Config].Argument, what
// [Config].Key returns, and, under the rule [Arguments], a digest of the arguments. It is never the id of a JSON-RPC request or a progress
// token, which change with each try. The same key with other arguments is refused. In a tool, [core.RunFrom] returns the run.
//
// # What a call gets
//
//	first                         the tool's result
//	duplicate, done               the same, with _meta["io.github.idem-go/replayed"]: true
//	duplicate, running            waits for up to 30 s, then a refusal that says when to call again
//	after a result with isError   runs ([Config].Failed), as after an error, a panic, or arguments that do not fit the schema
//	after a result that asks for input
//	                              runs, with the input or without; its result is that of the operation
//	begun, never finished         runs when the lease has passed, or a refusal that says not to repeat it
//	other arguments, same key     a refusal
//	no key                        runs, or a refusal under the rule [Required]
//	store can't be reached        a refusal; the tool does not run
//
// A refusal is a result with isError and one sentence for the model; _meta has its code. None of them suggests another key.
//
// # What passes
//
// Everything but calls of tools, tools with readOnlyHint, tools that [Config] lets pass, and tools that the server does not list.
//
// # Clients that leave
//
// A client that cancels a call, or loses the stream, does not end the run ([Config].Linger), although the protocol says that a server
// should stop. Stopping can't undo what a tool has done by then, and the client, which does not know, calls again. That call waits for the
// first.
//
// docs/agents.md says which key to choose, what models are told, and what the server can't know over stdio.
package mcpidem
