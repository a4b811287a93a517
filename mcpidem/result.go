package mcpidem

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/idem-go/idem/adapterkit/mcpkit"
)

// outcome describes what a tool has answered.
func (g *Guard) outcome(answer mcp.Result, err error) mcpkit.Outcome {
	result, ok := answer.(*mcp.CallToolResult)
	if err != nil || !ok || result == nil {
		return mcpkit.Outcome{Err: err, Ending: mcpkit.Broken}
	}
	o := mcpkit.Outcome{Err: result.GetError(), Result: func() ([]byte, error) { return Encode(result) }}
	switch {
	case result.NeedsInput(), result.InputRequests != nil:
		o.Ending = mcpkit.Asks
	case !result.IsError:
	case isSchemaError(result):
		o.Ending = mcpkit.Invalid
	case g.config.Failed == nil || g.config.Failed(result):
		o.Ending = mcpkit.Failed
	}
	return o
}

// isSchemaError reports whether a result says that the arguments don't fit the tool's schema. The SDK has no other sign of that than the
// errors that mcp.AddTool makes. Their text is the SDK's own; cases of internal/mcptest make them. Its decoder quotes the value, which
// encoding/json does not: such an error of a tool that has read a bank's answer is not taken for one.
func isSchemaError(result *mcp.CallToolResult) bool {
	err := result.GetError()
	if err == nil {
		return false
	}
	if e, ok := err.(*json.UnmarshalTypeError); ok {
		return strings.HasPrefix(e.Value, `"`) || strings.HasSuffix(e.Value, " overflows")
	}
	return strings.HasPrefix(err.Error(), `validating "arguments": `)
}

// Encode returns the result of a tool as it is stored, for [core.Finished] and for operators who settle an operation.
func Encode(result *mcp.CallToolResult) ([]byte, error) {
	if result == nil {
		return nil, errors.New("mcpidem: there is no result")
	}
	// A copy without what belongs to the call, which is not all exported. Content may not be null.
	content := result.Content
	if content == nil {
		content = []mcp.Content{}
	}
	return json.Marshal(&mcp.CallToolResult{Meta: mcpkit.StoredMeta(result.Meta), Content: content,
		StructuredContent: result.StructuredContent, IsError: result.IsError})
}

// decode returns the result that Encode has stored, as a replay for req.
func decode(stored []byte, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	text := stored
	if says(req) {
		text = append([]byte(complete), bytes.TrimPrefix(stored, []byte("{"))...)
	}
	result := new(mcp.CallToolResult)
	if err := json.Unmarshal(text, result); err != nil {
		return nil, err
	}
	var exact struct { // what the SDK decodes to float64s
		Meta              mcp.Meta        `json:"_meta"`
		StructuredContent json.RawMessage `json:"structuredContent"`
	}
	d := json.NewDecoder(bytes.NewReader(stored))
	d.UseNumber()
	if err := d.Decode(&exact); err != nil {
		return nil, err
	}
	if result.Meta = exact.Meta; result.Meta == nil {
		result.Meta = make(mcp.Meta, 2) // the SDK adds the server's name
	}
	result.Meta[ReplayedMeta] = true
	if exact.StructuredContent != nil {
		result.StructuredContent = exact.StructuredContent
	}
	return result, nil
}

// refused returns the result that is a refusal of req. Outer middleware finds the *[core.Refusal] by its GetError.
func refused(meta map[string]any, text string, refusal error, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	result := new(mcp.CallToolResult)
	if says(req) {
		if err := json.Unmarshal([]byte(complete+`"content":[]}`), result); err != nil {
			return nil, err
		}
	}
	result.Meta, result.Content = meta, []mcp.Content{&mcp.TextContent{Text: text}}
	result.SetError(refusal)
	return result, nil
}

// complete begins the JSON of a result that says that it is complete. The field is the SDK's own, so that only JSON sets it.
const complete = `{"resultType":"complete",`

// says reports whether the results of a call say so, as they do since the protocol's version 2026-07-28.
func says(req *mcp.CallToolRequest) bool { return req.ProtocolVersion() >= "2026-07-28" }
