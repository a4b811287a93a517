// Package profiles tests package profile over TCP, on Gin, Echo v5 and Fiber v3: each row of the table in docs/agents.md.
package profiles
