module github.com/idem-go/idem/connectidem

go 1.26.0

require (
	connectrpc.com/connect v1.20.0
	github.com/idem-go/idem v0.0.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261110000943-09e21b237f2c
	google.golang.org/protobuf v1.36.12
)

replace github.com/idem-go/idem => ../
