package mcpgoidem

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/idem-go/idem/adapterkit/mcpkit"
)

// outcome describes what a tool has answered. Arguments that don't fit the schema are found before, by the server.
func (g *Guard) outcome(result *mcp.CallToolResult, err error) mcpkit.Outcome {
	if err != nil || result == nil {
		return mcpkit.Outcome{Err: err, Ending: mcpkit.Broken}
	}
	o := mcpkit.Outcome{Result: func() ([]byte, error) { return Encode(result) }}
	switch {
	case result.NeedsInput():
		o.Ending = mcpkit.Asks
	case result.IsError && (g.config.Failed == nil || g.config.Failed(result)):
		o.Ending = mcpkit.Failed
	}
	return o
}

// Encode returns the result of a tool as it is stored, for [core.Finished] and for operators who settle an operation.
func Encode(result *mcp.CallToolResult) ([]byte, error) {
	if result == nil {
		return nil, errors.New("mcpgoidem: there is no result")
	}
	// A copy without what belongs to the call.
	kept := mcp.CallToolResult{Content: result.Content, StructuredContent: result.StructuredContent,
		RawStructuredContent: result.RawStructuredContent, IsError: result.IsError}
	if result.Meta != nil {
		if meta := mcpkit.StoredMeta(result.Meta.AdditionalFields); meta != nil {
			kept.Meta = mcp.NewMetaFromMap(meta)
		}
	}
	return json.Marshal(kept)
}

// decode returns the result that Encode has stored, as a replay.
func decode(stored []byte) (*mcp.CallToolResult, error) {
	result := new(mcp.CallToolResult)
	if err := json.Unmarshal(stored, result); err != nil {
		return nil, err
	}
	var exact struct { // what the SDK decodes to float64s
		Meta map[string]any `json:"_meta"`
	}
	d := json.NewDecoder(bytes.NewReader(stored))
	d.UseNumber()
	if err := d.Decode(&exact); err != nil {
		return nil, err
	}
	if exact.Meta == nil {
		exact.Meta = make(map[string]any, 2) // the SDK adds the server's name
	}
	exact.Meta[ReplayedMeta] = true
	result.Meta = mcp.NewMetaFromMap(exact.Meta)
	return result, nil
}
