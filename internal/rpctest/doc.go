// Package rpctest has no code of its own: its tests are the cases of grpcidem and connectidem, over real connections, with the
// clients and servers of gRPC and Connect in each combination, and each protocol.
package rpctest
