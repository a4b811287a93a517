package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// storyboard is a file of AdCP's compliance suite, as far as this runner goes.
type storyboard struct {
	Invariants []string
	Phases     []struct {
		Steps []step
	}
}

type step struct {
	ID          string
	Task        string
	Requires    string         `yaml:"requires_tool"`
	Request     map[string]any `yaml:"sample_request"`
	ExpectError bool           `yaml:"expect_error"`
	Outputs     []struct {
		Name, Path, Generate string
	} `yaml:"context_outputs"`
	Parallel struct {
		Count int
	} `yaml:"parallel_dispatch"`
	Trip struct {
		Task     string         `yaml:"trip_target_task"`
		Attempts int            `yaml:"max_attempts"`
		Request  map[string]any `yaml:"trip_target_sample_request"`
	} `yaml:"rate_limit_trip"`
	Validations []validation
}

type validation struct {
	Check       string
	Path        string
	Value       any
	Allowed     []any `yaml:"allowed_values"`
	Description string
}

// runner is the buyer of a run.
type runner struct {
	*testing.T
	url     string
	context map[string]any    // what steps have left to others
	uuids   map[string]string // by alias
	passed  int               // validations
	skipped []string
}

const bearer = "demo-token-of-a-buyer-agent"

// The storyboards of AdCP that have to do with idempotency, step by step. Not applicable are checks against the JSON Schemas of all AdCP
// (response_schema), and the steps of tasks that this seller does not have.
func TestStoryboards(t *testing.T) {
	for name, want := range map[string]struct {
		passed  int
		skipped []string
	}{
		"idempotency": {30, []string{"get_capabilities: response_schema", "create_media_buy_initial: response_schema",
			"create_media_buy_replay: response_schema", "create_media_buy_fresh_key: response_schema",
			"get_media_buys_dedup_check: response_schema"}},
		"read-tool-idempotency": {8, []string{"get_capabilities_with_idempotency_key: response_schema",
			"get_products_with_idempotency_key: response_schema", "list_accounts_with_idempotency_key",
			"list_creative_formats_with_idempotency_key", "list_creatives_with_idempotency_key",
			"get_capabilities_without_idempotency_key: response_schema"}},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile("testdata/" + name + ".yaml")
			require.NoError(t, err)
			var board storyboard
			require.NoError(t, yaml.Unmarshal(text, &board))
			server := httptest.NewServer(newHandler(newEngine(), 20))
			defer server.Close()
			r := &runner{T: t, url: server.URL, context: map[string]any{}, uuids: map[string]string{}}
			for _, phase := range board.Phases {
				for _, s := range phase.Steps {
					r.play(s)
				}
			}
			assert.Equal(t, want.passed, r.passed)
			assert.Equal(t, want.skipped, r.skipped)
		})
	}
}

// What no storyboard asks: the keys of all tasks are one space, and a replay shows a media buy as it was.
func TestKeysOfAllTasks(t *testing.T) {
	server := httptest.NewServer(newHandler(newEngine(), 20))
	defer server.Close()
	r := &runner{T: t, url: server.URL}
	create := map[string]any{"idempotency_key": newUUID(), "start_time": "asap", "end_time": "2099-07-31T23:59:59Z",
		"packages": []any{map[string]any{"product_id": "test-product", "pricing_option_id": "test-pricing", "budget": 1}}}
	id := r.send("create_media_buy", create).body["media_buy_id"]
	cancel := map[string]any{"idempotency_key": newUUID(), "media_buy_id": id, "canceled": true}
	assert.Equal(t, "canceled", r.send("update_media_buy", cancel).body["media_buy_status"])
	assert.Equal(t, "pending_creatives", r.send("create_media_buy", create).body["media_buy_status"])
	for _, task := range []string{"update_media_buy", "get_media_buys"} {
		assert.Equal(t, "IDEMPOTENCY_CONFLICT", r.send(task, create).code(), task)
	}
}

func (r *runner) play(s step) {
	_, reading := reads[s.Requires]
	switch {
	case s.Requires != "" && !reading:
		r.skipped = append(r.skipped, s.ID)
		return
	case s.Trip.Task != "":
		r.tripLimit(s)
		return
	}
	request := r.filled(s.Request).(map[string]any)
	answers := []answer{}
	results := make(chan answer)
	for range max(1, s.Parallel.Count) {
		go func() { results <- r.resolved(s.Task, request) }()
	}
	for range max(1, s.Parallel.Count) {
		answers = append(answers, <-results)
	}
	for _, output := range s.Outputs {
		if output.Generate != "" {
			r.context[output.Name] = newUUID()
		} else {
			r.context[output.Name], _ = answers[0].at(output.Path)
		}
	}
	for _, v := range s.Validations {
		if v.Check == "response_schema" {
			r.skipped = append(r.skipped, s.ID+": "+v.Check)
		} else if assert.True(r, r.holds(v, answers), "%s: %s: %v", s.ID, v.Description, answers) {
			r.passed++
		}
	}
	for _, a := range answers {
		assert.Equal(r, s.ExpectError, a.code() != "", "%s: %v", s.ID, a)
		assert.NotContains(r, a.text, bearer, "context.no_secret_echo")
		if a.code() == "IDEMPOTENCY_CONFLICT" { // idempotency.conflict_no_payload_leak: code and message, and how to go on
			assert.ElementsMatch(r, []string{"status", "errors", "adcp_error", "context"}, keys(a.body))
			assert.ElementsMatch(r, []string{"code", "message", "recovery"}, keys(a.body["adcp_error"].(object)))
			assert.Equal(r, []any{a.body["adcp_error"]}, a.body["errors"])
		}
	}
}

