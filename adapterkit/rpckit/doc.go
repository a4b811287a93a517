// Package rpckit is shared by grpcidem and connectidem: how a call becomes the operation of a [core.Task], which part of its answer is
// stored, which status a refusal has, and when a client retries. It knows neither gRPC nor Protobuf. Users do not need it.
package rpckit
