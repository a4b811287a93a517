package faults_test

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// summarise is the status of a response, followed by the code of a refusal or by "replayed".
func summarise(resp *http.Response, body []byte) string {
	s := strconv.Itoa(resp.StatusCode)
	if resp.Header.Get("Content-Type") == "application/problem+json" {
		var problem struct{ Code string }
		if err := json.Unmarshal(body, &problem); err != nil {
			return s + " " + err.Error()
		}
		s += " " + problem.Code
	}
	if resp.Header.Get("Idempotent-Replayed") != "" {
		s += " replayed"
	}
	return s
}