// holds reports whether the answers to a step are as a check of the suite wants them.
func (r *runner) holds(v validation, answers []answer) bool {
	value, found := answers[0].at(v.Path)
	want := r.filled(v.Value)
	switch v.Check {
	case "field_present":
		return found
	case "field_value":
		return found && value == want
	case "field_value_or_absent":
		return !found || slices.Contains(v.Allowed, value)
	case "error_code":
		return slices.Contains(v.Allowed, any(answers[0].code()))
	case "cross_response_field_equal", "cross_response_count_distinct":
		distinct := map[any]bool{}
		for _, a := range answers {
			value, found := a.at(v.Path)
			distinct[value] = distinct[value] || found
		}
		return len(answers) > 1 && len(distinct) == 1 && !distinct[nil]
	}
	r.Fatalf("unknown check %s", v.Check)
	return false
}

// tripLimit sends new keys until there are too many, waits as it is told, and sends the key of the refused one again.
func (r *runner) tripLimit(s step) {
	for range s.Trip.Attempts {
		request := r.filled(s.Trip.Request).(map[string]any)
		request["idempotency_key"] = newUUID()
		if tripped := r.send(s.Trip.Task, request); tripped.code() == "RATE_LIMITED" {
			if assert.Empty(r, r.again(s.Trip.Task, request, tripped).code(), "replay_not_cached_rate_limit") {
				r.passed++
			}
			return
		}
	}
	r.Error("rate_limit_not_triggered")
}

// resolved sends a request until it is no longer in flight.
func (r *runner) resolved(task string, request map[string]any) answer {
	a := r.send(task, request)
	for a.code() == "IDEMPOTENCY_IN_FLIGHT" {
		a = r.again(task, request, a)
	}
	return a
}

// again sends a request again when the answer to it says.
func (r *runner) again(task string, request map[string]any, refused answer) answer {
	seconds, _ := refused.at("adcp_error.retry_after")
	time.Sleep(time.Duration(seconds.(float64)) * time.Second)
	return r.send(task, request)
}

// answer is a response.
type answer struct {
	text string
	body object
}

func (r *runner) send(task string, request map[string]any) (a answer) {
	body, err := json.Marshal(request)
	assert.NoError(r, err)
	req, err := http.NewRequest(http.MethodPost, r.url+"/adcp/"+task, bytes.NewReader(body))
	assert.NoError(r, err)
	req.Header.Set("Authorization", "Bearer "+bearer)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if !assert.NoError(r, err) {
		return a
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	assert.NoError(r, err)
	assert.NoError(r, json.Unmarshal(text, &a.body), "%s", text)
	a.text = string(text)
	return a
}

// at returns the value at a path of member names.
func (a answer) at(path string) (value any, found bool) {
	value = a.body
	for name := range strings.SplitSeq(path, ".") {
		members, _ := value.(object)
		if value, found = members[name]; !found {
			return nil, false
		}
	}
	return value, true
}

// code is that of the error, or "".
func (a answer) code() string {
	code, _ := a.at("adcp_error.code")
	text, _ := code.(string)
	return text
}

// filled returns a value of a storyboard with its placeholders filled in.
func (r *runner) filled(value any) any {
	switch v := value.(type) {
	case string:
		if name, ok := strings.CutPrefix(v, "$context."); ok {
			require.Contains(r, r.context, name)
			return r.context[name]
		}
		if alias, ok := strings.CutPrefix(v, "$generate:uuid_v4"); ok {
			if r.uuids[alias] == "" {
				r.uuids[alias] = newUUID()
			}
			return r.uuids[alias]
		}
	case map[string]any:
		filled := map[string]any{}
		for name, member := range v {
			filled[name] = r.filled(member)
		}
		return filled
	case []any:
		filled := make([]any, len(v))
		for i := range v {
			filled[i] = r.filled(v[i])
		}
		return filled
	}
	return value
}

var made int

// newUUID returns a UUID that no other call has returned. Who guesses it is of no concern here.
func newUUID() string {
	made++
	return fmt.Sprintf("550e8400-e29b-41d4-a716-%012d", made)
}

func keys(members object) (names []string) {
	for name := range members {
		names = append(names, name)
	}
	return names
}
