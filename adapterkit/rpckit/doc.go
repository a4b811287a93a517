// Package rpckit is what grpcidem and connectidem share: how a call becomes the operation of a [core.Task], what is stored of its
// answer, which status a refusal is, and when a client tries again. It knows neither gRPC nor Protobuf. Users do not need it.
package rpckit
