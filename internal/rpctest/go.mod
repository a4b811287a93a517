module github.com/idem-go/idem/internal/rpctest

go 1.26.0

require (
	connectrpc.com/connect v1.20.0
	github.com/idem-go/idem v0.0.0
	github.com/idem-go/idem/connectidem v0.0.0
	github.com/idem-go/idem/grpcidem v0.0.0
	github.com/stretchr/testify v1.11.1
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261110000943-09e21b237f2c
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)

replace github.com/idem-go/idem => ../..

replace github.com/idem-go/idem/connectidem => ../../connectidem

replace github.com/idem-go/idem/grpcidem => ../../grpcidem
